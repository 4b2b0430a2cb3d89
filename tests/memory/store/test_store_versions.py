"""MemoryStore with versions: numbers and ages."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot.errors import ToolError
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.gitstore import GitStore
from nanobot.memory.line_changes import Operation
from nanobot.memory.store import MemoryStore
from nanobot.memory.version import Change
from nanobot.security.paths import Root
from tests.memory.homes import retire

if TYPE_CHECKING:
    from tests.memory.conftest import StoppedClock

MEMORY = "memory/MEMORY.md"
WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf")
FACTS = [f"- {word} was decided" for word in WORDS]


def facts(lines: list[str]) -> str:
    return "\n".join(["# Memory", "", *lines, ""])


@pytest.fixture
def store(workspace: Path, versions: GitStore) -> MemoryStore:
    (workspace / MEMORY).write_text("")
    return MemoryStore(versions)


async def write(store: MemoryStore, lines: list[str], author: str = "agent") -> int:
    change = Change(author)  # type: ignore[arg-type]
    return await store.replace(LONG_TERM, facts(lines), expected=store.read(MEMORY), change=change)


async def test_each_write_has_a_number_and_its_change(
    store: MemoryStore, versions: GitStore
) -> None:
    first = await write(store, FACTS[:1])
    operations = [Operation(new=FACTS[1])]
    change = Change("consolidate", "learned", cursors=(7,))
    second = (await store.apply(MEMORY, operations, change)).version
    assert second > first > 0
    change = versions.version(second).change
    assert (change.author, change.cursors) == ("consolidate", (7,))
    assert [step.new for step in change.operations] == [FACTS[1]]
    assert 7 in versions.find_applied_cursors()
    assert await write(store, FACTS[:2]) == 0


async def test_a_person_scope_has_versions_of_its_own(
    tmp_path: Path, workspace: Path, clock: StoppedClock
) -> None:
    prefix = "people/telegram_7/"
    versions = GitStore(tmp_path / "state", Root(workspace), clock, prefix)
    store = MemoryStore(versions)
    number = await write(store, FACTS[:1])
    assert [version.number for version in versions.log()] == [number]
    assert versions.version(number).paths == (f"{prefix}{MEMORY}",)


async def test_a_retirement_is_explained_by_versions_of_both_files(
    store: MemoryStore, versions: GitStore
) -> None:
    await write(store, FACTS)
    number = await retire(store, MEMORY, FACTS[:1], Change("dream", "obsolete", cursors=(3,)))
    latest, before = versions.log(limit=2)
    assert (latest.number, latest.paths, latest.change.cursors) == (number, (MEMORY,), (3,))
    assert before.paths == ("memory/retired.md",)


async def test_lines_have_the_age_of_the_version_that_wrote_them(
    store: MemoryStore, clock: StoppedClock
) -> None:
    await write(store, FACTS[:1])
    clock.time += timedelta(days=3)
    await write(store, FACTS[:2])
    clock.time += timedelta(days=2)
    ages = store.fact_ages(MEMORY)
    assert (ages[FACTS[0]], ages[FACTS[1]]) == (5, 2)


async def test_hand_edits_become_versions_of_the_person(
    store: MemoryStore, versions: GitStore, workspace: Path
) -> None:
    await write(store, FACTS[:1])
    (workspace / MEMORY).write_text(facts(FACTS[:2]))
    number = await store.record_hand_edits()
    assert versions.version(number).author == "you"


async def test_facts_of_a_week_ago_do_not_erode(store: MemoryStore, clock: StoppedClock) -> None:
    await write(store, FACTS)
    clock.time += timedelta(days=8)
    for left in (2, 3):
        await write(store, FACTS[left:])
        clock.time += timedelta(days=1)
    with pytest.raises(ToolError, match="within a week"):
        await write(store, FACTS[4:])
    clock.time += timedelta(days=7)
    await write(store, FACTS[4:])


async def test_what_the_person_takes_out_does_not_count_against_the_agent(
    store: MemoryStore, clock: StoppedClock, workspace: Path
) -> None:
    await write(store, FACTS)
    clock.time += timedelta(days=8)
    (workspace / MEMORY).write_text(facts(FACTS[5:]))
    await write(store, FACTS[6:])
    assert FACTS[5] not in store.read(MEMORY)
    await write(store, [], author="restore")


async def test_a_fact_retired_this_week_counts_and_one_of_last_week_does_not(
    store: MemoryStore, clock: StoppedClock
) -> None:
    await write(store, FACTS)
    clock.time += timedelta(days=8)
    await retire(store, MEMORY, FACTS[:3], Change("dream"))
    clock.time += timedelta(days=2)
    with pytest.raises(ToolError, match="within a week"):
        await write(store, FACTS[4:])
    clock.time += timedelta(days=6)
    await write(store, FACTS[4:])
    assert FACTS[3] not in store.read(MEMORY)


async def test_ages_follow_each_write_and_an_erasure(
    store: MemoryStore, versions: GitStore, clock: StoppedClock
) -> None:
    await write(store, FACTS[:1])
    clock.time += timedelta(days=3)
    assert store.fact_ages(MEMORY)[FACTS[0]] == 3
    await write(store, FACTS[:2])
    await write(store, FACTS[1:2], author="you")
    clock.time += timedelta(days=1)
    await write(store, FACTS[:2])
    clock.time += timedelta(days=1)
    ages = store.fact_ages(MEMORY)
    assert (ages[FACTS[0]], ages[FACTS[1]]) == (1, 2)  # a line that comes back is new
    versions.rewrite(lambda text: text.replace(FACTS[1], FACTS[4]))
    assert store.fact_ages(MEMORY).keys() == {"# Memory", FACTS[0]}


async def test_ages_are_the_same_after_many_versions_and_for_a_new_process(
    workspace: Path, tmp_path: Path, store: MemoryStore, clock: StoppedClock
) -> None:
    for number in range(10):
        clock.time += timedelta(days=1)
        await write(store, [*FACTS, f"- the counter stands at {number}"])
        ages = store.fact_ages(MEMORY)
    again = GitStore(tmp_path / "state", Root(workspace), clock)
    assert MemoryStore(again).fact_ages(MEMORY) == ages
    assert (ages[FACTS[0]], ages["- the counter stands at 9"]) == (9, 0)
