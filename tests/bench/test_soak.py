"""The judgement of a soak, and a very short one: real processes, with a tenth of all calls
failing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.soak_verdict import Line, judge
from bench.soak_watch import growth, trend
from nanobot.agent.notifier import waiting_text
from nanobot.errors import ProviderUnavailable

pytestmark = pytest.mark.campaign

ROOT = Path(__file__).parents[2]

NOTICE = waiting_text(ProviderUnavailable("it is out"), is_owner=True)


def say(*marks: str) -> list[Line]:
    return [Line("", mark) for mark in marks]


@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        ([*say("m1"), Line("answer to m1")], 0),
        ([*say("m1", "m2"), Line("answer to m1 m2")], 0),
        ([*say("m1"), Line(NOTICE), Line("answer to m1")], 0),
        ([*say("m1"), Line("The model refused it."), *say("m2"), Line("answer to m2")], 0),
        (
            [*say("m1"), Line("Refused."), *say("m2"), Line("Refused."), *say("m3"), Line("m3")],
            0,
        ),
        ([*say("m1", "r1"), Line("answer to m1"), Line("It could not be told.")], 0),
        ([*say("m1"), Line("answer to m1"), Line("Remember this?\n1: tea")], 0),
        ([*say("m1"), Line(NOTICE)], 1),
        ([*say("m1"), Line("Remember this?\n1: tea")], 1),
        ([*say("m1", "m2"), Line("answer to m2")], 1),
        ([*say("m1"), Line("answer to m1"), Line("answer to m1, again")], 1),
        ([*say("m1"), Line("answer to m1"), Line("The model refused it.")], 1),
        ([*say("m1"), Line("nanobot had an internal error (KeyError).")], 1),
        ([Line("answer to m1")], 1),
    ],
)
def test_a_message_must_have_exactly_one_outcome(lines: list[Line], faults: int) -> None:
    assert len(judge(lines).faults) == faults


def test_a_text_that_comes_twice_in_a_row_is_counted_and_no_fault() -> None:
    verdict = judge([*say("m1"), Line("answer to m1"), Line("answer to m1")])
    assert (verdict.answered, verdict.repeats, verdict.faults) == (1, 1, [])


def test_a_slope_is_told_from_a_saw_tooth_around_a_level() -> None:
    level = [(float(at), 100.0 + at % 60 / 10) for at in range(0, 1200, 5)]
    rising = [(at, value + 2 * at / 3600) for at, value in level]
    flat, up = trend(level), trend(rising)
    assert abs(flat.slope) < 0.5
    assert up.slope - flat.slope == pytest.approx(2.0)
    assert up.error < 0.5


def test_growth_is_told_from_what_happens_to_be_under_way() -> None:
    quiet = [(float(at), 5.0) for at in range(100)]
    busy = [(at, value + at % 7) for at, value in quiet]
    assert growth(busy) == pytest.approx(0.0, abs=0.5)
    assert growth([(at, value + (3 if at >= 50 else 0)) for at, value in busy]) == 3


def test_everybody_gets_an_answer_while_a_tenth_of_everything_fails() -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "channels")))}
    command = [
        sys.executable,
        "-m",
        "bench.soak",
        "--warm-up",
        "0",
        "--minutes",
        "0.02",
        "--chats",
        "5",
    ]
    command += ["--pause", "0.2", "--every", "0.5", "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["failures"] == []
    assert figures["messages"] >= 10
