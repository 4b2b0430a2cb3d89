"""No update is lost or confirmed too early, and polling continues after any failure."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from nanobot_telegram.ingest import Cursor
from tests.channels.telegram.support import (
    RecordingHost,
    WatchedClock,
    end_poll,
    running,
)
from tests.doubles.telegram import FakeTelegram


def offsets(telegram: FakeTelegram) -> list[str | None]:
    """Return the offset of each poll."""
    return [
        None if (offset := call.params.get("offset")) is None else str(offset)
        for call in telegram.calls_of("getUpdates")
    ]


async def test_nothing_is_confirmed_before_it_is_stored(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    host.gate.clear()
    telegram.say("hello")
    async with running(telegram, host):
        await host.until(lambda: host.published)
        assert telegram.confirmed is None
        host.gate.set()
        await telegram.wait_for(lambda: telegram.confirmed)
        assert await host.texts(1) == ["hello"]
    assert telegram.pending == 0


async def test_a_crash_between_poll_and_commit_loses_nothing(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    host.gate.clear()
    telegram.say("hello")
    async with running(telegram, host):
        await host.until(lambda: host.published)
    assert host.stored == []
    host.gate.set()
    async with running(telegram, host):
        assert await host.texts(1) == ["hello"]


async def test_after_a_crash_behind_the_commit_polling_goes_on_from_there(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    telegram.say("hello")
    async with running(telegram, host):
        await host.texts(1)
    cursor = Cursor.parse(host.stored_cursor)
    assert cursor is not None
    polled = len(telegram.calls_of("getUpdates"))
    telegram.say("again")
    async with running(telegram, host):
        assert await host.texts(2) == ["hello", "again"]
    assert offsets(telegram)[polled] == str(cursor.offset)


async def test_updates_that_came_while_it_was_off_are_stored_in_order(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    said = [str(number) for number in range(250)]
    for text in said:
        telegram.say(text)
    async with running(telegram, host):
        assert await host.texts(250) == said


async def test_malformed_updates_are_put_aside_and_the_others_handled(
    telegram: FakeTelegram, host: RecordingHost, tmp_path: Path, log: list[str]
) -> None:
    malformed: list[object] = [
        "no object",
        {"message": "no object"},
        {"message": {"message_id": 5, "date": 10**18, "chat": {"id": 7, "type": "private"}}},
        {"edited_message": {"chat": {}}},
        {"callback_query": []},
    ]
    for update in malformed:
        telegram.push_raw(update)
    telegram.say("hello")
    host.disk_full = True
    async with running(telegram, host):
        await host.clock.until_sleeping()
        await host.until(lambda: host.reports)
        host.disk_full = False
        await host.clock.advance(1.0)  # and they are delivered once more
        assert await host.texts(1) == ["hello"]
    kept = tmp_path / "quarantine.jsonl"
    whats = [json.loads(line)["what"] for line in kept.read_text().splitlines()]
    updates = [json.loads(what) if what[0] in "[{" else what for what in whats]
    assert [_without_id(update) for update in updates] == malformed
    assert kept.stat().st_mode & 0o777 == 0o600
    assert sum("malformed" in line for line in log) == len(malformed)


def _without_id(update: object) -> object:
    if isinstance(update, dict):
        return {key: value for key, value in update.items() if key != "update_id"}
    return update


async def test_half_a_character_does_not_stop_the_rest(
    telegram: FakeTelegram, host: RecordingHost
) -> None:
    telegram.garble(
        "getUpdates",
        json.dumps({"ok": True, "result": [_message("half \ud83d"), _message("whole")]}).encode(),
    )
    async with running(telegram, host):
        assert await host.texts(2) == ["half \N{REPLACEMENT CHARACTER}", "whole"]


def _message(text: str) -> dict[str, object]:
    number = len(text)
    person = {"id": 7, "is_bot": False, "first_name": "Ann"}
    return {
        "update_id": number,
        "message": {
            "message_id": number,
            "date": 1_700_000_000,
            "chat": {"id": 7, "type": "private", "first_name": "Ann"},
            "from": person,
            "text": text,
        },
    }


async def test_a_full_disk_leaves_messages_at_telegram_until_it_is_mended(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    host.disk_full = True
    telegram.say("hello")
    async with running(telegram, host):
        await clock.until_asked(1.0)
        await clock.advance(1.0)
        await clock.until_asked(2.0)
        assert telegram.confirmed is None
        assert "no space left" in host.reports[-1]
        host.disk_full = False
        await clock.advance(2.0)
        assert await host.texts(1) == ["hello"]
        await host.until(lambda: host.reports[-1] == "")


def test_a_cursor_is_written_and_read_back(clock: WatchedClock) -> None:
    cursor = Cursor(42, 1001, clock.now())
    assert Cursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize(
    "text", [None, "", "1001", "a:b:c", "1:2:yesterday", "1:2:2026-03-02T09:00:00"]
)
def test_what_is_no_cursor_is_none(text: str | None) -> None:
    assert Cursor.parse(text) is None


@pytest.mark.parametrize("case", ["another bot's", "a week old", "of the future"])
async def test_an_offset_that_means_nothing_is_not_used(
    case: str, telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    bot = 1 if case == "another bot's" else telegram.bot_id
    days = {"a week old": -7, "of the future": 30}.get(case, 0)
    host.stored_cursor = str(Cursor(bot, 999_999, clock.now() + timedelta(days=days)))
    telegram.say("hello")
    async with running(telegram, host):
        assert await host.texts(1) == ["hello"]
    assert offsets(telegram)[0] is None


async def test_an_offset_grows_stale_while_it_runs_too(
    telegram: FakeTelegram, host: RecordingHost, clock: WatchedClock
) -> None:
    async with running(telegram, host):
        telegram.say("hello")
        await host.texts(1)
        await telegram.wait_for(lambda: telegram.confirmed)
        clock.jump(7 * 24 * 3600.0)
        polled = len(telegram.calls_of("getUpdates"))
        await end_poll(telegram, clock)
        await telegram.wait_for(lambda: len(telegram.calls_of("getUpdates")) > polled)
    assert offsets(telegram)[-1] is None
