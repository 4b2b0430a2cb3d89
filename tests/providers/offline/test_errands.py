"""Reminders, pages of the web, commands, skills; and what is said when a scheduled job runs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.cron.wishes import wish
from nanobot.messages import SILENT
from nanobot.providers.offline.times import timed
from tests.providers.offline.bench import ALL_TOOLS, Bench

NOW = datetime.fromisoformat("2026-11-21T14:03:00+01:00")
"""A Saturday; the header of the bench says so too."""

ERRANDS = ("cron", "web_fetch", "web_search", "exec", "read_skill")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path, tools=(*ALL_TOOLS, *ERRANDS))
    bench.results = {
        "cron": "Job a1 is scheduled: at 2026-11-22T09:00, next Sun 2026-11-22 09:00 +01:00.",
        "web_fetch": "URL: https://x.org/\nTitle: About X\n\nX is a letter.\n",
        "web_search": "1. About X\n   https://x.org/\n   X is a letter.",
        "exec": "a.txt\n[exit code 0]",
        "read_skill": "[skill weather]\n\nAsk for the place.",
    }
    return bench


@pytest.mark.parametrize(
    ("said", "schedule", "text"),
    [
        ("remind me in 20 minutes to stretch", "in 20m", "stretch"),
        ("Remind me to stretch in an hour, please", "in 1h", "stretch"),
        ("in half an hour remind me to stretch", "in 30m", "stretch"),
        ("remind me to call mum tomorrow at 9am", "at 2026-11-22T09:00", "call mum"),
        ("remind me tomorrow evening at 7 to call mum", "at 2026-11-22T19:00", "call mum"),
        ("remind me to call mum at 5", "at 2026-11-21T17:00", "call mum"),
        ("remind me at 9:30 to call mum", "at 2026-11-22T09:30", "call mum"),
        ("set a reminder for 18:00 to eat", "at 2026-11-21T18:00", "eat"),
        ("remind me on friday to pay", "at 2026-11-27T09:00", "pay"),
        ("remind me on 2026-12-01 at 10 to pay", "at 2026-12-01T10:00", "pay"),
        ("every day at 8 remind me to take pills", "0 8 * * *", "take pills"),
        ("remind me every sunday at 8:15 to rest", "15 8 * * 0", "rest"),
        ("remind me to report every weekday at 7", "0 7 * * 1-5", "report"),
        ("remind me every 2 hours to drink", "every 2h", "drink"),
        ("20分钟后提醒我喝水", "in 20m", "喝水"),
        ("提醒我半小时后去跑步", "in 30m", "跑步"),
        ("明天早上9点提醒我开会", "at 2026-11-22T09:00", "开会"),
        ("今晚8点半提醒我看电影", "at 2026-11-21T20:30", "看电影"),
        ("每周日9点提醒我休息", "0 9 * * 0", "休息"),
        ("每天下午3点提醒我吃药", "0 15 * * *", "吃药"),
    ],
)
async def test_a_reminder_is_scheduled_for_its_time(
    bench: Bench, said: str, schedule: str, text: str
) -> None:
    reply = await bench.say(said)
    assert bench.calls == [("cron", {"action": "remind", "schedule": schedule, "message": text})]
    assert text in reply
    assert "Sun 2026-11-22 09:00 +01:00" in reply
    wish(schedule, text, "", "", NOW)  # what the scheduler takes


async def test_a_reminder_without_a_time_becomes_a_note_and_the_person_hears_how_to_say_it(
    bench: Bench,
) -> None:
    assert "say when" in await bench.say("remind me to call mum")
    assert bench.calls == [("note", {"text": "call mum"})]


async def test_where_nothing_can_be_scheduled_a_reminder_becomes_a_note(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert "cannot remind you" in await bench.say("remind me to stretch in 5 minutes")
    assert bench.calls == [("note", {"text": "stretch in 5 minutes"})]


async def test_a_schedule_that_is_refused_is_told(bench: Bench) -> None:
    bench.results["cron"] = "'at 2026-11-21T09:00' is no schedule: that time has passed"
    assert "that time has passed" in await bench.say("remind me today at 9 to eat")


@given(
    st.text(
        st.sampled_from("in at every 0123456789:.- tomorrow friday pm noon 每天点后半周"),
        max_size=60,
    )
)
def test_whatever_is_written_gives_a_time_that_the_scheduler_understands_or_none(text: str) -> None:
    found = timed(text, NOW.replace(tzinfo=None))
    assert found is None or (found.text and found.schedule.split()[0])


@pytest.mark.parametrize(
    ("said", "tool", "arguments", "told"),
    [
        ("list my reminders", "cron", {"action": "list"}, "Scheduled:"),
        ("cancel reminder a1", "cron", {"action": "remove", "id": "a1"}, "a1 is cancelled"),
        ("https://x.org/", "web_fetch", {"url": "https://x.org/"}, "About X (https://x.org/):"),
        ("what does https://x.org/a.html say?", "web_fetch", {"url": "https://x.org/a.html"}, "X"),
        ("看看 https://x.org/ 的内容", "web_fetch", {"url": "https://x.org/"}, "X is a letter."),
        ("search the web for the letter X", "web_search", {"query": "the letter X"}, "About X"),
        ("上网搜一下字母", "web_search", {"query": "字母"}, "About X"),
        ("run `ls -la | wc`", "exec", {"command": "ls -la | wc"}, "a.txt"),
        ("run: make -j2.", "exec", {"command": "make -j2."}, "[exit code 0]"),
        ("show me the weather skill", "read_skill", {"name": "weather"}, "Ask for the place."),
    ],
)
async def test_an_errand_is_one_call_whose_result_is_shown(
    bench: Bench, said: str, tool: str, arguments: dict[str, object], told: str
) -> None:
    reply = await bench.say(said)
    assert bench.calls == [(tool, arguments)]
    assert told in reply


@pytest.mark.parametrize(
    "said",
    ["remember that my site is https://x.org", "run the tests", "what is the web?",
     "what do they say about cats on https://x.org?", "In the morning I drink tea",
     "remind me what my name is"],
)  # fmt: skip
async def test_what_is_no_errand_runs_none(bench: Bench, said: str) -> None:
    await bench.say(said)
    assert not {name for name, _ in bench.calls} & set(ERRANDS)


@pytest.mark.parametrize("tool", ["web_fetch", "exec", "read_skill"])
async def test_an_errand_that_was_refused_is_not_told_as_done(bench: Bench, tool: str) -> None:
    bench.results[tool] = "not allowed: the owner was asked and said no"
    asked = {"web_fetch": "https://x.org/", "exec": "run `ls`", "read_skill": "read skill weather"}
    reply = await bench.say(asked[tool])
    assert reply.startswith("That did not work")
    assert "said no" in reply


NOBODY = "\n\n[Nobody is here to be asked. Your answer goes to the chat: write what is to be said]"


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        ("remind me to call mum", "Reminder: call mum"),
        ("提醒我喝水", "提醒：喝水"),
        ("Water the plants!", "Reminder: Water the plants!"),
        ("write hello to a.txt", "Reminder: write hello to a.txt"),
    ],
)
async def test_a_scheduled_job_says_its_reminder_and_does_nothing(
    bench: Bench, message: str, reply: str
) -> None:
    head = "[scheduled job a1 (mum), in 5m; made on 2026-11-21 by cli:owner; due Sat 14:03]\n"
    assert await bench.say(f"{head}{message}{NOBODY}") == reply
    assert bench.calls == []


async def test_a_scheduled_job_fetches_what_it_is_told_to(bench: Bench) -> None:
    head = "[scheduled job a1 (news), 0 8 * * *; made on 2026-11-21 by the owner; due Sat 08:00]\n"
    assert "X is a letter." in await bench.say(f"{head}read https://x.org/{NOBODY}")


async def test_a_heartbeat_is_answered_with_silence(bench: Bench) -> None:
    head = "[heartbeat of Sat 14:03: look at what HEARTBEAT.md asks for]\n"
    assert await bench.say(f"{head}- read notes.txt{NOBODY}") == SILENT
    assert bench.calls == []
