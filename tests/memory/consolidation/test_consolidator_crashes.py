"""A process that dies at any step of a consolidation loses nothing and repeats nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.errors import StorageError, WriteConflict
from nanobot.memory.consolidation.planning import ConsolidationLimits
from nanobot.memory.documents import load_template
from nanobot.memory.history import HistoryEntry, HistoryLog
from nanobot.memory.line_changes import Operation
from nanobot.memory.scopes import Memory
from nanobot.memory.store import MemoryStore, Outcome
from nanobot.memory.version import Change
from nanobot.messages import Message
from nanobot.security.paths import Root
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.testing import ScriptedModel
from tests.memory.consolidation_home import Home, learns, saves

NEXT = (Message("user", "and now?"),)
MEMORY = "# Memory\n\n## Facts\n- has a cat\n"


class Moments:
    """Copies of a home, one for each moment at which the process dies."""

    def __init__(self, folder: Path, copies: Path) -> None:
        self._folder, self._copies = folder, copies
        self.names: list[str] = []

    def keep(self, name: str) -> None:
        number = len(self.names)
        shutil.copytree(self._folder, self._copies / str(number))
        self.names.append(name)


class WatchedHistory(HistoryLog):
    moments: Moments

    def append(self, entry: HistoryEntry) -> HistoryEntry:
        self.moments.keep("before the entry")
        committed = super().append(entry)
        self.moments.keep("after the entry")
        return committed


class WatchedStore(MemoryStore):
    moments: Moments

    async def apply(
        self,
        path: str,
        operations: Sequence[Operation],
        change: Change,
        **options: object,
    ) -> Outcome:
        self.moments.keep("before the changes")
        made = await super().apply(path, operations, change, **options)  # type: ignore[arg-type]
        self.moments.keep("after the changes")
        return made


class WatchedSessions(SessionManager):
    moments: Moments

    def mark_consolidated(self, session: Session, seq: int) -> asyncio.Future[None]:
        self.moments.keep("before the mark")
        return super().mark_consolidated(session, seq)

    async def archive(self, session: Session) -> None:
        self.moments.keep("before the archive")
        await super().archive(session)
        self.moments.keep("after the archive")


@dataclass
class WatchedHome(Home):
    """A home that is copied at every step."""

    copies: Path = field(default_factory=Path)

    def __post_init__(self) -> None:
        self.moments = Moments(self.folder, self.copies)
        super().__post_init__()

    def alter_memory(self, memory: Memory) -> Memory:
        root = Root(self.folder / "workspace")
        history = WatchedHistory(root, self.clock)
        template = load_template()
        store = WatchedStore(memory.versions, template)
        history.moments = store.moments = self.moments
        return replace(memory, history=history, store=store)

    def session_manager(self) -> SessionManager:
        sessions = WatchedSessions(self.folder / "sessions", self.clock, live_limit=4)
        sessions.moments = self.moments
        return sessions


async def test_a_crash_at_any_step_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    model = ScriptedModel(*[learns("likes tea")] * 3)
    home = WatchedHome(tmp_path / "home", model, copies=tmp_path / "copies")
    home.write_long_term(MEMORY)
    session = await home.talk(*(f"message {n}, I like tea" for n in range(10)), words=200)
    await home.consolidator.maybe_consolidate_by_tokens(session, NEXT)
    await home.close()
    assert set(home.moments.names) == {
        "before the entry",
        "after the entry",
        "before the mark",
        "before the changes",
        "after the changes",
        "before the archive",
        "after the archive",
    }
    for number, name in enumerate(home.moments.names):
        model = ScriptedModel(author=learns("likes tea"))
        copy = tmp_path / "copies" / str(number)
        after = Home(copy, model, clock=home.clock)
        await after.consolidator.recover()
        await after.background.drain(5)
        committed = name != "before the entry"
        assert len(after.entries) == committed, name
        assert ("- likes tea" in after.long_term) == committed, name
        again = await after.sessions.get_or_create("telegram:1")
        assert after.nowhere(again) == [], name
        await after.consolidator.maybe_consolidate_by_tokens(again, NEXT)
        assert len(model.prompts) == (not committed), name
        assert after.nowhere(again) == [], name
        assert after.long_term.splitlines().count("- likes tea") == 1, name
        assert len(list(after.sessions.read_messages("telegram:1"))) == 20, name
        await after.close()


async def _make_killed_home(tmp_path: Path, moment: str) -> Home:
    """Return a home whose process was killed at a moment of learning something."""
    model = ScriptedModel(learns("likes tea"))
    home = WatchedHome(tmp_path / "home", model, copies=tmp_path / "copies")
    await home.consolidator.compact(await home.talk("I like tea"))
    await home.close()
    number = home.moments.names.index(moment)
    return Home(tmp_path / "copies" / str(number), ScriptedModel())


async def test_who_goes_on_with_a_conversation_knows_what_was_learned_from_it(
    tmp_path: Path,
) -> None:
    """Like another worker of a team, which had started long before."""
    after = await _make_killed_home(tmp_path, "before the changes")
    session = await after.sessions.get_or_create("telegram:1")
    await after.consolidator.maybe_consolidate_by_tokens(session, NEXT)
    assert "- likes tea" in after.long_term
    await after.close()


async def test_what_was_taken_out_later_does_not_come_back_at_the_next_start(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, ScriptedModel(learns("likes tea")))
    await home.consolidator.compact(await home.talk("I like tea"))
    await home.close()
    home.write_long_term(MEMORY)
    after = home.again(ScriptedModel())
    await after.consolidator.recover()
    assert after.long_term == MEMORY
    await after.close()


async def test_what_a_person_took_out_before_the_next_start_does_not_come_back(
    tmp_path: Path,
) -> None:
    after = await _make_killed_home(tmp_path, "after the changes")
    assert "- likes tea" in after.long_term
    after.write_long_term(MEMORY)
    await after.consolidator.recover()
    await after.close()
    assert after.long_term == MEMORY


async def test_a_sealed_range_left_behind_is_consolidated_after_the_start(tmp_path: Path) -> None:
    home = Home(tmp_path, ScriptedModel())
    session = await home.talk("I like tea")
    session.clear("42")
    await home.sessions.save(session)
    await home.close()
    after = home.again(ScriptedModel(saves("They spoke of tea.")))
    await after.consolidator.recover()
    await after.background.drain(5)
    assert [(entry.first, entry.last) for entry in after.entries] == [(1, 2)]
    await after.close()


async def test_a_new_conversation_under_an_old_name_is_not_taken_for_consolidated(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, ScriptedModel(saves()))
    await home.consolidator.compact(await home.talk(*(f"message {n}" for n in range(6))))
    await home.close()
    for file in (tmp_path / "sessions").glob("*.jsonl"):
        file.unlink()
    home.clock.jump(3600)
    after = home.again(ScriptedModel())
    session = await after.talk("hello again")
    await after.consolidator.recover()
    assert len(session.messages) == 2
    await after.close()


class BrokenDisk(MemoryStore):
    broken = True

    async def apply(
        self, path: str, operations: Sequence[Operation], change: Change, **options: object
    ) -> Outcome:
        if self.broken:
            raise StorageError(path, "no space")
        return await super().apply(path, operations, change, **options)  # type: ignore[arg-type]


@dataclass
class HomeWithBrokenDisk(Home):
    def alter_memory(self, memory: Memory) -> Memory:
        template = load_template()
        self.store = BrokenDisk(memory.versions, template)
        return replace(memory, store=self.store)


async def test_changes_that_the_disk_refuses_are_made_when_it_is_mended(tmp_path: Path) -> None:
    model = ScriptedModel(learns("likes tea"), learns("owns a boat"))
    home = HomeWithBrokenDisk(tmp_path, model)
    session = await home.talk("I like tea")
    await home.consolidator.compact(session)
    assert session.messages == ()
    assert "tea" not in home.long_term
    home.store.broken = False
    await home.consolidator.consolidate_idle()
    assert "- likes tea" in home.long_term
    await home.close()


async def test_changes_that_the_disk_refused_are_made_with_those_of_the_next_entry(
    tmp_path: Path,
) -> None:
    home = HomeWithBrokenDisk(tmp_path, ScriptedModel(learns("likes tea"), learns("owns a boat")))
    await home.consolidator.compact(await home.talk("I like tea"))
    home.store.broken = False
    await home.consolidator.compact(await home.talk("I own a boat"))
    assert "- likes tea" in home.long_term
    assert "- owns a boat" in home.long_term
    await home.close()


class BrokenAppend(HistoryLog):
    failures = 1

    def append(self, entry: HistoryEntry) -> HistoryEntry:
        committed = super().append(entry)
        if self.failures:
            self.failures -= 1
            raise StorageError("history", "after it was written")
        return committed


@dataclass
class HomeWithBrokenAppend(Home):
    def alter_memory(self, memory: Memory) -> Memory:
        return replace(memory, history=BrokenAppend(Root(self.folder / "workspace"), self.clock))


async def test_an_entry_that_stands_although_appending_failed_is_not_made_twice(
    tmp_path: Path,
) -> None:
    home = HomeWithBrokenAppend(tmp_path, ScriptedModel(author=learns("likes tea")))
    session = await home.talk(*(f"message {n}" for n in range(10)), words=200)
    with pytest.raises(StorageError):
        await home.consolidator.maybe_consolidate_by_tokens(session, NEXT)
    await asyncio.sleep(0)
    await home.consolidator.maybe_consolidate_by_tokens(session, NEXT)
    assert len(home.entries) == 1
    assert home.nowhere(session) == []
    await home.close()


class OpenedSessions(SessionManager):
    opened: list[str]

    async def get_or_create(self, key: str) -> Session:
        self.opened.append(key)
        return await super().get_or_create(key)


@dataclass
class CountingHome(Home):
    def session_manager(self) -> SessionManager:
        sessions = OpenedSessions(self.folder / "sessions", self.clock)
        opened: list[str] = []
        sessions.opened = self.opened = opened
        return sessions


async def test_a_start_opens_only_the_sessions_that_were_left_behind(tmp_path: Path) -> None:
    home = CountingHome(tmp_path, ScriptedModel(saves(), saves()))
    await home.talk("hello", key="cli:plain")
    await home.consolidator.compact(await home.talk("one", "two", key="cli:consolidated"))
    sealed = await home.talk("I like tea", key="cli:sealed")
    sealed.clear("42")
    await home.sessions.save(sealed)
    await home.close()
    after = CountingHome(tmp_path, home.model, clock=home.clock)
    await after.consolidator.recover()
    await after.background.drain(5)
    assert set(after.opened) == {"cli:sealed"}
    assert [entry.session for entry in after.entries] == ["cli:consolidated", "cli:sealed"]
    await after.close()


async def test_a_resting_session_that_memory_holds_is_not_opened(tmp_path: Path) -> None:
    limits = ConsolidationLimits(budget=3_000, idle_minutes=30)
    home = CountingHome(tmp_path, ScriptedModel(saves(), saves()), limits)
    await home.consolidator.compact(await home.talk("I like tea", key="cli:held"))
    await home.talk("hello", key="cli:waits")
    await home.close()
    home.clock.jump(31 * 60)
    after = CountingHome(tmp_path, home.model, limits, clock=home.clock)
    await after.consolidator.consolidate_idle()
    assert {*after.opened} == {"cli:waits"}
    assert [entry.session for entry in after.entries] == ["cli:held", "cli:waits"]
    await after.close()


class EditedStore(MemoryStore):
    """A store whose file an editor saves again and again."""

    saving = True

    async def apply(
        self, path: str, operations: Sequence[Operation], change: Change, **options: object
    ) -> Outcome:
        if self.saving:
            raise WriteConflict(path)
        return await super().apply(path, operations, change, **options)  # type: ignore[arg-type]


@dataclass
class HomeInAnEditor(Home):
    def alter_memory(self, memory: Memory) -> Memory:
        self.store = EditedStore(memory.versions)
        return replace(memory, store=self.store)


async def test_changes_that_an_editor_kept_out_are_made_later(tmp_path: Path) -> None:
    home = HomeInAnEditor(tmp_path, ScriptedModel(learns("likes tea")))
    await home.consolidator.compact(await home.talk("I like tea"))
    assert "tea" not in home.long_term
    home.store.saving = False
    await home.consolidator.consolidate_idle()
    assert "- likes tea" in home.long_term
    await home.close()


async def test_what_a_version_already_holds_counts_as_carried_out(tmp_path: Path) -> None:
    home = Home(tmp_path, ScriptedModel(learns("likes tea")))
    await home.consolidator.compact(await home.talk("I like tea"))
    mark = tmp_path / "workspace" / "memory" / ".applied"
    assert mark.read_text() == "1\n"
    await home.close()
    mark.write_text("0\n")
    home.write_long_term(MEMORY)
    after = home.again(ScriptedModel())
    await after.consolidator.recover()
    assert mark.read_text() == "1\n"
    assert after.long_term == MEMORY
    await after.close()


async def test_what_is_said_in_a_session_file_that_was_put_back_is_put_away(tmp_path: Path) -> None:
    home = Home(
        tmp_path, ScriptedModel(saves()), ConsolidationLimits(budget=100_000, window=20, chunk=10)
    )
    await home.talk("one", "two")
    shutil.copytree(tmp_path / "sessions", tmp_path / "older")
    await home.consolidator.maybe_consolidate_by_tokens(await home.talk(*map(str, range(12))))
    assert [(entry.first, entry.last) for entry in home.entries] == [(1, 10)]
    await home.close()
    shutil.rmtree(tmp_path / "sessions")
    (tmp_path / "older").rename(tmp_path / "sessions")
    home.clock.jump(60)

    for said in (["three"], list(map(str, range(12)))):  # the second time after a restart
        again = home.again(ScriptedModel(saves()))
        session = await again.talk(*said)
        await again.consolidator.maybe_consolidate_by_tokens(session)
        await again.close()
    assert [(entry.first, entry.last) for entry in again.entries] == [(1, 10), (5, 14)]
    assert [message.seq for message in session.messages] == list(range(15, 31))
