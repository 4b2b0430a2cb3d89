"""The child that reads HTML (UTF-8) from standard input and writes what it holds as JSON.

    python page_worker.py page|hits URL CHARACTERS SECONDS MEGABYTES

`page` gives `{"title": …, "text": …}`, `hits` the results on a page of DuckDuckGo as
`{"hits": [[title, url, snippet], …], "blocked": …}`, and what cannot be read `{"error": …}`. It
limits itself before the parser is even imported. Run by `nanobot.tools.web.pages`, never imported.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urljoin, urlsplit

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_LARGEST_ANSWER = 64 * 1024 * 1024
_LONGEST_LINK = 1_000
_MAIN_SHARE = 0.35
"""What calls itself the main part is believed if it holds this share of the page's text."""


def limit(seconds: int, megabytes: int) -> None:
    """Bound processor time, memory and what may be written; leave no core file."""
    for what, most in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, megabytes * 1024 * 1024),
        (resource.RLIMIT_FSIZE, _LARGEST_ANSWER),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (allowed, allowed))


def read_page(tree: LexborHTMLParser, url: str, characters: int) -> dict[str, object]:
    """Its title and its text."""
    title = tree.css_first("head > title") or tree.css_first("title") or tree.css_first("h1")
    body = tree.body or tree.root
    text = ""
    if body is not None:
        base = urljoin(url, _attribute(tree.css_first("base[href]"), "href"))
        text = written(main_part(body), base, characters, whole=False)
        if not text:
            text = written(body, base, characters, whole=True)
    return {"title": _line(title, 300), "text": text[:characters]}


def main_part(body: LexborNode) -> LexborNode:
    """The element with the content, where the page says which."""
    found = body.css("main, [role=main], article")[:50]
    if not found:
        return body
    sizes = [len(node.text()) for node in found]
    largest = max(range(len(found)), key=sizes.__getitem__)
    return found[largest] if sizes[largest] >= _MAIN_SHARE * len(body.text()) else body


def written(node: LexborNode, base: str, characters: int, *, whole: bool) -> str:
    """An element as Markdown, up to about so many characters."""
    if TYPE_CHECKING:
        from nanobot.tools.web.html_markdown import Writer, events
    else:
        from html_markdown import Writer, events  # beside this file, which belongs to no package

    writer = Writer(lambda href: _absolute(base, href), characters)
    for event, found in events(node, whole=whole):
        writer.take(event, found)
        if writer.is_full:
            break
    return writer.finished()


def read_hits(tree: LexborHTMLParser, url: str) -> dict[str, object]:
    """The results; and whether the page is a puzzle for people."""
    hits = []
    for result in tree.css(".result:not(.result--ad)")[:50]:
        link = result.css_first("a.result__a")
        address = _target(urljoin(url, _attribute(link, "href")))
        if address:
            snippet = result.css_first(".result__snippet")
            hits.append([_line(link, 300), address, _line(snippet, 600)])
    puzzle = tree.css_first("#challenge-form, .anomaly-modal__title, .anomaly-modal__modal")
    return {"hits": hits, "blocked": puzzle is not None}


def _target(url: str) -> str:
    """Where a result leads: the address may be wrapped in one that counts clicks."""
    parts = urlsplit(url)
    wrapped = parse_qs(parts.query).get("uddg", [""])[0]
    if parts.path == "/l/" and wrapped:
        return wrapped
    return "" if parts.path == "/y.js" or parts.scheme not in ("http", "https") else url


def _absolute(base: str, href: str) -> str:
    if not href or href.startswith("#"):
        return ""
    try:
        url = urljoin(base, href.strip())
    except ValueError:
        return ""
    usable = url.startswith(("http://", "https://")) and len(url) <= _LONGEST_LINK
    return url.replace(" ", "%20").replace("(", "%28").replace(")", "%29") if usable else ""


def _line(node: LexborNode | None, most: int) -> str:
    return " ".join(node.text(separator=" ").split())[:most] if node is not None else ""


def _attribute(node: LexborNode | None, name: str) -> str:
    return (node.attributes.get(name) or "") if node is not None else ""


def main() -> None:
    """Read, parse, answer."""
    mode, url = sys.argv[1:3]
    characters, seconds, megabytes = (int(text) for text in sys.argv[3:6])
    limit(seconds, megabytes)
    sys.path.insert(0, str(Path(__file__).parent))
    answer: dict[str, object]
    try:
        from selectolax.lexbor import LexborHTMLParser

        tree = LexborHTMLParser(sys.stdin.buffer.read())
        answer = read_page(tree, url, characters) if mode == "page" else read_hits(tree, url)
    except ImportError:
        answer = {"error": "the package selectolax is not installed"}
    except MemoryError:
        answer = {"error": "reading it takes too much memory"}
    except Exception as error:  # noqa: BLE001 - the boundary between a hostile page and its reader
        answer = {"error": f"it is damaged ({type(error).__name__})"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
