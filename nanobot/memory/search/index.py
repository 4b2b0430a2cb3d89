"""`MemoryIndex`: finds what was said, wherever it is kept.

The index is a cache over the files, and nothing else knows of it. Invariants:

- a search takes in first what changed in the files, so it finds what was just said, and nothing
  that was undone, forgotten or erased; the next refresh leaves nothing of that in the file;
- nothing outside the scopes of a query is returned, by a hit, beside a hit, or by `around`;
- an index that is missing, damaged or of another version is built again;
- while another process is writing to it, or the disk refuses, a search answers from what is there.

SQLite runs in one thread of its own, so the event loop never waits for it.

Search goes on without an embedder that fails: one warning, and no vectors. A passage that the
server refuses by itself is passed over, so that the others get their vectors; a server that refuses
even a plain word is set up wrongly, and its refusals say nothing about a passage.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import TypeVar

from loguru import logger

from nanobot.bus.sqlite import is_damaged, remove_cache
from nanobot.clock import Clock
from nanobot.errors import NanobotError, ProviderGarbage, ProviderRejected, StorageError
from nanobot.io import storage_errors
from nanobot.memory.search import Embedder, IndexStats, Passage, Query, SearchResult, Sources
from nanobot.memory.search.database import Interrupted, connect, purge, unless_refused
from nanobot.memory.search.ingest import IndexIngest
from nanobot.memory.search.searching import Search
from nanobot.memory.search.vectors import Vector

_EMBEDDED_AT_ONCE = 64
_LOOKED_UP_AT_ONCE = 2_048

_PLAIN = "hello"

T = TypeVar("T")


class MemoryIndex:
    """A cache over the files of `sources`; the file at `path` may be deleted at any time.

    `patience` is how many seconds a refresh waits while another process writes to the file.
    Every method may raise StorageError, where its place cannot be used.
    """

    def __init__(
        self,
        path: Path,
        sources: Sources,
        clock: Clock,
        embedder: Embedder | None = None,
        *,
        patience: float = 10.0,
    ) -> None:
        self._path, self._sources, self._clock = path, sources, clock
        self._patience = patience
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memory-index")
        self._opened: tuple[IndexIngest, Search] | None = None
        self._embedding = Embedding(embedder) if embedder else None
        self._embedder_name = embedder.name if embedder else ""
        self._is_embedding = asyncio.Lock()
        self._closing = threading.Event()

    async def search(self, query: Query) -> SearchResult:
        """Take in what is new, then find what answers `query`."""
        today = self._clock.now().date()
        meaning = await self._meaning(query, today)
        return await self._run(lambda search: search.answer(query, today, meaning))

    async def around(
        self, id: str, scopes: tuple[str, ...], before: int = 5, after: int = 5
    ) -> list[Passage]:
        """The passage `id` with those before and after it in its stream, in order; [] where it is
        unknown or not in `scopes`."""
        return await self._run(lambda search: search.around(id, scopes, before, after))

    async def refresh(self, within: float = 0.0) -> None:
        """Take in what changed in the files, overwrite what was taken out, and embed what has no
        vector yet; costs next to nothing where nothing changed. What conversations there are may
        have been looked up `within` so many seconds."""
        await self._run(lambda search: purge(search.db), within)
        while await self._embed_some(_LOOKED_UP_AT_ONCE, patient=True):
            pass

    async def rebuild(self) -> None:
        """Throw the index away and build it again."""
        await self._in_worker(self._discard)
        await self.refresh()

    async def stats(self) -> IndexStats:
        """How much is indexed."""
        return await self._run(lambda search: search.stats())

    async def close(self) -> None:
        """Close the file; indexing under way is given up. Nothing may be asked afterwards."""
        self._closing.set()
        await self._in_worker(self._close)
        self._worker.shutdown()

    async def _run(self, work: Callable[[Search], T], within: float = 0.0) -> T:
        return await self._in_worker(lambda: self._guarded(work, within))

    async def _in_worker(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def _guarded(self, work: Callable[[Search], T], within: float) -> T:
        """Take in what changed, or go on with what is there where that is refused; then do `work`.
        An index that turns out to be unusable is built again."""
        for is_last in (False, True):
            try:
                ingest, search = self._open()
                with unless_refused():
                    ingest.refresh(within)
                return work(search)
            except Interrupted as error:
                raise StorageError(self._path, "the index was closed meanwhile") from error
            except (sqlite3.Error, OSError) as error:
                if is_last or not is_damaged(error):
                    self._close()
                    raise StorageError(self._path, str(error)) from error
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
            ingest = IndexIngest(db, self._sources, self._clock, self._closing.is_set)
            search = Search(db, self._sources.scope_of, self._embedder_name)
            self._opened = ingest, search
        return self._opened

    def _close(self) -> None:
        if self._opened:
            self._opened[1].db.close()
        self._opened = None

    async def _meaning(self, query: Query, today: date) -> Vector | None:
        """The vector of a question, without the names of speakers."""
        if self._embedding is None:
            return None
        text = await self._run(lambda search: search.words_of(query, today))
        await self._embed_some(_EMBEDDED_AT_ONCE, patient=False)
        vectors = await self._embedding.vectors_of([text or query.text], patient=False)
        return vectors[0] if vectors else None

    async def _embed_some(self, most: int, *, patient: bool) -> bool:
        """Embed up to so many passages that have no vector; whether there may be more to do here.

        Not while another task does: they would be embedded twice.
        """
        if self._embedding is None or self._is_embedding.locked():
            return False
        async with self._is_embedding:
            waiting = await self._run(lambda search: search.vectors.waiting(most))
            for start in range(0, len(waiting), _EMBEDDED_AT_ONCE):
                batch = waiting[start : start + _EMBEDDED_AT_ONCE]
                texts = [text for _, text in batch]
                vectors = await self._embedding.vectors_of(texts, patient=patient)
                if not vectors:
                    return False
                await self._keep([hash for hash, _ in batch], vectors)
        return bool(waiting)

    async def _keep(self, hashes: Sequence[int], vectors: Sequence[Vector | None]) -> None:
        await self._run(lambda search: search.vectors.store(hashes, vectors))


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
                logger.warning("searching by words only: {}", error)
            self._failed = True
            return []
        self._failed = False
        return found

    async def _each(self, texts: Sequence[str], patient: bool) -> list[Vector | None]:
        """Those of a batch that is refused are asked for one by one."""
        try:
            vectors = await self._embedder.embed(texts, patient=patient)
        except ProviderRejected as error:
            if not error.blames_content:
                raise
            if len(texts) > 1:
                return [one for text in texts for one in await self._each([text], patient)]
            await self._embedder.embed([_PLAIN], patient=patient)
            logger.warning(
                "the embedding model refused a passage of {:,} characters", len(texts[0])
            )
            return [None]
        if len(vectors) != len(texts):
            raise ProviderGarbage(f"{len(vectors)} vectors came for {len(texts)} texts")
        return [*vectors]
