"""The audit log loses nothing, holds no secrets, and stays limited."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from nanobot.security.audit import KEPT, AuditLog, Record, audit_files, newest_records
from nanobot.security.redaction import REDACTED, Redactor
from nanobot.testing import FakeClock

SECRET = "hunter2-hunter2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def log_at(path: Path, **limits: int) -> AuditLog:
    return AuditLog(path, Redactor([SECRET]), FakeClock(), **limits)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def everything(_: Record) -> bool:
    return True


def test_a_record_is_one_line_with_its_time_readable_by_the_owner_alone(path: Path) -> None:
    log = log_at(path)
    log.write({"event": "decided", "tool": "exec", "text": "two\nlines\udcff", "count": 2})
    log.write({"event": "ended", "ok": True})
    first, second = lines(path)
    now = FakeClock().now().isoformat(timespec="milliseconds")
    assert first == {
        "time": now, "event": "decided", "tool": "exec", "text": "two\nlines\udcff", "count": 2,
    }  # fmt: skip
    assert second == {"time": now, "event": "ended", "ok": True}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_secret_is_written_not_even_half_of_one(path: Path) -> None:
    log = log_at(path)
    for shift in range(1_980, 2_005):
        log.write({"arguments": "x" * shift + SECRET})
    written = path.read_text()
    assert "hunter" not in written
    assert REDACTED in written


def test_a_long_text_is_cut_and_says_how_long_it_was(path: Path) -> None:
    log_at(path).write({"arguments": "a" * 1_000_000})
    (record,) = lines(path)
    assert str(record["arguments"]).endswith("… (1,000,000 characters)")
    assert path.stat().st_size < 3_000


def test_the_log_is_kept_in_a_bounded_number_of_files_and_read_across_them(path: Path) -> None:
    log = log_at(path, max_bytes=500)
    for number in range(100):
        log.write({"number": number})
    files = [file for file in audit_files(path) if file.exists()]
    assert len(files) in (KEPT, KEPT + 1)
    assert all(file.stat().st_size <= 600 for file in files)
    assert sorted(path.parent.iterdir()) == sorted(files)
    assert [r["number"] for r in newest_records(path, everything, 15)] == list(range(85, 100))


def test_a_line_that_was_cut_short_spoils_no_other(path: Path) -> None:
    log = log_at(path)
    log.write({"number": 1})
    with path.open("ab") as file:
        file.write(b'{"number": 2, "te')
    log.write({"number": 3})
    assert [r["number"] for r in newest_records(path, everything, 9)] == [1, 3]


def test_a_log_that_cannot_be_written_stops_nothing_and_is_said_once(
    tmp_path: Path, logged: list[str]
) -> None:
    log = log_at(tmp_path / "missing" / "audit.jsonl")
    log.write({"number": 1})
    log.write({"number": 2})
    assert len([line for line in logged if "the audit log cannot be written" in line]) == 1
    (tmp_path / "missing").mkdir()
    log.write({"number": 3})
    assert [record["number"] for record in lines(tmp_path / "missing" / "audit.jsonl")] == [3]


def test_a_link_in_the_place_of_the_log_is_not_followed(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.touch()
    path.symlink_to(target)
    log_at(path).write({"number": 1})
    assert target.read_bytes() == b""


def test_older_files_are_not_read_for_records_that_newer_ones_have(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"n": 1}\n{"n": 2}\n')
    (tmp_path / "audit.1.jsonl").mkdir()  # it could not be read
    assert newest_records(path, lambda _: True, 2) == ({"n": 1}, {"n": 2})
