"""A model that stalls delays a turn by a bounded time, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nanobot.messages import Message
from nanobot.testing import ScriptedModel
from tests.memory.consolidation_home import Home, saves
from tests.support import Gate

NEXT = (Message("user", "and now?"),)
THREE = ("first", "second", "third")


async def test_a_turn_waits_half_a_minute_for_room_in_all(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel(author=lambda _: saves(), hold=gate)
    home = Home(tmp_path, model)
    session = await home.talk(*THREE, words=700)
    turn = asyncio.ensure_future(home.consolidator.maybe_consolidate_by_tokens(session, NEXT))
    await gate.reached.wait()
    await home.clock.advance(29)
    assert not turn.done()
    await home.clock.advance(1)
    await turn
    assert home.size.tokens(session, NEXT) <= 3_000
    assert {entry.type for entry in home.entries} == {"raw"}
    assert home.nowhere(session) == []
    assert len(model.prompts) == 1
    await home.close()


async def test_so_it_does_for_what_is_under_way_in_the_background(tmp_path: Path) -> None:
    gate = Gate()
    home = Home(tmp_path, ScriptedModel(saves(), hold=gate))
    session = await home.talk(*THREE, words=700)
    work = asyncio.ensure_future(home.consolidator.maybe_consolidate_by_tokens(session))
    await gate.reached.wait()
    await home.clock.advance(600)
    assert not work.done()
    turn = asyncio.ensure_future(home.consolidator.maybe_consolidate_by_tokens(session, NEXT))
    await home.clock.until_sleeping()
    await home.clock.advance(30)
    await asyncio.gather(turn, work)
    assert {entry.type for entry in home.entries} == {"raw"}
    assert home.nowhere(session) == []
    await home.close()


async def test_what_a_stopped_turn_began_waits_for_the_next_one(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel(saves(), saves(), hold=gate)
    home = Home(tmp_path, model)
    session = await home.talk(*THREE, words=700)
    turn = asyncio.ensure_future(home.consolidator.maybe_consolidate_by_tokens(session, NEXT))
    await gate.reached.wait()
    turn.cancel()
    await home.background.wait(1)
    assert home.entries == []
    assert len(model.prompts) == 1
    gate.opened.set()
    await home.consolidator.maybe_consolidate_by_tokens(session, NEXT)
    await home.close()
    assert [entry.type for entry in home.entries] == ["consolidation"]
    assert home.nowhere(session) == []


async def test_a_stopped_turn_leaves_what_the_background_does(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel(saves(), hold=gate)
    home = Home(tmp_path, model)
    session = await home.talk(*THREE, words=700)
    work = asyncio.ensure_future(home.consolidator.maybe_consolidate_by_tokens(session))
    await gate.reached.wait()
    turn = asyncio.ensure_future(home.consolidator.maybe_consolidate_by_tokens(session, NEXT))
    await home.clock.until_sleeping()
    turn.cancel()
    gate.opened.set()
    await work
    await home.close()
    assert [entry.type for entry in home.entries] == ["consolidation"]
    assert len(model.prompts) == 1


async def test_a_prompt_that_was_refused_is_shrunk_in_time(tmp_path: Path) -> None:
    gate = Gate()
    home = Home(tmp_path, ScriptedModel(saves(), hold=gate))
    session = await home.talk(*THREE)
    turn = asyncio.ensure_future(home.consolidator.consolidate_half(session))
    await gate.reached.wait()
    await home.clock.advance(30)
    assert await turn
    assert [entry.type for entry in home.entries] == ["raw"]
    await home.close()
