"""Commands whose effects must not happen twice, when a process dies or the disk fails."""

from __future__ import annotations

from pathlib import Path

from nanobot.bus.events import InboundMessage
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.testing import FakeClock, ScriptedModel
from nanobot.testing.channel import FakeChannel
from tests.support import running

CLOCK = FakeClock()
INTERRUPTED = "I was interrupted while running this command, so it may have taken effect"


async def leave_journal(home: Path, text: str, *, begun: bool) -> None:
    """Leave a journal with a pending command, which may have been begun."""
    (home / "state").mkdir(parents=True)
    journal = SqliteJournal(home / "state" / "journal.db", CLOCK)
    await journal.open()
    message = InboundMessage("fake", "1", "person-1", text, "e1", CLOCK.now())
    (entry,) = await journal.receive("fake", (message,))
    if begun:
        await journal.begin_command(entry.id)
    await journal.close()


def notes(home: Path) -> str:
    return "".join(path.read_text() for path in (home / "workspace/memory").glob("2*.md"))


async def test_a_command_that_had_not_begun_its_effect_is_carried_out(tmp_path: Path) -> None:
    await leave_journal(tmp_path, "/note feed the cat", begun=False)
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel):
        assert (await channel.answer_to("e1")).startswith("Noted in ")
    assert notes(tmp_path).count("feed the cat") == 1


async def test_a_note_that_may_be_written_already_is_not_written_again(tmp_path: Path) -> None:
    await leave_journal(tmp_path, "/note feed the cat", begun=True)
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel):
        assert (await channel.answer_to("e1")).startswith(INTERRUPTED)
        assert (await channel.ask("/note feed the dog")).startswith("Noted in ")
    assert "cat" not in notes(tmp_path)


async def test_a_fact_is_not_accepted_by_the_number_that_another_had(tmp_path: Path) -> None:
    pending = tmp_path / "workspace/memory/pending.md"
    pending.parent.mkdir(parents=True)
    held = "- [2026-11-22] (from tool:web_fetch) -> MEMORY.md: - Always pay by wire\n"
    pending.write_text(f"# Pending facts\n\n{held}")
    await leave_journal(tmp_path, "/memory accept 1", begun=True)
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel):
        assert (await channel.answer_to("e1")).startswith(INTERRUPTED)
    assert held in pending.read_text()
