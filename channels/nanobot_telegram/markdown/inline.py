"""What stands within a block: text, styles, code, links, images."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_telegram.markdown.entities import Page

if TYPE_CHECKING:
    from markdown_it.token import Token

_STYLES = {"em": "italic", "strong": "bold", "s": "strikethrough"}
_LINKABLE = re.compile(r"https?://[^/?#\s]*[^/?#\s.]\.[^/?#\s]+|tg://[\w-]+", re.IGNORECASE)


def linkable(url: str) -> bool:
    """Whether Telegram makes a link to `url`: it silently drops those to hosts without a dot, and
    takes `mailto:a@b.c` for a web address."""
    return _LINKABLE.match(url) is not None


@dataclass(frozen=True, slots=True)
class _Link:
    start: int
    url: str
    title: str
    label: str  # set where the link refers to a definition


class InlineWriter:
    """Writes the children of inline tokens. Without `marks` it writes plain text.

    A link that cannot be a mark has its address behind it, unless that stands in a definition:
    then that is shown (see `hidden_definitions`), lest a long address be repeated for every use.
    """

    def __init__(self, page: Page, *, marks: bool = True) -> None:
        self._page = page
        self._marks = marks
        self._links: list[_Link] = []

    def write(self, children: Iterable[Token], newline: str) -> None:
        """Write tokens, with `newline` for each line break."""
        for token in children:
            kind = token.type
            if kind in {"text", "text_special"}:
                self._page.write(token.content)
            elif kind in {"softbreak", "hardbreak"}:
                self._page.write(newline)
            elif kind == "code_inline":
                self._code(token.content)
            elif kind == "link_open":
                self._open_link(token, "href")
            elif kind == "link_close":
                self._close_link()
            elif kind == "image":
                self._open_link(token, "src")
                self.write(token.children or (), newline)
                self._close_link()
            elif token.tag in _STYLES:
                self._style(_STYLES[token.tag], token.nesting)
            else:  # HTML
                self._page.write(token.content.replace("\n", newline))

    def _style(self, style: str, nesting: int) -> None:
        if self._marks and nesting > 0:
            self._page.open(style)
        elif self._marks:
            self._page.close(style)

    def _code(self, content: str) -> None:
        if self._marks and not self._links:
            self._page.code(content)
        else:
            self._page.write(content)

    def _open_link(self, token: Token, address: str) -> None:
        url, title = str(token.attrs.get(address, "")), str(token.attrs.get("title", ""))
        label = str(token.meta.get("label", ""))
        self._links.append(_Link(self._page.length, url, title, label))

    def _close_link(self) -> None:
        link = self._links.pop()
        shown = self._page.text_from(link.start)
        linked = self._marks and not self._links and linkable(link.url)
        if not shown.strip() and (linked or not link.label):
            self._page.write(link.url)
            shown = link.url
        if linked:
            self._page.mark("text_link", link.start, url=link.url)
        elif not link.label and link.url not in {"", shown, f"mailto:{shown}"}:
            self._page.write(f" ({link.url})")
        if link.title and not link.label:
            self._page.write(f" ({link.title})")


def hidden_definitions(tokens: Sequence[Token]) -> frozenset[str]:
    """The labels whose definitions need not be shown: all they say is in the marks of links."""
    seen: set[str] = set()
    shown: set[str] = set()
    table = False
    for token in tokens:
        if token.type in {"table_open", "table_close"}:
            table = token.type == "table_open"
        for label, marked in _labels(token.children or (), not table):
            seen.add(label)
            if not marked:
                shown.add(label)
    for token in tokens:
        if token.type == "definition" and (token.meta["title"] or not linkable(token.meta["url"])):
            shown.add(token.meta["id"])
    return frozenset(seen - shown)


def _labels(children: Iterable[Token], marked: bool) -> Iterator[tuple[str, bool]]:
    """The labels of links and images, and whether each can be a mark."""
    depth = 0
    for token in children:
        if "label" in token.meta:
            yield str(token.meta["label"]), marked and not depth
        if token.type in {"link_open", "link_close"}:
            depth += token.nesting
        if token.type == "image":
            yield from _labels(token.children or (), False)
