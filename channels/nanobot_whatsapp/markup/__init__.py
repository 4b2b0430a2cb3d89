"""Markdown in WhatsApp's own marks: *bold*, _italic_, ~strike~, code, quotes and lists.

WhatsApp has no way to say that a mark is none, and its phones do not all read marks alike. So marks
are written only where all of them see one, and what would be taken for one by accident is set apart
by a hair space, which nobody sees. Nothing visible vanishes: where the result would be empty, or
the text is nothing but markup or more deeply nested than anyone writes, it is shown as it is.

The way: `parsing` (text to tokens, the work bounded), `inline` (tokens to lines of spans), `marks`
(spans to text), `tables`, and `blocks`, which puts it all together.
"""

from __future__ import annotations

from collections.abc import Sequence

from loguru import logger

from nanobot.bus.events import Button
from nanobot.bus.split import utf16_length
from nanobot.channel.text import valid_unicode
from nanobot_whatsapp.markup.blocks import write_blocks
from nanobot_whatsapp.markup.marks import Span, write
from nanobot_whatsapp.markup.parsing import parse

__all__ = ["CAPTION_LIMIT", "TEXT_LIMIT", "fits", "render", "with_choices"]

TEXT_LIMIT = 4096
"""UTF-16 units of a message: what the Cloud API takes. A linked device may send more."""
CAPTION_LIMIT = 1024
"""UTF-16 units of the caption of a file."""


def render(markdown: str) -> str:
    """`markdown` as WhatsApp shows it. Never raises; the work is bounded."""
    source = _clean(markdown)
    try:
        tokens = parse(source)
        rendered = write_blocks(tokens, source) if tokens else ""
    except Exception as error:  # noqa: BLE001 - an unforeseen text must not cost the answer
        logger.warning("Markdown is shown as it is: {}", type(error).__name__)
        rendered = ""
    return rendered or "\n".join(write([Span(line)]) for line in source.strip().split("\n"))


def fits(markdown: str, limit: int) -> bool:
    """Whether `markdown`, once rendered, has at most `limit` UTF-16 units."""
    return utf16_length(render(markdown)) <= limit


def with_choices(markdown: str, buttons: Sequence[Button]) -> str:
    """`markdown` with a line for each button of which it does not tell yet what to type, for
    places that have no buttons."""
    told = [button for button in buttons if button.value not in markdown]
    lines = "\n".join(f"• {button.label}: {button.value}" for button in told)
    return f"{markdown}\n\n{lines}".lstrip("\n") if lines else markdown


def _clean(text: str) -> str:
    """`text` as the parser sees its lines, with nothing that cannot be sent."""
    return valid_unicode(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
