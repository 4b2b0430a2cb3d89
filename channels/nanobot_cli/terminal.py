"""The chat that a person types into, until they leave; they can type while a turn runs.

What they send then goes to the gateway at once: it joins the turn, is a command, or answers the
question that is open. One loop in one thread reads the keyboard and the gateway, so nothing tears a
line of the protocol or of the screen. Ctrl-C clears what was typed; where nothing was, it stops the
turn, and a second one leaves; with no turn, two in a row leave. An error ends the exchange, never
the chat.

What the chat in the terminal needs of its connection to the gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from rich.console import Console
from rich.text import Text

from nanobot.clock import Clock, SystemClock
from nanobot.errors import NanobotError
from nanobot_cli.keys import (
    SlashCompleter,
    Wishes,
    ended_by_failures_and_signals,
    key_bindings,
    quiet_keyboard,
)
from nanobot_cli.questions import Questions, question_of
from nanobot_cli.screen import PROMPT, Surface, Transcript, moment
from nanobot_cli.text import clean, one_line
from nanobot_cli.wire import ChatEvent, Delta, Note, Output, Refused, Reply, Said, Tool

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


LEAVING = frozenset({"exit", "quit", "/exit", "/quit"})

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_SECONDS = 0.1
_MENU_ROWS = 4
_DIM = "dim"


class Terminal:
    """One person's chat in `session`. `history` is the file that keeps what they typed (0600)."""

    def __init__(
        self,
        gateway: Gateway,
        session: str,
        *,
        history: Path,
        console: Console | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._gateway, self._session, self._history = gateway, session, history
        self._surface = Surface(console or Console(highlight=False))
        self._transcript = Transcript(self._surface)
        self._questions = Questions()
        self._clock = clock or SystemClock()
        self._busy = asyncio.Event()
        self._frame = _FRAMES[0]
        self._stopping = False
        self._leaving = False
        self._looking_back = False

    def run(self) -> None:
        """Chat until the person leaves."""
        self._greet()
        prompt = self._prompt()
        with quiet_keyboard(), contextlib.suppress(EOFError, KeyboardInterrupt):
            asyncio.run(self._chat(prompt))
        if self._gateway.waiting and not self._stopping:
            self._transcript.hint(
                f"The turn goes on; its answer will be in: nanobot sessions show {self._session}"
            )

    async def _chat(self, prompt: PromptSession[str]) -> None:
        with ended_by_failures_and_signals():
            self._surface.attach(prompt.app)
            self._gateway.watch(self._session)
            self._hear()
            try:
                await prompt.prompt_async(pre_run=self._begin, set_exception_handler=False)
            finally:
                self._be_deaf()

    def _begin(self) -> None:
        """The prompt is about to be drawn; a dumb terminal draws none."""
        get_app().create_background_task(self._animate())

    def _greet(self) -> None:
        model = model_of(self._gateway)
        what = f"nanobot · {one_line(model, 60)}" if model else "nanobot"
        self._surface.print(Text(what, style="bold"))
        self._transcript.hint("/help shows the commands · Alt-Enter: new line · Ctrl-D leaves")

    def _prompt(self) -> PromptSession[str]:
        completer = SlashCompleter(commands_of(self._gateway))
        prompt = PromptSession[str](
            self._moving,
            history=_open_history(self._history),
            completer=completer,
            complete_while_typing=True,
            reserve_space_for_menu=_MENU_ROWS,
            multiline=True,
            prompt_continuation="  ",
            key_bindings=key_bindings(
                completer, Wishes(self._send, self._interrupt, self._cleared)
            ),
            erase_when_done=True,
        )
        prompt.app.min_redraw_interval = _FRAME_SECONDS / 2
        prompt.default_buffer.on_text_changed += self._text_changed
        return prompt

    def _moving(self) -> FormattedText:
        """All that moves: what is being written, what goes on, and the prompt."""
        lines: list[tuple[str, str]] = []
        if self._busy.is_set() or self._questions.open is not None:
            rows, width = self._surface.size
            lines = self._transcript.moving(rows - _MENU_ROWS - 3, width)
            lines.append(self._state())
        above = [(style, text + "\n") for style, text in lines]
        return FormattedText([*above, ("bold", PROMPT)])

    def _state(self) -> tuple[str, str]:
        if (question := self._questions.open) is not None:
            return "fg:ansicyan", question.keys
        return _DIM, f"{self._frame} " + ("stopping" if self._stopping else "Ctrl-C stops")

    async def _animate(self) -> None:
        for frame in count():
            await self._busy.wait()
            self._frame = _FRAMES[frame % len(_FRAMES)]
            self._surface.redraw()
            await self._clock.sleep(_FRAME_SECONDS)

    def _send(self, buffer: Buffer) -> None:
        """Enter was pressed."""
        text, self._leaving = buffer.text, False
        value = self._questions.answer(text)
        if value is None and text.strip().lower() not in LEAVING:
            buffer.append_to_history()
        was_seen = self._questions.was_seen
        buffer.reset()
        self._questions.new_line()
        if text.strip().lower() in LEAVING:
            get_app().exit(exception=EOFError)
        elif value is None:
            self._say_typed(text, text)
        elif was_seen:
            self._say_typed(text, value)
            self._next_question()
        else:
            self._transcript.typed(text)
            self._transcript.hint("The question came while you were typing: answer it again.")
            self._settle()

    def _say_typed(self, typed: str, text: str) -> None:
        self._transcript.typed(typed)
        if text.strip():
            self._say(text)
        self._settle()

    def _say(self, text: str) -> None:
        self._be_deaf()  # the connection may become another one
        try:
            self._transcript.sent(self._gateway.say(text, self._session, stream=True), text)
        except NanobotError as error:
            self._transcript.refused(str(error), error.hint)
        finally:
            self._hear()

    def _next_question(self) -> None:
        if (said := self._questions.answered()) is not None:
            self._show_question(said)
        self._surface.redraw()

    def _show_question(self, said: Said) -> None:
        self._transcript.said(said)
        self._questions.shown(while_typing=bool(get_app().current_buffer.text))
        self._surface.invite()

    def _interrupt(self) -> None:
        """Ctrl-C, with nothing typed."""
        if self._gateway.waiting and not self._stopping:
            self._stopping = True
            self._say("/stop")
        elif self._stopping or self._leaving:
            get_app().exit(exception=EOFError)
        else:
            self._leaving = True
            self._transcript.hint("Ctrl-D leaves, or press Ctrl-C again")
            self._surface.invite()

    def _cleared(self) -> None:
        self._leaving = False

    def _text_changed(self, buffer: Buffer) -> None:
        if not buffer.text:
            self._questions.new_line()

    def _hear(self) -> None:
        if (gateway := self._gateway.fileno()) >= 0:
            asyncio.get_running_loop().add_reader(gateway, self._listen)

    def _be_deaf(self) -> None:
        if (gateway := self._gateway.fileno()) >= 0:
            asyncio.get_running_loop().remove_reader(gateway)

    def _listen(self) -> None:
        """The gateway has said something, or has gone away."""
        self._be_deaf()
        if self._surface.is_measuring:
            get_app().create_background_task(self._listen_later())
            return
        events: Sequence[ChatEvent] = ()
        try:
            events = self._gateway.arrived()
        except NanobotError as error:
            self._transcript.refused(str(error), error.hint)
        finally:
            self._hear()
        for event in events:
            self._take(event)
        self._settle()

    async def _listen_later(self) -> None:
        await self._surface.measured()
        self._listen()

    def _take(self, event: ChatEvent) -> None:
        transcript = self._transcript
        looked_back, self._looking_back = self._looking_back, _is_late(event)
        if self._looking_back and not looked_back:
            transcript.heading("While you were away:")
        match event:
            case Delta():
                transcript.delta(event)
            case Tool():
                transcript.tool(event)
            case Output():
                transcript.output(event)
            case Note():
                transcript.note(event.text)
            case Said():
                self._take_said(event)
            case Refused():
                transcript.refused(event.error, event.hint)
            case Reply():
                transcript.reply(event)

    def _take_said(self, said: Said) -> None:
        question = question_of(said)
        if said.at:  # a question is answered by its command: it is old, and may not wait any more
            self._transcript.said_earlier(said, moment(said.at, self._clock.now()))
            return
        if question is None:
            self._transcript.said(said)
        elif self._questions.ask(said, question, for_ours=self._gateway.waiting):
            self._show_question(said)

    def _settle(self) -> None:
        """Draw the prompt as it now has to be."""
        was_busy = self._busy.is_set()
        if self._gateway.waiting:
            self._busy.set()
            return
        if was_busy:
            self._busy.clear()
            self._stopping = False
            self._transcript.rest()
            if (said := self._questions.withdraw()) is not None:
                self._show_question(said)
        self._surface.invite()


def _is_late(event: ChatEvent) -> bool:
    """Whether it was said while nobody was there."""
    return isinstance(event, Said) and bool(event.at)


def _open_history(path: Path) -> History:
    """The history in `path`, readable by its owner only; in memory where the disk will not."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)
