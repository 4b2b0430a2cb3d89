"""The vectors of an index: which passages wait for one, and which are nearest to a question.

Where an embedder is configured, there are vectors beside the passages. A vector is stored as 32-bit
floats of length one and, beside it, as the signs of its numbers. The nearest are found in two
steps, without a numerical library: the number of differing signs, counted on integers, is close to
the angle between two vectors and quick to have for tens of thousands; of the few hundred that
differ least, the cosine is then computed exactly.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Collection, Iterator, Sequence
from heapq import nsmallest
from math import sqrt
from operator import mul

from nanobot.bus.sqlite import transaction
from nanobot.memory.search.database import STREAM_BITS, changes, unless_refused
from nanobot.tasks import paced

_EMBEDDED = 4_000
"""Characters of a passage that are embedded."""

_CLOSE, _NEAREST = 400, 100

Vector = Sequence[float]


class Vectors:
    """The vectors of one index; `name` is the embedder's, empty for none."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self._db, self._name = db, name
        self._signs: dict[int, int] = {}
        self._version: tuple[int, int] = (-1, -1)
        self._complete: tuple[int, int] = (-1, -1)

    def waiting(self, limit: int) -> list[tuple[int, str]]:
        """The hashes and texts of up to `limit` passages without a vector, newest first. Vectors of
        another embedder are dropped first."""
        row = self._db.execute("SELECT value FROM setting WHERE name = 'embedder'").fetchone()
        if row is None or row[0] != self._name:
            with unless_refused(), transaction(self._db):
                self._db.execute("DELETE FROM vector")
                setting = "INSERT OR REPLACE INTO setting VALUES ('embedder', ?)"
                self._db.execute(setting, (self._name,))
        if (version := changes(self._db)) == self._complete:  # else every passage is looked at
            return []
        found = self._db.execute(
            "SELECT hash, substr(text, 1, ?) FROM passage_text WHERE role != 'tool'"
            " AND hash NOT IN (SELECT hash FROM vector) ORDER BY moment DESC LIMIT ?",
            (_EMBEDDED, limit),
        ).fetchall()
        self._complete = (-1, -1) if found else version
        return found

    @unless_refused()
    def store(self, hashes: Sequence[int], vectors: Sequence[Vector | None]) -> None:
        """Keep the vectors of lines; None is for one that can have none, which then no longer waits
        for one."""
        with transaction(self._db):
            for hash, vector in paced(zip(hashes, vectors, strict=True)):
                numbers = _unit(vector or ())
                signs = _signs(numbers) if numbers else b""
                data = array("f", numbers).tobytes()
                insert = "INSERT OR REPLACE INTO vector VALUES (?, ?, ?)"
                self._db.execute(insert, (hash, signs, data))

    def count(self) -> int:
        """How many passages have a vector."""
        return len(self._all())

    def nearest(self, vector: Vector, streams: Collection[int]) -> dict[int, float]:
        """The passages of `streams` that are nearest in meaning, with a likeness from 0 to 1.

        The likeness is how far a cosine stands out above that of the last one considered.
        """
        question = _unit(vector)
        signs = int.from_bytes(_signs(question), "big")
        known = paced(self._all().items())
        here = ((id, s) for id, s in known if id >> STREAM_BITS in streams)
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
        for id, data in paced(rows):
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
            self._signs = {id: int.from_bytes(signs, "big") for id, signs in paced(rows)}
            self._version = version
        return self._signs


def _unit(vector: Vector) -> list[float]:
    length = sqrt(sum(map(mul, vector, vector))) or 1.0
    return [number / length for number in vector]


def _signs(vector: Vector) -> bytes:
    bits = "".join("1" if number > 0 else "0" for number in vector) or "0"
    return int(bits, 2).to_bytes((len(bits) + 7) // 8, "big")
