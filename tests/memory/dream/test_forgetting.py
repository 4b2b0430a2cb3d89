"""Facts that are forgotten while Dream thinks, or after it had to stop, are not written."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec.structs import replace

from nanobot.errors import StorageError
from nanobot.memory.dream.state import DreamPlan, DreamState, Hold, Write
from nanobot.memory.forget import ForgottenFacts
from nanobot.memory.line_changes import Operation
from nanobot.memory.similarity import Fact
from tests.memory.dream.support import LONG_TERM, World, edits, finds

LIVES = "Lives in Porto since May 2026"
TEA = "Likes green tea"
SAID = "I live in Porto since May 2026 and like green tea."


def forget(world: World, *lines: str) -> None:
    facts = [Fact.of(line) for line in lines]
    ForgottenFacts(world.memory().root).add(world.clock.now(), b"salt", facts, {}, [])


def store_plan(world: World, *lines: str) -> None:
    """Store the plan of a run that was cut short before it wrote these lines."""
    operations = tuple(Operation("", f"- {line}") for line in lines)
    plan = DreamPlan(
        (Write(LONG_TERM, operations),),
        (Hold("USER.md", operations, ("dream",)),),
    )
    state = DreamState(world.state)
    state.put("owner", replace(state.of("owner"), plan=plan))


async def test_a_conversation_that_began_anew_after_a_forgetting_is_read(world: World) -> None:
    ForgottenFacts(world.memory().root).add(world.clock.now(), b"salt", [], {"telegram:1": [1]}, [])
    world.clock.jump(60)  # then a person deletes the session's file
    world.remembers(SAID)
    report = await world.dreams(
        finds(memory_updates=[{"text": TEA, "entry": 0}]), edits({"new": f"- {TEA}"})
    )
    assert report.learned == (TEA,)


async def test_what_was_said_anew_after_it_was_forgotten_is_learned(world: World) -> None:
    forget(world, LIVES)
    world.clock.jump(60)
    world.remembers(SAID)
    world.clock.jump(60)
    report = await world.dreams(
        finds(memory_updates=[{"text": LIVES, "entry": 0}]), edits({"new": f"- {LIVES}"})
    )
    assert report.learned == (LIVES,)


async def test_what_is_forgotten_while_the_model_thinks_is_thought_anew(world: World) -> None:
    world.remembers(SAID)
    asked = asyncio.Event()
    go_on = asyncio.Event()

    async def hold() -> None:
        asked.set()
        await go_on.wait()

    dream, model = world.dream(
        finds(memory_updates=[{"text": LIVES, "entry": 0}]),
        edits({"new": f"- {LIVES}"}),
        finds(),
        hold=hold,
    )
    running = asyncio.ensure_future(dream.run("owner"))
    await asked.wait()
    async with dream.pause_for_forgetting():
        go_on.set()
        world.conversations["telegram:1"] = world.conversations["telegram:1"][:0]
        world.talk("[erased]")
    report = await running
    assert model.remaining == 0
    assert (report.entries, report.learned) == (1, ())
    assert world.read(LONG_TERM) == ""
    assert "Porto" not in world.state.text("dream")


async def test_a_plan_is_dropped_from_the_disk_and_its_entries_are_read_again(world: World) -> None:
    store_plan(world, LIVES)
    world.remembers(SAID)
    dream, model = world.dream(finds())
    assert dream.unread("owner") == 1  # it has seen the plan by now
    async with dream.pause_for_forgetting():
        assert "Porto" not in world.state.text("dream")
    report = await dream.run("owner")
    assert (report.learned, model.remaining) == ((), 0)
    assert "Porto" not in world.state.text("dream")


async def test_forgetting_goes_on_where_there_is_no_plan_and_no_file(world: World) -> None:
    dream, _ = world.dream()
    async with dream.pause_for_forgetting():
        assert world.state.documents == {}
    with suppress(StorageError):
        async with dream.pause_for_forgetting():
            raise StorageError("x", "full")
    async with dream.pause_for_forgetting():
        pass
    assert (await dream.run("owner")).problem == ""
