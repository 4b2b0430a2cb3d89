"""The scene of the fault campaigns in which a platform accepts messages without confirming them.

Each chat gets one kind of answer to all sends: a status of 500 or above, a redirect, a page of a
proxy, half a document. Then the platform recovers, one person presses the button under the notice
twice, and everyone is answered. For any kills in this time, people may not see a part more than
twice except for the copy that they requested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Protocol, TypeVar

from bench.scripted import GIVEN_UP

_Chat_contra = TypeVar("_Chat_contra", contravariant=True)
_Chat = TypeVar("_Chat")

ALWAYS = 1_000_000
SPEED = 60
"""The minute before a repetition takes a second."""
ANSWERS = (
    (504, b""),
    (500, b'{"ok": false, "error": {"code": 1}, "error_code": 500}'),
    (302, b""),
    (200, b'{"ok": tr'),
)
"""Statuses and bodies. An empty body is a page of HTML."""

_MARKS = ("m1", "m2", "m3")
_NOTICE = "may not have arrived"
_BUTTON = "Send again"
_PRESSED = "already resent or dropped"


class UnconfirmedPeople(Protocol[_Chat_contra]):
    """People whose platform can stop confirming sends."""

    def confirm_nothing(self, chat: _Chat_contra, status: int, body: bytes) -> None:
        """Accept all sends to this chat from now on, with this answer."""
        ...

    def heal(self) -> None:
        """Let the platform recover."""
        ...

    def press(self, chat: _Chat_contra, label: str) -> None:
        """Press the newest button with this label."""
        ...

    async def write(self, chat: _Chat_contra, text: str) -> object:
        """Send a message."""
        ...

    async def until_told(self, chat: _Chat_contra, *texts: str) -> None:
        """Wait until a message in the chat contains one of these texts."""
        ...


async def confirm_nothing(people: UnconfirmedPeople[_Chat], chats: Sequence[_Chat]) -> None:
    """Play the scene. The button is pressed in the first chat."""
    for chat, (status, body) in zip(chats, cycle(ANSWERS), strict=False):
        people.confirm_nothing(chat, status, body)
        await people.write(chat, "m1: meanwhile")
    for chat in chats:
        await people.until_told(chat, _NOTICE)
    people.heal()
    for chat in chats:
        await people.write(chat, "m2: afterwards")
    for chat in chats:
        await people.until_told(chat, "answer to m2", GIVEN_UP)
    for _ in range(2):
        people.press(chats[0], _BUTTON)
    await people.until_told(chats[0], _PRESSED, GIVEN_UP)
    for chat in chats:
        await people.write(chat, "m3: at the end")
    for chat in chats:
        await people.until_told(chat, "answer to m3", GIVEN_UP)


def faults_of_copies(texts: Mapping[str, Sequence[str]], chats: Sequence[str]) -> Iterator[str]:
    """Yield copies that may not occur in these chats."""
    for chat in chats:
        said = texts.get(chat, [])
        copies = {mark: sum(f"answer to {mark}" == text for text in said) for mark in _MARKS}
        copies["notice"] = sum(_NOTICE in text for text in said)
        copies["m1"] -= chat == chats[0]
        firsts = [f"answer to {mark}" for mark in _MARKS]
        if GIVEN_UP in said:  # three processes died over a message
            firsts = [text for text in firsts if text in said]
        elif not all(copies.values()):
            yield f"chat {chat} lacks a part: {copies}"
        if max(copies.values()) > 2:
            yield f"chat {chat} has a third copy: {copies}"
        if [text for text in dict.fromkeys(said) if text in firsts] != firsts:
            yield f"chat {chat} is out of order: {said}"
