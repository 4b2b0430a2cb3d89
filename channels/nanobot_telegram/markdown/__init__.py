"""Markdown as Telegram shows it: plain text with entities, which cannot fail to parse.

The way: `parsing` (text to tokens, the work bounded), `blocks` and `inline` (tokens to a page),
`tables`, `entities` (the page, and the rules that its marks obey). Nothing visible vanishes on it:
where the result would be empty, or the text is nothing but markup or more deeply nested than
anyone writes, it is shown as it is.
"""

from __future__ import annotations

import re

from loguru import logger

from nanobot.bus.split import utf16_length
from nanobot.channel.text import valid_unicode
from nanobot_telegram.markdown.blocks import write_blocks
from nanobot_telegram.markdown.entities import Entity, Rendered
from nanobot_telegram.markdown.parsing import parse, too_much

__all__ = ["CAPTION_LIMIT", "ENTITY_LIMIT", "TEXT_LIMIT", "Entity", "Rendered", "fits", "render"]

TEXT_LIMIT = 4096
"""UTF-16 units of a message."""
CAPTION_LIMIT = 1024
"""UTF-16 units of the caption of a file."""
ENTITY_LIMIT = 100
"""Entities of a message; Telegram ignores any more."""

_DELIMITER = re.compile(
    r"(?<![\s*])\*++|(?<!\S)\*++(?=\S)|~~++|(?<![\w])_++(?=\S)|(?<=[^\s_])_++(?!\w)|`++"
)
"""The runs that begin or end most entities. They are matched whole, for linear time."""


def render(markdown: str) -> Rendered:
    """`markdown` as text and entities. Never raises; linear time.

    There are as many entities as there are; `fits` says whether Telegram takes so many.
    """
    source = _clean(markdown)
    return _plain(source) if too_much(source) else _render(source)


def fits(markdown: str, limit: int = TEXT_LIMIT) -> bool:
    """Whether `markdown`, once rendered, fits: UTF-16 units (`limit`) and number of entities.

    Says no, without a close look, to what has so many delimiters that it hardly can.
    """
    source = _clean(markdown)
    if too_much(source):
        return utf16_length(source.strip()) <= limit
    if _entity_edges(source) > 2 * ENTITY_LIMIT:
        return False
    rendered = _render(source)
    return utf16_length(rendered.text) <= limit and len(rendered.entities) <= ENTITY_LIMIT


def _entity_edges(source: str) -> int:
    """About how many beginnings and ends of entities there are; a long run may be two."""
    runs = sum(min(2, (len(run) + 1) // 2) for run in _DELIMITER.findall(source))
    return runs + 2 * min(source.count("["), source.count("]("))


def _render(source: str) -> Rendered:
    try:
        tokens = parse(source)
        rendered = write_blocks(tokens, source) if tokens else None
    except Exception as error:  # noqa: BLE001 - an unforeseen text must not cost the answer
        logger.warning("Markdown is shown as it is: {}", type(error).__name__)
        rendered = None
    return rendered if rendered and rendered.text else _plain(source)


def _plain(source: str) -> Rendered:
    return Rendered(source.strip())


def _clean(text: str) -> str:
    """`text` as the parser sees its lines, with nothing that cannot be sent: halves of characters
    are joined, or replaced where they are alone."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    return valid_unicode(text)
