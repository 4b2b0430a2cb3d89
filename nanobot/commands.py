"""Slash commands: their registration and how a text is recognized as one.

A command never reaches the model. Most commands run in their session's lane, in order with its
turns. `immediate` ones bypass the lane, so they work while a turn runs. Commands overtake a message
that is pending for the model. `ordered` ones don't, because they change its conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Struct

from nanobot.bus.events import EXPIRED_BUTTON, Button, InboundMessage
from nanobot.channel import Operation
from nanobot.errors import NanobotError
from nanobot.messages import ATTACHED
from nanobot.session.session import Session
from nanobot.text import close_matches


def in_threads(
    work: Mapping[str, Callable[[Mapping[str, object]], object]],
) -> dict[str, Operation]:
    """Return operations by name that run blocking functions in threads."""

    def operation(work: Callable[[Mapping[str, object]], object]) -> Operation:
        return lambda arguments: asyncio.to_thread(work, arguments)

    return {name: operation(one) for name, one in work.items()}


def text_argument(arguments: Mapping[str, object], key: str) -> str:
    """Return a required text argument. Raises `NanobotError` if it is missing."""
    value = arguments.get(key)
    if not isinstance(value, str) or not value.strip():
        raise NanobotError(f"the operation needs text in {key!r}")
    return value.strip()


def optional_text(arguments: Mapping[str, object], key: str) -> str:
    """Return an optional text argument, or an empty string. Raises `NanobotError` if it is not
    text."""
    value = arguments.get(key) or ""
    if not isinstance(value, str):
        raise NanobotError(f"the operation takes only text in {key!r}")
    return value.strip()


def number_argument(arguments: Mapping[str, object], key: str, default: int = 0) -> int:
    """Return a non-negative whole number, or `default` if there is none."""
    value = arguments.get(key)
    return value if isinstance(value, int) and value >= 0 else default


async def _free() -> None:
    """Allow every effect."""


class CommandCall(Struct, frozen=True):
    """One call of a command. Its changes to `session` are committed with its answer. `scope` is the
    memory that the message belongs to.

    A command awaits `begin_effect` right before any other effect that must not happen twice. After
    a crash the command runs again, and `begin_effect` then raises `NanobotError`, whose text
    becomes the answer. `outcome` is the part that another worker of a team has already done."""

    arguments: str
    message: InboundMessage
    session: Session
    scope: str
    entry_id: int
    begin_effect: Callable[[], Awaitable[None]] = _free
    outcome: str = ""


class Answer(Struct, frozen=True):
    """A command's answer, with `buttons` under it. An empty text sends nothing. `republish` are
    messages to handle again, in place of the turn `replaces_turn` that failed on them. `afterwards`
    runs once the answer is durable, so a crash cannot make it run twice. If it `failed`, all staged
    changes are dropped."""

    text: str
    buttons: tuple[Button, ...] = ()
    republish: tuple[InboundMessage, ...] = ()
    replaces_turn: str = ""
    afterwards: Callable[[], None] | None = None
    failed: bool = False


class Command(Struct, frozen=True):
    """A slash command. `usage` shows the arguments (`[n]`), `summary` is a line for `/help` and
    platform menus."""

    name: str
    summary: str
    run: Callable[[CommandCall], Awaitable[Answer]]
    usage: str = ""
    allowed: Literal["anyone", "owner"] = "anyone"
    immediate: bool = False
    ordered: bool = False


class CommandRegistry:
    """All commands of a nanobot. `is_owner` checks a channel and a sender's id.

    `interpret_reply` returns the command that a reply means (`y` after a question), or an empty
    text."""

    def __init__(
        self,
        commands: Iterable[Command] = (),
        *,
        is_owner: Callable[[str, str], bool] = lambda _, __: True,
    ) -> None:
        self._commands = {command.name: command for command in commands}
        self._is_owner = is_owner
        # No message means a command without an open question.
        self.interpret_reply: Callable[[InboundMessage], str] = lambda _: ""

    def register(self, command: Command) -> None:
        self._commands[command.name] = command

    def __iter__(self) -> Iterator[Command]:
        return iter(self._commands.values())

    def is_owner(self, message: InboundMessage) -> bool:
        return self._is_owner(message.channel, message.sender_id)

    def list_for(self, message: InboundMessage) -> list[Command]:
        """Return the commands that the sender of `message` may use."""
        owner = self.is_owner(message)
        return [command for command in self if owner or command.allowed == "anyone"]

    def find_call(self, message: InboundMessage) -> tuple[Command, str] | None:
        """Return the command that a message calls and its arguments, or None.

        Forwarded and edited messages and programs' messages call none. If the sender may not use
        the command, the returned one answers with a refusal."""
        is_marked = message.origin.mark not in {"", ATTACHED}
        foreign = message.forwarded_from or is_marked or message.delivery.edits
        match = None
        if not foreign and not message.origin.by_program:
            text = self.interpret_reply(message) or message.content
            match = self.match(text) if text.lstrip().startswith("/") else None
        if match and match[0].allowed == "owner" and not self.is_owner(message):
            name = match[0].name
            text = f"/{name} is for this nanobot's owner only."
            return _saying(name, text, immediate=True), match[1]
        return match

    def skips_queue(self, message: InboundMessage) -> bool:
        """Return True if a message calls a command that need not wait for earlier messages."""
        match = self.find_call(message)
        return match is not None and not match[0].ordered

    def match(self, text: str) -> tuple[Command, str] | None:
        """Return the command that `text` calls and its arguments, or None if it is no command."""
        parsed = parse(text)
        if parsed is None:
            return None
        name, arguments = parsed
        if name in self._commands:
            return self._commands[name], arguments
        if name == EXPIRED_BUTTON[1:]:
            return _saying(name, "This button is no longer valid. Nothing was done."), ""
        near = close_matches(name, self._commands, n=1)
        hint = f"Did you mean /{near[0]}?" if near else "To list all commands, send /help."
        return _saying(name, f"There is no command /{name}. {hint}"), arguments


def _saying(name: str, text: str, *, immediate: bool = False) -> Command:
    """Return a command that only answers with `text`."""

    async def answer(_: CommandCall) -> Answer:
        return Answer(text)

    return Command(name, "", answer, immediate=immediate)


def parse(text: str) -> tuple[str, str] | None:
    """Return `("history", "5")` for `/history 5` (also `/history@botname 5`), or None for other
    text.

    A path such as `/etc/hosts` is not a command. `_` means `-`, which platform menus don't
    allow."""
    head, *rest = text.split(maxsplit=1) or [""]
    name = head[1:].partition("@")[0].replace("_", "-")  # groups add the bot's name
    if not head.startswith("/") or not name.replace("-", "").isalnum():  # as in `/etc/hosts`
        return None
    return name.lower(), rest[0].strip() if rest else ""
