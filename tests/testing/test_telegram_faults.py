"""Each way to misbehave does what it says, as often as it was asked to, and nothing else."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from telegram.error import NetworkError

from tests.doubles.telegram.server import FakeTelegram
from tests.testing.telegram_support import Api, library

GONE = (aiohttp.ClientError, ConnectionError)


async def test_a_failure_comes_as_often_as_armed_and_has_no_effect(
    telegram: FakeTelegram, api: Api
) -> None:
    telegram.fail("sendMessage", 502, times=2)
    for _ in range(2):
        assert (await api("sendMessage", chat_id=7, text="x")).error == (502, "Bad Gateway")
    assert (await api("getMe")).status == 200
    assert telegram.messages() == []
    await api.say("x")
    assert telegram.texts() == ["x"]


async def test_a_failure_can_be_meant_for_one_chat(telegram: FakeTelegram, api: Api) -> None:
    telegram.person(8)
    telegram.fail("sendMessage", 400, "Bad Request: whatever", chat=8)
    await api.say("x", chat=7)
    answered = await api("sendMessage", chat_id=8, text="x")
    assert answered.error == (400, "Bad Request: whatever")


async def test_a_flood_says_how_long_to_wait(telegram: FakeTelegram, api: Api) -> None:
    telegram.flood(7, 3)
    answered = await api("sendChatAction", chat_id=7, action="typing")
    assert answered.error == (429, "Too Many Requests: retry after 3")
    assert answered.body["parameters"] == {"retry_after": 3}
    assert await api.say("x") == 1


async def test_a_held_call_is_carried_out_when_it_is_let_go(
    telegram: FakeTelegram, api: Api
) -> None:
    gate = telegram.hang("sendMessage")
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(api.say("late"))
        await telegram.wait_for(lambda: telegram.called("sendMessage"))
        assert telegram.messages() == []
        gate.set()
    assert telegram.messages()[0].message_id == sending.result()


async def test_a_held_call_has_its_effect_although_the_client_gave_up(
    telegram: FakeTelegram, api: Api
) -> None:
    gate = telegram.hang("sendMessage")
    sending = asyncio.get_running_loop().create_task(api.say("late"))
    await telegram.wait_for(lambda: telegram.called("sendMessage"))
    sending.cancel()
    gate.set()
    assert await telegram.received(1) == ["late"]


async def test_a_call_that_is_held_to_the_end_is_never_carried_out(
    telegram: FakeTelegram, api: Api
) -> None:
    telegram.hang("sendMessage")
    sending = asyncio.get_running_loop().create_task(api.say("never"))
    await telegram.wait_for(lambda: telegram.called("sendMessage"))
    await telegram.stop()
    with pytest.raises(GONE):
        await sending
    assert telegram.messages() == []


async def test_a_half_open_poll_is_never_answered(telegram: FakeTelegram, api: Api) -> None:
    gate = telegram.half_open()
    telegram.say("hello")
    poll = asyncio.get_running_loop().create_task(api("getUpdates"))
    await telegram.wait_for(lambda: telegram.called("getUpdates"))
    assert len((await api("getUpdates")).ids) == 1
    assert not poll.done()
    gate.set()
    with pytest.raises(GONE):
        await poll


@pytest.mark.parametrize(("after", "texts"), [("request", []), ("effect", ["x"])])
async def test_a_cut_connection_may_hide_an_effect(
    telegram: FakeTelegram, api: Api, after: str, texts: list[str]
) -> None:
    telegram.cut("sendMessage", after="effect" if after == "effect" else "request")
    with pytest.raises(GONE):
        await api.say("x")
    assert telegram.texts() == texts


async def test_an_answer_can_be_a_web_page_or_any_bytes(telegram: FakeTelegram, api: Api) -> None:
    telegram.garble("getMe")
    telegram.garble("getMe", b'{"ok":')
    kinds = []
    for _ in range(2):
        async with api.client.get(api.url("getMe")) as answer:
            kinds.append((answer.status, answer.content_type, (await answer.text())[:6]))
    assert kinds == [(200, "text/html", "<!doct"), (200, "application/json", '{"ok":')]


async def test_a_slow_body_stops_in_the_middle_until_it_is_let_go(
    telegram: FakeTelegram, api: Api
) -> None:
    gate = telegram.slow("getMe")
    async with api.client.get(api.url("getMe")) as answer:
        half = await answer.content.readany()
        assert 0 < len(half) < (answer.content_length or 0)
        gate.set()
        assert (half + await answer.read()).endswith(b"}")


async def test_a_huge_body_is_not_announced(telegram: FakeTelegram, api: Api) -> None:
    telegram.huge("getMe", 200_000)
    async with api.client.get(api.url("getMe")) as answer:
        assert answer.content_length is None
        assert len(await answer.read()) == 200_000


async def test_a_huge_body_ends_with_the_patience_of_the_client(
    telegram: FakeTelegram, api: Api
) -> None:
    telegram.huge("file")
    async with api.client.get(f"{telegram.base_url}/file/bot{telegram.token}/x") as answer:
        await answer.content.read(10)
        answer.close()
    assert (await api("getMe")).status == 200


async def test_downloads_fail_like_any_call(telegram: FakeTelegram) -> None:
    telegram.document(b"content")
    async with library(telegram) as bot:
        [update] = await bot.get_updates()
        assert update.message is not None
        assert update.message.document is not None
        file = await bot.get_file(update.message.document)
        telegram.fail("file", 500)
        with pytest.raises(NetworkError):
            await file.download_as_bytearray()
        assert await file.download_as_bytearray() == b"content"


async def test_a_second_poller_ends_the_poll_that_waits_and_the_next_ones(
    telegram: FakeTelegram, api: Api
) -> None:
    async with asyncio.TaskGroup() as group:
        poll = group.create_task(api("getUpdates", timeout=600))
        await telegram.wait_for(lambda: telegram.polls)
        telegram.second_poller(times=2)
        assert (await poll).error[0] == 409
    assert (await api("getUpdates")).error[0] == 409
    assert (await api("getUpdates")).status == 200


async def test_healing_forgets_what_was_armed(telegram: FakeTelegram, api: Api) -> None:
    telegram.fail("sendMessage", 500, times=100)
    telegram.flood(7, 5)
    telegram.heal()
    await api.say("well again")
    assert telegram.texts() == ["well again"]
