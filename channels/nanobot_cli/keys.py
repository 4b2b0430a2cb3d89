"""The keyboard of the chat: key bindings, a silent keyboard around the prompt, and an orderly end
after errors and signals."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from nanobot_cli.completion import ChatCompleter
from nanobot_cli.typed import Pastes


def key_bindings(
    completer: ChatCompleter,
    pastes: Pastes,
    send: Callable[[Buffer], None],
    interrupt: Callable[[], None],
) -> KeyBindings:
    """Bind the keys: Enter sends, Alt-Enter breaks the line, Tab completes, Ctrl-O opens a folded
    paste, Ctrl-C clears or interrupts."""
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

    _bind_paste_keys(keys, pastes)
    return keys


def _bind_paste_keys(keys: KeyBindings, pastes: Pastes) -> None:
    """Fold a long paste, open it, and delete it as a whole."""
    typing = has_focus(DEFAULT_BUFFER)
    folded = Condition(lambda: pastes.has_folded(get_app().current_buffer.text))
    after = Condition(lambda: bool(pastes.ending(get_app().current_buffer.document)))

    @keys.add(Keys.BracketedPaste, filter=typing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(pastes.fold(event.data))

    @keys.add("c-o", filter=typing & folded)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.document = pastes.open(event.current_buffer.document)

    @keys.add("backspace", filter=typing & after)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        buffer.delete_before_cursor(len(pastes.ending(buffer.document)))


@contextlib.contextmanager
def quiet_keyboard() -> Iterator[None]:
    """Hide typed characters until the prompt reads them. Ctrl-C is still a signal. Restore the
    terminal afterwards."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin, termios.TCSANOW)
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


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

    taken = {
        number: handler
        for number in (signal.SIGTERM, signal.SIGHUP)
        if callable(handler := signal.getsignal(number))
    }
    loop.set_exception_handler(on_failure)
    for number in taken:
        loop.add_signal_handler(number, fail, SystemExit(128 + number))
    try:
        yield
    except asyncio.CancelledError:
        if failures:
            raise failures[0] from None
        raise
    finally:
        for number, handler in taken.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
