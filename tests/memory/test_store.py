"""MemoryStore: reading, compare-and-swap, notes, and the memory part of the prompt."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot.errors import PathRefused, StorageError, ToolError, WriteConflict
from nanobot.memory.store import MemoryStore
from nanobot.memory.tools import Note
from nanobot.messages import ToolCall
from nanobot.security.paths import Root
from nanobot.tooling import Caller, ToolRegistry, ToolResult

if TYPE_CHECKING:
    from tests.memory.conftest import StoppedClock

MEMORY = "memory/MEMORY.md"


def with_fact(text: str, fact: str) -> str:
    return text.replace("## Preferences", f"{fact}\n\n## Preferences")


async def test_a_write_is_read_back(store: MemoryStore, workspace: Path) -> None:
    before = store.read_long_term()
    after = with_fact(before, "- Likes blue")
    await store.write_long_term(after, before)
    assert store.read_long_term() == after
    assert (workspace / MEMORY).read_text() == after


async def test_a_write_based_on_an_older_text_is_refused(
    store: MemoryStore, workspace: Path
) -> None:
    read = store.read_long_term()
    (workspace / MEMORY).write_text(with_fact(read, "- Typed by the person"))
    with pytest.raises(WriteConflict, match="read it again"):
        await store.write_long_term(with_fact(read, "- Likes blue"), read)
    assert "Typed by the person" in store.read_long_term()


async def test_of_writers_at_once_that_read_the_same_one_wins(store: MemoryStore) -> None:
    read = store.read_long_term()
    outcomes = await asyncio.gather(
        *(store.write_long_term(with_fact(read, f"- Fact {n}"), read) for n in range(8)),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes].count(WriteConflict) == 7
    assert store.read_long_term().count("- Fact") == 1


async def test_a_document_that_is_not_there_is_empty_and_can_be_made(store: MemoryStore) -> None:
    assert store.read("memory/people.md") == ""
    await store.replace("memory/people.md", "Ana\n", expected=None, author="agent")
    assert store.read("memory/people.md") == "Ana\n"
    with pytest.raises(WriteConflict):
        await store.replace("memory/people.md", "Bea\n", expected=None, author="agent")


async def test_a_write_that_forgets_too_much_is_refused_with_the_reason(store: MemoryStore) -> None:
    read = store.read_long_term()
    words = [
        "alpha",
        "bravo",
        "charlie",
        "delta",
        "echo",
        "foxtrot",
        "golf",
        "hotel",
        "india",
        "juliet",
    ]
    full = with_fact(read, "\n".join(f"- {word} was decided" for word in words))
    await store.write_long_term(full, read)
    for smaller, reason in ((read, "drop 10 facts"), ("", "empty the file")):
        with pytest.raises(ToolError, match=reason):
            await store.write_long_term(smaller, full)
        assert store.read_long_term() == full


async def test_a_persona_may_be_rewritten_while_it_is_the_template(store: MemoryStore) -> None:
    await store.replace(
        "SOUL.md", "# Soul\n\nA pirate.\n", expected=store.read("SOUL.md"), author="a"
    )
    assert store.read("SOUL.md") == "# Soul\n\nA pirate.\n"


async def test_a_file_that_every_prompt_carries_stays_in_its_budget(store: MemoryStore) -> None:
    for path in (MEMORY, "AGENTS.md"):
        with pytest.raises(ToolError, match="tokens"):
            await store.replace(path, "long " * 20_000, expected=store.read(path), author="a")


def test_what_decides_behaviour_is_a_document(store: MemoryStore) -> None:
    documents = ["AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "HEARTBEAT.md", MEMORY, "memory/x"]
    assert all(map(store.is_document, documents))
    assert not any(map(store.is_document, ["notes.txt", "x/AGENTS.md", "memory", "memory.md"]))


async def test_notes_are_bullets_under_the_day_with_their_lines_indented(
    store: MemoryStore, clock: StoppedClock, workspace: Path
) -> None:
    assert await store.append_today("  bought milk\n") == "memory/2026-11-21.md"
    clock.time += timedelta(minutes=7)
    await store.append_today("called Ana:\r\nshe comes\n\nin March")
    assert store.read_today() == (
        "# 2026-11-21\n\n- 14:03 bought milk\n- 14:10 called Ana:\n  she comes\n\n  in March\n"
    )
    (workspace / "memory/2026-11-21.md").write_bytes(b"typed by hand \xff, no newline")
    await store.append_today("and \ud83d this")
    assert (workspace / "memory/2026-11-21.md").read_bytes() == (
        b"typed by hand \xff, no newline\n- 14:10 and ? this\n"
    )
    with pytest.raises(ToolError, match="empty"):
        await store.append_today(" \n")


async def test_no_note_of_many_at_once_is_lost(store: MemoryStore) -> None:
    await asyncio.gather(*(store.append_today(f"note {n}") for n in range(20)))
    assert sorted(line[8:] for line in store.read_today().splitlines()[2:]) == sorted(
        f"note {n}" for n in range(20)
    )


async def test_recent_notes_come_newest_first_without_empty_days(
    store: MemoryStore, clock: StoppedClock
) -> None:
    assert store.get_recent_memories() == ""
    today = clock.time
    for days_ago in (8, 6, 1, 0):
        clock.time = today - timedelta(days=days_ago)
        await store.append_today(f"{days_ago} days ago")
    assert store.get_recent_memories() == "\n\n---\n\n".join(
        f"# 2026-11-{21 - ago}\n\n- 14:03 {ago} days ago" for ago in (0, 1, 6)
    )
    assert store.get_recent_memories(days=1).endswith("0 days ago")


async def test_the_prompt_part_has_what_there_is_and_no_template(
    store: MemoryStore, workspace: Path
) -> None:
    assert store.get_memory_context() == ""
    await store.append_today("bought milk")
    notes = "## Today's Notes\n\n# 2026-11-21\n\n- 14:03 bought milk"
    assert store.get_memory_context() == f"# Memory\n\n{notes}"
    read = store.read_long_term()
    await store.write_long_term(with_fact(read, "- Likes blue"), read)
    text = (workspace / MEMORY).read_text().strip()
    assert store.get_memory_context() == (f"# Memory\n\n## Long-term Memory\n\n{text}\n\n{notes}")
    (workspace / "memory/2026-11-21.md").unlink()
    assert store.get_memory_context() == f"# Memory\n\n## Long-term Memory\n\n{text}"


async def test_the_prompt_part_follows_the_day(store: MemoryStore, clock: StoppedClock) -> None:
    await store.append_today("bought milk")
    clock.time += timedelta(days=1)
    assert store.get_memory_context() == ""


def test_the_editor_of_a_person_is_noticed(store: MemoryStore, workspace: Path) -> None:
    assert store.get_memory_context() == ""
    file = workspace / MEMORY
    original = file.read_text()
    file.write_text(with_fact(original, "- Likes blue"))
    assert "Likes blue" in store.get_memory_context()
    stamp = file.stat().st_mtime_ns + 1
    file.write_text(with_fact(original, "- Likes teal"))  # the same size, in place
    os.utime(file, ns=(stamp, stamp))
    assert "Likes teal" in store.get_memory_context()
    assert "Likes teal" in store.read_long_term()
    file.unlink()
    assert store.get_memory_context() == ""


def test_an_unchanged_memory_is_not_read_again(store: MemoryStore, workspace: Path) -> None:
    first = store.get_memory_context()
    (workspace / MEMORY).write_text("- Likes blue\n")
    changed = store.get_memory_context()
    assert first != changed
    assert store.get_memory_context() is changed


async def test_a_link_is_named_in_the_prompt_and_never_followed(
    store: MemoryStore, workspace: Path
) -> None:
    (workspace.parent / "secret").write_text("- hunter22")
    (workspace / MEMORY).unlink()
    (workspace / MEMORY).symlink_to(workspace.parent / "secret")
    assert "memory/MEMORY.md cannot be read" in store.get_memory_context()
    assert "hunter22" not in store.get_memory_context()
    with pytest.raises(PathRefused):
        store.read_long_term()
    with pytest.raises(PathRefused):
        await store.write_long_term("x", "")


def test_only_what_was_touched_is_worth_a_place_in_a_prompt(
    store: MemoryStore, workspace: Path
) -> None:
    files = ["AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "HEARTBEAT.md", MEMORY]
    assert all(map(store.is_untouched, files))
    (workspace / "USER.md").write_text("# User\n\n## Basics\n\nAna, Lisbon\n")
    assert not store.is_untouched("USER.md")


async def test_the_note_tool_keeps_the_old_text_first(store: MemoryStore, workspace: Path) -> None:
    class Log:
        def __init__(self) -> None:
            self.changes: list[tuple[str, str, bytes | None, bytes]] = []

        def before_change(
            self, turn_id: str, path: str, previous: bytes | None, new: bytes
        ) -> None:
            self.changes.append((turn_id, path, previous, new))
            if len(self.changes) == 3:
                raise StorageError("undo", "no space left")

    log, tools = Log(), ToolRegistry()
    tools.register(Note(store, log))

    async def note(text: str) -> ToolResult:
        call = ToolCall("1", "note", json.dumps({"text": text}))
        return await tools.call(call, Caller("cli", "direct", "cli:direct", "t1"))

    path = "memory/2026-11-21.md"
    assert await note("one") == ToolResult(f"noted in {path}", changed=(path,))
    await note("two")
    first = b"# 2026-11-21\n\n- 14:03 one\n"
    assert log.changes == [("t1", path, None, first), ("t1", path, first, first + b"- 14:03 two\n")]
    assert (await note("three")).is_error
    assert (workspace / path).read_bytes() == first + b"- 14:03 two\n"


def test_a_store_without_a_template_takes_placeholders_for_nothing(
    workspace: Path, clock: StoppedClock
) -> None:
    (workspace / MEMORY).write_text("# Memory\n\n## Preferences\n\n(what they like)\n")
    assert MemoryStore(Root(workspace), clock).get_memory_context() == ""
