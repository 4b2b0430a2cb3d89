"""`MemoryIndex`: search over all conversations and memories.

The index is a cache over the files that no other module knows. Invariants:

- a search first reads the changes in the files, so it finds new text, and none that was undone,
  forgotten or erased. The next refresh removes such text from the file
- nothing outside the scopes of a query is returned, as a hit, next to a hit, or by `around`
- an index that is missing, damaged or of another version is rebuilt
- while another process writes to it, or the disk fails, a search uses the existing index

SQLite runs in its own thread, so the event loop never waits for it.

With an embedder, a search also asks for the vectors near its question, and passages are embedded in
the background (`embed`). If the embedder or the worker fails, a search uses words only, and the log
has the reason once. A passage that a server rejects is skipped, so that the others get their
vectors. A server that rejects even a plain word is misconfigured, and its rejections do not
count."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from loguru import logger
from msgspec.structs import replace

from nanobot.bus.sqlite import is_damaged, remove_cache, storage_error
from nanobot.clock import Clock
from nanobot.errors import NanobotError, ProviderGarbage, ProviderRejected, StorageError
from nanobot.io import storage_errors
from nanobot.memory.search import Embedder, IndexStats, Passage, Query, SearchResult, Sources
from nanobot.memory.search.database import (
    PendingPassage,
    Vectors,
    connect,
    purge,
    unless_refused,
)
from nanobot.memory.search.ingest import IndexIngest
from nanobot.memory.search.query import PreparedQuery, Search
from nanobot.memory.search.vectors import VectorWorker

if TYPE_CHECKING:
    from nanobot.memory.search.find import FoundMessage

_EMBEDDED_AT_ONCE = 64
_EMBEDDED = 4_000  # maximum characters of a passage that are embedded
_NEAREST = 300  # passages near a question: fewer found less, more found no more
_STEPS = 10_000  # number of SQLite steps between checks for a closing index

T = TypeVar("T")


class MemoryIndex:
    """A cache over the files of `sources`. The file at `path` may be deleted at any time.

    `patience` is the seconds that a refresh waits while another process writes to the file.
    `worker` searches by meaning if there is an `embedder`. Every method may raise StorageError if
    the file is unusable."""

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
        self._embedder, self._vectors = embedder, worker or VectorWorker(clock)
        self._trouble = ""
        """The reason why there are no vectors now."""
        self._is_embedding = asyncio.Lock()
        self._closing = threading.Event()

    async def search(self, query: Query) -> SearchResult:
        """Read the changed files, then answer `query`."""
        today = self.today()
        if self._embedder is None:
            return await self._run(lambda search: search.answer(search.prepare(query, today)))
        asked = await self._run(lambda search: search.prepare(query, today))
        near, words = await asyncio.gather(  # two processes work at the same time
            self._nearest(self._embedder, asked),
            self._run(lambda search: search.by_words(asked), refreshes=False),
        )
        return await self._run(lambda search: search.answer(asked, words, near), refreshes=False)

    def today(self) -> date:
        return self._clock.now().date()

    async def _nearest(self, embedder: Embedder, asked: PreparedQuery) -> list[tuple[int, float]]:
        """Return the passages nearest to a question, with their cosines, or [] on failure. Vectors
        that are damaged, or of another length, are dropped."""
        if not asked.has_vectors:
            return []
        try:
            (vector,) = await self._request_vectors(embedder, [asked.question.plain], question=True)
            near: list[tuple[int, float]] | None = await self._vectors.ask(
                "nearest", path=str(self._path), streams=list(asked.streams),
                vector=array("f", vector).tobytes(), limit=_NEAREST, days=asked.days,
            )  # fmt: skip
        except NanobotError as error:
            self._note(error)
            return []
        self._trouble = ""
        if near is None:
            await self._run(lambda search: search.vectors.forget(), refreshes=False)
        return near or []

    async def around(
        self, id: str, scopes: tuple[str, ...], before: int = 5, after: int = 5
    ) -> list[Passage]:
        """Return the passage `id` and its neighbours in its stream, in order, or [] if it is
        unknown or not in `scopes`."""
        return await self._run(lambda search: search.around(id, scopes, before, after))

    async def find_messages(
        self, text: str, scope: str, limit: int, within: float = 0.0
    ) -> list[FoundMessage]:
        """Return messages as `find_messages` does. `within` is as for `refresh`."""
        from nanobot.memory.search.find import find_messages

        scope_of = self._sources.scope_of
        return await self._run(
            lambda search: find_messages(search.db, scope_of, text, scope, limit), within=within
        )

    async def refresh(self, within: float = 0.0) -> None:
        """Read the changed files, and overwrite deleted text. Cheap if nothing changed. A list of
        the sessions from the last `within` seconds is reused."""
        await self._run(lambda search: purge(search.db), within=within)

    async def embed(self) -> None:
        """Embed all passages without a vector, newest first, until the embedder fails. This may
        take hours. Do nothing while another task does, so that no passage is embedded twice."""
        if self._embedder is None or self._is_embedding.locked():
            return
        async with self._is_embedding:
            while await self._embed_some(self._embedder):
                pass

    async def rebuild(self) -> None:
        """Delete the index and build it again."""
        await self._in_worker(self._discard)
        await self.refresh()

    async def stats(self) -> IndexStats:
        stats = await self._run(lambda search: search.stats())
        return replace(stats, trouble=self._trouble)

    async def close(self) -> None:
        """Close the file, and abort running indexing. No calls may follow."""
        self._closing.set()
        await self._vectors.close()
        if self._embedder is not None:
            await self._embedder.close()
        await self._in_worker(self._close)
        self._worker.shutdown()

    async def _run(
        self, work: Callable[[Search], T], *, refreshes: bool = True, within: float = 0.0
    ) -> T:
        return await self._in_worker(lambda: self._refresh_and_run(work, refreshes, within))

    async def _in_worker(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def _refresh_and_run(self, work: Callable[[Search], T], refreshes: bool, within: float) -> T:
        """Read the changed files if that is requested and possible, then do `work`. An unusable
        index is rebuilt."""
        for is_last in (False, True):
            try:
                ingest, search = self._open()
                if refreshes or is_last:
                    with unless_refused():
                        ingest.refresh(within)
                return work(search)
            except (sqlite3.Error, OSError) as error:
                if is_last or not is_damaged(error):
                    self._close()
                    if self._closing.is_set():
                        raise StorageError(self._path, "the index is closed") from error
                    raise storage_error(self._path, error) from error
                logger.warning("{}: {}. Rebuilding the index", self._path, error)
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
            vectors = Vectors(db, self._embedder.name if self._embedder else "")
            self._opened = ingest, Search(db, self._sources.scope_of, vectors)
        return self._opened

    def _close(self) -> None:
        if self._opened:
            self._opened[1].db.close()
        self._opened = None

    async def _embed_some(self, embedder: Embedder) -> bool:
        """Embed some passages without a vector. Return True if more may follow."""
        waiting = await self._run(
            lambda search: search.vectors.select_pending(
                _EMBEDDED_AT_ONCE, _EMBEDDED, embedder.context
            )
        )
        if not waiting:
            return False
        try:
            vectors = await self._embed_with_context(embedder, waiting)
        except NanobotError as error:
            self._note(error)
            return False
        self._trouble = ""
        found = [*zip(waiting, vectors, strict=True)]
        await self._run(lambda search: search.vectors.keep(found))
        return True

    async def _embed_with_context(
        self, embedder: Embedder, passages: Sequence[PendingPassage]
    ) -> list[Sequence[float] | None]:
        """Return a vector for each passage, in order: its own, or the mean of that and of the one
        together with its context. That mean is the shorter the less both are alike, which is right
        for a "yes" that means nothing alone."""
        vectors = await self._embed_each(embedder, [one.text for one in passages])
        followers = [at for at, one in enumerate(passages) if one.context]
        texts = [f"{passages[at].context}\n{passages[at].text}" for at in followers]
        together = await self._embed_each(embedder, texts) if texts else []
        for at, other in zip(followers, together, strict=True):
            own = vectors[at]
            if own and other:
                vectors[at] = [(a + b) / 2 for a, b in zip(own, other, strict=True)]
        return vectors

    async def _embed_each(
        self, embedder: Embedder, texts: Sequence[str]
    ) -> list[Sequence[float] | None]:
        """Return a vector of length 1 for each passage, in order, or None for a rejected one. The
        passages of a rejected batch are embedded one by one. Raise `NanobotError`."""
        try:
            return [*map(_unit, await self._request_vectors(embedder, texts))]
        except ProviderRejected as error:
            if not error.blames_content:
                raise
        if len(texts) > 1:
            return [one for text in texts for one in await self._embed_each(embedder, [text])]
        await embedder.embed(["hello"])  # raises if the server rejects everything
        logger.warning("the embedding model rejected a passage of {:,} characters", len(texts[0]))
        return [None]

    async def _request_vectors(
        self, embedder: Embedder, texts: Sequence[str], *, question: bool = False
    ) -> list[list[float]]:
        self._vectors.check()  # don't pay a server for vectors that can't be compared
        vectors = await embedder.embed(texts, question=question)
        if len(vectors) != len(texts):
            raise ProviderGarbage(
                f"the server returned {len(vectors)} vectors for {len(texts)} texts"
            )
        return vectors

    def _note(self, error: NanobotError) -> None:
        if not self._trouble:
            logger.warning("searching by words only: {} {}", error, error.hint)
        self._trouble = str(error)


def _unit(vector: Sequence[float]) -> list[float]:
    length = hypot(*vector) or 1.0
    return [number / length for number in vector]
