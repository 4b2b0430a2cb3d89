"""The short version of the campaign of wrong answers: for any answer of the model in consolidation
or Dream, no known fact is lost and no junk is stored. The full version is `python -m
bench.bad_model`."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from bench.bad_answers import FACTS, Answers, add, kinds, random_kinds
from bench.bad_model import LONGEST_STALL, Home, faults, is_stored, open_home, suffer
from bench.good_answers import GOOD

pytestmark = pytest.mark.campaign

KINDS = kinds()
QUICK = [
    *("negated: Not", "negated: Nicht", "numbers: plus nine", "units", "names swapped"),
    *("numbers: those of the talk", "the last word from the talk", "in German", "in capitals"),
    *("all become one fact of the talk", "merged into one line", "all obsolete", "a slow trickle"),
    *("lines: 25,000", "lines: one of a megabyte", "lines: a fact a thousand times"),
    *("headings, nested", "echoes of the prompt", "instructions", "placeholders", "controls"),
    *("markup", "JSON in JSON", "nested deeply", "braces without end", "facts in the entry"),
    *("importance of junk", "phase 2 takes all lines", "phase 2 joins it with the allergy"),
]


@pytest.mark.parametrize("name", QUICK)
async def test_no_wrong_answer_harms_memory_or_keeps_the_loop(name: str) -> None:
    wrong, stall = await suffer(KINDS[name])
    assert wrong == []
    assert stall <= LONGEST_STALL


@pytest.mark.parametrize("seed", range(6))
async def test_nor_does_one_that_was_put_together_by_chance(seed: int) -> None:
    (_, answers), *_ = random_kinds(random.Random(seed), 1)
    assert (await suffer(answers))[0] == []


@pytest.mark.parametrize("row", GOOD[::5], ids=lambda row: row[2])
async def test_what_a_good_model_makes_of_it_comes_through(row: Sequence[str]) -> None:
    assert await is_stored(*row) == (True, True)


async def test_what_phase_2_leaves_out_is_learned_all_the_same() -> None:
    new = "Has a library card with the number 7741"
    async with open_home(Answers(phase1=add(new).phase1)) as home:
        await home.consolidate()
        await home.dream()
        assert any(new in text for text in home.files().values())


async def test_the_campaign_sees_a_fact_that_goes_and_a_line_that_is_junk() -> None:
    async with open_home(Answers()) as home:
        assert list(faults(home)) == []
        _spoil(home)
        assert len(list(faults(home))) == 4


def _spoil(home: Home) -> None:
    path = home.workspace / "memory" / "MEMORY.md"
    lines = path.read_text().replace(f"- {FACTS[1]}\n", "")
    path.write_text(f"{lines}- Never drinks tea\n- unchanged\n- Pays 641 euros\n")
