"""The chat at a terminal. The person can type while a turn runs.

A message typed then goes to the gateway at once: it joins the turn, is a command, or answers the
open question (`Questions`).

One loop in one thread reads the keyboard and the gateway, so no line of the protocol or the screen
is torn. An error ends the exchange, never the chat."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, is_done
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.layout import (
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Window,
)

from nanobot.clock import SystemClock
from nanobot.errors import NanobotError
from nanobot.text import pluralize
from nanobot_cli.completion import ChatCompleter, list_models, read_commands, rows_with_menu
from nanobot_cli.conversations import (
    Conversation,
    ConversationList,
    LastConversation,
    TemporaryChat,
    number_entries,
)
from nanobot_cli.keys import end_on_failures_and_signals, key_bindings, quiet_keyboard
from nanobot_cli.markdown import wrap_lines
from nanobot_cli.picker import Picker
from nanobot_cli.questions import Questions
from nanobot_cli.screen import PROMPT, Surface
from nanobot_cli.screen import Output as TerminalOutput
from nanobot_cli.text import one_line, question_of
from nanobot_cli.transcript import Transcript
from nanobot_cli.typed import Pastes, describe_files, open_history, read_attachments
from nanobot_cli.waiting import LONGEST, StatusLine, Waiting, greet
from nanobot_cli.wire import (
    Accepted,
    AgentMessage,
    ChatEvent,
    Closed,
    Gateway,
    Note,
    Reading,
    Refused,
    Reply,
)

_LEAVING = frozenset({"exit", "quit", "/exit", "/quit"})
_BUSY = "Wait for the answer, or stop it with Ctrl-C. Then try again."
_UNSEEN = "The question arrived while you were typing. Answer it again."
_SWITCHES = ("/new", "/resume")
_TEMPORARY = "This chat is temporary: nothing of it is stored. To leave it, type /new or /resume."
_KEYS = "/help · @file attaches · !cmd runs · Alt-Enter: new line · Ctrl-D: leave"
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_SECONDS = 0.1
_SHOWN = 4
"""Messages of a conversation that are shown when it is continued."""


class Terminal:
    """One person's chat in `session`. `history` is the file with the typed lines (mode 0600).
    `last` stores the conversation for the next chat. With `resume`, the person first chooses a
    conversation from a list, which is searched for these words. A `temporary` chat leaves no trace
    in files."""

    def __init__(
        self,
        gateway: Gateway,
        session: str,
        *,
        history: Path,
        last: LastConversation,
        resume: str | None = None,
        temporary: TemporaryChat | None = None,
    ) -> None:
        self._gateway, self._session, self._history = gateway, session, history
        self._last, self._resume, self._temporary = last, resume, temporary
        self._clock = SystemClock()
        self._pastes = Pastes()
        self._surface = Surface()
        self._transcript = Transcript(self._surface)
        self._questions = Questions(self._show_question)
        self._waiting = Waiting(self._clock)
        self._status = StatusLine({})
        self._known = ConversationList(gateway.ask_aside)
        self._offered: Mapping[str, Conversation] = {}
        """The numbered list that a terminal without a cursor shows."""
        self._accepted: set[str] = set()
        self._postponed = ""
        """The reason why a turn goes on later."""
        self._busy = asyncio.Event()
        self._frame = ""
        self._stopping = self._leaving = self._looking_back = False
        self._is_new = False
        """True if the person has begun this conversation and sent nothing."""
        self._hint = ""
        """The reason why the typed line was not sent."""

    def run(self) -> None:
        """Chat until the person leaves."""
        with contextlib.suppress(NanobotError):  # the chat works without them
            self._status = StatusLine(self._read_facts())
        first, *others = greet(self._status.facts, self._clock.now())
        self._transcript.line(first, "bold")
        others = [_TEMPORARY] if self._temporary else others
        for line in (_KEYS, *(others if self._resume is None else ())):
            self._transcript.line(line)
        # A request for the cursor's position would block printing until the answer.
        os.environ["PROMPT_TOOLKIT_NO_CPR"] = "1"
        prompt = self._prompt()
        with quiet_keyboard(), contextlib.suppress(EOFError, KeyboardInterrupt):
            asyncio.run(self._chat(prompt))
        self._surface.close()
        self._transcript.rest()
        if self._gateway.waiting and not self._stopping:
            self._transcript.line(
                f"The turn continues. To see its answer, run: nanobot sessions show {self._session}"
            )

    def _read_facts(self) -> Mapping[str, Any]:
        """Return the facts about the conversation. Raises `NanobotError`."""
        return dict(self._gateway.ask_aside("status.conversation", {"key": self._session}))

    def _prompt(self) -> PromptSession[str]:
        ask = self._gateway.ask_aside
        commands = [*read_commands(ask), ("/resume", "Continue another conversation")]
        completer = ChatCompleter(commands, partial(list_models, ask), Path.cwd())
        is_stored = self._temporary is None
        prompt: PromptSession[str] = PromptSession(
            self._render_live,
            history=open_history(self._history, self._pastes) if is_stored else InMemoryHistory(),
            completer=completer,
            complete_in_thread=True,
            complete_while_typing=True,
            reserve_space_for_menu=0,
            multiline=True,
            prompt_continuation="  ",
            key_bindings=key_bindings(completer, self._pastes, self._send, self._interrupt),
            erase_when_done=True,
            output=TerminalOutput.of_terminal() if self._surface.moves else None,
        )
        prompt.app.min_redraw_interval = _FRAME_SECONDS / 2
        prompt.default_buffer.on_text_changed += self._text_changed
        self._add_status_line(prompt)
        return prompt

    def _add_status_line(self, prompt: PromptSession[str]) -> None:
        """Put the completion menu and the status line right below the text, and unused rows below
        that."""
        status = FormattedTextControl(lambda: [("dim", self._status.text(self._surface.width - 1))])
        line = ConditionalContainer(Window(status, height=1), ~is_done)
        container, typed = prompt.layout.container, prompt.layout.current_window
        typed.dont_extend_height = Condition(lambda: True)
        typed.height = lambda: Dimension(min=rows_with_menu(prompt.default_buffer))
        if isinstance(container, HSplit):
            container.children += [line, Window()]

    async def _chat(self, prompt: PromptSession[str]) -> None:
        with end_on_failures_and_signals():
            self._surface.attach(prompt.app)
            self._gateway.watch(self._session)
            words = self._resume
            while True:
                if words is not None:
                    await self._choose(words)
                self._watch_gateway()
                try:
                    words = await prompt.prompt_async(
                        pre_run=self._begin, set_exception_handler=False
                    )
                finally:
                    self._unwatch_gateway()

    async def _choose(self, words: str) -> None:
        """Let the person choose a conversation, and go there."""
        if not self._surface.moves:
            self._offer(words)
        elif chosen := await Picker(self._known, self._surface, self._clock.now(), words).choose():
            self._continue(chosen)

    def _offer(self, words: str) -> None:
        """Print the conversations with numbers, to be chosen by the next line."""
        with self._using_gateway():
            found = self._known.find(words).page
            self._offered = {str(number): one for number, one in enumerate(found, 1)}
            if not found:
                self._transcript.line("No conversations found.")
                return
            self._transcript.line(number_entries(found, self._clock.now()), "")
            count = pluralize(len(found), "conversation")
            self._transcript.line(f"{count}. To continue one, type its number.")

    def _switch(self, text: str) -> bool:
        """Handle a line that goes to another conversation. Return False for any other line."""
        command, _, words = text.partition(" ")
        chosen, self._offered = self._offered.get(text), {}
        if command not in _SWITCHES and chosen is None:
            return False
        self._surface.print_words(text)
        if chosen is not None:
            self._continue(chosen)
        elif command == "/new" and self._is_new:
            self._transcript.line("This conversation is new already.")
        elif command == "/new":
            self._go_to(self._new_key())
            self._is_new = True
            self._transcript.line("New conversation. To go back to an earlier one, type /resume.")
        elif self._surface.moves:
            get_app().exit(result=words.strip())
        else:
            self._offer(words.strip())
        return True

    def _continue(self, chosen: Conversation) -> None:
        """Go to a conversation, or copy one of another channel into a new conversation."""
        key = chosen.key if chosen.is_own else self._new_key()
        with self._using_gateway():
            self._transcript.print_earlier(self._known.messages(chosen.key, _SHOWN))
        self._go_to(key)
        if chosen.is_own:
            self._transcript.line(greet(self._status.facts, self._clock.now())[-1])
        else:
            self._say(f"/continue {chosen.key}")

    def _new_key(self) -> str:
        return self._known.new_key(self._clock.now(), self._session, self._last.read())

    def _go_to(self, key: str) -> None:
        self._questions.leave(self._session.removeprefix("cli:"))
        self._session, self._is_new, self._temporary = key, False, None
        self._last.write(key)
        with self._using_gateway():
            self._gateway.watch(key)
            self._status = StatusLine(self._read_facts())

    def _begin(self) -> None:
        """Start the animation, before the first prompt. A dumb terminal has none."""
        get_app().create_background_task(self._animate())

    async def _animate(self) -> None:
        self._surface.watch_size()
        for self._frame in cycle(_FRAMES):
            await self._busy.wait()
            self._surface.redraw()
            await self._clock.sleep(_FRAME_SECONDS)

    def _render_live(self) -> StyleAndTextTuples:
        """Return the live part: the incomplete reply, the wait, queued messages, and the prompt."""
        rows, width = self._surface.size
        below = [*self._render_wait(width)]
        below += [("dim", line) for line in self._transcript.queue_lines(width)]
        typed = get_app().current_buffer.document.line_count
        lines = self._transcript.live_lines(rows - len(below) - typed - 3, width) if below else []
        if below or not self._surface.ends_blank:
            below.append(("", ""))
        answer = [part for line in lines for part in (*to_formatted_text(ANSI(line)), ("", "\n"))]
        return [*answer, *((style, text + "\n") for style, text in below), ("bold", PROMPT)]

    def _render_wait(self, width: int) -> Iterator[tuple[str, str]]:
        """Yield the lines about the thing that the person waits for, with the key that stops it if
        that fits."""
        if self._hint:
            yield from (("fg:ansiyellow", line) for line in wrap_lines(self._hint, width - 1))
        elif self._questions.open:
            yield "fg:ansicyan", self._questions.open.keys
        elif self._busy.is_set():
            text, hint = self._waiting.describe(width - 3), " · Ctrl-C stops"
            text += hint if len(text) + len(hint) <= width - 3 else ""
            first, *others = wrap_lines("stopping" if self._stopping else text, width - 3)
            yield "dim", f"{self._frame} {first}"
            yield from (("dim", f"  {line}") for line in others)
        elif self._postponed:
            yield from (("dim", line) for line in wrap_lines(self._postponed, width - 1))

    def _send(self, buffer: Buffer) -> None:
        """Handle Enter."""
        text, self._hint = buffer.text, ""
        value = self._questions.value_of(text)
        if text.strip().lower() in _LEAVING:
            get_app().exit(exception=EOFError)
        elif value is not None:
            chat = self._questions.take_answer()
            self._clear(buffer)
            self._surface.print_words(text)
            if chat is None:
                self._transcript.line(_UNSEEN)
            else:
                self._say(value, session=f"cli:{chat}" if chat else "")
        elif self._gateway.waiting and self._has_to_wait(text.strip()):
            self._clear(buffer, append_to_history=True)
            self._refuse(_BUSY)
        elif (files := self._read_files(text)) is not None:
            self._clear(buffer, append_to_history=True)
            if not self._switch(text.strip()):
                self._send_message(text, files)
        self._settle()

    def _clear(self, buffer: Buffer, *, append_to_history: bool = False) -> None:
        buffer.reset(append_to_history=append_to_history)
        self._leaving, self._questions.was_seen = False, True

    def _has_to_wait(self, text: str) -> bool:
        """Return True if a line can't be sent during a turn."""
        is_temporary = self._temporary is not None
        return text.partition(" ")[0] in _SWITCHES or (is_temporary and text != "/stop")

    def _refuse(self, reason: str) -> None:
        """Show why the typed line is not sent, until something is typed."""
        self._hint = reason if self._surface.moves else ""
        if not self._surface.moves:
            self._surface.end_typed_line()
            self._transcript.line(reason, "yellow")

    def _read_files(self, text: str) -> Sequence[tuple[str, bytes]] | None:
        """Return the files that a message names, or None if they can't be sent."""
        try:
            return read_attachments(text, Path.cwd())
        except NanobotError as error:
            self._refuse(f"{error}\n{error.hint}".strip())
            return None

    def _send_message(self, typed: str, files: Sequence[tuple[str, bytes]]) -> None:
        """Send a message that answers no question. During a turn it is queued."""
        text, shown = self._pastes.unfold(typed), f"{typed}{describe_files(files)}"
        text = f"/run {text[1:].strip()}" if typed.startswith("!") else text
        if not text.strip():
            self._surface.end_typed_line()
        elif self._gateway.waiting and text.strip() == "/stop":
            self._surface.end_typed_line()
            self._stopping = True
            self._say(text)
        elif self._gateway.waiting:
            if message_id := self._say(text, files):
                self._transcript.queue(message_id, shown)
        else:
            self._surface.print_words(shown)
            self._say(text, files)

    def _say(self, text: str, files: Sequence[tuple[str, bytes]] = (), *, session: str = "") -> str:
        """Send a text, to this or another conversation, and return its id, or an empty one after
        an error."""
        self._is_new, message_id = False, ""
        self._questions.forget_closed()
        if not self._gateway.waiting:
            self._waiting.begin()
        with self._using_gateway():
            earlier = self._temporary.said if self._temporary else ()
            message_id = self._gateway.send_message(
                text, session or self._session, stream=True, files=files, earlier=earlier
            )
            self._transcript.note_sent(message_id, text)
            if self._temporary:
                self._temporary.note_sent(message_id, text)
        return message_id

    def _interrupt(self) -> None:
        """Handle Ctrl-C without typed text: stop the turn, or leave the second time."""
        if self._gateway.waiting and not self._stopping:
            self._stopping = True
            self._say("/stop")
        elif self._stopping or self._leaving:
            get_app().exit(exception=EOFError)
        else:
            self._leaving = True
            self._transcript.line("To leave, press Ctrl-C again or Ctrl-D")
            self._surface.show_prompt()

    def _text_changed(self, buffer: Buffer) -> None:
        self._leaving, self._hint = False, ""
        if not buffer.text:
            self._questions.was_seen = True

    def _watch_gateway(self) -> None:
        if (gateway := self._gateway.fileno()) >= 0:
            asyncio.get_running_loop().add_reader(gateway, self._read_events)

    def _unwatch_gateway(self) -> None:
        if (gateway := self._gateway.fileno()) >= 0:
            asyncio.get_running_loop().remove_reader(gateway)

    @contextlib.contextmanager
    def _using_gateway(self) -> Iterator[None]:
        """Use the connection, which may be replaced, and print an error."""
        self._unwatch_gateway()
        try:
            yield
        except NanobotError as error:
            if not self._gateway.waiting:
                self._transcript.rest()
            self._transcript.print_error(str(error), error.hint)
        finally:
            self._watch_gateway()

    def _read_events(self) -> None:
        """Handle events of the gateway, or its end."""
        events: Sequence[ChatEvent] = ()
        with self._using_gateway():
            events = self._gateway.read_events()
        for event in events:
            self._take(event)
        self._settle()

    def _take(self, event: ChatEvent) -> None:
        transcript = self._transcript
        self._look_back(isinstance(event, AgentMessage) and bool(event.at))
        match event:
            case Accepted():
                self._accept(event.id)
            case Reading() if not transcript.expects(event.id):
                self._postponed = one_line(event.text, LONGEST)
                self._surface.redraw()
            case Note():
                transcript.note(event.text)
            case AgentMessage():
                self._hear(event)
            case Closed():
                if self._questions.close(event):
                    transcript.line(event.text)
            case Refused():
                transcript.print_error(event.error, event.hint, event.id)
            case Reply():
                self._end_turn(event)
                transcript.reply(event)
            case _:
                self._waiting.note(event)
                transcript.progress(event)

    def _look_back(self, is_from_absence: bool) -> None:
        """Print a heading before messages from the person's absence."""
        if is_from_absence and not self._looking_back:
            self._surface.leave_gap()
            self._transcript.line("While you were away:", "bold")
        self._looking_back = is_from_absence

    def _end_turn(self, reply: Reply) -> None:
        self._questions.forget_closed()
        self._status.end_turn(reply)
        if self._temporary:
            self._temporary.note_reply(reply)

    def _accept(self, message_id: str) -> None:
        """Note that the gateway has a message. The second time, it is another gateway."""
        if message_id in self._accepted:
            self._transcript.interrupt()
            self._waiting.begin()
        self._accepted.add(message_id)

    def _hear(self, said: AgentMessage) -> None:
        """Show a message, or queue it if it is a question."""
        self._questions.forget_closed()
        if (question := question_of(said)) is None:
            self._transcript.print_message(said, self._clock.now())
            if not self._gateway.waiting:  # a late answer
                get_app().create_background_task(self._refresh_status())
        else:
            self._questions.add(question, in_turn=self._gateway.waiting)

    def _settle(self) -> None:
        """Update the prompt."""
        if self._gateway.waiting:
            self._busy.set()
        elif self._busy.is_set():
            self._busy.clear()
            self._stopping = False
            self._transcript.rest()
            get_app().create_background_task(self._refresh_status())
            self._questions.end_turn()
        self._questions.show()
        if not self._busy.is_set():
            self._surface.show_prompt()

    async def _refresh_status(self) -> None:
        with contextlib.suppress(NanobotError):
            self._status.facts = await asyncio.to_thread(self._read_facts)
            self._surface.redraw()

    def _show_question(self, said: AgentMessage) -> bool:
        self._transcript.print_message(said, self._clock.now())
        self._surface.show_prompt()
        return not get_app().current_buffer.text
