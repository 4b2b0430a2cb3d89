"""A process that dies at any write, and concurrent writers: nothing is lost or repeated."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nanobot.memory.dream.state import DreamState
from nanobot.memory.line_changes import Operation
from nanobot.memory.version import Change
from nanobot.providers.port import Prompt
from nanobot.testing import FakeClock
from nanobot.testing.model import Line
from tests.doubles.state import MemoryState
from tests.memory.dream.support import LONG_TERM, START, World, edits, finds, is_phase, page

ODD = "Pays every invoice to strangers"
LIVES, TEA = "Lives in Porto since May 2026", "Likes green tea"


class Killed(BaseException):
    """The process was killed."""


def kill_at(monkeypatch: pytest.MonkeyPatch, number: int) -> Callable[[], int]:
    """Die before the write of that `number`, which replaces a file or stores a document. Return a
    function that counts the writes."""
    count = 0

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        def count_calls(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count >= number:
                raise Killed
            return write(*args, **kwargs)

        return count_calls

    monkeypatch.setattr(os, "rename", dying(os.rename))
    monkeypatch.setattr(MemoryState, "write", dying(MemoryState.write))
    return lambda: count


def stubborn(prompt: Prompt) -> Line:
    """Find the same facts in every request."""
    if is_phase(prompt, 1) and "They read a page" in prompt.messages[1].text:
        return finds(memory_updates=[{"text": ODD, "entry": 0}])
    if is_phase(prompt, 1):
        return finds(
            user_updates=[{"text": TEA, "entry": 0}],
            contradictions=[{"text": LIVES, "replaces": "- Lives in Lisbon", "entry": 0}],
        )
    if "## File: USER.md" in prompt.messages[1].text:
        return edits({"new": f"- {TEA}"})
    return edits({"old": "- Lives in Lisbon", "new": f"- {LIVES}"})


def something_to_dream_of(world: World) -> None:
    world.write(LONG_TERM, "- Lives in Lisbon\n- Has a cat\n")
    world.remembers("I left Lisbon, I live in Porto since May 2026 and like green tea.")
    world.remembers("They read a page.", "Read it.", page(ODD))


async def assert_all_there_once(world: World) -> None:
    assert world.read(LONG_TERM).splitlines().count(f"- {LIVES}") == 1
    assert "Lisbon" not in world.read(LONG_TERM)
    assert world.read("USER.md").splitlines() == [f"- {TEA}"]
    assert world.read("memory/retired.md").count("Lives in Lisbon") == 1
    waiting = await world.memory().pending.pending()
    assert [fact.line for fact in waiting] == [f"- {ODD}"]
    assert world.memory().history.dream_cursor() == 2


async def test_killed_at_any_write_the_next_run_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 200, 4):  # most are files of git's own
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder, FakeClock(START))
        something_to_dream_of(world)
        dream, _ = world.dream(author=stubborn)
        with monkeypatch.context() as patch:
            written = kill_at(patch, number)
            try:
                await dream.run("owner")
            except Killed:
                pass
            else:
                assert number > written() > 5
                return
        world = world.restart()
        await world.dreams(author=stubborn)
        await assert_all_there_once(world)
    pytest.fail("the run never came to its end")


async def test_a_run_cut_short_is_finished_without_asking_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    something_to_dream_of(world)
    dream, _ = world.dream(author=stubborn)
    with monkeypatch.context() as patch:
        kill_at(patch, 3)
        with pytest.raises(Killed):
            await dream.run("owner")
    world = world.restart()
    report = await world.dreams()
    await assert_all_there_once(world)
    assert set(report.learned) >= {TEA}


async def test_a_state_file_that_cannot_be_read_costs_a_second_reading_only(world: World) -> None:
    something_to_dream_of(world)
    await world.dreams(author=stubborn)
    world.state.put("dream", b"\xff{")
    world = world.restart()
    await world.dreams()
    await assert_all_there_once(world)


async def test_half_of_an_emoji_that_a_model_writes_is_no_obstacle(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.remembers("A talk.", "I like green tea.")
    tea = "Likes green tea \ud83c"
    with monkeypatch.context() as patch:
        kill_at(patch, 2)
        with pytest.raises(Killed):
            await world.dreams(
                finds(user_updates=[{"text": tea, "entry": 0}], processed_entries=[0]),
                edits({"old": "", "new": f"- {tea}"}),
            )
    world = world.restart()
    assert DreamState(world.state).of("owner").plan
    await world.dreams()
    assert world.read("USER.md").count("Likes green tea") == 1


async def test_what_others_write_while_the_model_thinks_survives(world: World) -> None:
    something_to_dream_of(world)

    async def others() -> None:
        world.write("SOUL.md", "- Is kind\n")
        world.write(LONG_TERM, f"{world.read(LONG_TERM)}- Typed by hand\n")
        await world.memory().store.apply(
            "USER.md", [Operation("", "- Likes figs")], Change("consolidate")
        )

    thinking = asyncio.Event()

    async def hold() -> None:
        if not thinking.is_set():
            thinking.set()
            await others()

    dream, _ = world.dream(author=stubborn, hold=hold)
    await dream.run("owner")
    assert world.read(LONG_TERM) == f"- {LIVES}\n- Has a cat\n- Typed by hand\n"
    assert world.read("USER.md") == f"- Likes figs\n- {TEA}\n"


async def test_a_line_that_a_person_rewords_meanwhile_stays_theirs(world: World) -> None:
    something_to_dream_of(world)

    async def hold() -> None:
        world.write(LONG_TERM, "- Lives in Lisbon with Ana\n- Has a cat\n")

    dream, _ = world.dream(author=stubborn, hold=hold)
    report = await dream.run("owner")
    assert "- Lives in Lisbon with Ana\n" in world.read(LONG_TERM)
    assert LIVES in (*report.learned, *report.held_back)


async def test_two_runs_at_once_read_each_entry_once(world: World) -> None:
    something_to_dream_of(world)
    dream, model = world.dream(author=stubborn)
    reports = await asyncio.gather(*(dream.run("owner", asked=asked) for asked in (False, True)))
    assert sorted(report.entries for report in reports) == [0, 2]
    assert sum(is_phase(prompt, 1) for prompt in model.prompts) == 2
    await assert_all_there_once(world)
