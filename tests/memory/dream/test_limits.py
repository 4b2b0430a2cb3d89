"""The limits of a run, and failures of the model."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from nanobot.errors import ContextTooLong, ProviderError, ProviderRejected, ProviderUnavailable
from nanobot.memory.dream import Dream
from nanobot.providers.port import Prompt, Usage
from nanobot.testing import fails, says
from nanobot.testing.model import Line
from tests.memory.dream.support import LONG_TERM, World, finds

LIVES = "Lives in Porto since May 2026"
PORTO = {"text": LIVES, "entry": 0}


def due(dream: Dream) -> datetime | None:
    """Return the next attempt, if it were due at any time."""
    return dream.next_run("owner", lambda since: since, 100)


async def test_a_budget_of_calls_bounds_a_run_and_the_next_goes_on(world: World) -> None:
    for number in range(6):
        world.remembers(f"Number {number}.")
    dream, model = world.dream(author=lambda _: finds(), batch=2, max_calls=2)
    await dream.run("owner")
    assert len(model.prompts) == 2
    assert dream.unread("owner") == 2
    await dream.run("owner")
    assert dream.unread("owner") == 0


async def test_a_budget_of_tokens_bounds_a_run(world: World) -> None:
    for number in range(4):
        world.remembers(f"Number {number}.")

    def answer(_: Prompt) -> Line:
        return says('{"processed_entries": [0, 1]}', usage=Usage(90_000, 100))

    dream, model = world.dream(author=answer, batch=1, max_tokens=100_000)
    await dream.run("owner")
    assert len(model.prompts) == 2
    assert dream.unread("owner") == 2


async def test_out_of_budget_between_the_phases_nothing_found_is_lost(world: World) -> None:
    world.remembers("I live in Porto since May 2026.")
    await world.dreams(finds(memory_updates=[PORTO]), max_calls=1)
    assert world.read(LONG_TERM) == "- Lives in Porto since May 2026\n"


async def test_a_failing_model_leaves_the_cursor_and_the_person_hears_of_the_third_time(
    world: World,
) -> None:
    world.remembers("Something.")
    down = fails(ProviderUnavailable("the server is not reached"))
    dream, _ = world.dream(down, down, down, down)
    pauses = []
    for _ in range(4):
        report = await dream.run("owner")
        assert "the server is not reached" in report.text
        not_before = due(dream)
        assert not_before is not None
        pauses.append((not_before - world.clock.now()).total_seconds() / 60)
    assert pauses == [10, 20, 40, 80]
    (trouble,) = world.troubles
    assert "the server is not reached" in trouble
    assert world.memory().history.dream_cursor() == 0


async def test_after_a_success_failures_are_counted_anew(world: World) -> None:
    world.remembers("Something.")
    dream, model = world.dream(fails(ProviderUnavailable("down")), finds())
    await dream.run("owner")
    await dream.run("owner")
    assert due(dream) is None
    world.remembers("More.")
    assert due(dream) == world.clock.now()
    assert model.remaining == 0


REFUSALS = [
    ProviderRejected("the content filter", status=400),
    ContextTooLong("the prompt is too long", status=500),
]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_an_entry_that_the_model_refuses_holds_up_no_other_and_is_given_up(
    world: World, refusal: ProviderError
) -> None:
    for text in ("One.", "Two.", "Poison.", "Four.", "Five."):
        world.remembers(text)

    def answer(prompt: Prompt) -> Line:
        return fails(refusal) if "Poison" in prompt.messages[-1].text else finds()

    dream, model = world.dream(author=answer)
    assert (await dream.run("owner")).problem == ""
    assert dream.unread("owner") == 0
    assert len(model.prompts) < 10


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_model_that_refuses_everything_loses_nothing(
    world: World, refusal: ProviderError
) -> None:
    for text in ("One.", "Two.", "Three."):
        world.remembers(text)
    dream, _ = world.dream(author=lambda _: fails(refusal))
    for _ in range(3):
        assert (await dream.run("owner")).problem != ""
    assert dream.unread("owner") == 3


async def test_a_request_that_may_not_be_made_is_not_put_down_to_an_entry(world: World) -> None:
    for text in ("One.", "Two."):
        world.remembers(text)
    dream, model = world.dream(fails(ProviderRejected("the key is wrong", status=401)))
    assert "the key is wrong" in (await dream.run("owner")).problem
    assert model.remaining == 0


async def test_an_answer_that_is_no_json_is_asked_for_once_more(world: World) -> None:
    world.remembers("Something.")
    await world.dreams(says("I feel fine"), finds(processed_entries=[0]))
    assert world.memory().history.dream_cursor() == 1


async def test_answers_that_are_never_json_count_as_a_failure(world: World) -> None:
    world.remembers("Something.")
    report = await world.dreams(says("I feel fine"), says("still fine"))
    assert "JSON" in report.problem
    assert world.memory().history.dream_cursor() == 0


class Defect(Exception):
    """An unexpected error."""


async def test_an_unexpected_error_is_a_failure_like_any_other(world: World) -> None:
    world.remembers("Something.")

    def breaks(_: Prompt) -> Line:
        raise Defect("of its own")

    dream, _ = world.dream(author=breaks)
    for _ in range(3):
        report = await dream.run("owner")
    assert report.problem == "internal error (Defect): of its own"
    assert dream.unread("owner") == 1
    assert due(dream) == world.clock.now() + timedelta(minutes=40)
    assert len(world.troubles) == 1


async def test_an_outage_is_told_once_and_names_whom_it_concerns(world: World) -> None:
    world.remembers("One.", scope="people/telegram_7", session="telegram:7")
    world.remembers("Two.")
    dream, model = world.dream(author=lambda _: fails(ProviderUnavailable("down")))
    for scope in ("people/telegram_7", "owner"):
        for _ in range(3):
            assert "down" in (await dream.run(scope)).problem
    (text,) = world.troubles
    assert "3 times in a row for people/telegram_7" in text
    model.then(finds())
    assert not (await dream.run("owner")).problem
    world.remembers("Three.")
    for _ in range(3):
        await dream.run("owner")
    assert "in a row for you" in world.troubles[1]
    assert len(world.troubles) == 2
