"""A disk that fails for memory: one clear text, no loss, and it continues later."""

from __future__ import annotations

from pathlib import Path

from nanobot.clock import SystemClock
from nanobot.memory.history import HISTORY, HistoryEntry, HistoryLog
from nanobot.security.paths import Root
from nanobot.testing import FakeClock, ScriptedModel, says
from nanobot.testing.channel import FakeChannel
from tests.faults.test_disk import no_file_grows_beyond
from tests.support import read_stored, running

LONG = 3_000_000
"""Bytes, more than in any other file of these homes."""


async def test_a_note_that_the_disk_refuses_is_said_so_once_and_is_written_when_sent_again(
    tmp_path: Path,
) -> None:
    clock = FakeClock(auto=True)
    notes = tmp_path / "workspace" / "memory" / f"{clock.now():%Y-%m-%d}.md"
    notes.parent.mkdir(parents=True)
    notes.write_text("- " + "x" * LONG + "\n")
    before = notes.read_bytes()
    channel = FakeChannel(clock=clock)
    async with running(tmp_path, ScriptedModel(), channel, clock=clock):
        with no_file_grows_beyond(len(before)):
            refused = await channel.ask("/note feed the cat")
        assert "File too large" in refused
        assert notes.read_bytes() == before
        assert (await channel.ask("/note feed the cat")).startswith("Noted in ")
    assert notes.read_text().count("feed the cat") == 1


async def test_a_consolidation_that_the_disk_refuses_leaves_the_conversation_as_it_is(
    tmp_path: Path,
) -> None:
    workspace = Root(tmp_path / "workspace")
    workspace.create()
    now = SystemClock().now()
    history = HistoryLog(workspace, SystemClock())
    history.append(HistoryEntry(0, now, "import", "", 0, 0, "x" * LONG))
    size = (workspace.path / HISTORY).stat().st_size
    clock, channel = FakeClock(auto=True), FakeChannel()
    async with running(tmp_path, ScriptedModel(says("I see")), channel, clock=clock):
        await channel.ask("I like tea")
        with no_file_grows_beyond(size):
            refused = await channel.ask("/compact")
        assert "File too large" in refused
        assert (workspace.path / HISTORY).stat().st_size == size
        assert "Consolidated" in await channel.ask("/compact")
    (entry,) = HistoryLog(workspace, SystemClock()).entries(1)
    assert [message.seq for message in read_stored(tmp_path)] == [entry.first, entry.last] == [1, 2]
