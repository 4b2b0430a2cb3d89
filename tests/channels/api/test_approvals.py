"""Approvals of a program's requests: the person answers in their own chat, or gets the answer
later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import aiohttp
import pytest

from nanobot.cli.gateway import operate
from nanobot.testing import FakeClock, ScriptedModel, calls, says
from tests.channels.api.support import Answer, Api, Away, chat, repeat
from tests.doubles.telegram import FakeTelegram
from tests.support import read_stored, write_config

T = TypeVar("T")


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as server:
        yield server


def with_telegram(api: Api, telegram: FakeTelegram) -> None:
    """Make the owner person 7 on Telegram."""
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
        asking, question = await ask_about(
            telegram,
            api.post(
                "chat/completions", chat("Every day, please.", conversation="me", stream=True)
            ),
        )
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
    assert {"type": "output", "text": "Waiting for the owner's approval.\n"} in notes


DAILY = calls("cron", action="add", schedule="every 1d", message="water the plants")
ASKED = {"chat": chat("Every day, please."), "responses": {"model": "nanobot", "input": "Daily!"}}
PATHS = {"chat": "chat/completions", "responses": "responses"}


async def move_on(clock: FakeClock, asking: asyncio.Task[Answer], seconds: float) -> Answer:
    """Return the answer to a request within so many seconds after the question."""
    for _ in range(int(seconds)):
        if asking.done():
            break
        await clock.advance(1.0)
        await asyncio.wait([asking], timeout=0.02)
    assert asking.done(), "the response did not end"
    return await asking


async def ask_about(
    telegram: FakeTelegram, request: Coroutine[Any, Any, T]
) -> tuple[asyncio.Task[T], str]:
    """Begin a request that needs an approval. Return it with the question in the owner's chat."""
    telegram.say("hello")
    await telegram.receive(1)
    asking = asyncio.create_task(request)
    return asking, (await telegram.receive(2))[-1]


def code_in(question: str) -> str:
    """Return the code of a question in a chat."""
    return question.partition("/approve ")[2].split()[0]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", ["chat", "responses"])
@pytest.mark.parametrize("named", [False, True], ids=["by itself", "in a conversation"])
async def test_the_response_ends_with_a_notice_and_the_turn_goes_on_after_the_yes(
    api: Api, telegram: FakeTelegram, kind: str, stream: bool, named: bool
) -> None:
    with_telegram(api, telegram)
    more = {"conversation": "c"} if named else {}
    model = ScriptedModel(repeat, DAILY, says("It is scheduled."))
    async with api.running(model, clock=(clock := FakeClock())):
        body = {**ASKED[kind], **more, "stream": stream}
        asking, question = await ask_about(telegram, api.post(PATHS[kind], body))
        assert "water the plants" in question
        answer = await move_on(clock, asking, 30)
        assert answer.status == 200
        text = answer.body.decode()
        assert "This needs your approval: " in text
        assert f"in your Telegram chat (question {code_in(question)})" in text
        assert "incomplete" not in text or kind == "responses"
        telegram.say(f"/approve {code_in(question)}")
        told = (await telegram.receive(4))[-2:]
        assert any("You approved a tool call for the program" in one for one in told)
        assert any("It is scheduled." in one for one in told)
        if named:
            model.then(repeat)
            await api.chat("And?", conversation="c")
            assert "It is scheduled." in [m.text for m in model.prompts[-1].messages]


async def test_a_yes_in_time_is_waited_for(api: Api, telegram: FakeTelegram) -> None:
    with_telegram(api, telegram)
    model = ScriptedModel(repeat, DAILY, says("It is scheduled."))
    async with api.running(model, clock=(clock := FakeClock())):
        asking, question = await ask_about(telegram, api.chat("Every day, please."))
        await clock.advance(10)
        telegram.say(f"/approve {code_in(question)}")
        assert await asking == "It is scheduled."


async def test_requests_behind_one_that_waits_get_the_notice_too(
    api: Api, telegram: FakeTelegram
) -> None:
    with_telegram(api, telegram)
    model = ScriptedModel(repeat, DAILY, says("It is scheduled."), repeat)
    async with api.running(model, clock=(clock := FakeClock())):
        first, question = await ask_about(
            telegram, api.post("chat/completions", chat("Every day, please.", conversation="c"))
        )
        await move_on(clock, first, 30)
        second = asyncio.create_task(
            api.post("chat/completions", chat("Is it done?", conversation="c"))
        )
        text = (await move_on(clock, second, 30)).body.decode()
        assert "This needs your approval" in text
        telegram.say(f"/approve {code_in(question)}")
        await telegram.receive(4)  # otherwise the next request may overtake it
        model.then(repeat)
        assert await api.chat("And?", conversation="c") == "re: And?"
    said = [m.content for m in read_stored(api.home, "api:laptop:c") if not m.tool_calls]
    assert said[-4:-2] == ["Is it done?", "re: Is it done?"]


async def test_a_repetition_gets_the_notice_and_later_the_answer(
    api: Api, telegram: FakeTelegram
) -> None:
    with_telegram(api, telegram)
    model = ScriptedModel(repeat, DAILY, says("It is scheduled."))
    async with api.running(model, clock=(clock := FakeClock())):
        telegram.say("hello")
        await telegram.receive(1)

        async def again() -> Answer:
            return await api.post("chat/completions", ASKED["chat"], Idempotency_Key="daily")

        asking = asyncio.create_task(again())
        question = (await telegram.receive(2))[-1]
        await move_on(clock, asking, 30)
        assert "This needs your approval" in (await again()).body.decode()
        telegram.say(f"/approve {code_in(question)}")
        await telegram.receive(4)
        assert "It is scheduled." in (await again()).body.decode()
    assert len(model.prompts) == 3


async def test_the_code_in_a_notice_approves_nothing_for_a_program(
    api: Api, telegram: FakeTelegram
) -> None:
    with_telegram(api, telegram)
    model = ScriptedModel(repeat, DAILY, repeat, says("Not done."))
    own = api.add_key("typed", own_words=True)
    async with api.running(model, clock=(clock := FakeClock())):
        asking, question = await ask_about(telegram, api.post("chat/completions", ASKED["chat"]))
        await move_on(clock, asking, 30)
        said = await api.post("chat/completions", chat(f"/approve {code_in(question)}"), key=own)
        assert said.data["choices"][0]["message"]["content"] == f"re: /approve {code_in(question)}"
        telegram.say("/deny")
        assert "Denied" in (await telegram.receive(3))[-1]


async def test_the_notice_links_to_the_page_where_the_question_can_be_answered(
    api: Api, telegram: FakeTelegram
) -> None:
    with_telegram(api, telegram)
    model = ScriptedModel(repeat, DAILY, says("It is scheduled."))
    async with api.running(model, clock=(clock := FakeClock())):
        telegram.say("hello")
        await telegram.receive(1)
        link = str((await asyncio.to_thread(operate, api.home, "web.link"))["url"])
        async with aiohttp.ClientSession() as browser, browser.get(link):
            pass  # signed in
        asking = asyncio.create_task(api.post("chat/completions", ASKED["chat"]))
        question = (await telegram.receive(2))[-1]
        text = (await move_on(clock, asking, 30)).body.decode()
        page = f"http://127.0.0.1:{api.port}/approvals"
        assert f"Answer the question at {page} within 10 minutes" in text
        assert code_in(question) not in text
        yes = {"code": code_in(question), "answer": "once", "by": "the page"}
        await asyncio.to_thread(operate, api.home, "approvals.answer", **yes)
        assert any("It is scheduled." in one for one in await telegram.receive(3))


async def test_a_guests_program_hears_only_that_the_owner_was_asked(
    api: Api, telegram: FakeTelegram
) -> None:
    guests = api.add_key("guest", "telegram:5")
    with_telegram(api, telegram)
    api.more["channels"]["telegram"]["allow_from"] = ["5"]  # type: ignore[index]
    write_config(api.home, api.config)
    model = ScriptedModel(repeat, calls("away", text="it"), says("It is away."))
    async with api.running(model, clock=(clock := FakeClock()), tools=(Away(),)):
        asking, question = await ask_about(
            telegram, api.post("chat/completions", ASKED["chat"], key=guests)
        )
        text = (await move_on(clock, asking, 30)).body.decode()
    assert "This needs the owner's approval, and they have been asked" in text
    assert "Telegram" not in text
    assert code_in(question) not in text


async def test_with_no_chat_to_ask_in_the_call_is_refused_at_once(api: Api) -> None:
    model = ScriptedModel(calls("away", text="it"), lambda prompt: says(prompt.messages[-1].text))
    async with api.running(model, tools=(Away(),)):
        said = await api.chat("Send it away.")
    assert "needs the owner's approval, and there is no chat to ask them in" in said


async def test_a_client_that_reads_json_gets_an_error_in_place_of_the_notice(
    api: Api, telegram: FakeTelegram
) -> None:
    with_telegram(api, telegram)
    model = ScriptedModel(repeat, DAILY, says("{}"))
    async with api.running(model, clock=(clock := FakeClock())):
        telegram.say("hello")
        await telegram.receive(1)
        body = {**ASKED["chat"], "response_format": {"type": "json_object"}}
        asking = asyncio.create_task(api.post("chat/completions", body))
        await telegram.receive(2)
        answer = await move_on(clock, asking, 30)
    assert (answer.status, answer.code) == (409, "approval_pending")


async def test_a_reminder_asked_for_by_a_program_comes_to_the_persons_chat(
    api: Api, telegram: FakeTelegram
) -> None:
    with_telegram(api, telegram)
    api.more["tools"] = {}
    write_config(api.home, api.config)
    model = ScriptedModel(
        repeat, calls("cron", action="remind", schedule="in 20m", message="the oven"), says("Set.")
    )
    key = api.add_key("typed", own_words=True)
    async with api.running(model, clock=FakeClock()):
        telegram.say("hello")
        await telegram.receive(1)
        await api.post("chat/completions", chat("Remind me of the oven."), key=key)
        confirmed = (await telegram.receive(2))[-1]
    assert "the oven" in confirmed


async def test_a_reminder_that_added_text_may_have_caused_is_asked_about(
    api: Api, telegram: FakeTelegram
) -> None:
    with_telegram(api, telegram)
    api.more["tools"] = {}
    write_config(api.home, api.config)
    model = ScriptedModel(
        repeat, calls("cron", action="remind", schedule="in 20m", message="send money"), says("No.")
    )
    async with api.running(model):
        telegram.say("hello")
        await telegram.receive(1)
        asking = asyncio.create_task(api.chat("What does this page say? Remind …"))
        assert "send money" in (await telegram.receive(2))[-1]
        telegram.say("/deny")
        assert await asking == "No."


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
