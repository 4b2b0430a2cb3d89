"""MemoryStore: reading, compare-and-swap, notes, and the memory part of the prompt."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot.errors import PathRefused, ToolError, WriteConflict
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.gitstore import GitStore
from nanobot.memory.line_changes import Operation
from nanobot.memory.losses import Loss
from nanobot.memory.store import MemoryStore, Outcome
from nanobot.memory.taint import is_unconfirmed
from nanobot.memory.version import Change
from tests.memory.homes import retire

if TYPE_CHECKING:
    from tests.memory.conftest import StoppedClock

MEMORY = "memory/MEMORY.md"
CHANGE = Change("agent")


def with_fact(text: str, fact: str) -> str:
    return text.replace("## Preferences", f"{fact}\n\n## Preferences")


async def test_a_write_is_read_back(store: MemoryStore, workspace: Path) -> None:
    before = store.read("memory/MEMORY.md")
    after = with_fact(before, "- Likes blue")
    await store.replace(LONG_TERM, after, expected=before, change=CHANGE)
    assert store.read("memory/MEMORY.md") == after
    assert (workspace / MEMORY).read_text() == after


async def test_a_write_based_on_an_older_text_is_refused(
    store: MemoryStore, workspace: Path
) -> None:
    read = store.read("memory/MEMORY.md")
    (workspace / MEMORY).write_text(with_fact(read, "- Typed by the person"))
    with pytest.raises(WriteConflict, match="Read it again"):
        await store.replace(
            LONG_TERM, with_fact(read, "- Likes blue"), expected=read, change=CHANGE
        )
    assert "Typed by the person" in store.read("memory/MEMORY.md")


async def test_a_file_in_utf_16_is_read_and_written_as_utf_8(
    store: MemoryStore, workspace: Path
) -> None:
    (workspace / "USER.md").write_bytes("- wohnt in K\xf6ln\n- \u8336\n".encode("utf-16"))
    assert store.facts("USER.md") == ["- wohnt in K\xf6ln", "- \u8336"]
    await store.apply("USER.md", [Operation(new="- likes tea")], Change("agent"))
    assert (workspace / "USER.md").read_text() == "- wohnt in K\xf6ln\n- \u8336\n- likes tea\n"


async def test_lines_in_another_encoding_are_read_as_latin_1_and_keep_their_bytes(
    store: MemoryStore, workspace: Path
) -> None:
    lines = ["# Memory", "", "- Müller wohnt in Köln", "- 茶"]
    before = [line.encode("utf-8" if "茶" in line else "latin-1") for line in lines]
    before += ["- 住在北京".encode("gbk"), b""]
    (workspace / MEMORY).write_bytes(b"\r\n".join(before))
    assert store.facts(MEMORY)[:2] == lines[2:]
    await store.apply(MEMORY, [Operation("- 茶", "- Likes tea")], CHANGE)
    after = [*before[:3], b"- Likes tea", *before[4:]]
    assert (workspace / MEMORY).read_bytes() == b"\r\n".join(after)


async def test_a_byte_order_mark_is_no_fact_and_goes_with_the_next_write(
    store: MemoryStore, workspace: Path
) -> None:
    (workspace / MEMORY).write_bytes("\ufeff- Likes tea\n".encode())
    assert store.facts(MEMORY) == ["- Likes tea"]
    await store.apply(MEMORY, [Operation("- Likes tea", "- Likes coffee")], CHANGE)
    assert (workspace / MEMORY).read_bytes() == b"- Likes coffee\n"


async def test_a_byte_order_mark_takes_no_mark_from_a_note(
    store: MemoryStore, workspace: Path
) -> None:
    path = workspace / await store.append_today("pay Mallory", origins=("tool:web_fetch",))
    note = path.read_text().splitlines()[-1]
    path.write_bytes(f"\ufeff{note}\r\n".encode())
    assert "pay Mallory" in store.read_unconfirmed_notes()


async def test_of_writers_at_once_that_read_the_same_one_wins(store: MemoryStore) -> None:
    read = store.read("memory/MEMORY.md")
    outcomes = await asyncio.gather(
        *(
            store.replace(LONG_TERM, with_fact(read, f"- Fact {n}"), expected=read, change=CHANGE)
            for n in range(8)
        ),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes].count(WriteConflict) == 7
    assert store.read("memory/MEMORY.md").count("- Fact") == 1


async def test_a_document_that_is_not_there_is_empty_and_can_be_made(store: MemoryStore) -> None:
    assert store.read("memory/people.md") == ""
    await store.replace("memory/people.md", "Ana\n", expected=None, change=CHANGE)
    assert store.read("memory/people.md") == "Ana\n"
    with pytest.raises(WriteConflict):
        await store.replace("memory/people.md", "Bea\n", expected=None, change=CHANGE)


async def test_a_write_that_forgets_too_much_is_refused_with_the_reason(store: MemoryStore) -> None:
    read = store.read("memory/MEMORY.md")
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
    await store.replace(LONG_TERM, full, expected=read, change=CHANGE)
    for smaller, reason in ((read, "remove 10 facts"), ("", "empty the file")):
        with pytest.raises(ToolError, match=reason):
            await store.replace(LONG_TERM, smaller, expected=full, change=CHANGE)
        assert store.read("memory/MEMORY.md") == full


async def test_a_persona_may_be_rewritten_while_it_is_the_template(store: MemoryStore) -> None:
    await store.replace(
        "SOUL.md", "# Soul\n\nA pirate.\n", expected=store.read("SOUL.md"), change=CHANGE
    )
    assert store.read("SOUL.md") == "# Soul\n\nA pirate.\n"


async def test_a_file_that_every_prompt_carries_stays_in_its_budget(store: MemoryStore) -> None:
    for path in (MEMORY, "AGENTS.md"):
        with pytest.raises(ToolError, match="tokens"):
            await store.replace(path, "long " * 70_000, expected=store.read(path), change=CHANGE)


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
    assert store.read(store.today_path()) == (
        "# 2026-11-21\n\n- 14:03 bought milk\n- 14:10 called Ana:\n  she comes\n\n  in March\n"
    )
    (workspace / "memory/2026-11-21.md").write_bytes(b"typed by hand \xff, no newline")
    await store.append_today("and \ud83d this")
    assert (workspace / "memory/2026-11-21.md").read_bytes() == (
        b"typed by hand \xff, no newline\n- 14:10 and  this\n"
    )
    with pytest.raises(ToolError, match="empty"):
        await store.append_today(" \n")


async def test_no_note_of_many_at_once_is_lost(store: MemoryStore) -> None:
    await asyncio.gather(*(store.append_today(f"note {n}") for n in range(20)))
    assert sorted(line[8:] for line in store.read(store.today_path()).splitlines()[2:]) == sorted(
        f"note {n}" for n in range(20)
    )


async def test_the_prompt_part_has_what_there_is_and_no_template(
    store: MemoryStore, workspace: Path
) -> None:
    assert store.get_memory_context() == ""
    await store.append_today("bought milk")
    notes = "## Today's Notes\n\n# 2026-11-21\n\n- 14:03 bought milk"
    assert store.get_memory_context() == f"# Memory\n\n{notes}"
    read = store.read("memory/MEMORY.md")
    await store.replace(LONG_TERM, with_fact(read, "- Likes blue"), expected=read, change=CHANGE)
    text = (workspace / MEMORY).read_text().strip()
    assert store.get_memory_context() == (f"# Memory\n\n## Long-term Memory\n\n{text}\n\n{notes}")
    (workspace / "memory/2026-11-21.md").unlink()
    assert store.get_memory_context() == f"# Memory\n\n## Long-term Memory\n\n{text}"


async def test_the_prompt_part_follows_the_day(store: MemoryStore, clock: StoppedClock) -> None:
    await store.append_today("bought milk")
    clock.time += timedelta(days=1)
    await store.append_today("sold milk")
    assert store.get_memory_context() == (
        "# Memory\n\n## Today's Notes\n\n# 2026-11-22\n\n- 14:03 sold milk\n\n"
        "## Earlier Notes\n\n# 2026-11-21\n\n- 14:03 bought milk"
    )
    clock.time += timedelta(days=2)
    assert store.get_memory_context() == ""


@pytest.mark.parametrize("days", [0, 1, 4])
async def test_the_prompt_part_has_the_notes_of_as_many_days_as_wanted(
    versions: GitStore, clock: StoppedClock, days: int
) -> None:
    store = MemoryStore(versions, recent_days=days)
    for day in range(6):
        await store.append_today(f"day {day}", origins=["tool:web_fetch"])
        clock.time += timedelta(days=1)
    clock.time -= timedelta(days=1)
    shown, told = store.get_memory_context(), store.memory_text()
    held = [day for day in range(6) if f"day {day}" in shown]
    assert held == list(range(6 - days, 6))
    assert held == [day for day in range(6) if f"day {day}" in told]
    assert all(f"day {day}" in store.read_unconfirmed_notes() for day in held)


async def test_recent_memories_begin_with_today_and_pass_over_days_without_notes(
    store: MemoryStore, clock: StoppedClock
) -> None:
    assert store.get_recent_memories() == ""
    for day in (0, 2, 8):
        clock.time += timedelta(days=day)
        await store.append_today(f"after {day}")
    assert store.get_recent_memories() == "# 2026-12-01\n\n- 14:03 after 8"
    assert store.get_recent_memories(days=30) == "\n\n---\n\n".join(
        f"# {day}\n\n- 14:03 after {n}"
        for day, n in (("2026-12-01", 8), ("2026-11-23", 2), ("2026-11-21", 0))
    )
    assert store.get_recent_memories(days=30, skip=1).startswith("# 2026-11-23")
    assert store.get_recent_memories(days=0) == ""


async def test_the_long_term_memory_is_written_where_it_was_read(store: MemoryStore) -> None:
    read = store.read(LONG_TERM)
    await store.replace(MEMORY, with_fact(read, "- Likes blue"), expected=read, change=CHANGE)
    assert "- Likes blue" in store.read(LONG_TERM)
    with pytest.raises(WriteConflict):
        await store.replace(MEMORY, "- Likes red", expected=read, change=CHANGE)


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
    assert "Likes teal" in store.read("memory/MEMORY.md")
    file.unlink()
    assert store.get_memory_context() == ""


def test_an_unchanged_memory_is_not_read_again(store: MemoryStore, workspace: Path) -> None:
    first = store.memory_text()
    (workspace / MEMORY).write_text("- Likes blue\n")
    changed = store.memory_text()
    assert first != changed
    assert store.memory_text() is changed
    assert store.read(MEMORY) is store.read(MEMORY)


def test_notes_of_days_that_are_over_are_not_held(
    store: MemoryStore, workspace: Path, clock: StoppedClock
) -> None:
    days, size = 50, 20_000
    tracemalloc.start()
    try:
        for _ in range(days):
            path = store.today_path()
            (workspace / path).write_text("é" * size)
            assert len(store.read(store.today_path())) == size
            clock.time += timedelta(days=1)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 5 * size


async def test_a_link_is_named_in_the_prompt_and_never_followed(
    store: MemoryStore, workspace: Path
) -> None:
    (workspace.parent / "secret").write_text("- hunter22")
    (workspace / MEMORY).unlink()
    (workspace / MEMORY).symlink_to(workspace.parent / "secret")
    assert "memory/MEMORY.md cannot be read" in store.get_memory_context()
    assert "hunter22" not in store.get_memory_context()
    with pytest.raises(PathRefused):
        store.read("memory/MEMORY.md")
    with pytest.raises(PathRefused):
        await store.replace(LONG_TERM, "x", expected="", change=CHANGE)


def test_only_what_was_touched_is_worth_a_place_in_a_prompt(
    store: MemoryStore, workspace: Path
) -> None:
    files = ["AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "HEARTBEAT.md", MEMORY]
    assert not any(map(store.facts, files))
    (workspace / "USER.md").write_text("# User\n\n## Basics\n\nAna, Lisbon\n")
    assert store.facts("USER.md")


def test_a_store_without_a_template_takes_placeholders_for_nothing(
    workspace: Path, versions: GitStore
) -> None:
    (workspace / MEMORY).write_text("# Memory\n\n## Preferences\n\n(what they like)\n")
    assert MemoryStore(versions).get_memory_context() == ""


WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf")
FACTS = [f"- {word} was decided" for word in WORDS]


def facts(lines: list[str]) -> str:
    return "\n".join(["# Memory", "", "## Project Context", "", *lines, ""])


async def test_operations_fit_themselves_to_what_a_person_typed_meanwhile(
    store: MemoryStore, workspace: Path
) -> None:
    (workspace / MEMORY).write_text(facts(FACTS))
    steps = [Operation(new="- Likes blue", section="## Preferences"), Operation(old="- gone line")]
    assert (await store.apply(MEMORY, steps, CHANGE)).left == ()
    assert store.read(MEMORY).endswith("## Preferences\n\n- Likes blue\n")
    assert await store.apply(MEMORY, steps, CHANGE) == Outcome(0)
    assert store.read(MEMORY).count("- Likes blue") == 1
    rewording = Operation("- someone else typed over this", "- it reads so now")
    left = (await store.apply(MEMORY, [rewording], CHANGE)).left
    assert left in ((), (rewording,))


async def test_operations_on_nothing_make_the_file(store: MemoryStore, workspace: Path) -> None:
    await store.apply("USER.md", [Operation(new="- Ana", section="## Basics")], CHANGE)
    assert "- Ana" in (workspace / "USER.md").read_text()


@pytest.mark.parametrize("way", ["removed", "retired", "replaced", "negated", "merged"])
async def test_no_more_facts_go_than_may_whatever_the_way(
    store: MemoryStore, workspace: Path, clock: StoppedClock, way: str
) -> None:
    (workspace / MEMORY).write_text(facts(FACTS))
    new = {"replaced": "- Nothing is known", "merged": "- A, B", "negated": "{} not at all"}
    steps = [Operation(fact, new.get(way, "").format(fact)) for fact in FACTS]
    steps = [Operation(one.old, f"{one.new} {at}" * bool(one.new)) for at, one in enumerate(steps)]
    retired = FACTS if way != "removed" else ()
    for days in (0, 1, 1, 1):
        clock.time += timedelta(days=days)
        outcome = await store.apply(MEMORY, steps, Change("dream"), retired=retired)
        left = store.read(MEMORY).splitlines()
        assert [fact for fact in FACTS if fact in left] == FACTS[3:]
        assert outcome.beyond == tuple(steps[3:])


async def test_a_line_that_is_not_written_keeps_no_fact_that_goes(
    store: MemoryStore, workspace: Path
) -> None:
    others = ["- Lives at the harbour", "- Plays chess", "- Drives a tractor"]
    likes = [f"- Likes {one} very much" for one in ("tea", "rice", "soup", "bread", "plums")]
    every, stamps = [*others, *likes], "- Collects stamps"
    (workspace / MEMORY).write_text(facts([*every, stamps]))
    merged = Operation(stamps, "- Likes tea, rice, soup, bread, plums very much")
    steps = [*(Operation(old=one) for one in every), merged]
    outcome = await store.apply(MEMORY, steps, Change("agent"))
    left = store.read(MEMORY).splitlines()
    assert [one for one in every if one in left] == likes
    assert stamps in left
    assert outcome.beyond == tuple(steps[3:])


async def test_what_the_person_takes_out_or_accepts_does_not_count(
    store: MemoryStore, workspace: Path
) -> None:
    (workspace / MEMORY).write_text(facts(FACTS))
    steps = [Operation(old=fact) for fact in FACTS]
    assert (await store.apply(MEMORY, steps[:4], Change("you"), retired=FACTS)).beyond == ()
    assert (await store.apply(MEMORY, steps, Change("dream"), retired=FACTS)).beyond == ()
    assert "decided" not in store.read(MEMORY)


async def test_more_than_three_facts_gone_within_a_day_are_reported_also_in_slices(
    versions: GitStore, workspace: Path
) -> None:
    told = list[Loss]()

    async def report(loss: Loss) -> None:
        told.append(loss)

    store = MemoryStore(versions, on_loss=report)
    many = [f"- subject{n} concerns topic{n}" for n in range(30)]
    (workspace / MEMORY).write_text(facts(many))
    for first, size in ((0, 2), (2, 1), (3, 1), (4, 2)):
        steps = [Operation(old=fact) for fact in many[first : first + size]]
        await store.apply(MEMORY, steps, Change("dream"), retired=many)
    assert [(loss.facts, loss.within_a_day) for loss in told] == [
        ((many[3],), 4),
        (tuple(many[4:6]), 6),
    ]
    assert all(loss.number for loss in told)


async def test_retired_facts_move_with_their_date(
    store: MemoryStore, workspace: Path, clock: StoppedClock
) -> None:
    (workspace / MEMORY).write_text(facts(FACTS))
    await retire(store, MEMORY, [fact[2:] for fact in FACTS[:2]], CHANGE)
    clock.time += timedelta(days=1)
    assert await retire(store, MEMORY, ["never stood there"], CHANGE) == 0
    await retire(store, MEMORY, FACTS[2:], Change("you"))
    assert (workspace / "memory/retired.md").read_text() == (
        "# Retired facts\n\n"
        "- 2026-11-21: alpha was decided\n- 2026-11-21: bravo was decided\n"
        "- 2026-11-22: charlie was decided\n- 2026-11-22: delta was decided\n"
        "- 2026-11-22: echo was decided\n- 2026-11-22: foxtrot was decided\n"
        "- 2026-11-22: golf was decided\n"
    )
    assert store.list_retired()[2] == (date(2026, 11, 22), "charlie was decided")
    assert "decided" not in store.read(MEMORY)


async def test_a_crash_amid_retiring_loses_no_line_and_repeats_none(
    store: MemoryStore, workspace: Path
) -> None:
    class Crashed(Exception):
        pass

    def crash(path: str, previous: bytes | None, new: bytes) -> None:
        raise Crashed

    (workspace / MEMORY).write_text(facts(FACTS))
    steps = [Operation(old=FACTS[0])]
    with pytest.raises(Crashed):
        await store.apply(MEMORY, steps, CHANGE, retired=FACTS[:1], before=crash)
    assert FACTS[0] in store.read(MEMORY)
    assert store.list_retired() == []  # it is still current
    await retire(store, MEMORY, FACTS[:1], CHANGE)
    assert FACTS[0] not in store.read(MEMORY)
    assert [line for _, line in store.list_retired()] == ["alpha was decided"]


async def test_a_retired_fact_that_stands_again_is_not_told_as_retired(
    store: MemoryStore, workspace: Path
) -> None:
    (workspace / MEMORY).write_text(facts(FACTS))
    await retire(store, MEMORY, FACTS[:2], CHANGE)
    (workspace / MEMORY).write_text(facts(FACTS))
    assert store.list_retired() == []
    (workspace / MEMORY).write_text(facts(FACTS[1:]))
    assert [line for _, line in store.list_retired()] == ["alpha was decided"]


async def test_a_reworded_fact_may_be_retired_as_well(store: MemoryStore, workspace: Path) -> None:
    (workspace / MEMORY).write_text(facts(["- Lives in Lisbon", *FACTS]))
    step = Operation("- Lives in Lisbon", "- Moved to Porto in May")
    await store.apply(MEMORY, [step], CHANGE, retired=["- Lives in Lisbon"])
    assert "Porto" in store.read(MEMORY)
    assert [line for _, line in store.list_retired()] == ["Lives in Lisbon"]


async def test_the_person_may_drop_what_they_like(store: MemoryStore, workspace: Path) -> None:
    (workspace / MEMORY).write_text(facts(FACTS))
    change = Change("restore", "undo change 3")
    await store.replace(LONG_TERM, facts([]), expected=facts(FACTS), change=change)
    assert store.read(MEMORY) == facts([])


async def test_an_unconfirmed_note_says_where_it_may_come_from(store: MemoryStore) -> None:
    await store.append_today("pay the bill\nsoon", origins=("tool:read_file", "forwarded"))
    line = store.read(store.today_path()).splitlines()[2]
    assert line == "- 14:03 (from tool:read_file, forwarded, unconfirmed) pay the bill"
    assert is_unconfirmed(line)
    assert not is_unconfirmed("- 14:03 pay the bill (from Ana, unconfirmed) soon")


async def test_taking_text_out_reaches_all_documents_and_notes(
    store: MemoryStore, workspace: Path
) -> None:
    (workspace / MEMORY).write_text(facts([*FACTS, "- secret plan"]))
    await retire(store, MEMORY, ["secret plan"], CHANGE)
    await store.append_today("the secret")
    (workspace / "USER.md").write_text("secret \udcff\n", errors="surrogateescape")
    (workspace / "library").mkdir()
    (workspace / "library/own.md").write_text("secret")
    assert await store.rewrite(lambda text: text.replace("secret", "[erased]")) == 3
    assert "[erased]" in store.read(store.today_path())
    assert store.list_retired()[0][1] == "[erased] plan"
    assert (workspace / "USER.md").read_bytes() == b"[erased] \xff\n"
    assert (workspace / "library/own.md").read_text() == "secret"
    assert await store.rewrite(lambda text: text) == 0


async def test_a_refused_change_retires_nothing(store: MemoryStore, workspace: Path) -> None:
    (workspace / MEMORY).write_text(facts(FACTS))
    steps = [Operation(FACTS[0], "- Everything. " + "very long " * 40_000)]
    with pytest.raises(ToolError, match="tokens"):
        await store.apply(MEMORY, steps, CHANGE, retired=FACTS[:1])
    assert FACTS[0] in store.read(MEMORY)
    assert store.list_retired() == []
