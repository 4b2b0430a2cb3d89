"""What a person's reaction to a message asks for, the same on every platform.

A few marks mean that the message is to be kept. An adapter hands them on as the command that a
person would type in reply to it, with `unanswered` set, so that it gets no answer. Every other
reaction is a note in the conversation that asks for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

KEEP, NO_LONGER = "/note", "/note --undo"

_KEEPING = frozenset("✍📌⭐")
"""Of these, Telegram offers the first; WhatsApp takes any."""

_VARIANTS = dict.fromkeys((0xFE0F, *range(0x1F3FB, 0x1F400)))
"""The request for a coloured sign, and the colours of a hand."""


def asks_to_keep(marks: Iterable[str]) -> bool:
    """Whether one of these reactions does."""
    return any(mark.translate(_VARIANTS) in _KEEPING for mark in marks)
