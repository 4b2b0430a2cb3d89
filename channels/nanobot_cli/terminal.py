"""The chat that a person types into: one line or more in, a reply out, until they leave.

Input waits while a turn runs, unseen. Ctrl-C then stops the turn, a second one leaves; at the
prompt, Ctrl-C clears what was typed and, where nothing was, a second one in a row leaves. The first
Ctrl-C during a turn is handled where the signal arrives, so that it never tears a line of the
protocol or of the screen. An error ends the exchange, never the chat.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from rich.console import Console
from rich.text import Text

from nanobot.errors import NanobotError
from nanobot_cli.display import Exchange
from nanobot_cli.keys import SlashCompleter, key_bindings, quiet_keyboard
from nanobot_cli.plain import clean, one_line
from nanobot_cli.wire import ChatEvent, Delta, Note, Refused, Reply, Said, Tool

LEAVING = frozenset({"exit", "quit", "/exit", "/quit"})

BASIC_COMMANDS = (
    ("/help", "what I can do"),
    ("/new", "start a new conversation"),
    ("/stop", "stop what is running"),
    ("/status", "how things are"),
)
"""Offered where the gateway does not tell its commands."""


class Gateway(Protocol):
    """What the chat needs of its connection to the gateway."""

    def ask(self, operation: str, arguments: Mapping[str, object]) -> object:
        """Run one operation; raises `NanobotError`."""
        ...

    def say(self, text: str, session: str, *, stream: bool = False) -> str:
        """Send a message; returns the id that its events carry."""
        ...

    def events(self) -> Iterator[ChatEvent]:
        """What is said until every message has had its last word."""
        ...


class Terminal:
    """One person's chat in `session`. `history` is the file that keeps what they typed (0600)."""

    def __init__(
        self, gateway: Gateway, session: str, *, history: Path, console: Console | None = None
    ) -> None:
        self._gateway = gateway
        self._session = session
        self._console = console or Console(highlight=False)
        self._history = history
        self._awaiting = False
        self._sent = False
        self._stopping = False
        self._leaving = False

    def run(self) -> None:
        """Chat until the person leaves."""
        self._greet()
        with self._ctrl_c(), quiet_keyboard():
            prompt = self._prompt()
            while (text := self._read(prompt)) is not None:
                try:
                    if text.strip():
                        self._exchange(text)
                except KeyboardInterrupt:  # the second one during a turn
                    return

    def _read(self, prompt: PromptSession[str]) -> str | None:
        """What the person says next; None where they leave."""
        self._leaving = False
        while True:
            try:
                text = prompt.prompt()
            except EOFError:
                return None
            except KeyboardInterrupt:
                if self._leaving:
                    return None
                self._leaving = True
                self._console.print(Text("Ctrl-D leaves, or press Ctrl-C again", style="dim"))
            else:
                return None if text.strip().lower() in LEAVING else text

    def _cleared(self) -> None:
        self._leaving = False

    def _greet(self) -> None:
        model = _model(self._gateway)
        what = f"nanobot · {one_line(model, 60)}" if model else "nanobot"
        self._console.print(Text(what, style="bold"))
        help_line = "/help shows the commands · Alt-Enter: new line · Ctrl-D leaves"
        self._console.print(Text(help_line, style="dim"))

    def _prompt(self) -> PromptSession[str]:
        completer = SlashCompleter(_commands(self._gateway))
        return PromptSession(
            FormattedText([("bold", "> ")]),
            history=_open_history(self._history),
            completer=completer,
            complete_while_typing=True,
            reserve_space_for_menu=4,
            multiline=True,
            prompt_continuation="  ",
            key_bindings=key_bindings(completer, self._cleared),
        )

    def _exchange(self, text: str) -> None:
        self._stopping = self._sent = False
        self._awaiting = True
        with Exchange(self._console, command=text.startswith("/")) as exchange:
            try:
                self._say(text)
                self._listen(exchange)
                self._awaiting = False
                self._listen(exchange)  # a /stop that was said as the turn came to its end
            except NanobotError as error:
                exchange.refused(str(error), error.hint)
            finally:
                self._awaiting = False

    def _say(self, text: str) -> None:
        self._gateway.say(text, self._session, stream=True)
        self._sent = True
        if self._stopping:
            self._gateway.say("/stop", self._session)

    def _listen(self, exchange: Exchange) -> None:
        for event in self._gateway.events():
            _show(event, exchange)

    @contextlib.contextmanager
    def _ctrl_c(self) -> Iterator[None]:
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupted(self, _: int, __: FrameType | None) -> None:
        if not self._awaiting:  # the turn is just over: nothing to stop, and no wish to leave
            return
        if self._stopping:
            raise KeyboardInterrupt
        self._stopping = True
        if self._sent:  # else it is said after the message, so that no line is torn
            self._gateway.say("/stop", self._session)


def _show(event: ChatEvent, exchange: Exchange) -> None:
    match event:
        case Delta():
            exchange.delta(event)
        case Tool():
            exchange.tool(event.hint)
        case Note():
            exchange.note(event.text)
        case Said():
            exchange.said(event)
        case Refused():
            exchange.refused(event.error, event.hint)
        case Reply():
            exchange.reply(event)


def _open_history(path: Path) -> History:
    """The history in `path`, readable by its owner only; in memory where the disk will not."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def _model(gateway: Gateway) -> str:
    """The model's name; empty where the gateway will not say."""
    with contextlib.suppress(NanobotError):
        status = gateway.ask("status", {})
        if isinstance(status, dict):
            return str(status.get("model") or "")
    return ""


def _commands(gateway: Gateway) -> Sequence[tuple[str, str]]:
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
