"""Going back while questions are asked, without the askers having to know how.

A step is a function that asks. What it was answered is kept; where the person goes back, it is run
anew, its earlier questions answer themselves, and the last one is asked again. So a step must ask
the same as long as it is answered the same; where it asks something else, that is asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from nanobot.channel import Person, WentBack

Given = tuple[str, str | bool]
"""A question and what was answered: the words, of a choice as well."""

T = TypeVar("T")
A = TypeVar("A", str, bool)


class Retraced:
    """A person whose answers are kept, and given again to the questions that they were given to.
    What is said in between is not said again. To the question that is asked again, the answer that
    it had is the default."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self._ahead: deque[Given] = deque()
        self._again: Given = ("", "")
        self.given: list[Given] = []

    def begin(self, before: Sequence[Given] = ()) -> None:
        """The next questions answer themselves with all of `before` but the last, which is asked
        again."""
        *ahead, self._again = before or [("", "")]
        self._ahead, self.given = deque(ahead), []

    def say(self, text: str) -> None:
        """See `nanobot.channel.Person`, here and below."""
        if not self._ahead:
            self._person.say(text)

    async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
        known = self._known(question)
        if not isinstance(known, str):
            default = str(self._had(question, default))
            known = await self._person.ask(question, default, secret=secret)
        return self._keep(question, known)

    async def confirm(self, question: str, *, default: bool = True) -> bool:
        known = self._known(question)
        if not isinstance(known, bool):
            default = bool(self._had(question, default))
            known = await self._person.confirm(question, default=default)
        return self._keep(question, known)

    async def choose(self, question: str, choices: Sequence[str], default: int = 0) -> int:
        known = str(self._known(question))
        if known not in choices:
            self._ahead.clear()
            had = str(self._had(question, ""))
            default = choices.index(had) if had in choices else default
            known = choices[await self._person.choose(question, choices, default)]
        return choices.index(self._keep(question, known))

    def _known(self, question: str) -> str | bool | None:
        """What answers a question by itself; None where that is to be asked, as is all after it."""
        if self._ahead and self._ahead[0][0] == question:
            return self._ahead.popleft()[1]
        self._ahead.clear()
        return None

    def _had(self, question: str, default: str | bool) -> str | bool:
        """The default of a question."""
        return self._again[1] if self._again[0] == question else default

    def _keep(self, question: str, answer: A) -> A:
        self.given.append((question, answer))
        return answer


async def walk(person: Retraced, steps: Sequence[Callable[[Sequence[T]], Awaitable[T]]]) -> list[T]:
    """What the steps come to, one after the other; each is called with what those before it came
    to. Back at the first question of a step leads to the last question of those before it."""
    done: list[tuple[T, list[Given]]] = []
    before: list[Given] = []
    while len(done) < len(steps):
        person.begin(before)
        try:
            result = await steps[len(done)]([result for result, _ in done])
        except WentBack:
            before = person.given
            while not before and done:
                _, before = done.pop()
            person.begin()
            if not before:
                person.say("This is the first question.")
        else:
            done.append((result, person.given))
            before = []
    return [result for result, _ in done]
