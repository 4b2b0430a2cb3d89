"""The contents and format of the log file."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from loguru import logger

from nanobot.errors import StorageError
from nanobot.logs import (
    LogCounter,
    LogFile,
    LogLine,
    RepeatLimit,
    log_to,
    older_files,
    omit_format,
)
from nanobot.security.redaction import REDACTED, Redactor
from nanobot.tasks import TURN
from nanobot.testing import ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from tests.bus.support import no_file_may_grow_beyond
from tests.support import Probe, read_stored, running

if TYPE_CHECKING:
    from loguru import Record

Log = Callable[[], list[dict[str, str]]]

BOT_TOKEN = "1234567890:" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345678"
SECRET = 'pass"word\\ü'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "nanobot.log"


@pytest.fixture
def log(path: Path) -> Iterator[Log]:
    """The log of a service, as a function that reads its file."""
    log_to((LogFile(path, 1_000_000, 3),), "debug", Redactor([SECRET]))
    yield lambda: [json.loads(line) for line in path.read_text().splitlines()]
    logger.remove()


def test_a_line_is_an_object_with_its_time_level_place_and_message(log: Log, path: Path) -> None:
    logger.warning("two\nlines {}", "{and} <red>marks</red>")
    (line,) = log()
    assert list(line) == ["time", "level", "where", "message"]
    assert line["level"] == "warning"
    assert line["message"] == "two\nlines {and} <red>marks</red>"
    assert line["where"].startswith("tests.logs.test_writing:")
    assert line["time"][-6] in "+-"
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_error_for_people_is_one_line_with_what_to_do_and_a_defect_has_its_traceback(
    log: Log,
) -> None:
    away = StorageError("the database", "it is away", hint="Start it.")
    logger.opt(exception=away).error("background task {} failed", "look")
    logger.opt(exception=away).warning("failed: {}", away)
    logger.opt(exception=ValueError("wrong")).error("a request failed")
    told, again, defect = log()
    text = "cannot use the database: it is away Start it."
    assert told["message"] == f"background task look failed: {text}"
    assert again["message"] == f"failed: {text}"
    assert "error" not in {*told, *again}
    assert "ValueError: wrong" in defect["error"]


def test_one_place_that_warns_thousands_of_times_fills_no_disk(log: Log) -> None:
    def fail(number: int) -> None:
        logger.error("no descriptors left ({})", number)

    for number in range(3_000):
        fail(number)
        logger.info("turn {}", number)
    logger.warning("another place")
    lines = log()
    failed = [line["message"] for line in lines if line["level"] == "error"]
    assert len(failed) == 50
    assert failed[0] == "no descriptors left (0)"
    assert failed[-1].endswith("(further similar lines are omitted for a minute)")
    assert sum(line["level"] == "info" for line in lines) == 3_000
    assert lines[-1]["message"] == "another place"


def test_after_a_minute_it_says_how_many_were_left_out() -> None:
    limit, places = RepeatLimit(), list["Record"]()
    sink = logger.add(lambda line: places.append(line.record), format=omit_format)
    logger.error("no descriptors left")
    logger.remove(sink)
    (record,) = places

    def note_at(seconds: float) -> str | None:
        return limit.note(cast("Record", {**record, "elapsed": timedelta(seconds=seconds)}))

    notes = [note_at(1.0) for _ in range(130)]
    assert notes.count(None) == 80
    assert note_at(60.9) is None
    assert note_at(61.0) == " (and 81 similar lines were omitted)"
    assert note_at(61.5) == ""


def test_times_are_those_of_the_zone_that_is_named(path: Path) -> None:
    log_to((LogFile(path, 1_000_000, 3),), "info", Redactor(), "Asia/Kathmandu")
    logger.info("said")
    logger.remove()
    assert json.loads(path.read_text())["time"].endswith("+05:45")


def test_no_secret_is_stored_whether_in_a_message_a_traceback_or_said_by_another_package(
    log: Log, path: Path
) -> None:
    logger.info("it is {}", SECRET)
    TURN.set(SECRET)
    logger.opt(exception=ValueError(SECRET)).error("it broke")
    TURN.set("")
    logging.getLogger("elsewhere").warning("their %s", SECRET)
    try:
        int(BOT_TOKEN)
    except ValueError:
        logger.exception("not even what a library says")
    said, broke, theirs, raised = log()
    assert said["message"] == f"it is {REDACTED}"
    assert (broke["turn"], broke["error"].splitlines()[-1]) == (REDACTED, f"ValueError: {REDACTED}")
    assert (theirs["level"], theirs["message"]) == ("warning", f"their {REDACTED}")
    assert theirs["where"].startswith("elsewhere:")
    assert f"with base 10: '{REDACTED}'" in raised["error"]
    assert json.dumps(SECRET)[1:-1] not in path.read_text()


async def test_every_line_of_a_turn_carries_its_id_and_no_other_line_does(
    log: Log, tmp_path: Path
) -> None:
    def look(_: str) -> str:
        thread = threading.Thread(target=logger.info, args=("outside",))
        thread.start()
        thread.join()
        logger.info("inside")
        return "seen"

    async def look_in_a_thread(text: str) -> str:
        return await asyncio.to_thread(look, text)

    class Look(Probe):
        async def __call__(self, arguments, caller):  # type: ignore[no-untyped-def]
            return self.act(await look_in_a_thread(arguments.text))

    model = ScriptedModel(calls("probe"), says("one"), calls("probe"), says("two"))
    async with running(tmp_path / "home", model, channel := FakeChannel(), tools=(Look(),)):
        for text in ("first", "second"):
            await channel.ask(text)
    turns = [
        message.turn_id for message in read_stored(tmp_path / "home") if message.role == "user"
    ]
    assert [line["turn"] for line in log() if line["message"] == "inside"] == turns
    assert {line.get("turn") for line in log() if line["message"] == "outside"} == {None}
    (ready, *_, stopping) = log()
    assert "turn" not in ready
    assert "turn" not in stopping
    ended = [line for line in log() if "fake:1: done" in line["message"]]
    assert [line["turn"] for line in ended] == turns


def test_every_line_is_in_exactly_one_file_and_the_oldest_files_go(path: Path) -> None:
    file = LogFile(path, 100, 3)
    path.parent.mkdir()
    path.with_name("nanobot.log.9").write_text("from when more were kept")
    for number in range(60):
        file.write(f"line {number:02}")
    older = older_files(path)
    assert [one.name for one in older] == ["nanobot.log.1", "nanobot.log.2", "nanobot.log.3"]
    lines = [line for one in (*older[::-1], path) for line in one.read_text().splitlines()]
    assert lines == [f"line {number:02}" for number in range(60 - len(lines), 60)]
    assert all(100 <= one.stat().st_size < 110 for one in older)


def test_a_full_disk_is_told_once_and_tears_no_line_when_there_is_room_again(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = LogFile(path, 1_000, 3)
    file.write("before")
    with no_file_may_grow_beyond(10):
        file.write("cut short by the disk")
        file.write("lost as a whole")
    file.write("after")
    assert path.read_text().splitlines() == ["before", "cut", "after"]
    (trouble,) = capsys.readouterr().err.splitlines()
    assert str(path) in trouble


def test_where_no_new_file_can_be_begun_the_old_one_grows(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.with_name("nanobot.log.1").mkdir(parents=True)  # nothing can take its place
    file = LogFile(path, 10, 1)
    for text in ("first line", "second line", "third line"):
        file.write(text)
    assert path.read_text().splitlines() == ["first line", "second line", "third line"]
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_log_that_somebody_moves_away_is_begun_anew(path: Path) -> None:
    file = LogFile(path, 1_000, 3)
    file.write("old")
    path.rename(path.with_name("mine"))
    file.write("new")
    assert path.read_text() == "new\n"


def test_what_people_see_is_one_line_that_nothing_in_it_can_break_or_forge() -> None:
    forged = "bad\n2026-01-01 00:00:00 INFO    all is well\x1b[2J\u202e\x9b"
    line = LogLine("2026-03-02T09:00:00.123+01:00", "warning", "a.b:1", forged, "260302-1", "E\nF")
    assert line.to_text() == (
        "2026-03-02 09:00:00 WARNING [260302-1] bad\n"
        "    2026-01-01 00:00:00 INFO    all is well\\x1b[2J\\u202e\\x9b  (a.b:1)\n"
        "    E\n    F"
    )
    assert LogLine.parse(line.to_json().encode()) == line
    assert LogLine.parse(b'{"level": "info", "message": 3}') is None


async def test_warnings_and_errors_are_counted(log: Log) -> None:
    counted = LogCounter()
    counted.begin()
    for say in (logger.info, logger.warning, logger.error, logger.warning, logger.critical):
        say("something")
    await counted.close()
    logger.error("later")
    assert (counted.warnings, counted.errors) == (2, 2)


def test_warnings_are_counted_even_if_only_errors_are_logged(path: Path) -> None:
    counted = LogCounter()
    counted.begin()
    log_to((LogFile(path),), "error", Redactor())
    logger.warning("too unimportant")
    logger.error("bad")
    asyncio.run(counted.close())
    logger.remove()
    assert (counted.warnings, counted.errors) == (1, 1)
    assert [json.loads(line)["message"] for line in path.read_text().splitlines()] == ["bad"]


def test_copies_that_somebody_keeps_are_not_taken_for_old_logs(path: Path) -> None:
    copy = path.with_name("nanobot.log.20261122")
    path.parent.mkdir()
    copy.write_text("kept")
    log = LogFile(path, 10, 1)
    for _ in range(4):
        log.write("a line")
    assert copy.exists()
    assert older_files(path) == [path.with_name("nanobot.log.1")]
