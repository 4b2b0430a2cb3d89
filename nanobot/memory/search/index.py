"""`MemoryIndex`: finds what was said, wherever it is kept.

The index is a cache over the files, and nothing else knows of it. Invariants:

- a search takes in first what changed in the files, so it finds what was just said, and nothing
  that was undone, forgotten or erased; the next refresh leaves nothing of that in the file;
- nothing outside the scopes of a query is returned, by a hit, beside a hit, or by `around`;
- an index that is missing, damaged or of another version is built again;
- while another process is writing to it, or the disk refuses, a search answers from what is there.

SQLite runs in one thread of its own, so the event loop never waits for it. Vectors are `vectors`'s:
a search asks for those near to its question, and passages get theirs in the background (`embed`).
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from loguru import logger
from msgspec.structs import replace

from nanobot.bus.cache import is_damaged, remove_cache
from nanobot.bus.sqlite import storage_error
from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot.io import storage_errors
from nanobot.memory.search import Embedder, IndexStats, Passage, Query, SearchResult, Sources
from nanobot.memory.search.database import (
    Vectors,
    connect,
    purge,
    unless_refused,
)
from nanobot.memory.search.ingest import IndexIngest
from nanobot.memory.search.searching import PreparedQuery, Search
from nanobot.memory.search.vectors import Meaning, VectorWorker

_EMBEDDED_AT_ONCE = 64
_EMBEDDED = 4_000
"""Characters of a passage that are embedded, at most."""

_STEPS = 10_000
"""After so many steps of SQLite it is seen whether the index is being closed."""

T = TypeVar("T")


class MemoryIndex:
    """A cache over the files of `sources`; the file at `path` may be deleted at any time.

    `patience` is how many seconds a refresh waits while another process writes to the file;
    `worker` searches by meaning, where there is an `embedder`.
    Every method may raise StorageError, where its place cannot be used.
    """

    def __init__(
        self,
        path: Path,
        sources: Sources,
        clock: Clock,
        embedder: Embedder | None = None,
        worker: VectorWorker | None = None,
        *,
        patience: float = 10.0,
    ) -> None:
        self._path, self._sources, self._clock = path, sources, clock
        self._patience = patience
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memory-index")
        self._opened: tuple[IndexIngest, Search] | None = None
        self._meaning = Meaning(path, embedder, worker or VectorWorker(clock)) if embedder else None
        self._is_embedding = asyncio.Lock()
        self._closing = threading.Event()

    async def search(self, query: Query) -> SearchResult:
        """Take in what is new, then find what answers `query`."""
        today = self._clock.now().date()
        if self._meaning is None:
            return await self._run(lambda search: search.answer(search.prepare(query, today)))
        asked = await self._run(lambda search: search.prepare(query, today))
        near, words = await asyncio.gather(  # in two processes, so at the same time
            self._nearest(self._meaning, asked),
            self._run(lambda search: search.by_words(asked), refreshes=False),
        )
        return await self._run(lambda search: search.answer(asked, words, near), refreshes=False)

    async def _nearest(self, meaning: Meaning, asked: PreparedQuery) -> list[tuple[int, float]]:
        """The passages that are near to a question; vectors that are of no use are given up."""
        if not asked.has_vectors:
            return []
        near = await meaning.nearest(asked.question.plain, asked.streams, asked.days)
        if near is None:
            await self._run(lambda search: search.vectors.forget(), refreshes=False)
        return near or []

    async def around(
        self, id: str, scopes: tuple[str, ...], before: int = 5, after: int = 5
    ) -> list[Passage]:
        """The passage `id` with those before and after it in its stream, in order; [] where it is
        unknown or not in `scopes`."""
        return await self._run(lambda search: search.around(id, scopes, before, after))

    async def refresh(self) -> None:
        """Take in what changed in the files, and overwrite what was taken out; costs next to
        nothing where nothing changed."""
        await self._run(lambda search: purge(search.db))

    async def embed(self) -> None:
        """Embed all passages that have no vector, newest first, as far as the embedder answers;
        that may take hours. Not while another task does: they would be embedded twice."""
        if self._meaning is None or self._is_embedding.locked():
            return
        async with self._is_embedding:
            while await self._embed_some(self._meaning):
                pass

    async def rebuild(self) -> None:
        """Throw the index away and build it again."""
        await self._in_worker(self._discard)
        await self.refresh()

    async def stats(self) -> IndexStats:
        """How much is indexed."""
        stats = await self._run(lambda search: search.stats())
        return replace(stats, trouble=self._meaning.trouble) if self._meaning else stats

    async def close(self) -> None:
        """Close the file; indexing under way is given up. Nothing may be asked afterwards."""
        self._closing.set()
        if self._meaning is not None:
            await self._meaning.close()
        await self._in_worker(self._close)
        self._worker.shutdown()

    async def _run(self, work: Callable[[Search], T], *, refreshes: bool = True) -> T:
        return await self._in_worker(lambda: self._guarded(work, refreshes))

    async def _in_worker(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def _guarded(self, work: Callable[[Search], T], refreshes: bool) -> T:
        """Take in what changed, or go on with what is there where that is refused or not asked
        for; then do `work`. An index that turns out to be unusable is built again."""
        for is_last in (False, True):
            try:
                ingest, search = self._open()
                if refreshes or is_last:
                    with unless_refused():
                        ingest.refresh()
                return work(search)
            except (sqlite3.Error, OSError) as error:
                if is_last or not is_damaged(error):
                    self._close()
                    if self._closing.is_set():
                        raise StorageError(self._path, "the index is closed") from error
                    raise storage_error(self._path, error) from error
                logger.warning("{}: {}; the index is built again", self._path, error)
                self._discard()
        raise AssertionError("unreachable")

    def _discard(self) -> None:
        """Delete the file."""
        self._close()
        with storage_errors(self._path):
            remove_cache(self._path)

    def _open(self) -> tuple[IndexIngest, Search]:
        if self._opened is None:
            db = connect(self._path, self._patience)
            db.set_progress_handler(self._closing.is_set, _STEPS)
            ingest = IndexIngest(db, self._sources, self._clock, self._closing.is_set)
            vectors = Vectors(db, self._meaning.name if self._meaning else "")
            self._opened = ingest, Search(db, self._sources.scope_of, vectors)
        return self._opened

    def _close(self) -> None:
        if self._opened:
            self._opened[1].db.close()
        self._opened = None

    async def _embed_some(self, meaning: Meaning) -> bool:
        """Embed some passages that have no vector; whether there may be more to do."""
        waiting = await self._run(
            lambda search: search.vectors.waiting(_EMBEDDED_AT_ONCE, _EMBEDDED)
        )
        vectors = await meaning.vectors_of([text for _, _, text in waiting]) if waiting else []
        found = [
            (id, hash, vector) for (id, hash, _), vector in zip(waiting, vectors, strict=False)
        ]
        if found:
            await self._run(lambda search: search.vectors.keep(found))
        return bool(found)
