"""A home of real classes, as in a running nanobot, for tests of evidence."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nanobot.bus.sql_journal import Journal
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.memory import guard
from nanobot.memory.erase import Eraser
from nanobot.memory.forget import Forgetter
from nanobot.memory.gitstore import GitStore
from nanobot.memory.history import HistoryEntry
from nanobot.memory.line_changes import Operation
from nanobot.memory.scopes import OWNER, Memories, Memory, Scopes
from nanobot.memory.search import Query, Sources
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.store import MemoryStore
from nanobot.memory.version import Change
from nanobot.memory.why import Explainer
from nanobot.messages import Message, ToolCall
from nanobot.security.paths import Root
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.manager import SessionManager
from nanobot.testing import FakeClock


def match_owners(*owners: str) -> Callable[[str, str], bool]:
    """Return a check for `owners`: `channel:id`, or `channel:*` for everyone in it."""
    return lambda channel, sender: not {f"{channel}:{sender}", f"{channel}:*"}.isdisjoint(owners)


SCOPES = Scopes(match_owners("telegram:1"))
GUEST = "people/telegram_7"


@dataclass
class RealHome:
    """The parts of a nanobot that store something, wired as in the product."""

    folder: Path
    clock: FakeClock
    sessions: SessionManager
    journal: Journal
    memories: Memories
    versions: GitStore
    index: MemoryIndex
    explainer: Explainer
    forgetter: Forgetter
    eraser: Eraser

    def memory(self, scope: str = OWNER) -> Memory:
        return self.memories.of(scope)

    async def say(self, key: str, *texts: str, turn: str = "") -> tuple[int, int]:
        """Add texts of the person, each answered with "ok". Return the first and last seq."""
        session = await self.sessions.get_or_create(key)
        first = session.next_seq
        for text in texts:
            session.add_message(Message("user", text, turn_id=turn))
            session.add_message(Message("assistant", "ok", turn_id=turn))
        await self.sessions.save(session)
        return first, session.next_seq - 1

    async def call(self, key: str, arguments: str, turn: str) -> None:
        """Add a tool call of the agent."""
        session = await self.sessions.get_or_create(key)
        call = ToolCall("c1", "edit_file", arguments)
        session.add_message(Message("assistant", "", tool_calls=(call,), turn_id=turn))
        result = Message("tool", "done", tool_call_id="c1", name="edit_file", turn_id=turn)
        session.add_message(result)
        await self.sessions.save(session)

    def tell(
        self, key: str, seqs: tuple[int, int], summary: str, *facts: str, scope: str = OWNER
    ) -> int:
        """Add a history entry for a stretch of conversation. Return its cursor."""
        stamp = f"[{self.clock.now():%Y-%m-%d %H:%M}]"
        entry = HistoryEntry(
            0, self.clock.now(), "consolidation", key, *seqs, f"{stamp} {summary}", facts
        )
        return self.memory(scope).history.append(entry).cursor

    async def learn(
        self,
        *lines: str,
        old: str = "",
        cursor: int = 0,
        path: str = "memory/MEMORY.md",
        scope: str = OWNER,
        change: Change | None = None,
    ) -> int:
        """Write facts to a file, and return the version. `old` is the fact that a single line
        replaces."""
        self.clock.jump(60)
        change = change or Change("dream", "learned", cursors=(cursor,) if cursor else ())
        operations = [Operation(old, line, cursor=cursor) for line in lines]
        outcome = await self.memory(scope).store.apply(path, operations, change)
        number, left = outcome.version, outcome.left
        assert not left
        return number

    async def finds(self, text: str, scope: str = OWNER) -> list[str]:
        """Return the texts that search finds."""
        hits = (await self.index.search(Query(text, (scope,)))).hits
        return [hit.passage.text for hit in hits]


@contextlib.asynccontextmanager
async def living(folder: Path, clock: FakeClock) -> AsyncIterator[RealHome]:
    """Run a home from its start to its end, as in one process."""
    state, workspace = folder / "state", folder / "workspace"
    for path in (state, workspace, folder / "sessions", folder / "media", folder / "logs"):
        path.mkdir(parents=True, exist_ok=True)
    root = Root(workspace)
    catalogue = SessionCatalogue(folder / "sessions", clock, state / "catalogue.db")
    sessions = SessionManager(catalogue, clock, live_limit=0)
    journal = SqliteJournal(state / "journal.db", clock)
    memories = Memories(root, state, clock)
    memories.recover()
    versions = memories.of("owner").versions
    sources = Sources(
        catalogue,
        lambda key, _: SCOPES.of_session(key, {}),
        memories.folders,
    )
    index = MemoryIndex(state / "index.db", sources, clock)
    explainer = Explainer(memories, sessions, SCOPES)
    forgetter = Forgetter(memories, explainer, sessions, SCOPES, clock)
    eraser = Eraser(
        folder,
        workspace,
        sessions=sessions,
        journal=journal,
        memories=memories,
        forgetter=forgetter,
        rebuild_index=index.rebuild,
    )
    await journal.open()
    home = RealHome(
        folder, clock, sessions, journal, memories, versions, index, explainer, forgetter, eraser
    )
    try:
        yield home
    finally:
        await index.close()
        await sessions.close()
        await journal.close()


async def retire(store: MemoryStore, path: str, lines: Sequence[str], change: Change) -> int:
    """Move facts of a document to retired.md. Return the version."""
    named = {guard.without_list_mark(line) for line in lines}
    standing = [
        line for line in store.read(path).splitlines() if guard.without_list_mark(line) in named
    ]
    steps = [Operation(old=line) for line in standing]
    return (await store.apply(path, steps, change, retired=standing)).version
