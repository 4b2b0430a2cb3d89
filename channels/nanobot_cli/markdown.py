"""Markdown for a terminal: lines within its width, with escape sequences for styles.

The layout is that of `nanobot.channel.markdown`, as in every chat: line breaks are kept, HTML is
text, and the address of a link follows it, so that a person sees its target. Code is highlighted if
the extra `highlight` is installed. Invariant: no control character of the source reaches the
output, not even as a Markdown entity."""

from __future__ import annotations

from wcwidth import wrap

from nanobot.bus.split import split_text
from nanobot.channel.markdown import (
    Dialect,
    Line,
    Span,
    clean_source,
    lay_out,
    table_rows,
    text_of,
    tokenize,
    width_of,
)
from nanobot.text import clean

_PART = 8_000  # longer texts are laid out in parts
_DIALECT = Dialect(bullets=("• ", "◦ ", "▪ "), indent="  ", widest_column=40, quote="│ ")
_STYLES = {"": "0", "bold": "1", "dim": "2", "red": "31", "yellow": "33", "cyan": "36"}
_STYLES |= {"strong": "1", "em": "3", "s": "9"}


def apply_styles(text: str, *styles: str) -> str:
    """Apply styles to `text`, line by line."""
    if not styles:
        return text
    start = "".join(f"\x1b[{_STYLES[style]}m" for style in styles)
    return "\n".join(f"{start}{line}\x1b[0m" if line else "" for line in text.split("\n"))


def wrap_lines(text: str, width: int) -> list[str]:
    """Wrap `text`, which may contain styles, to `width` columns."""
    return [part for line in text.split("\n") for part in wrap(line, width) or [""]]


def render(markdown: str, width: int) -> str:
    """Render `markdown` for a terminal of `width` columns. Code is not wrapped, so that it can be
    copied unchanged."""
    lines = [
        line
        for number, part in enumerate(split_text(clean_source(markdown), _PART))
        for line in ([Line()] * (number > 0) + (lay_out(part, _DIALECT) or _unparsed(part)))
    ]
    return "\n".join(_render_line(line, width) for line in lines)


def _unparsed(part: str) -> list[Line]:
    """Return the lines of a text that is too hard to parse. Any other has nothing to show."""
    return [] if tokenize(part) is not None else [Line((Span(raw),)) for raw in part.split("\n")]


def _render_line(line: Line, width: int) -> str:
    if line.table and max(map(width_of, line.spans[0].text.split("\n"))) > width:
        return _list_rows(line, width)
    if line.is_code:
        return _highlight(clean(line.spans[0].text), line.language)
    text = "".join(
        apply_styles(clean(span.text), *(("cyan",) if span.code else span.styles))
        for span in line.spans
    )
    prefix = clean(line.prefix)
    quote = prefix[: prefix.rfind("│") + 1]
    hanging = quote + " " * (len(prefix) - len(quote))
    return "\n".join(wrap(prefix + text, width, subsequent_indent=hanging)) or prefix.rstrip()


def _list_rows(line: Line, width: int) -> str:
    """Render the rows of a table that is too wide as paragraphs, with a line for each cell."""
    head, *rows = ([clean(text_of(cell)) for cell in row] for row in table_rows(line.table))
    paragraphs = (
        [
            part
            for name, cell in zip(head, row, strict=True)
            for part in wrap(f"{name}: {cell}", width, subsequent_indent="  ")
        ]
        for row in rows or [[""] * len(head)]
    )
    return "\n\n".join(map("\n".join, paragraphs))


def _highlight(code: str, language: str) -> str:
    if not language:
        return code
    try:
        from pygments import formatters, highlight, lexers, util  # type: ignore[import-untyped]
    except ImportError:
        return code
    try:
        lexer = lexers.get_lexer_by_name(language, stripnl=False)
    except util.ClassNotFound:
        return code
    return str(highlight(code, lexer, formatters.TerminalFormatter(bg="dark"))).rstrip("\n")
