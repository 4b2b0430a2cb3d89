"""The agent's questions in the chat at a terminal. Only one is open at a time, so a `y` means the
visible question. It counts only if its line was begun while the question was visible. A `y` to a
closed question also goes to the gateway, which replies that it is closed, until the next message or
reply."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from nanobot_cli.text import Question
from nanobot_cli.wire import AgentMessage, Closed


class Questions:
    """The unanswered questions. `show` prints one and returns True if nothing was typed yet."""

    def __init__(self, show: Callable[[AgentMessage], bool]) -> None:
        self._show = show
        self._waiting: deque[tuple[Question, bool]] = deque()
        """Each with True if it came while a message was pending."""
        self._shown: Question | None = None
        self._over: Question | None = None
        """The last message, if it is a closed question."""
        self.was_seen = False
        """True if the current line was begun while the open question was visible."""

    @property
    def open(self) -> Question | None:
        """The visible question."""
        return self._waiting[0][0] if self._waiting else None

    def value_of(self, typed: str) -> str | None:
        """Return the message for a typed answer to the open question, or to the closed one on the
        screen. None if it is none."""
        asked = self.open or self._over
        return asked.answer(typed) if asked else None

    def take_answer(self) -> str | None:
        """Remove the open question, which was answered. Return the chat that it belongs to, empty
        for this one, or None if the question was not visible."""
        if not self._waiting:
            return ""
        return self._waiting.popleft()[0].said.chat if self.was_seen else None

    def add(self, question: Question, *, in_turn: bool) -> None:
        """Add a question, `in_turn` if a message is pending."""
        self._waiting.append((question, in_turn))
        self.show()

    def close(self, closed: Closed) -> bool:
        """Remove a question that was answered in another place or dropped. Return True if it was
        open and visible."""
        left = deque(one for one in self._waiting if one[0].yes not in closed.choices)
        was_open = len(left) < len(self._waiting) and self._waiting[0] not in left
        if was_open:
            self._over = self.open
        self._waiting = left
        return was_open

    def forget_closed(self) -> None:
        """Note that another message follows a closed question."""
        self._over = None

    def end_turn(self) -> None:
        """Remove the questions of the turn. Those of subagents and other turns stay."""
        self._waiting = deque(one for one in self._waiting if not one[1])

    def leave(self, chat: str) -> None:
        """Keep the questions of a chat that the person leaves. They are answered there."""
        self._waiting = deque((one.move_to(chat), in_turn) for one, in_turn in self._waiting)
        self._over = None

    def show(self) -> None:
        """Show the open question, once."""
        question = self.open
        if question is not None and question is not self._shown:
            self.was_seen = self._show(question.said)
        self._shown = question
