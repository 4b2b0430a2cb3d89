"""Asking an embedder so that search goes on without it: what fails is one warning, and no vectors.

A passage that the server refuses by itself is passed over, so that the others get their vectors.
Only while a plain word is not refused: a server that takes nothing is set up wrongly, and its
refusals say nothing about a passage.
"""

from __future__ import annotations

from collections.abc import Sequence

from loguru import logger

from nanobot.errors import NanobotError, ProviderGarbage, ProviderRejected
from nanobot.memory.index.values import Embedder

Vector = Sequence[float]

_PLAIN = "hello"


class Embedding:
    """Asks `embedder`; says once why it does not answer."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._failed = False

    async def of_question(self, text: str) -> Vector | None:
        """The vector of a question that somebody waits for; None where it is not to be had."""
        try:
            found = await self._vectors([text], patient=False)
        except NanobotError as error:
            self._fail(error)
            return None
        self._failed = False
        return found[0]

    async def of_passages(self, texts: Sequence[str], *, patient: bool) -> list[Vector | None]:
        """A vector for each, in order, None for one that is refused; [] where the embedder fails.

        `patient`: nobody waits, so trouble that passes is waited out.
        """
        try:
            found = await self._each(texts, patient)
        except NanobotError as error:
            self._fail(error)
            return []
        self._failed = False
        return found

    async def _each(self, texts: Sequence[str], patient: bool) -> list[Vector | None]:
        try:
            return [*await self._vectors(texts, patient=patient)]
        except ProviderRejected as error:
            if not error.blames_content:
                raise
        await self._vectors([_PLAIN], patient=patient)
        return await self._halves(texts, patient)

    async def _halves(self, texts: Sequence[str], patient: bool) -> list[Vector | None]:
        """The same for texts that are refused together."""
        if len(texts) == 1:
            logger.warning("a passage of {:,} characters gets no vector: refused", len(texts[0]))
            return [None]
        middle = len(texts) // 2
        found: list[Vector | None] = []
        for half in (texts[:middle], texts[middle:]):
            try:
                found += await self._vectors(half, patient=patient)
            except ProviderRejected as error:
                if not error.blames_content:
                    raise
                found += await self._halves(half, patient)
        return found

    async def _vectors(self, texts: Sequence[str], *, patient: bool) -> list[list[float]]:
        vectors = await self._embedder.embed(texts, patient=patient)
        if len(vectors) != len(texts):
            raise ProviderGarbage(f"{len(vectors)} vectors came for {len(texts)} texts")
        return vectors

    def _fail(self, error: NanobotError) -> None:
        if not self._failed:
            logger.warning("search goes by words alone: {}", error)
        self._failed = True
