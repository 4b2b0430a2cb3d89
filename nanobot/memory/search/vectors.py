"""Meanings, where an embedder is configured: vectors beside the passages, and the nearest of them.

A vector is stored as 32-bit floats of length one and, beside it, as the signs of its numbers. The
nearest are found in two steps, without a numerical library: the number of differing signs, counted
on integers, is close to the angle between two vectors and quick to have for tens of thousands; of
the few hundred that differ least, the cosine is then computed exactly.

Search goes on without an embedder that fails: one warning, and no vectors. A passage that the
server refuses by itself is passed over, so that the others get their vectors; a server that refuses
even a plain word is set up wrongly, and its refusals say nothing about a passage.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Collection, Iterator, Sequence
from heapq import nsmallest
from math import sqrt
from operator import mul
from typing import NamedTuple

from loguru import logger

from nanobot.errors import NanobotError, ProviderGarbage, ProviderRejected
from nanobot.memory.search.database import STREAM_BITS, changes, transaction
from nanobot.memory.search.values import Embedder

_LONGEST = 4_000
"""Characters of a passage that are embedded."""

_CLOSE = 400
_NEAREST = 100
_PLAIN = "hello"

Vector = Sequence[float]


class Waiting(NamedTuple):
    """A line of which the index has no vector yet, and the text to embed."""

    hash: int
    text: str


class Vectors:
    """The vectors of one index; `name` is the embedder's, empty for none."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self._db, self._name = db, name
        self._signs: dict[int, int] = {}
        self._version: tuple[int, int] = (-1, -1)
        self._complete: tuple[int, int] = (-1, -1)

    def waiting(self, limit: int) -> list[Waiting]:
        """Up to `limit` passages without a vector, newest first. Vectors of another embedder are
        dropped first."""
        row = self._db.execute("SELECT value FROM setting WHERE name = 'embedder'").fetchone()
        if row is None or row[0] != self._name:
            self._db.execute("DELETE FROM vector")
            self._db.execute("INSERT OR REPLACE INTO setting VALUES ('embedder', ?)", (self._name,))
        if self._complete == (version := changes(self._db)):
            return []
        rows = self._db.execute(
            "SELECT hash, substr(text, 1, ?) FROM said WHERE role != 'tool'"
            " AND hash NOT IN (SELECT hash FROM vector) ORDER BY moment DESC LIMIT ?",
            (_LONGEST, limit),
        )
        found = [Waiting._make(row) for row in rows]
        self._complete = self._complete if found else version
        return found

    def store(self, lines: Sequence[Waiting], vectors: Sequence[Vector | None]) -> None:
        """Keep the vectors of lines; None is for one that can have none, which then no longer waits
        for one."""
        with transaction(self._db):
            for line, vector in zip(lines, vectors, strict=True):
                numbers = _unit(vector or ())
                self._db.execute(
                    "INSERT OR REPLACE INTO vector VALUES (?, ?, ?)",
                    (
                        line.hash,
                        _signs(numbers) if numbers else b"",
                        array("f", numbers).tobytes(),
                    ),
                )

    def count(self) -> int:
        """How many passages have a vector."""
        return len(self._all())

    def nearest(self, vector: Vector, streams: Collection[int]) -> dict[int, float]:
        """The passages of `streams` that are nearest in meaning, with a likeness from 0 to 1.

        The likeness is how far a cosine stands out above that of the last one considered.
        """
        question = _unit(vector)
        signs = int.from_bytes(_signs(question), "big")
        here = ((id, s) for id, s in self._all().items() if id >> STREAM_BITS in streams)
        near = nsmallest(_CLOSE, (((signs ^ s).bit_count(), id) for id, s in here))
        cosines = sorted(self._cosines(question, [id for _, id in near]), reverse=True)[:_NEAREST]
        if not cosines:
            return {}
        top, floor = cosines[0][0], min(cosines[-1][0], cosines[0][0] - 1e-9)
        return {id: (cosine - floor) / (top - floor) for cosine, id in cosines}

    def _cosines(self, question: Vector, ids: list[int]) -> Iterator[tuple[float, int]]:
        rows = self._db.execute(
            "SELECT id, data FROM passage JOIN vector USING (hash)"
            " WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(ids),),
        )
        for id, data in rows:
            numbers = array("f", data)
            if len(numbers) == len(question):
                yield sum(map(mul, numbers, question)), id

    def _all(self) -> dict[int, int]:
        """The signs of all passages' vectors, kept in memory until the index changes."""
        if (version := changes(self._db)) != self._version:
            rows = self._db.execute(
                "SELECT id, signs FROM passage JOIN vector USING (hash)"
                " WHERE length(signs) AND role != 'tool'"
            )
            self._signs = {id: int.from_bytes(signs, "big") for id, signs in rows}
            self._version = version
        return self._signs


def _unit(vector: Vector) -> list[float]:
    length = sqrt(sum(map(mul, vector, vector))) or 1.0
    return [number / length for number in vector]


def _signs(vector: Vector) -> bytes:
    bits = "".join("1" if number > 0 else "0" for number in vector) or "0"
    return int(bits, 2).to_bytes((len(bits) + 7) // 8, "big")


class Embedding:
    """Asks `embedder`; says once why it does not answer."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._failed = False

    async def vectors_of(self, texts: Sequence[str], *, patient: bool) -> list[Vector | None]:
        """A vector for each, in order, None for one that is refused; [] where the embedder fails.

        `patient`: no one waits, so trouble that passes is waited out.
        """
        try:
            found = await self._each(texts, patient)
        except NanobotError as error:
            if not self._failed:
                logger.warning("search goes by words alone: {}", error)
            self._failed = True
            return []
        self._failed = False
        return found

    async def _each(self, texts: Sequence[str], patient: bool) -> list[Vector | None]:
        try:
            return [*await self._ask(texts, patient)]
        except ProviderRejected as error:
            if not error.blames_content:
                raise
        await self._ask([_PLAIN], patient)
        return [await self._one(text, patient) for text in texts]

    async def _one(self, text: str, patient: bool) -> Vector | None:
        try:
            return (await self._ask([text], patient))[0]
        except ProviderRejected as error:
            if not error.blames_content:
                raise
            logger.warning("a passage of {:,} characters gets no vector: refused", len(text))
            return None

    async def _ask(self, texts: Sequence[str], patient: bool) -> list[list[float]]:
        vectors = await self._embedder.embed(texts, patient=patient)
        if len(vectors) != len(texts):
            raise ProviderGarbage(f"{len(vectors)} vectors came for {len(texts)} texts")
        return vectors
