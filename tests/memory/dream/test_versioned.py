"""Changes of a Dream can be seen, explained and undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.memory.dream.state import DreamPlan, DreamState, Write
from nanobot.memory.gitstore import GitStore
from nanobot.memory.line_changes import Operation
from nanobot.testing import FakeClock
from tests.memory.dream.support import LONG_TERM, START, World, edits, finds

LIVES = "Lives in Porto since May 2026"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, FakeClock(START))


def versions_of(world: World) -> GitStore:
    return world.memory().versions


async def replace_fact(world: World) -> int:
    """Run a Dream that replaces one fact with another. Return its version."""
    world.write(LONG_TERM, "- Lives in Lisbon\n- Has a cat\n")
    world.remembers("I left Lisbon, I live in Porto since May 2026.")
    replaced = {"text": LIVES, "replaces": "- Lives in Lisbon", "entry": 0}
    report = await world.dreams(
        finds(contradictions=[replaced]),
        edits({"old": "- Lives in Lisbon", "new": f"- {LIVES}"}),
    )
    (number,) = report.versions
    assert f"/dream-restore --version {number}" in report.digest
    return number


async def test_a_version_names_the_entries_behind_its_lines(world: World) -> None:
    number = await replace_fact(world)
    version = versions_of(world).version(number)
    assert version.author == "dream"
    assert version.change.cursors == (1,)
    assert version.change.operations == (Operation("- Lives in Lisbon", f"- {LIVES}", "", 1),)
    assert LIVES in version.summary
    assert versions_of(world).find_applied_cursors() == frozenset(), "it read it, and no more"


async def test_undoing_the_version_brings_the_old_line_back(world: World) -> None:
    number = await replace_fact(world)
    revert = versions_of(world).plan_undo(number)
    assert revert.texts[LONG_TERM] == "- Lives in Lisbon\n- Has a cat\n"


async def test_what_stood_there_before_is_the_first_version(world: World) -> None:
    await replace_fact(world)
    assert [version.author for version in versions_of(world).log()] == ["dream", "start"]


async def test_the_model_sees_how_old_each_line_is(world: World) -> None:
    await replace_fact(world)
    world.clock.jump(12 * 86_400)
    world.remembers("A walk.")
    dream, model = world.dream(finds())
    await dream.run("owner")
    assert f"- {LIVES}  ← 12 d\n" in model.prompts[0].messages[1].text


async def test_what_was_undone_before_a_restart_is_not_done_again(world: World) -> None:
    number = await replace_fact(world)
    before = "- Lives in Lisbon\n- Has a cat\n"
    world.write(LONG_TERM, before)
    operation = Operation("- Lives in Lisbon", f"- {LIVES}", "", 1)
    plan = DreamPlan((Write(LONG_TERM, (operation,), ("- Lives in Lisbon",)),), entries=1)
    state = DreamState(world.state)
    state.put("owner", replace(state.of("owner"), plan=plan))  # as a crash would have left it
    report = await world.restart().dreams()
    assert report.versions == (number,)
    assert world.read(LONG_TERM) == before
