"""Formulas in TeX as MathML, with an allow-list of elements and attributes. They require the extra
`math`.

The library's own text output is not escaped, so the elements that it builds are written here.
Invariants: only elements of `_ELEMENTS` come out, their attributes are words and small sizes
without colours, and their text is escaped. A formula that is too long, defines macros (which could
grow without end), or has a mistake stays text."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from html import unescape
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from xml.etree.ElementTree import Element

MOST_FORMULAS = 256
"""Formulas of a block. All fit in the cache, because an open block is rendered with each change."""
_MOST, _DEEPEST, _MOST_ELEMENTS = 2_000, 40, 1_500
"""Characters, levels and elements of a formula. The worst of 2,000 characters take 0.03 s."""
_MACRO = re.compile(r"\\(?:def|edef|let|(?:re|provide)?newcommand|newenvironment|DeclareMath)")
_PROSE = re.compile(r"[\w.,;:'’()€£ -]*\s[\w.,;:'’()€£ -]*")
"""Words and amounts, as between the signs of `from $5 each to 6$`."""
_ELEMENTS = {
    "math", "mfrac", "mi", "mn", "mo", "mover", "mphantom", "mroot", "mrow", "mspace", "msqrt",
    "mstyle", "msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover",
}  # fmt: skip
_WORDS = {
    "accent", "columnalign", "columnlines", "displaystyle", "fence", "form", "largeop",
    "linebreak", "mathvariant", "movablelimits", "rowlines", "scriptlevel", "separator",
    "stretchy",
}  # fmt: skip
_SIZES = {
    "columnspacing", "linethickness", "lspace", "maxsize", "minsize", "rowspacing", "rspace",
    "width",
}  # fmt: skip
_WORD = re.compile(r"[a-z0-2-]{1,20}(?: [a-z-]{1,20}){0,20}")
_SIZE = re.compile(r"0|-?0?\.\d{1,5}em|[0-2](?:\.\d{1,5})?em(?: [0-2](?:\.\d{1,5})?em){0,20}")
_DELIMITERS = {"$$": 2, "\\[": 2, "\\(": 2}


@lru_cache(MOST_FORMULAS)
def to_mathml(source: str) -> Markup | None:
    """Return a formula with its delimiters (`$x$`, `$$x$$`, `\\(x\\)`, `\\[x\\]`) as MathML, or
    None if it stays text."""
    cut = _DELIMITERS.get(source[:2], 1)
    tex, is_block = source[cut:-cut].strip(), source[:2] in ("$$", "\\[")
    if cut == 1 and _PROSE.fullmatch(tex):
        return None
    display = "block" if is_block else "inline"
    root = _convert(tex, display)
    if root is None:
        return None
    inner = Markup("").join(_write(root, 0))
    return Markup('<math display="{}">{}</math>').format(display, inner)


def _convert(tex: str, display: str) -> Element | None:
    """Return the library's elements, or None if there is no such formula."""
    converter = _find_converter()
    if converter is None or not 0 < len(tex) <= _MOST or _MACRO.search(tex):
        return None
    try:
        root: Element = converter(display=display).convert_to_element(tex)
    except Exception:  # noqa: BLE001 - the boundary: many kinds of errors for mistakes in a formula
        return None
    return root if sum(1 for _ in root.iter()) <= _MOST_ELEMENTS else None


def _write(parent: Element, depth: int) -> Iterator[Markup]:
    """Yield the content of an element."""
    yield escape(unescape(parent.text or ""))
    for one in parent if depth < _DEEPEST else ():
        tag = one.tag if one.tag in _ELEMENTS else "mrow"
        attributes = Markup("").join(_attributes(one.items()))
        yield Markup("<{}{}>{}</{}>").format(
            tag, attributes, Markup("").join(_write(one, depth + 1)), tag
        )
        yield escape(unescape(one.tail or ""))


def _attributes(given: Iterable[tuple[str, str]]) -> Iterator[Markup]:
    for name, value in given:
        allowed = _WORD if name in _WORDS else _SIZE if name in _SIZES else None
        if allowed and allowed.fullmatch(value):
            yield Markup(' {}="{}"').format(name, value)


@cache
def _find_converter() -> Any:
    try:
        from latex2mathml.converter import Converter
    except ImportError:
        return None
    return Converter
