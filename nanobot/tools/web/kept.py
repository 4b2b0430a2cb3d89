"""Pages that conversations have fetched, in memory, and which addresses each has asked for."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable

from nanobot.errors import ToolError
from nanobot.security.egress import EgressResponse

Page = tuple[str, int]
"""An address, and in how many messages the person had typed it when it was fetched."""

_BYTES = 64_000_000
_PAGES = 1_000
_CONVERSATIONS = 1_000

_Answer = EgressResponse | ToolError


class KeptPages:
    """At most `_BYTES` of bodies; those go first that were not used for longest. A failure is kept
    like a page: trying again would be a request more."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[str, Page], _Answer] = OrderedDict()
        self._asked: OrderedDict[str, set[str]] = OrderedDict()
        self._locks: dict[tuple[str, Page], asyncio.Lock] = {}

    def has(self, conversation: str, page: Page) -> bool:
        """Whether a page is here."""
        key = (conversation, page)
        if key in self._answers:
            self._answers.move_to_end(key)  # it is about to be read
        return key in self._answers

    def takes_place(self, conversation: str, url: str, before: Iterable[str], most: int) -> bool:
        """Whether `url` is among the first `most` addresses of a conversation, which is noted.
        `before` are those of earlier steps, which an earlier process may have fetched."""
        asked = self._asked.setdefault(conversation, set())
        self._asked.move_to_end(conversation)
        while len(self._asked) > _CONVERSATIONS:
            self._asked.popitem(last=False)
        asked.update(before)
        if url not in asked and len(asked) >= most:
            return False
        asked.add(url)
        return True

    async def once(
        self, conversation: str, page: Page, ask: Callable[[], Awaitable[EgressResponse]]
    ) -> EgressResponse:
        """The page, from here or by asking. Raises `ToolError`, the same one each time."""
        key = (conversation, page)
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if key not in self._answers:
                    self._keep(key, await _answer(ask))
                answer = self._answers[key]
        finally:
            if not lock.locked():
                self._locks.pop(key, None)
        if isinstance(answer, ToolError):
            raise answer
        return answer

    def _keep(self, key: tuple[str, Page], answer: _Answer) -> None:
        self._answers[key] = answer
        while len(self._answers) > 1 and (
            len(self._answers) > _PAGES or sum(map(_size, self._answers.values())) > _BYTES
        ):
            self._answers.popitem(last=False)


async def _answer(ask: Callable[[], Awaitable[EgressResponse]]) -> _Answer:
    try:
        return await ask()
    except ToolError as error:
        return error


def _size(answer: _Answer) -> int:
    return 0 if isinstance(answer, ToolError) else len(answer.body)
