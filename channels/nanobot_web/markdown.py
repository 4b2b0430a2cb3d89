"""The agent's Markdown as HTML, with an allow-list of elements by construction.

markdown-it-py creates only the elements of its rules, and with `html` off, markup in the text stays
text. Invariants: the only attribute from the text is the address of a link, which is http, https or
mailto. No picture is loaded (its address could leak text): its description is shown as a link. Code
keeps its characters."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from nanobot.text import valid_unicode

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import OptionsDict

_LINKABLE = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_MOST = 20_000  # longer texts are shown unformatted: the worst of them take a second or more
_BRACKETS = 1_000  # with nested brackets, the parser's time grows with the square of their number
_CELLS = 5_000
"""Of a table whose rows all have the width of the widest one: short rows are filled up."""


def to_html(text: str) -> Markup:
    """Convert `text` to HTML that is safe in a page."""
    text = valid_unicode(text)
    if len(text) > _MOST or text.count("[") > _BRACKETS or _cells(text) > _CELLS:
        return Markup('<pre class="plain">{}</pre>').format(text)
    return Markup(_parser().render(text))  # noqa: S704 - made of allowed elements only, see above


def _cells(text: str) -> int:
    lines = text.splitlines()
    return len(lines) * max((line.count("|") for line in lines), default=0)


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 20})
    parser.enable(["table", "strikethrough"])
    parser.validateLink = lambda url: _LINKABLE.match(url) is not None  # type: ignore[method-assign]
    parser.add_render_rule("link_open", _link)
    parser.add_render_rule("image", _image)
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("th_open", _cell)
    parser.add_render_rule("td_open", _cell)
    return parser


def _link(
    self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, _: Any
) -> str:
    url = escape(str(tokens[at].attrGet("href") or ""))
    return f'<a href="{url}" rel="noopener noreferrer nofollow" target="_blank">'


def _image(
    self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any
) -> str:
    token = tokens[at]
    url = str(token.attrGet("src") or "")
    words = escape(self.renderInlineAsText(token.children or [], options, env) or url)
    if not _LINKABLE.match(url):
        return str(words)
    link = escape(url)
    return f'<a href="{link}" rel="noopener noreferrer nofollow" target="_blank">{words}</a>'


def _fence(
    self: RendererHTML,
    tokens: Sequence[Token],
    at: int,
    options: OptionsDict,
    env: MutableMapping[str, Any],
) -> str:
    return f"<pre><code>{escape(tokens[at].content)}</code></pre>\n"


def _cell(
    self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, _: Any
) -> str:
    """Replace the parser's style, which the page's policy forbids, by a class."""
    side = str(tokens[at].attrGet("style") or "").removeprefix("text-align:")
    aligned = f' class="{side}"' if side in ("right", "center") else ""
    return f"<{tokens[at].tag}{aligned}>"
