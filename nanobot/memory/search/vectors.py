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
from collections.abc import Collection, Iterable, Sequence
from heapq import nsmallest
from math import sqrt
from operator import mul

from loguru import logger

from nanobot.errors import NanobotError, ProviderGarbage, ProviderRejected
from nanobot.memory.search.tables import STREAM_BITS
from nanobot.memory.search.values import Embedder

_LONGEST = 4_000
"""Characters of a passage that are embedded."""

_CLOSE = 400
_NEAREST = 100


class Vectors:
    """The vectors of one index; `name` is the embedder's."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self._db, self._name = db, name
        self._signs: dict[int, int] = {}
        self._version: tuple[int, int] = (-1, -1)
        self._complete: tuple[int, int] = (-1, -1)

    def pending(self, limit: int) -> list[tuple[int, str]]:
        """Up to `limit` passages without a vector, newest first, with the text to embed.

        Vectors of another embedder are dropped first.
        """
        self._drop_foreign()
        version = self._table_version()
        if version == self._complete:
            return []
        found = self._without_vector(limit)
        if not found:
            self._complete = version
        return found

    def _without_vector(self, limit: int) -> list[tuple[int, str]]:
        rows = self._db.execute(
            "SELECT passage.id, coalesce(original, words.text) FROM passage"
            " JOIN words ON words.rowid = passage.id"
            " WHERE passage.role != 'tool' AND passage.id NOT IN (SELECT id FROM vector)"
            " ORDER BY moment DESC LIMIT ?",
            (limit,),
        )
        return [(id, text[:_LONGEST]) for id, text in rows]

    def store(
        self, texts: Sequence[tuple[int, str]], vectors: Sequence[Sequence[float] | None]
    ) -> None:
        """Keep vectors of passages, unless a passage changed since its text was handed out; None
        is for one that can have no vector, which then no longer waits for one."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for (id, text), vector in zip(texts, vectors, strict=True):
                row = self._db.execute(
                    "SELECT substr(coalesce(original, words.text), 1, ?) FROM passage"
                    " JOIN words ON words.rowid = passage.id WHERE passage.id = ?",
                    (_LONGEST, id),
                ).fetchone()
                if row is not None and row[0] == text:
                    numbers = _unit(vector or ())
                    self._db.execute(
                        "INSERT OR REPLACE INTO vector VALUES (?, ?, ?)",
                        (id, _signs(numbers) if numbers else b"", array("f", numbers).tobytes()),
                    )
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def count(self) -> int:
        """How many passages have a vector."""
        row = self._db.execute("SELECT count(*) FROM vector WHERE length(signs)").fetchone()
        return int(row[0])

    def nearest(self, vector: Sequence[float], streams: Collection[int]) -> dict[int, float]:
        """The passages of `streams` that are nearest in meaning, with a likeness from 0 to 1.

        The likeness is how far a cosine stands out above that of the last one considered.
        """
        question = _unit(vector)
        signs = int.from_bytes(_signs(question), "big")
        here = self._all()
        near = nsmallest(
            _CLOSE,
            ((signs ^ s).bit_count() << 64 | id for id, s in here.items()
             if id >> STREAM_BITS in streams),
        )  # fmt: skip
        ids = [found & ((1 << 64) - 1) for found in near]
        cosines = sorted(self._cosines(question, ids), reverse=True)[:_NEAREST]
        if not cosines:
            return {}
        top, floor = cosines[0][0], min(cosines[-1][0], cosines[0][0] - 1e-9)
        return {id: (cosine - floor) / (top - floor) for cosine, id in cosines}

    def _cosines(
        self, question: Sequence[float], ids: Iterable[int]
    ) -> Iterable[tuple[float, int]]:
        rows = self._db.execute(
            "SELECT id, data FROM vector WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
        for id, data in rows:
            numbers = array("f", data)
            if len(numbers) == len(question):
                yield sum(map(mul, numbers, question)), id

    def _all(self) -> dict[int, int]:
        """The signs of all vectors, kept in memory until the table changes."""
        count = self.count()
        version = self._table_version()
        if version != self._version or count != len(self._signs):
            rows = self._db.execute("SELECT id, signs FROM vector WHERE length(signs)")
            self._signs = {id: int.from_bytes(signs, "big") for id, signs in rows}
            self._version = version
        return self._signs

    def _table_version(self) -> tuple[int, int]:
        """Another one after each change, by whomever."""
        return self._db.execute("PRAGMA data_version").fetchone()[0], self._db.total_changes

    def _drop_foreign(self) -> None:
        row = self._db.execute("SELECT value FROM setting WHERE name = 'embedder'").fetchone()
        if row is None or row[0] != self._name:
            self._db.execute("DELETE FROM vector")
            self._signs = {}
            self._db.execute("INSERT OR REPLACE INTO setting VALUES ('embedder', ?)", (self._name,))


def _unit(vector: Sequence[float]) -> list[float]:
    length = sqrt(sum(map(mul, vector, vector))) or 1.0
    return [number / length for number in vector]


def _signs(vector: Sequence[float]) -> bytes:
    bits = "".join("1" if number > 0 else "0" for number in vector) or "0"
    return int(bits, 2).to_bytes((len(bits) + 7) // 8, "big")


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
