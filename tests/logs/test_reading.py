"""Reading the log again: by `nanobot logs`, and as it grows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nanobot.cli.main import main
from nanobot.logs import Level, LogFile, LogLine, LogReader


class Writer:
    """Writes lines `0`, `1`, … into files that hold about four of them."""

    def __init__(self, home: Path) -> None:
        self.path = home / "logs" / "nanobot.log"
        self._file = LogFile(self.path, 450, 5)
        self._next = 0

    def write(self, count: int = 1, level: Level = "info", turn: str = "") -> None:
        for _ in range(count):
            time = f"2026-03-02T09:00:{self._next:02}.000+00:00"
            line = LogLine(time, level, "a.b:1", str(self._next), turn)
            self._file.write(line.to_json())
            self._next += 1


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


def everything(_: LogLine) -> bool:
    return True


def test_the_last_lines_are_found_over_several_files(writer: Writer) -> None:
    writer.write(12)
    with writer.path.open("ab") as stream:
        stream.write(b'not JSON\n[3]\n{"time": "cut sh')
    lines = LogReader(writer.path).newest_lines(everything, 7)
    assert [line.message for line in lines] == ["5", "6", "7", "8", "9", "10", "11"]


def test_following_misses_nothing_and_repeats_nothing_over_new_files(writer: Writer) -> None:
    writer.write(2)
    tail = LogReader(writer.path)
    lines = tail.newest_lines(everything, 50)
    seen = [line.message for line in lines]
    for count in (0, 1, 3, 9, 0, 1):
        writer.write(count)
        seen += [line.message for line in tail.new_lines()]
    assert seen == [str(number) for number in range(16)]


def test_following_waits_for_a_log_that_is_not_there_and_survives_one_that_is_removed(
    writer: Writer,
) -> None:
    tail = LogReader(writer.path)
    assert not list(tail.new_lines())
    writer.write()
    assert [line.message for line in tail.new_lines()] == ["0"]
    writer.path.unlink()
    assert not list(tail.new_lines())
    writer.write()
    assert [line.message for line in tail.new_lines()] == ["1"]


def test_following_tells_each_line_once_though_the_log_was_truncated(writer: Writer) -> None:
    tail = LogReader(writer.path)
    writer.write(3)
    assert [line.message for line in tail.new_lines()] == ["0", "1", "2"]
    lines = writer.path.read_bytes().splitlines(keepends=True)
    writer.path.write_bytes(lines[0])
    assert [line.message for line in tail.new_lines()] == ["0"]
    assert not list(tail.new_lines())
    with writer.path.open("ab") as stream:
        stream.write(lines[1])
    assert [line.message for line in tail.new_lines()] == ["1"]


def test_a_line_is_not_told_before_it_is_whole(writer: Writer) -> None:
    tail = LogReader(writer.path)
    writer.write()
    whole = writer.path.read_bytes()
    writer.path.write_bytes(whole[:20])
    assert not list(tail.new_lines())
    writer.path.write_bytes(whole)
    assert [line.message for line in tail.new_lines()] == ["0"]


def test_the_command_shows_what_was_asked_for(
    writer: Writer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def logs(*arguments: str) -> str:
        assert main(["--home", str(tmp_path), "logs", *arguments]) == 0
        return capsys.readouterr().out

    assert "There is no log yet" in logs()
    writer.write(turn="260302-1")
    writer.write(level="error", turn="260302-1")
    writer.write(level="warning")
    assert logs("-n", "2").splitlines() == [
        "2026-03-02 09:00:01 ERROR   [260302-1] 1  (a.b:1)",
        "2026-03-02 09:00:02 WARNING 2  (a.b:1)",
    ]
    assert logs("--turn", "260302-1", "--level", "warning").split()[-2:] == ["1", "(a.b:1)"]
    told: list[dict[str, Any]] = [json.loads(line) for line in logs("--json").splitlines()]
    assert [line["message"] for line in told] == ["0", "1", "2"]
    assert logs("--turn", "none") == "No matching entries.\n"
    assert logs("--turn", "none", "--json") == ""
