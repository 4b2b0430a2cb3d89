"""HTML as text, and bytes as text."""

from __future__ import annotations

import pytest

from nanobot.errors import ToolError
from nanobot.security.worker import WorkerLimits
from nanobot.tools.web.pages import decode, read_page

SITE = "https://site.example/a/b"
PAGE = """<html><head><title>A &amp;  B</title><style>p{}</style></head><body>
<nav><a href=/home>Home</a></nav><header>Site name</header>
<main><h1>About <em>stones</em></h1>
<p>They are <a href="../c?x=1&amp;y=2"> hard</a>, see <code>stone()</code>.<br>And old.</p>
<p style="display: none">unseen</p><p aria-hidden=true>unseen</p><script>unseen()</script>
<ul><li>one<li>two<ul><li>three<p>more</ul></ul><ol><li>first<li>second</ol>
<pre>def f():
    return "```"
</pre><table><tr><th>Kind<th>Age|years<tr><td><p>Marble</p><td>7</table>
<blockquote>Said <a href="javascript:x()">he</a></blockquote>
<a href=/card><h3>Card</h3><p>words</p></a><img src=x.png alt="a stone"></main>
<footer>Copyright</footer></body></html>"""
MARKDOWN = """# About stones

They are [hard](https://site.example/c?x=1&y=2), see `stone()`.
And old.

- one
- two
  - three
    more

1. first
2. second

````
def f():
    return "```"
````

| Kind | Age\\|years |
| Marble | 7 |

> Said he

### [Card](https://site.example/card)

[words](https://site.example/card)

[image: a stone]"""


def test_a_page_is_its_content_as_markdown() -> None:
    page = read_page(PAGE, SITE)
    assert page.title == "A & B"
    assert page.text == MARKDOWN


def test_a_page_that_is_nothing_but_a_menu_is_shown_all_the_same() -> None:
    assert (
        read_page("<nav><a href=/x>Start</a></nav>", SITE).text == "[Start](https://site.example/x)"
    )


def test_a_page_that_takes_too_long_is_an_error() -> None:
    # The rules of HTML look at all open elements for each new one.
    with pytest.raises(ToolError, match="took longer than"):
        read_page("<div>" * 200_000, SITE, WorkerLimits(0.1))


def test_a_page_that_takes_too_much_memory_is_an_error() -> None:
    with pytest.raises(ToolError, match="read the page"):
        read_page("<p>a" * 1_000_000, SITE, WorkerLimits(10.0, 64))


def test_no_more_text_than_wanted_is_made_of_a_page() -> None:
    assert len(read_page("<p>word</p>" * 10_000, SITE, characters=500).text) == 500


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        ("Grüße".encode(), ""),
        ("Grüße".encode(), "text/html; charset=iso-8859-1"),
        ("Grüße".encode("latin-1"), "text/html; charset=utf-8"),
        ("Grüße".encode("cp1252"), "text/html"),
        ("Grüße".encode("utf-16"), "text/html"),
        ("Grüße".encode("utf-16-le"), 'text/html; charset="UTF-16LE"'),
        (b"\xef\xbb\xbf" + "Grüße".encode(), "text/html; charset=ascii"),
        ("Grüße".encode(), "text/html; charset=punycode"),
        ("Grüße".encode("cp1252"), "text/html; charset=klingon"),
    ],
)
def test_text_is_read_whatever_it_claims_to_be(content: bytes, content_type: str) -> None:
    assert decode(content, content_type) == "Grüße"


def test_a_page_in_another_alphabet_says_so_itself() -> None:
    content = '<meta charset="koi8-r"><p>Привет'.encode("koi8-r")
    assert decode(content, "text/html").endswith("Привет")
