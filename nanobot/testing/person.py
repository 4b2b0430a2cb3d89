"""A person who sets something up and answers what the test says, for `nanobot.channel.Setup`."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from nanobot.channel import WentBack


class ScriptedPerson:
    """Answers one after the other; an empty answer takes the default, as Enter does. A choice is
    answered by its number from 1, or by a part of its words. The answer `<` goes back.

    `said` is all that the person was told or asked, in order.
    """

    def __init__(self, *answers: str) -> None:
        self._answers = deque(answers)
        self.said: list[str] = []

    @property
    def left(self) -> int:
        """Answers that nobody asked for."""
        return len(self._answers)

    def say(self, text: str) -> None:
        """See `nanobot.channel.Person`, here and below."""
        self.said.append(text)

    async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
        return self._next(question) or default

    async def confirm(self, question: str, *, default: bool = True) -> bool:
        answer = self._next(question)
        return answer == "y" if answer else default

    async def choose(self, question: str, choices: Sequence[str], default: int = 0) -> int:
        answer = self._next("\n".join([question, *choices]))
        if answer.isdecimal():
            return int(answer) - 1
        fitting = [at for at, choice in enumerate(choices) if answer in choice]
        return fitting[0] if answer else default

    def _next(self, question: str) -> str:
        self.said.append(question)
        if not self._answers:
            raise AssertionError(f"nobody expected: {question}")
        answer = self._answers.popleft()
        if answer == "<":
            raise WentBack
        return answer
