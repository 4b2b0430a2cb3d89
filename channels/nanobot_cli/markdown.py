"""Markdown as a terminal shows it: lines of at most its width, with escape sequences for styles.

The layout is `nanobot.channel.markdown`'s, as in every chat: line breaks break the line, HTML is
text, and the address of a link stands behind it, so that a person sees where it leads. Code is
coloured where the extra `highlight` is installed. Invariant: no control character of the source
gets out, not even one that Markdown writes as an entity.
"""

from __future__ import annotations

from wcwidth import wrap

from nanobot.bus.split import split_text
from nanobot.channel.markdown import Dialect, Line, Span, clean_source, lay_out
from nanobot.text import clean

_PART = 8_000
"""A longer text is laid out in parts."""
_DIALECT = Dialect(bullets=("• ", "◦ ", "▪ "), indent="  ", widest_column=40)
_STYLES = {"": "0", "bold": "1", "dim": "2", "red": "31", "yellow": "33", "cyan": "36"}
_STYLES |= {"strong": "1", "em": "3", "s": "9"}


def styled(text: str, *styles: str) -> str:
    """`text` in these styles, each line by itself."""
    if not styles:
        return text
    start = "".join(f"\x1b[{_STYLES[style]}m" for style in styles)
    return "\n".join(f"{start}{line}\x1b[0m" if line else "" for line in text.split("\n"))


def wrap_lines(text: str, width: int) -> list[str]:
    """`text`, which may hold styles, in lines of at most `width` columns."""
    return [part for line in text.split("\n") for part in wrap(line, width) or [""]]


def render(markdown: str, width: int) -> str:
    """`markdown` for a terminal of `width` columns. Code is not wrapped, so that it can be copied
    as it is."""
    lines = [
        line
        for number, part in enumerate(split_text(clean_source(markdown), _PART))
        for line in ([Line()] * (number > 0) + (lay_out(part, _DIALECT) or _as_it_is(part)))
    ]
    return "\n".join(_shown(line, width) for line in lines)


def _as_it_is(source: str) -> list[Line]:
    return [Line((Span(line),)) for line in source.split("\n")]


def _shown(line: Line, width: int) -> str:
    if line.is_code:
        return _highlighted(clean(line.spans[0].text), line.language)
    text = "".join(
        styled(clean(span.text), *(("cyan",) if span.code else span.styles)) for span in line.spans
    )
    prefix = clean(line.prefix)
    quote = prefix[: prefix.rfind(">") + 1]
    hanging = quote + " " * (len(prefix) - len(quote))
    return "\n".join(wrap(prefix + text, width, subsequent_indent=hanging)) or prefix.rstrip()


def _highlighted(code: str, language: str) -> str:
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
