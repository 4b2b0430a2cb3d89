"""Actions of people in the fault campaigns on any platform: they edit, they wait while the model
hangs, and they start a new session behind a pending message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from bench.telegram_talk import AWAY, HANGS, THOUGHT

_Chat = TypeVar("_Chat")
_Chat_contra = TypeVar("_Chat_contra", contravariant=True)
_EDITS = 12

EDITED = [*(mark for n in range(1, _EDITS + 1) for mark in (f"q{n}", f"e{n}")), "q99"]
"""The marks in the chat after `edit_at_each_moment`."""
RENEWED = ["w1", "w2", "w1", "w3"]
"""The marks after `renew_behind_a_message`: w2 is answered with its earlier context, w3 without."""


class Talk(Protocol[_Chat_contra]):
    """People who write to nanobot."""

    async def write(self, chat: _Chat_contra, text: str) -> object:
        """Send a message, and return its id for `correct`."""
        ...

    async def correct(self, chat: _Chat_contra, message: object, text: str) -> None:
        """Edit a message."""
        ...

    async def until_answered(self, chat: _Chat_contra, mark: str) -> None:
        """Wait until the newest message in the chat has this mark, or reports that it was
        dropped."""
        ...

    async def until_told(self, chat: _Chat_contra, text: str) -> None:
        """Wait until a message in the chat contains this text."""
        ...


async def edit_at_each_moment(people: Talk[_Chat], chat: _Chat) -> None:
    """Edit each message a little later in its turn than the previous one: while it is pending,
    while the model works, and when it is answered."""
    for n in range(1, _EDITS + 1):
        message = await people.write(chat, f"q{n}: a qeustion")
        await asyncio.sleep(2 * THOUGHT * n / _EDITS)
        await people.correct(chat, message, f"e{n}: a question")
        await people.until_answered(chat, f"q{n}")
    await people.write(chat, "q99: that was all")
    await people.until_answered(chat, "q99")


async def crowd(people: Talk[_Chat], chats: Sequence[_Chat]) -> None:
    """Let all wait for an answer. The model hangs for the first."""
    first, *others = chats
    await people.write(first, f"{HANGS}: a question")
    for chat in others:
        await people.write(chat, "m1: a question")
    for chat in others:
        await people.until_answered(chat, "m1")


async def renew_behind_a_message(people: Talk[_Chat], chat: _Chat, outage: Path) -> None:
    """Ask something and start a new session behind it, while a file at `outage` makes the model's
    server unreachable."""
    await people.write(chat, "w1: before")
    await people.until_answered(chat, "w1")
    outage.touch()  # noqa: ASYNC240 - at once
    await people.write(chat, "w2: meanwhile")
    await people.until_told(chat, AWAY)
    await people.write(chat, "/new")
    await people.write(chat, "w3: afterwards")
    outage.unlink()  # noqa: ASYNC240 - at once
    await people.until_answered(chat, "w3")
