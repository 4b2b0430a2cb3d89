"""Questions of a turn that `nanobot agent -m` waits for: asked at the terminal, else denied.

Where a person sits at the terminal, they are asked on standard error and answer by `y` or `n` while
we go on listening: the question may be withdrawn. Where nobody does, the answer is no at once, so
that a script does not wait for ten minutes.
"""

from __future__ import annotations

import select
import sys
import termios
from collections import deque
from collections.abc import Iterator

from nanobot.cli.client import Client
from nanobot.errors import NanobotError
from nanobot_cli.text import Question, clean, question_of
from nanobot_cli.wire import ChatEvent, Refused, Reply, Said


class Consent:
    """Answers the questions of one `session`."""

    def __init__(self, client: Client, session: str) -> None:
        self._client, self._session = client, session
        self._asks = sys.stdin.isatty() and sys.stderr.isatty()
        self._open: deque[Question] = deque()

    def events(self, message_id: str) -> Iterator[ChatEvent]:
        """What is said about a message, to its reply, without questions: they are answered. Raises
        `NanobotError` where the gateway refused the message."""
        while self._client.waiting:
            if self._keyboard_is_first():
                self._read_answer()
                continue
            for event in self._client.arrived():
                if event.id != message_id:
                    continue
                if isinstance(event, Refused):
                    raise NanobotError(event.error, hint=event.hint)
                if isinstance(event, Said) and (question := question_of(event)) is not None:
                    self._take(question)
                    continue
                yield event
                if isinstance(event, Reply):
                    self._open.clear()
                    return

    def _take(self, question: Question) -> None:
        if self._asks:
            self._open.append(question)
            if len(self._open) == 1:
                self._ask()
            return
        _tell(f"{question.said.text}\nDenied: nobody is at the terminal to be asked.\n")
        self._client.say(question.no.value, self._session)

    def _ask(self) -> None:
        question = self._open[0]
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before answers nothing
        _tell(f"{question.said.text}\n{question.keys}: ")

    def _keyboard_is_first(self) -> bool:
        """Wait for the gateway, and for the keyboard where a question is open."""
        if self._client.has_arrived:
            return False
        keyboard = [sys.stdin] if self._open else []
        readable, _, _ = select.select([self._client, *keyboard], [], [])
        return sys.stdin in readable

    def _read_answer(self) -> None:
        question = self._open[0]
        line = sys.stdin.readline()
        value = question.answer(line) if line else question.no.value
        if value is None:
            _tell(f"{question.keys}: ")
            return
        self._client.say(value, self._session)
        self._open.popleft()
        if self._open:
            self._ask()


def _tell(text: str) -> None:
    sys.stderr.write(clean(text))
    sys.stderr.flush()
