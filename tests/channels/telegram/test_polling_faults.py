"""Polling continues after any failure, and never in a tight loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from nanobot_telegram.client import TelegramClient
from nanobot_telegram.ingest import STALL_SECONDS
from tests.channels.telegram.support import (
    RecordingHost,
    WatchedClock,
    end_poll,
    options_for,
    run_until_off,
    running,
)
from tests.doubles.telegram import FakeTelegram


async def test_a_token_that_is_refused_turns_the_channel_off_with_one_clear_message(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    telegram.fail("getMe", 401)
    off = await run_until_off(telegram, host)
    assert str(off) == "Telegram does not accept the bot token"
    assert "@BotFather" in off.hint


async def test_a_token_that_is_revoked_while_it_runs_turns_the_channel_off(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    async with asyncio.TaskGroup() as group:
        life = group.create_task(run_until_off(telegram, host))
        await telegram.wait_for(lambda: telegram.polls)
        telegram.revoke_token()
        await end_poll(telegram, clock)
    assert str(life.result()) == "Telegram does not accept the bot token"


@pytest.mark.parametrize("status", [401, 404])
async def test_polls_that_are_refused_while_the_token_is_right_are_reported(
    status: int, telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    telegram.fail("getUpdates", status)
    telegram.say("hello")
    async with running(telegram, host):
        await clock.until_asked(1.0)
        assert host.reports[-1].startswith("Telegram accepts the bot's token but rejects")
        await clock.advance(1.0)
        assert await host.texts(1) == ["hello"]
        await host.until(lambda: host.reports[-1] == "")


FAULTS: dict[str, Callable[[FakeTelegram], object]] = {
    "5xx": lambda telegram: telegram.fail("getUpdates", 502, times=3),
    "HTML with 200": lambda telegram: telegram.garble("getUpdates", times=3),
    "cut connections": lambda telegram: telegram.cut("getUpdates", times=3),
    "JSON of another shape": lambda telegram: telegram.garble("getUpdates", b"[1]", times=3),
    "an endless answer": lambda telegram: telegram.huge("getUpdates", times=3),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_failing_polls_are_ever_further_apart_until_they_work_again(
    fault: Callable[[FakeTelegram], object],
    telegram: FakeTelegram,
    host: RecordingHost,
    clock: WatchedClock,
) -> None:
    fault(telegram)
    telegram.say("hello")
    async with running(telegram, host):
        for pause in (1.0, 2.0, 4.0):
            await clock.until_asked(pause)
            assert host.stored == []
            assert host.reports[-1].startswith("Telegram cannot be reached: ")
            await clock.advance(pause)
        assert await host.texts(1) == ["hello"]
        await host.until(lambda: host.reports[-1] == "")


@pytest.mark.parametrize(
    ("fault", "is_heard"),
    [(FAULTS["5xx"], True), (FAULTS["cut connections"], False)],
    ids=["a refusal", "no answer"],
)
async def test_only_what_telegram_says_shows_that_polling_lives(
    fault: Callable[[FakeTelegram], object],
    is_heard: bool,
    telegram: FakeTelegram,
    host: RecordingHost,
    clock: WatchedClock,
) -> None:
    fault(telegram)
    telegram.say("hello")
    async with running(telegram, host):
        await clock.until_asked(1.0)
        at_first = host.expected
        await clock.advance(1.0)
        await clock.until_asked(2.0)
        assert (host.expected > at_first) is is_heard
        await clock.advance(2.0)
        await clock.until_asked(4.0)
        await clock.advance(4.0)
        assert await host.texts(1) == ["hello"]
        await host.until(lambda: host.reports[-1] == "")
        assert host.expected > at_first


async def test_a_number_that_no_update_has_is_not_gone_on_from(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    telegram.garble("getUpdates", b'{"ok":true,"result":[{"update_id":%s}]}' % (b"9" * 4_000))
    telegram.say("hello")
    async with running(telegram, host):
        await clock.until_asked(0.25)
        await clock.advance(0.25)
        assert await host.texts(1) == ["hello"]


async def test_the_wait_that_telegram_asks_for_is_kept(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    telegram.fail("getUpdates", 429, parameters={"retry_after": 17})
    telegram.say("hello")
    async with running(telegram, host):
        await clock.until_asked(17.0)
        await clock.advance(17.0)
        assert await host.texts(1) == ["hello"]


STALLS: dict[str, Callable[[FakeTelegram], object]] = {
    "a poll that is never answered": lambda telegram: telegram.half_open(),
    "an answer that stops halfway": lambda telegram: telegram.slow("getUpdates"),
}


@pytest.mark.parametrize("stall", STALLS.values(), ids=STALLS)
async def test_a_stall_is_noticed_and_repaired_within_90_seconds(
    stall: Callable[[FakeTelegram], object],
    telegram: FakeTelegram,
    host: RecordingHost,
    clock: WatchedClock,
) -> None:
    async with running(telegram, host):
        await telegram.wait_for(lambda: telegram.polls)
        stall(telegram)
        await end_poll(telegram, clock)
        await telegram.wait_for(lambda: len(telegram.calls_of("getUpdates")) == 2)
        telegram.say("hello")
        await clock.until_asked(STALL_SECONDS, times=2)
        assert host.stored == []
        assert host.expected < clock.monotonic() + 80  # the hang is reported by then
        await clock.advance(STALL_SECONDS)
        assert await host.texts(1) == ["hello"]
    assert host.reports == ["no response to polling for 90 s; reconnecting", ""]


async def test_waiting_for_the_inbox_is_no_stall(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    host.gate.clear()
    telegram.say("hello")
    async with running(telegram, host):
        await host.until(lambda: host.published)
        await clock.advance(10 * STALL_SECONDS)
        host.gate.set()
        await telegram.wait_for(lambda: telegram.confirmed)
        await telegram.wait_for(lambda: telegram.polls)
    assert host.reports == []


async def test_start_up_without_network_goes_on_until_there_is_one(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    telegram.say("hello")
    await telegram.stop()
    async with running(telegram, host):
        for pause in (1.0, 2.0, 4.0, 8.0, 16.0):
            await clock.until_asked(pause)
            await clock.advance(pause)
        for times in range(1, 4):
            await clock.until_asked(30.0, times)
            assert "cannot be reached" in host.reports[-1]
            if times < 3:
                await clock.advance(30.0)
        await telegram.start()
        await clock.advance(30.0)
        assert await host.texts(1) == ["hello"]


async def test_another_poller_is_reported_and_given_time(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    telegram.second_poller(times=2)
    telegram.say("hello")
    async with running(telegram, host):
        await clock.until_asked(1.0)
        assert "another program is polling" in host.reports[-1]
        await clock.advance(1.0)
        await clock.until_asked(2.0)
        await clock.advance(2.0)
        assert await host.texts(1) == ["hello"]


async def test_a_webhook_in_the_way_is_removed_without_losing_what_waits(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    telegram.say("hello")
    client = TelegramClient(options_for(telegram), clock)
    await client.bot.set_webhook("https://127.0.0.1:1/elsewhere")
    await client.aclose()
    async with running(telegram, host):
        await clock.until_asked(1.0)
        assert "a webhook was set" in host.reports[-1]
        await clock.advance(1.0)
        assert await host.texts(1) == ["hello"]


async def test_a_server_that_never_waits_is_not_asked_in_a_tight_loop(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    telegram.garble("getUpdates", b'{"ok": true, "result": []}', times=2)
    telegram.say("hello")
    async with running(telegram, host):
        for times in (1, 2):
            await clock.until_asked(0.25, times)
            await clock.advance(0.25)
        assert await host.texts(1) == ["hello"]
