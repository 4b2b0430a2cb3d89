"""The agent's Markdown as HTML, with an allow-list of elements by construction.

markdown-it-py creates only the elements of its rules, and with `html` off, markup in the text stays
text. Invariants: the only attributes from the text are the address of a link, which is http, https
or mailto, the language of a code block, which is a word, and those of `formulas`. No picture is
loaded (its address could leak text): its description is shown as a link. Code keeps its characters.

A text is rendered block by block, as `nanobot.channel.streaming` splits it, so that an answer looks
the same while it streams and at its end."""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape
from msgspec import Struct

from nanobot.channel.streaming import Answer
from nanobot.text import valid_unicode
from nanobot_web.formulas import MOST_FORMULAS, to_mathml
from nanobot_web.highlight import highlight

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token
    from markdown_it.utils import OptionsDict

_LINKABLE = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_MOST = 8_192  # longer blocks are shown unformatted: the worst of them take a second or more
_BRACKETS = 1_000  # with nested brackets, the parser's time grows with the square of their number
_CELLS = 5_000
"""Of a table whose rows all have the width of the widest one: short rows are filled up."""
_LANGUAGE = re.compile(r"[A-Za-z0-9+#._-]{1,20}")
_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_MATH = re.compile(
    r"\\\(.+?\\\)|\\\[.+?\\\]|\$\$.+?\$\$|(?<!\w)\$(?![\s$])[^$\n]*?(?<![\s\\])\$(?![\w{(])", re.S
)
_ENDS = {r"\(": r"\)", r"\[": r"\]"}
_PLAIN = Markup('<pre class="plain">{}</pre>')


class Block(Struct, frozen=True):
    """A block as HTML of `elements` elements."""

    html: str
    elements: int


def to_html(text: str) -> Markup:
    """Convert `text` to HTML that is safe in a page."""
    text = valid_unicode(text)
    blocks: Iterable[Block] = [render_block(text)]
    if len(text) > _MOST:
        answer = new_answer()
        answer.add(text)
        pieces = [*answer.take_blocks(), *answer.take_rest()]
        blocks = (render_block(piece.source) for piece in pieces)
    return Markup("").join(Markup(block.html) for block in blocks)  # noqa: S704 - allowed elements


def new_answer() -> Answer:
    """Return an empty answer, which is split in the blocks of `render_block`."""
    return Answer(_parse)


def render_block(source: str, *, is_open: bool = False) -> Block:
    """Render a block, or a short text of several. `is_open`: more of it will come, so that code is
    not highlighted yet."""
    tokens = _parse(source)
    if tokens is None:
        return Block(str(_PLAIN.format(source)), 1)
    html = str(_parser().renderer.render(tokens, _parser().options, {"is_open": is_open}))
    return Block(html, sum(token.level == 0 and token.nesting >= 0 for token in tokens))


def _parse(text: str) -> list[Token] | None:
    """Return the tokens of a text, or None if parsing or showing them could take too long."""
    if len(text) > _MOST or text.count("[") > _BRACKETS or _cells(text) > _CELLS:
        return None
    tokens = _parser().parse(text)
    _mark_tasks(tokens)
    return tokens


def _cells(text: str) -> int:
    lines = text.splitlines()
    return len(lines) * max((line.count("|") for line in lines), default=0)


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 20})
    # Reference definitions stay text: they could be in another block than their use.
    parser.enable(["table", "strikethrough"]).disable("reference")
    parser.validateLink = lambda url: _LINKABLE.match(url) is not None  # type: ignore[method-assign]
    parser.inline.add_terminator_char("$")
    parser.inline.ruler.before("escape", "math", _find_math)
    for name, rule in {
        "link_open": _link,
        "image": _image,
        "fence": _fence,
        "code_block": _fence,
        "th_open": _cell,
        "td_open": _cell,
        "math": _math,
    }.items():
        parser.add_render_rule(name, rule)
    return parser


def _find_math(state: StateInline, silent: bool) -> bool:
    """Find a formula, in which Markdown's marks have other meanings. After the most formulas, or
    beginnings of them (which read the whole block), the rest of the block stays text."""
    text, at, tried = state.src, state.pos, state.env.get("formulas", 0)
    if text[at] not in "$\\" or tried == MOST_FORMULAS:
        return False
    end = _ENDS.get(text[at : at + 2], "")
    found = _MATH.match(text, at) if text.find(end, at + 3) > 0 else None
    state.env["formulas"] = tried + bool(found or end)
    if found is None:
        return False
    if not silent:
        state.push("math", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _mark_tasks(tokens: Sequence[Token]) -> None:
    """Replace the mark at the beginning of a task by a box, and the item's bullet."""
    for item, paragraph, inline in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if (item.type, paragraph.type) != ("list_item_open", "paragraph_open"):
            continue
        children = inline.children or []
        if children and (box := _TASKS.get(children[0].content[:4])):
            children[0].content = box + children[0].content[4:]
            item.attrSet("class", "task")


def _link(
    self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, _: Any
) -> str:
    url = escape(str(tokens[at].attrGet("href") or ""))
    return f'<a href="{url}" rel="noopener noreferrer nofollow" target="_blank">'


def _image(
    self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: Any
) -> str:
    token = tokens[at]
    for child in token.children or ():
        child.type = "text" if child.type == "math" else child.type
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
    code, found = tokens[at].content, _LANGUAGE.match(tokens[at].info.strip())
    language = found[0] if found else ""
    shown = escape(code) if env.get("is_open") else highlight(code, language)
    return (
        f'<div class="code"><p class="bar"><span>{escape(language)}</span>'
        '<button type="button" data-copy-code>Copy</button></p>'
        f'<pre tabindex="0"><code>{shown}</code></pre></div>\n'
    )


def _math(self: RendererHTML, tokens: Sequence[Token], at: int, *_: Any) -> str:
    source = tokens[at].content
    return to_mathml(source) or escape(source)


def _cell(
    self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, _: Any
) -> str:
    """Replace the parser's style, which the page's policy forbids, by a class."""
    side = str(tokens[at].attrGet("style") or "").removeprefix("text-align:")
    aligned = f' class="{side}"' if side in ("right", "center") else ""
    return f"<{tokens[at].tag}{aligned}>"
