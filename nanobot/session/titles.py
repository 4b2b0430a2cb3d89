"""Titles of conversations: a person's, or the first words since the newest `/new`.

The first words are a copy in the metadata (`opening`), so that they are known when their message is
in the archive. They count only after the newest epoch, and go when their message is retracted. A
model may add a `title` to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from nanobot.messages import Message, speaker_in
from nanobot.text import clean, shorten

OPENING, TITLE = "opening", "title"
"""Names in the metadata."""
LONGEST_TITLE = 80
"""Characters."""

_BRACKETED = r"(?m)^\[.*\]$\n?"
"""Lines of nanobot in a message with an origin: its speaker, quote and notes."""
_SAMPLE = 2_000
# In this order: each turns Markdown into its text. No repetitions of blanks meet, because a text of
# 2,000 blanks would stop the event loop for a minute.
_MARKDOWN = (
    (r"(?m)^[ \t]*(?:```|~~~).*$", " "),
    (r"!?\[([^\[\]\n]*)\]\([^)\s]*\)", r"\1"),
    (r"(?m)^\s{0,3}(?:#{1,6}\s+|>\s?|[-*+]\s+(?:\[[ xX]\]\s+)?|\d{1,9}[.)]\s+)+", ""),
    (r"(?m)^[ \t]{0,3}(?:[-*_][ \t]*){3,}$|^[ \t|:]*-{3,}:?[ \t]*\|.*$", " "),
    (r"(\*\*\*|\*\*|~~|`{1,3})(?=\S)(.+?)(?<=\S)\1", r"\2"),
    (r"(?<![\w*])\*(?=[^\s*])([^*\n]+?)(?<=[^\s*])\*(?![\w*])", r"\1"),
    (r"(?<![\w_])_(?=[^\s_])([^_\n]+?)(?<=[^\s_])_(?![\w_])", r"\1"),
)


def first_words(message: Message) -> str:
    """Return the beginning of a person's message as a title, or "" if it has no words."""
    if not message.from_person:
        return ""
    text = message.content[:_SAMPLE]
    if message.origin or speaker_in(text):
        text = re.sub(_BRACKETED, "", text)
    return plain_line(text)


def plain_line(text: str) -> str:
    """Return Markdown as one short line of plain text."""
    return shorten(clean(strip_markdown(text[: 10 * LONGEST_TITLE])), LONGEST_TITLE)


def strip_markdown(text: str) -> str:
    """Return short Markdown as its text. The time is quadratic in the length of a line."""
    for pattern, plain in _MARKDOWN:
        text = re.sub(pattern, plain, text)
    return text


def make_opening(messages: Iterable[Message], epoch_seq: int) -> dict[str, Any]:
    """Return the metadata with the first words of a person after the epoch, if any."""
    for message in messages:
        if message.seq > epoch_seq and (words := first_words(message)):
            return {OPENING: {"seq": message.seq, "text": words}}
    return {}


def read_opening(metadata: Mapping[str, Any], epoch_seq: int) -> Mapping[str, Any] | None:
    """Return the entry if it is of the conversation since the epoch."""
    opening = metadata.get(OPENING)
    if not isinstance(opening, Mapping):
        return None
    seq, text = opening.get("seq"), opening.get("text")
    is_valid = isinstance(seq, int) and isinstance(text, str) and seq > epoch_seq
    return opening if is_valid else None


def is_current(opening: Mapping[str, Any] | None, new: Iterable[Message]) -> bool:
    """Return False without an entry, and if its message was never stored, so that another one of
    the `new` messages has its number."""
    if opening is None:
        return False
    return all(first_words(one) == opening["text"] for one in new if one.seq == opening["seq"])


def read_title(metadata: Mapping[str, Any], epoch_seq: int) -> str:
    """Return the title that a person or a model gave, or the first words, or ""."""
    opening = read_opening(metadata, epoch_seq) or {}
    titles = (metadata.get(TITLE), opening.get(TITLE), opening.get("text"))
    title = next((one for one in titles if isinstance(one, str) and one), "")
    is_plain = len(title) <= LONGEST_TITLE and title.isprintable()
    return title if is_plain else shorten(clean(title[: 4 * LONGEST_TITLE]), LONGEST_TITLE)
