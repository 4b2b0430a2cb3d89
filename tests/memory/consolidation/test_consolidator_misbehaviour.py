"""For any behaviour of the model, a consolidation ends in one of the designed ways."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.errors import (
    ContextTooLong,
    ProviderBusy,
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    ProviderUnavailable,
)
from nanobot.memory.consolidation.planning import ConsolidationLimits
from nanobot.memory.history import HistoryEntry
from nanobot.memory.line_changes import Operation
from nanobot.messages import Message, ToolCall
from nanobot.providers.port import Prompt, Reply
from nanobot.session.session import Session
from nanobot.testing import ScriptedModel, calls, fails, says
from nanobot.testing.model import Line
from tests.memory.consolidation_home import Home, saves

NEXT = (Message("user", "and now?"),)
NUMBERS = ("one", "two", "three", "four", "five", "six")
FACTS = [f"- fact {name} about the person" for name in NUMBERS]
MEMORY = "\n".join(["# Memory", "", "## Facts", *FACTS]) + "\n"
UPDATE = "\n".join([MEMORY.rstrip(), "- likes tea"])
GOOD = {"history_entry": "They spoke of tea.", "memory_update": UPDATE, "key_facts": ["tea"]}
HALF = saves("They spoke of tea.", "\n".join(["# Memory", "", "## Facts", *FACTS[:2]]))

Script = tuple[Line, ...]


def raw_call(arguments: str, finish: str = "tool_calls") -> Reply:
    return Reply("", (ToolCall("1", "save_memory", arguments),), finish=finish)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    home = Home(tmp_path, ScriptedModel())
    home.write_long_term(MEMORY)
    yield home
    await home.close()


async def over_budget(home: Home) -> Session:
    return await home.talk("first, I like tea and figs", "second", "third", words=700)


TAKEN: dict[str, Script] = {
    "as asked": (calls("save_memory", **GOOD),),
    "a JSON string": (raw_call(json.dumps(json.dumps(GOOD))),),
    "a list": (raw_call(json.dumps([GOOD])),),
    "an object where text is due": (
        calls("save_memory", **{**GOOD, "memory_update": {"content": UPDATE}}),
    ),
    "JSON in text": (says(f"```json\n{json.dumps(GOOD)}\n```"),),
    "no call, then one": (says(""), calls("save_memory", **GOOD)),
    "text, then a call": (says("It is done."), calls("save_memory", **GOOD)),
    "broken JSON, then a call": (raw_call("{oops"), calls("save_memory", **GOOD)),
    "missing fields, then a call": (calls("save_memory"), calls("save_memory", **GOOD)),
    "HTML with status 200, then a call": (
        fails(ProviderGarbage("no JSON")),
        calls("save_memory", **GOOD),
    ),
    "too long, then a call": (
        fails(ContextTooLong("too long", status=400)),
        calls("save_memory", **GOOD),
    ),
}


@pytest.mark.parametrize("script", TAKEN.values(), ids=TAKEN)
async def test_what_can_be_understood_is_taken(home: Home, script: Script) -> None:
    model = ScriptedModel(*script)
    home = home.again(model)
    session = await over_budget(home)
    await home.consolidator.maybe_consolidate_by_tokens(session)
    [entry] = home.entries
    assert (entry.type, entry.key_facts) == ("consolidation", ("tea",))
    assert entry.summary == "[2026-03-02 09:01] They spoke of tea."
    assert home.long_term.splitlines()[-1] == "- likes tea"
    assert all(fact in home.long_term for fact in FACTS)
    assert model.remaining == 0
    assert home.nowhere(session) == []
    await home.close()


ONLY_AN_ENTRY: dict[str, Script] = {
    "an empty update": (saves("They spoke of tea."),),
    "no update": (calls("save_memory", history_entry="They spoke of tea."),),
    "half the facts dropped": (HALF,),
}


@pytest.mark.parametrize("script", ONLY_AN_ENTRY.values(), ids=ONLY_AN_ENTRY)
async def test_the_entry_is_kept_without_an_update_that_may_not_be(
    home: Home, script: Script
) -> None:
    home = home.again(ScriptedModel(*script))
    session = await over_budget(home)
    await home.consolidator.maybe_consolidate_by_tokens(session)
    [entry] = home.entries
    assert (entry.type, entry.operations) == ("consolidation", ())
    assert entry.summary.endswith("They spoke of tea.")
    assert home.long_term == MEMORY
    assert home.nowhere(session) == []
    await home.close()


RAW: dict[str, Script] = {
    "no call": (says(""), says("")),
    "text instead": (says("It is done."), says("Really.")),
    "another tool": (calls("look"), calls("look")),
    "missing fields": (calls("save_memory"), calls("save_memory", key_facts=["tea"])),
    "broken JSON": (raw_call("{oops"), raw_call("[1]")),
    "cut off": (raw_call('{"history_entry": "They spoke of tea.", "memory_up', "length"),) * 2,
    "an answer that is none": (fails(ProviderGarbage("?")), fails(ProviderGarbage("?"))),
    "never fits": (fails(ContextTooLong("!", status=400)), fails(ContextTooLong("!", status=400))),
}


@pytest.mark.parametrize("script", RAW.values(), ids=RAW)
async def test_the_range_is_archived_raw_after_two_tries(home: Home, script: Script) -> None:
    model = ScriptedModel(*script)
    home = home.again(model)
    session = await over_budget(home)
    await home.consolidator.maybe_consolidate_by_tokens(session)
    [entry] = home.entries
    assert entry.type == "raw"
    assert entry.summary.startswith("[2026-03-02 09:01] 4 messages, not summarised")
    assert "Excerpt: first" in entry.summary
    assert (entry.first, entry.last) == (1, 4)
    assert home.long_term == MEMORY
    assert home.nowhere(session) == []
    assert model.remaining == 0
    await home.close()


async def test_the_second_try_says_what_was_wrong(home: Home) -> None:
    model = ScriptedModel(says("It is done."), saves())
    home = home.again(model)
    await home.consolidator.maybe_consolidate_by_tokens(await over_budget(home))
    first, second = (prompt.messages[-1].text for prompt in model.prompts)
    assert "could not be used" not in first
    assert "could not be used: there was text instead of a call" in second
    assert second.partition("## Current")[2] == first.partition("## Current")[2]
    await home.close()


OUT: dict[str, Callable[[], ProviderError]] = {
    "no network": lambda: ProviderUnavailable("no network"),
    "overloaded": lambda: ProviderBusy("busy", retry_after=3.0),
    "a bad key": lambda: ProviderRejected("bad key", status=401),
}


@pytest.mark.parametrize("error", OUT.values(), ids=OUT)
async def test_a_model_that_is_out_is_waited_for_in_the_background(
    home: Home, error: Callable[[], ProviderError]
) -> None:
    model = ScriptedModel(fails(error()), saves("They spoke of tea."))
    home = home.again(model)
    session = await over_budget(home)
    await home.consolidator.maybe_consolidate_by_tokens(session)
    assert home.entries == []
    assert len(session.messages) == 6
    await home.consolidator.maybe_consolidate_by_tokens(session)
    assert [entry.type for entry in home.entries] == ["consolidation"]
    await home.close()


@pytest.mark.parametrize("error", OUT.values(), ids=OUT)
async def test_a_model_that_is_out_keeps_no_turn_waiting(
    home: Home, error: Callable[[], ProviderError]
) -> None:
    model = ScriptedModel(author=lambda _: fails(error()))
    home = home.again(model)
    session = await over_budget(home)
    await home.consolidator.maybe_consolidate_by_tokens(session, NEXT)
    assert {entry.type for entry in home.entries} == {"raw"}
    assert home.size.tokens(session, NEXT) <= 3_000
    assert home.nowhere(session) == []
    assert len(model.prompts) == 1
    await over_budget(home)
    await home.consolidator.maybe_consolidate_by_tokens(session, NEXT)
    assert len(model.prompts) == 1
    await home.close()


async def test_after_three_failures_the_model_is_left_alone_for_five_minutes(
    tmp_path: Path,
) -> None:
    def author(_: Prompt) -> Line:
        return fails(ProviderUnavailable("no network"))

    model = ScriptedModel(author=author)
    home = Home(tmp_path, model, ConsolidationLimits(budget=3_000))
    session = await over_budget(home)
    for _ in range(6):
        await home.consolidator.maybe_consolidate_by_tokens(session)
    assert len(model.prompts) == 3
    await home.consolidator.consolidate_idle()
    await home.clock.advance(301)
    await home.consolidator.maybe_consolidate_by_tokens(session)
    await home.consolidator.maybe_consolidate_by_tokens(session)
    assert len(model.prompts) == 4
    await home.clock.advance(301)
    model.then(saves("It is back."))
    await home.consolidator.maybe_consolidate_by_tokens(session)
    assert [entry.type for entry in home.entries] == ["consolidation"]
    await home.close()


async def test_a_memory_larger_than_the_window_is_shown_in_part_and_kept_whole(
    tmp_path: Path,
) -> None:
    update = "# Memory\n\n- Likes figs\n"
    model = ScriptedModel(author=lambda _: saves("Nothing new.", update))
    home = Home(tmp_path, model)
    lines = [f"- fact {number} about the garden and the house" for number in range(600)]
    home.write_long_term("\n".join(["# Memory", *lines]) + "\n")
    before = home.long_term
    session = await over_budget(home)
    await home.consolidator.maybe_consolidate_by_tokens(session)
    assert len(model.prompts[0].messages[1].text) < 12_000
    assert "- fact 0 about" not in model.prompts[0].messages[1].text
    assert home.long_term == f"{before}- Likes figs\n"
    await home.close()


async def test_an_entry_whose_changes_cannot_be_made_is_set_aside_once(home: Home) -> None:
    steps = tuple(Operation(FACTS[n % 6], f"- junk {n}") for n in range(25_000))
    raw = HistoryEntry(0, home.clock.now(), "consolidation", "telegram:9", 1, 2, "They spoke.")
    home.memory.history.set_applied(0)
    entry = home.memory.history.append(replace(raw, operations=steps))
    for told in (1, 0):
        home = home.again(ScriptedModel())
        await home.consolidator.recover()
        assert len(home.troubles) == told
        assert home.long_term == MEMORY
        assert home.memory.history.load_unapplied() == []
    assert home.memory.history.get(entry.cursor) == entry, "it can be looked at"
