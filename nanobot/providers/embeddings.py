"""Embeddings from any server that speaks OpenAI's `/v1/embeddings`: optional, for memory search.

Texts go out in batches and come back as vectors in the same order. A text that is too long for the
model loses its end rather than its vector, because the beginning says what it is about. Errors are
those of every model server, with hints that name `memory.embeddings`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random

from nanobot.clock import Clock
from nanobot.errors import ContextTooLong
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.fields import items, mapping
from nanobot.providers.http import HttpConnection
from nanobot.providers.retry import RetryPolicy, retry

_STALL_SECONDS = 60.0
_SHORTEST = 100
"""Characters; a model that refuses even these is refusing something else."""


class OpenAIEmbedder:
    """One embedding model on one server.

    `batch` texts go into a request, each cut to `characters`. `name` tells vectors of one model
    from those of another: they cannot be compared.
    """

    def __init__(
        self, endpoint: Endpoint, clock: Clock, *, batch: int = 64, characters: int = 6_000
    ) -> None:
        self._endpoint, self._clock = endpoint, clock
        self._random = Random()  # noqa: S311 - jitter, not a secret
        self.name = f"{endpoint.model} at {endpoint.base_url.rpartition('@')[2]}"
        self._batch, self._characters = batch, characters
        self._connection = HttpConnection(endpoint, stall=_STALL_SECONDS)

    async def embed(self, texts: Sequence[str], *, question: bool = False) -> list[list[float]]:
        """A vector for each text, in order, all of one length; for the API a question is a text as
        any. Raises `ProviderError`s, those that pass only after some tries, unless it is
        a `question`."""
        policy = RetryPolicy(deadline=0.0) if question else RetryPolicy()
        vectors: list[list[float]] = []
        for start in range(0, len(texts), self._batch):
            batch = [_sendable(text, self._characters) for text in texts[start:][: self._batch]]
            vectors += await self._fitting(batch, policy)
        if len({len(vector) for vector in vectors}) > 1:
            raise self._endpoint.garbage_error("vectors of different lengths")
        return vectors

    async def close(self) -> None:
        await self._connection.close()

    async def _fitting(self, texts: list[str], policy: RetryPolicy) -> list[list[float]]:
        """Vectors for texts of which some may be too long for the model, or all for one request."""

        async def ask() -> list[list[float]]:
            wish = {"model": self._endpoint.model, "input": texts, "encoding_format": "float"}
            answer = await self._connection.ask("/embeddings", wish)
            found = dict(_vectors(answer.get("data")))
            if sorted(found) != list(range(len(texts))):
                raise self._endpoint.garbage_error(f"{len(found)} vectors for {len(texts)} texts")
            return [found[index] for index in range(len(texts))]

        try:
            return await retry(ask, "embeddings", policy, self._clock, self._random)
        except ContextTooLong:
            longest = max(map(len, texts))
            if len(texts) == 1 and longest <= _SHORTEST:
                raise
        if len(texts) == 1:
            return await self._fitting([texts[0][: longest // 2]], policy)
        middle = len(texts) // 2
        first = await self._fitting(texts[:middle], policy)
        return [*first, *await self._fitting(texts[middle:], policy)]


def _vectors(data: object) -> Iterator[tuple[int, list[float]]]:
    """The vectors of an answer, by index; what is no list of finite numbers is left out."""
    for position, item in enumerate(items(data)):
        fields = mapping(item)
        index = fields.get("index", position)
        vector = items(fields.get("embedding"))
        numbers = [
            float(one)
            for one in vector
            if isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one)
        ]
        if isinstance(index, int) and numbers and len(numbers) == len(vector):
            yield index, numbers


def _sendable(text: str, characters: int) -> str:
    """`text` as the API takes it: valid, of bounded length, and not empty, which servers refuse."""
    return text[:characters].encode("utf-8", "replace").decode().strip() or "(empty)"
