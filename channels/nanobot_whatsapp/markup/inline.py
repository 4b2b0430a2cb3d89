"""What stands within a block: text, styles, code, links, images, as lines of spans.

A link has its address behind it, since WhatsApp shows nothing else that leads there. One that
refers to a definition has the definition's label there, lest a long address be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nanobot_whatsapp.markup.marks import Span, Style

if TYPE_CHECKING:
    from markdown_it.token import Token

_STYLES: Mapping[str, Style] = {"strong": "strong", "em": "em", "s": "s"}

Line = list[Span]


@dataclass(frozen=True, slots=True)
class _Link:
    """A link that is open; what it shows begins at that span of that line."""

    line: int
    span: int
    url: str
    title: str
    label: str
    bare: bool


@dataclass(slots=True)
class _Writer:
    """`labels` are those of definitions as they are written, by the name the parser has for each;
    `styles` those that are open, the same one possibly several times."""

    labels: Mapping[str, str]
    styles: list[Style]
    lines: list[Line] = field(default_factory=lambda: [[]])
    links: list[_Link] = field(default_factory=list)

    def write(self, tokens: Iterable[Token]) -> None:
        for token in tokens:
            kind = token.type
            if kind in {"softbreak", "hardbreak"}:
                self.lines.append([])
            elif kind == "code_inline":
                self._add(token.content, code=True)
            elif kind == "link_open":
                self._open(token, "href")
            elif kind == "link_close":
                self._close()
            elif kind == "image":
                self._open(token, "src")
                self.write(token.children or ())
                self._close()
            elif token.tag in _STYLES and token.nesting:
                self._style(_STYLES[token.tag], token.nesting)
            else:  # text, and HTML
                self._add(token.content)

    def _add(self, text: str, *, code: bool = False, raw: bool = False) -> None:
        first, *others = text.split("\n")
        styles = () if raw else tuple(dict.fromkeys(self.styles))
        for number, piece in enumerate((first, *others)):
            if number:
                self.lines.append([])
            if piece:
                self.lines[-1].append(Span(piece, styles, code=code, raw=raw))

    def _style(self, style: Style, nesting: int) -> None:
        if nesting > 0:
            self.styles.append(style)
        else:
            self.styles.reverse()
            self.styles.remove(style)
            self.styles.reverse()

    def _open(self, token: Token, address: str) -> None:
        url, title = str(token.attrs.get(address, "")), str(token.attrs.get("title", ""))
        label = str(token.meta.get("label", ""))
        here = len(self.lines) - 1, len(self.lines[-1])
        self.links.append(_Link(*here, url, title, label, token.markup == "autolink"))

    def _close(self) -> None:
        link = self.links.pop()
        shown = self._shown_since(link)
        if link.label:
            if " ".join(shown.split()).upper() != link.label:
                self._add(f" [{self.labels.get(link.label, link.label)}]", raw=True)
            return
        if not shown.strip():
            self._add(link.url, raw=True)
        elif not link.bare and link.url not in {"", shown, f"mailto:{shown}"}:
            self._add(f" ({link.url})", raw=True)
        if link.title:
            self._add(f" ({link.title})")

    def _shown_since(self, link: _Link) -> str:
        first, *others = self.lines[link.line :]
        return " ".join(
            "".join(span.text for span in line) for line in (first[link.span :], *others)
        )


def lines_of(
    tokens: Sequence[Token], labels: Mapping[str, str], styles: Sequence[Style] = ()
) -> list[Line]:
    """The children of an inline token as lines, all of it in these styles."""
    writer = _Writer(labels, list(styles))
    writer.write(tokens)
    return writer.lines


def plain(tokens: Sequence[Token], labels: Mapping[str, str]) -> str:
    """The children of an inline token as text without marks, on one line."""
    lines = ("".join(span.text for span in line) for line in lines_of(tokens, labels))
    return " ".join(lines)
