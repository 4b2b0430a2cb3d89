"""The child that reads HTML (UTF-8) from standard input and writes what it holds as JSON.

    python page_worker.py page|hits URL CHARACTERS

`page` gives `{"title": …, "text": …}`, `hits` the results on a page of DuckDuckGo as
`{"hits": [[title, url, snippet], …], "blocked": …}`, and what cannot be read `{"error": …}`.
Run by `nanobot.tools.web.pages`, never imported,
and it imports nothing of nanobot.

Markdown is headings, paragraphs, lists, links, tables and code; nothing else survives. The tree is
walked without recursion: how deep it is, is up to its author.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urljoin, urlsplit

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_UNSEEN_TAGS = (
    "audio button canvas datalist embed head iframe input math noscript object option script "
    "select style svg template textarea title video"
)
_NEVER = frozenset(_UNSEEN_TAGS.split())
_AROUND = frozenset({"nav", "aside", "footer", "dialog", "menu"})
_AROUND_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "complementary"})
_AROUND_CLASSES = frozenset({"noprint", "navbox", "mw-editsection"})
_BLOCK_TAGS = (
    "address article blockquote body center dd details div dl dt fieldset figcaption figure form "
    "h1 h2 h3 h4 h5 h6 header hgroup hr legend li main ol p pre section summary table tbody tfoot "
    "thead tr ul"
)
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\n\r\f\v]+")
_BREAK = "\0"
"""A line break within a paragraph: no text of a page can hold this character."""

_MAX_DEPTH = 400
"""Elements below this many others are left out."""

_LONGEST_LINK = 1_000
_MAIN_SHARE = 0.35
"""What calls itself the main part is believed if it holds this share of the page's text."""


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


def events(root: LexborNode, *, whole: bool) -> Iterator[tuple[str, LexborNode]]:
    """`("in", element)`, `("text", node)` and `("out", element)` in document order. What nobody
    sees is left out, and without `whole` also what stands around the content on every page."""
    stack: list[tuple[bool, LexborNode]] = [(False, root)]
    depth = 0
    while stack:
        left, node = stack.pop()
        if left:
            depth -= 1
            yield "out", node
            continue
        if node is not root and node.next is not None:
            stack.append((False, node.next))
        if node.is_text_node:
            yield "text", node
        elif node.is_element_node and depth < _MAX_DEPTH and not _left_out(node, whole):
            yield "in", node
            depth += 1
            stack.append((True, node))
            if node.child is not None:
                stack.append((False, node.child))


def _left_out(node: LexborNode, whole: bool) -> bool:
    tag = node.tag or ""
    if tag in _NEVER:
        return True
    given = node.attributes
    if "hidden" in given or given.get("aria-hidden") == "true":
        return True
    if _HIDDEN.search(given.get("style") or ""):
        return True
    if whole:
        return False
    classes = (given.get("class") or "").split()
    return (
        tag in _AROUND
        or given.get("role") in _AROUND_ROLES
        or not _AROUND_CLASSES.isdisjoint(classes)
    )


@dataclass
class Writer:
    """Takes events, gives Markdown. `absolute` makes a link whole, or empty where it is none."""

    absolute: Callable[[str], str]
    most: int
    blocks: list[str] = field(default_factory=list)
    _size: int = 0
    _line: list[str] = field(default_factory=list)
    _lists: list[int | None] = field(default_factory=list)
    _marker: str = ""
    _quotes: int = 0
    _raw: int = 0
    _cells: list[str] | None = None
    _link: str = ""
    _link_from: int = 0

    @property
    def is_full(self) -> bool:
        """Whether there is more text than is wanted."""
        return self._size > self.most

    def take(self, event: str, node: LexborNode) -> None:
        """Add one event."""
        if event == "text":
            self._text(node.text_content or "")
        elif event == "in":
            self._enter(node.tag or "", node)
        else:
            self._leave(node.tag or "")

    def finished(self) -> str:
        """The whole text."""
        self._flush()
        return re.sub(r"\n{3,}", "\n\n", "\n".join(self.blocks)).strip()

    def _text(self, text: str) -> None:
        text = text.replace(_BREAK, "")
        self._line.append(text if self._raw else _SPACE.sub(" ", text))

    def _enter(self, tag: str, node: LexborNode) -> None:
        if self._cells is not None and tag not in {"tr", "td", "th"}:
            if tag in _BLOCKS or tag == "br":
                self._line.append(" ")
        elif tag in _BLOCKS:
            self._flush()
            self._open_block(tag, node)
        elif tag == "br":
            self._line.append("\n" if self._raw else _BREAK)
        if tag == "a" and not self._raw:
            self._end_link()
            self._link = self.absolute(node.attributes.get("href") or "")
            self._link_from = len(self._line)
        elif tag == "img" and (alt := (node.attributes.get("alt") or "").strip()):
            self._line.append(f"[image: {_SPACE.sub(' ', alt)[:200]}]")
        elif tag == "code" and not self._raw:
            self._line.append("`")
        elif tag in {"tr", "td", "th"}:
            self._line.clear()

    def _open_block(self, tag: str, node: LexborNode) -> None:
        if tag in {"ul", "ol"}:
            self._lists.append(1 if tag == "ol" else None)
        elif tag == "li":
            self._begin_item()
        elif tag == "blockquote":
            self._quotes += 1
        elif tag == "pre":
            self._raw += 1
        elif tag == "hr":
            self._add("---")
        elif tag == "tr" and _is_data(node):
            self._cells = []
        if tag not in {"li", "tr"} and not self._lists:
            self._gap()

    def _begin_item(self) -> None:
        number = self._lists[-1] if self._lists else None
        self._marker = "- " if number is None else f"{number}. "
        if number is not None:
            self._lists[-1] = number + 1

    def _leave(self, tag: str) -> None:
        if tag == "a":
            self._end_link()
        elif tag == "code" and not self._raw:
            self._line.append("`")
        elif self._cells is not None:
            self._leave_in_row(tag)
        elif tag in _BLOCKS:
            self._close_block(tag)

    def _leave_in_row(self, tag: str) -> None:
        if self._cells is not None and tag in {"td", "th"}:
            self._cells.append(self._taken().replace(_BREAK, " ").replace("|", "\\|"))
        elif tag == "tr":
            cells, self._cells = self._cells or [], None
            if any(cells):
                self._add(f"| {' | '.join(cells)} |")

    def _close_block(self, tag: str) -> None:
        if tag == "pre":
            self._raw -= 1
            self._fence()
            return
        level = int(tag[1]) if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit() else 0
        self._flush("#" * level + " " if level else "")
        if tag in {"ul", "ol"} and self._lists:
            self._lists.pop()
        elif tag == "blockquote":
            self._quotes -= 1
        if tag == "li":
            self._marker = ""
        elif tag != "tr" and not self._lists:
            self._gap()

    def _end_link(self) -> None:
        if self._link:
            text = "".join(self._line[self._link_from :])
            if text.strip():
                words = text.strip().replace(_BREAK, " ")
                before = " " if text[:1].isspace() else ""
                after = " " if text[-1:].isspace() else ""
                self._line[self._link_from :] = [f"{before}[{words}]({self._link}){after}"]
        self._link = ""

    def _taken(self) -> str:
        """What stands on the line; it is empty afterwards. An open link goes on in the next."""
        link = self._link
        self._end_link()
        self._link, self._link_from = link, 0
        text = _SPACE.sub(" ", "".join(self._line)).strip()
        self._line.clear()
        return text.replace("``", "")

    def _flush(self, prefix: str = "") -> None:
        text = re.sub(rf" ?{_BREAK} ?", "\n", self._taken()).strip("\n ")
        if text:
            self._add(prefix + text)

    def _fence(self) -> None:
        code = "".join(self._line).strip("\n")
        self._line.clear()
        if code.strip():
            runs = [len(run) for run in re.findall(r"`{3,}", code)]
            fence = "`" * max([3, *(run + 1 for run in runs)])
            self._add(f"{fence}\n{code}\n{fence}")
        self._gap()

    def _add(self, text: str) -> None:
        indent = "  " * max(0, len(self._lists) - 1)
        quote = "> " * min(self._quotes, 5)
        following = " " * len(self._marker) if self._marker else "  " * bool(self._lists)
        first, *rest = text.split("\n")
        lines = [f"{quote}{indent}{self._marker or following}{first}"]
        lines += [f"{quote}{indent}{following}{line}" for line in rest]
        self._marker = ""
        block = "\n".join(lines)
        self._size += len(block) + 1
        self.blocks.append(block)

    def _gap(self) -> None:
        if self.blocks and self.blocks[-1]:
            self.blocks.append("")


def _is_data(row: LexborNode) -> bool:
    """Whether a table's row holds words, and not the layout of a page."""
    return row.css_first("table, h1, h2, h3, ul, ol, pre, p + p, div div") is None


def main() -> None:
    """Read, parse, answer."""
    mode, url, characters = sys.argv[1], sys.argv[2], int(sys.argv[3])
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
