"""What a program asks for and its person has to allow, or hears of later: in their own chat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from nanobot.testing import FakeClock, ScriptedModel, calls, says
from tests.channels.api.support import Api, chat, repeat
from tests.doubles.telegram import FakeTelegram
from tests.support import write_config


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as server:
        yield server


def with_telegram(api: Api, telegram: FakeTelegram) -> None:
    """The owner is the person 7 there."""
    api.more = {
        "tools": {"approval": {"schedule": "ask"}},
        "owner": {"telegram": ["7"]},
        "channels": {
            "api": {"enabled": True},
            "telegram": {
                "enabled": True, "token": telegram.token, "base_url": telegram.base_url,
            },
        },
    }  # fmt: skip
    write_config(api.home, api.config)


async def test_the_owner_is_asked_in_their_chat_and_the_stream_says_that_it_waits(
    api: Api, telegram: FakeTelegram
) -> None:
    with_telegram(api, telegram)
    model = ScriptedModel(
        repeat,
        calls("cron", action="add", schedule="every 1d", message="water the plants"),
        says("It is scheduled."),
    )
    async with api.running(model):
        telegram.say("hello")
        await telegram.received(1)
        asking = asyncio.create_task(
            api.post("chat/completions", chat("Every day, please.", conversation="me", stream=True))
        )
        question = (await telegram.received(2))[-1]
        assert "water the plants" in question
        code = question.partition("/approve ")[2].split()[0]
        # A program cannot answer for its person: there it is a word like any other.
        model.then(repeat)
        said = asyncio.create_task(api.chat(f"/approve {code}"))
        telegram.say(f"/approve {code}")
        answer = await asking
        await said
    notes = [
        event["choices"][0]["delta"]["nanobot"]
        for event in answer.events
        if "nanobot" in event["choices"][0]["delta"]
    ]
    assert {"type": "output", "text": "Waiting for the owner to allow this.\n"} in notes


async def test_a_reminder_asked_for_by_a_program_comes_to_the_persons_chat(
    api: Api, telegram: FakeTelegram
) -> None:
    with_telegram(api, telegram)
    model = ScriptedModel(
        repeat, calls("cron", action="remind", schedule="in 20m", message="the oven"), says("Set.")
    )
    async with api.running(model, clock=FakeClock()):
        telegram.say("hello")
        await telegram.received(1)
        assert await api.chat("Remind me of the oven.") == "Set."
        confirmed = (await telegram.received(2))[-1]
    assert "the oven" in confirmed


async def test_without_a_chat_there_is_none_to_be_reminded_in(api: Api) -> None:
    model = ScriptedModel(
        calls("cron", action="remind", schedule="in 20m", message="the oven"),
        lambda prompt: says(prompt.messages[-1].text),
    )
    async with api.running(model):
        assert "there is no chat yet" in await api.chat("Remind me of the oven.")


async def test_what_failed_for_a_program_waits_for_nobodys_decision(api: Api) -> None:
    from tests.channels.telegram.whole import status_of

    async with api.running(ScriptedModel()):  # which has nothing to say
        answer = await api.post("chat/completions", chat("Hi", conversation="me"))
        assert answer.status == 500
        status = await status_of(api.home)
    assert status["queue"]["failed"] == 0
