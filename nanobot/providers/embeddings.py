"""Embeddings from any server with OpenAI's `/v1/embeddings`: optional, for memory search.

Texts are sent in batches, and vectors are returned in the same order. A text that is too long for
the model is cut, because its beginning shows its subject. Errors are as for every model server,
with hints that name `memory.embeddings`."""

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
_SHORTEST = 100  # characters; a model that refuses even these is refusing something else


class OpenAIEmbedder:
    """One embedding model on one server.

    A request holds `batch` texts, each cut to `characters`. `name` identifies the model, because
    vectors of different models cannot be compared."""

    context = 0  # it would double the price

    def __init__(
        self, endpoint: Endpoint, clock: Clock, *, batch: int = 64, characters: int = 6_000
    ) -> None:
        self._endpoint, self._clock = endpoint, clock
        self._random = Random()  # noqa: S311 - jitter, not a secret
        self.name = f"{endpoint.model} at {endpoint.base_url.rpartition('@')[2]}"
        self._batch, self._characters = batch, characters
        self._connection = HttpConnection(endpoint, stall=_STALL_SECONDS)

    async def embed(self, texts: Sequence[str], *, question: bool = False) -> list[list[float]]:
        """Return a vector for each text in order, all of one length. The API makes no difference
        for a `question`, which is not retried. Raise `ProviderError`s."""
        policy = RetryPolicy(deadline=0.0) if question else RetryPolicy()
        vectors: list[list[float]] = []
        for start in range(0, len(texts), self._batch):
            batch = (text[: self._characters] for text in texts[start:][: self._batch])
            valid = (text.encode("utf-8", "replace").decode().strip() for text in batch)
            # Servers refuse empty texts.
            vectors += await self._embed_fitting([text or "(empty)" for text in valid], policy)
        if len({len(vector) for vector in vectors}) > 1:
            raise self._endpoint.garbage_error("vectors of different lengths")
        return vectors

    async def close(self) -> None:
        await self._connection.close()

    async def _embed_fitting(self, texts: list[str], policy: RetryPolicy) -> list[list[float]]:
        """Return vectors, even if some texts are too long for the model or all are too long for one
        request."""

        async def ask() -> list[list[float]]:
            wish = {"model": self._endpoint.model, "input": texts, "encoding_format": "float"}
            answer = await self._connection.ask("/embeddings", wish)
            found = dict(read_vectors(answer.get("data")))
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
            return await self._embed_fitting([texts[0][: longest // 2]], policy)
        middle = len(texts) // 2
        first = await self._embed_fitting(texts[:middle], policy)
        return [*first, *await self._embed_fitting(texts[middle:], policy)]


def read_vectors(data: object) -> Iterator[tuple[int, list[float]]]:
    """Yield the vectors of an answer by index, without invalid ones (not lists of finite
    numbers)."""
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
