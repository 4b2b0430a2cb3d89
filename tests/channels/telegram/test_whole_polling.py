"""No incoming message is lost, for any failure of Telegram, the token or the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot.testing import ScriptedModel
from nanobot_telegram.ingest import STALL_SECONDS
from tests.channels.telegram.support import WatchedClock, end_poll
from tests.channels.telegram.whole import nanobot, repeat, status_of
from tests.doubles.telegram import FakeTelegram
from tests.faults.test_disk import journal_size, no_file_grows_beyond
from tests.support import talking


async def channel_state(home: Path) -> tuple[str, str]:
    """Return the state of Telegram in `nanobot status`."""
    (state,) = [one for one in (await status_of(home))["channels"] if one["name"] == "telegram"]
    return state["state"], state["detail"]


STALLS: dict[str, Callable[[FakeTelegram], object]] = {
    "a poll that is never answered": lambda telegram: telegram.half_open(),
    "an answer that stops halfway": lambda telegram: telegram.slow("getUpdates"),
}


@pytest.mark.parametrize("stall", STALLS.values(), ids=STALLS)
async def test_a_stall_is_repaired_within_90_seconds_and_what_was_said_is_answered(
    tmp_path: Path,
    telegram: FakeTelegram,
    clock: WatchedClock,
    stall: Callable[[FakeTelegram], object],
) -> None:
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat), clock=clock):
        await telegram.wait_for(lambda: telegram.polls)
        stall(telegram)
        await end_poll(telegram, clock)
        await clock.until_asked(STALL_SECONDS, times=2)
        telegram.say("hello")
        await clock.advance(STALL_SECONDS - 1)
        assert telegram.texts() == []
        await clock.advance(1)
        assert await telegram.receive(1) == ["re: hello"]


async def test_a_revoked_token_turns_telegram_off_alone_and_a_good_one_loses_nothing(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat), clock=clock):
        telegram.say("one")
        await telegram.receive(1)
        telegram.revoke_token()
        await end_poll(telegram, clock)
        while (await channel_state(tmp_path))[0] != "off":
            pass
        assert "does not accept the bot token" in (await channel_state(tmp_path))[1]
        telegram.say("two")
        assert await nanobot(tmp_path, "agent", "-m", "hello") == "re: hello\n"
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat), clock=clock):
        assert await telegram.receive(2) == ["re: one", "re: two"]


async def test_an_answer_that_was_ready_when_the_token_was_revoked_goes_out_with_a_good_one(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat), clock=clock):
        gate = telegram.hang("getUpdates")
        telegram.fail("sendMessage", 401, times=100)
        telegram.say("one")
        gate.set()
        await telegram.wait_for(lambda: telegram.calls_of("sendMessage"))
        telegram.revoke_token()
    telegram.heal()
    async with talking(tmp_path, telegram, ScriptedModel(), clock=clock):
        await clock.until_asked_between(1e-9, 2.0 - 1e-9)
        await clock.advance(2.0)
        assert await telegram.receive(1) == ["re: one"]


async def test_what_the_disk_does_not_take_stays_at_telegram_and_is_answered_later(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    async with talking(tmp_path, telegram, ScriptedModel(author=repeat), clock=clock):
        telegram.say("one")
        await telegram.receive(1)
        await telegram.wait_for(lambda: telegram.pending == 0)
        await status_of(tmp_path)  # all journal writes are done
        with no_file_grows_beyond(journal_size(tmp_path)):
            pauses = clock.slept.count(1.0)
            telegram.say("two")
            await clock.until_asked(1.0, times=pauses + 1)
        assert telegram.pending == 1
        assert (
            "messages can't be stored and remain at Telegram" in (await channel_state(tmp_path))[1]
        )
        assert "Your message is pending" in (await telegram.receive(2))[1]
        await clock.advance(1.0)
        assert (await telegram.receive(3))[::2] == ["re: one", "re: two"]
        await telegram.wait_for(lambda: telegram.pending == 0)
        assert await channel_state(tmp_path) == ("running", "")


async def test_an_update_that_comes_twice_is_answered_once(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    model = ScriptedModel(author=repeat)
    async with talking(tmp_path, telegram, model, clock=clock):
        telegram.say("one")
        await telegram.receive(1)
        telegram.duplicate(telegram.last_update)
        telegram.say("two")
        assert await telegram.receive(2) == ["re: one", "re: two"]
    async with talking(tmp_path, telegram, model, clock=clock):
        telegram.duplicate(telegram.last_update)
        telegram.say("three")
        assert await telegram.receive(3) == ["re: one", "re: two", "re: three"]


async def test_malformed_updates_harm_none_before_or_behind_them(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    telegram.say("one")
    telegram.push_raw("no object")
    telegram.push_raw({"message": {"message_id": "x", "chat": []}})
    telegram.say("two")
    model = ScriptedModel(author=repeat)
    async with talking(tmp_path, telegram, model, clock=clock, NANOBOT_AGENT__ON_BUSY="queue"):
        assert await telegram.receive(2) == ["re: one", "re: two"]
    assert (tmp_path / "state" / "channels" / "telegram" / "quarantine.jsonl").exists()


async def test_the_place_in_one_bots_updates_means_nothing_to_another_bot(
    tmp_path: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    model = ScriptedModel(author=repeat)
    for _ in range(5):
        telegram.push_raw({"poll_answer": {}})
    async with talking(tmp_path, telegram, model, clock=clock):
        telegram.say("one")
        await telegram.receive(1)
    other = FakeTelegram(f"987654321:{'B' * 35}", username="other_bot")
    async with other, talking(tmp_path, other, model, clock=clock):
        other.say("to you", user=7, message_id=900)
        assert await other.receive(1) == ["re: to you"]
