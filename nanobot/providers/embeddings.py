"""Embeddings from any server that speaks OpenAI's `/v1/embeddings`: optional, for memory search.

Texts go out in batches and come back as vectors in the same order. A text that is too long for the
model loses its end rather than its vector, because the beginning says what it is about. Errors are
those of every model server, with hints that name `memory.embeddings`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from random import Random

from msgspec.structs import replace

from nanobot.clock import Clock, SystemClock
from nanobot.errors import ContextTooLong
from nanobot.providers.endpoint import Endpoint, LazyConnection, items, mapping, whole
from nanobot.providers.retry import RetryPolicy, retried

_ANSWER_LIMIT = 64 * 1024 * 1024
_SHORTEST = 100
"""Characters; a model that refuses even these is refusing something else."""


class OpenAIEmbedder:
    """One embedding model on one server.

    `batch` texts go into a request, each cut to `characters`. Times are in seconds. `name` tells
    vectors of one model from those of another: they cannot be compared.
    """

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str,
        model: str,
        batch: int = 64,
        characters: int = 6_000,
        stall_seconds: float = 60.0,
        connect_seconds: float = 15.0,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._endpoint = Endpoint(
            base_url, model, self._clock, api_key.strip(), settings="memory.embeddings"
        )
        self.name = f"{model} at {base_url.rpartition('@')[2]}"
        self._batch = batch
        self._characters = characters
        self._retry = retry or RetryPolicy()
        self._random = random or Random()  # noqa: S311 - jitter, not a secret
        self._connection = LazyConnection(
            self._endpoint, connect=connect_seconds, stall=stall_seconds
        )

    async def embed(self, texts: Sequence[str], *, patient: bool = True) -> list[list[float]]:
        """A vector for each text, in order, all of one length. Raises `ProviderError`s, those that
        pass only after some tries, unless it is not `patient`."""
        seconds = self._retry.deadline if patient else 0.0
        vectors: list[list[float]] = []
        for start in range(0, len(texts), self._batch):
            batch = [_sendable(text, self._characters) for text in texts[start:][: self._batch]]
            vectors += await self._fitting(batch, seconds)
        if len({len(vector) for vector in vectors}) > 1:
            raise self._endpoint.garbage("vectors of different lengths")
        return vectors

    async def close(self) -> None:
        """Release connections; a later call opens new ones."""
        await self._connection.close()

    async def _fitting(self, texts: list[str], seconds: float) -> list[list[float]]:
        """Vectors for texts of which some may be too long for the model, or all for one request."""
        try:
            return await self._patiently(texts, seconds)
        except ContextTooLong:
            longest = max(map(len, texts))
            if len(texts) == 1 and longest <= _SHORTEST:
                raise
        if len(texts) == 1:
            return await self._fitting([texts[0][: longest // 2]], seconds)
        middle = len(texts) // 2
        first = await self._fitting(texts[:middle], seconds)
        return [*first, *await self._fitting(texts[middle:], seconds)]

    async def _patiently(self, texts: list[str], seconds: float) -> list[list[float]]:
        """With tries for so many seconds."""
        policy = replace(self._retry, deadline=seconds)
        return await retried(
            lambda: self._ask(texts), "embeddings", policy, self._clock, self._random
        )

    async def _ask(self, texts: list[str]) -> list[list[float]]:
        wish = {"model": self._endpoint.model, "input": texts, "encoding_format": "float"}
        connection = await self._connection.open()
        async with connection.post("/embeddings", json.dumps(wish).encode()) as chunks:
            answer = await whole(chunks, _ANSWER_LIMIT, self._endpoint)
        return self._parsed(answer, len(texts))

    def _parsed(self, answer: bytes, expected: int) -> list[list[float]]:
        found = dict(_vectors(self._endpoint.object_in(answer).get("data")))
        if sorted(found) != list(range(expected)):
            raise self._endpoint.garbage(f"{len(found)} vectors for {expected} texts", answer)
        return [found[index] for index in range(expected)]


def _vectors(data: object) -> Iterator[tuple[int, list[float]]]:
    """The vectors of an answer, by index; what is no list of finite numbers is left out."""
    for position, item in enumerate(items(data)):
        fields = mapping(item)
        index = fields.get("index", position)
        vector = [_finite(value) for value in items(fields.get("embedding"))]
        numbers = [value for value in vector if value is not None]
        if isinstance(index, int) and numbers and len(numbers) == len(vector):
            yield index, numbers


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _sendable(text: str, characters: int) -> str:
    """`text` as the API takes it: valid, of bounded length, and not empty, which servers refuse."""
    return text[:characters].encode("utf-8", "replace").decode().strip() or "(empty)"
