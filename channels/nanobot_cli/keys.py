"""The keyboard of the chat: key bindings, completion, a silent keyboard around the prompt, and an
orderly end after errors and signals."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import termios
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from types import FrameType
from typing import Any

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

_MODEL = "/model "


class SlashCompleter(Completer):
    """A completer for names of commands at the beginning of the text, and for names of models after
    `/model`. `models` may take seconds and is called when the person has typed as much."""

    def __init__(
        self, commands: Sequence[tuple[str, str]], models: Callable[[], Sequence[str]]
    ) -> None:
        self._commands, self._models = commands, models
        self._known: Sequence[str] | None = None

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        typed = document.text_before_cursor
        word = typed.removeprefix(_MODEL)
        for name, summary in self._matching(typed):
            yield Completion(name, start_position=-len(word), display_meta=summary)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        if document.text_before_cursor.startswith(_MODEL) and self._known is None:
            self._known = ()  # ask only once
            self._known = await asyncio.to_thread(self._models)
        for completion in self.get_completions(document, complete_event):
            yield completion

    def common(self, typed: str) -> str:
        """Return the common continuation of all completions of `typed`."""
        word = typed.removeprefix(_MODEL)
        names = [name for name, _ in self._matching(typed)]
        if not all(name.startswith(word) for name in names):
            return ""
        rests = [name[len(word) :] for name in names]
        same = takewhile(lambda letters: len(set(letters)) == 1, zip(*rests, strict=False))
        return "".join(letters[0] for letters in same)

    def _matching(self, typed: str) -> list[tuple[str, str]]:
        if typed.startswith(_MODEL):
            part = typed.removeprefix(_MODEL).lower()
            found = [name for name in self._known or () if part in name.lower()]
            found.sort(key=lambda name: (not name.lower().startswith(part), name))
            return [(name, "") for name in found]
        if not typed.startswith("/"):
            return []
        return [command for command in self._commands if command[0].startswith(typed)]


def key_bindings(
    completer: SlashCompleter, send: Callable[[Buffer], None], interrupt: Callable[[], None]
) -> KeyBindings:
    """Bind the keys: Enter sends, Alt-Enter breaks the line, Tab completes, Ctrl-C clears or
    interrupts."""
    keys = KeyBindings()
    typing = has_focus(DEFAULT_BUFFER)

    @keys.add("enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        send(event.current_buffer)

    @keys.add("escape", "enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("tab", filter=typing)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer  # insert the common part, else select a completion
        certain = completer.common(buffer.document.text_before_cursor)
        for letter in certain:  # a dumb terminal shows one letter per change
            buffer.insert_text(letter)
        if not certain and buffer.complete_state is not None:
            buffer.complete_next()
        elif not certain:
            buffer.start_completion()

    @keys.add("c-c", filter=typing)
    @keys.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            interrupt()

    return keys


@contextlib.contextmanager
def quiet_keyboard() -> Iterator[None]:
    """Hide typed characters until the prompt reads them. Ctrl-C is still a signal. Restore the
    terminal afterwards."""
    try:
        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard)
    except (OSError, ValueError, termios.error):  # no terminal
        yield
        return
    quiet = termios.tcgetattr(keyboard)
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    try:
        termios.tcsetattr(keyboard, termios.TCSANOW, quiet)
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(keyboard, termios.TCSANOW, before)


@contextlib.contextmanager
def end_on_failures_and_signals() -> Iterator[None]:
    """End this task on an unexpected error anywhere in the loop, and raise it here. The same for
    signals, because their exception is lost if it comes during the cleanup of an object."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    failures: list[BaseException] = []

    def fail(error: BaseException) -> None:
        failures.append(error)
        if task is not None:
            task.cancel()

    def on_failure(_: object, context: Mapping[str, Any]) -> None:
        fail(context.get("exception") or RuntimeError(context["message"]))

    def on_end_signal(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(fail, SystemExit(128 + number))

    taken = {
        number: handler
        for number in (signal.SIGTERM, signal.SIGHUP)
        if callable(handler := signal.getsignal(number))
    }
    loop.set_exception_handler(on_failure)
    for number in taken:
        signal.signal(number, on_end_signal)
    try:
        yield
    except asyncio.CancelledError:
        if failures:
            raise failures[0] from None
        raise
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
