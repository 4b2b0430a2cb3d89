"""What the chat in the terminal needs of its connection to the gateway."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from nanobot.errors import NanobotError
from nanobot_cli.plain import clean
from nanobot_cli.wire import ChatEvent

BASIC_COMMANDS = (
    ("/help", "what I can do"),
    ("/new", "start a new conversation"),
    ("/stop", "stop what is running"),
    ("/status", "how things are"),
)
"""Offered where the gateway does not tell its commands."""


class Gateway(Protocol):
    """What the chat needs of its connection to the gateway."""

    @property
    def waiting(self) -> bool:
        """Whether a message has no last word yet."""
        ...

    def ask(self, operation: str, arguments: Mapping[str, object]) -> object:
        """Run one operation, before `watch`; raises `NanobotError`."""
        ...

    def watch(self, session: str) -> None:
        """Hear what else is said in `session`."""
        ...

    def say(self, text: str, session: str, *, stream: bool = False) -> str:
        """Send a message; returns the id that its events carry. Raises `NanobotError`."""
        ...

    def arrived(self) -> Sequence[ChatEvent]:
        """What was said by now; waits for nothing. Raises `NanobotError`."""
        ...

    def fileno(self) -> int:
        """What becomes readable when something is said, -1 for nothing; `say` and `arrived` may
        change it."""
        ...


def model_of(gateway: Gateway) -> str:
    """The model's name; empty where the gateway will not say."""
    with contextlib.suppress(NanobotError):
        status = gateway.ask("status", {})
        if isinstance(status, dict):
            return str(status.get("model") or "")
    return ""


def commands_of(gateway: Gateway) -> Sequence[tuple[str, str]]:
    """Names and summaries of the slash commands that the gateway has."""
    try:
        told = gateway.ask("commands", {})
    except NanobotError:
        return BASIC_COMMANDS
    if not isinstance(told, list):
        return BASIC_COMMANDS
    return tuple(
        ("/" + str(entry.get("name", "")).removeprefix("/"), clean(str(entry.get("summary", ""))))
        for entry in told
        if isinstance(entry, dict)
    )
