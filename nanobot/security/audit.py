"""The audit log `logs/audit.jsonl`: one JSON line for each decision about a tool call, each answer
of the owner, and each effect.

Invariant: lines are only appended. Each is redacted and limited. Only the owner can read the file.
A write failure is logged and stops nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path

from loguru import logger

from nanobot.clock import Clock
from nanobot.io import append_line, json_line, rotate_files, whole_lines, without_long_lines
from nanobot.security.redaction import Redactor

FILE = "audit.jsonl"
MAX_BYTES = 10_000_000
"""Size at which a new file begins."""
KEPT = 3
"""Older files that are kept."""

_MAX_TEXT = 2_000
_MAX_LINE = 100_000

Value = str | int | bool
Record = Mapping[str, Value]


class AuditLog:
    """Writes the log at `path`, whose folder must exist."""

    def __init__(
        self, path: Path, redactor: Redactor, clock: Clock, max_bytes: int = MAX_BYTES
    ) -> None:
        self._path, self._redactor, self._clock = path, redactor, clock
        self._max_bytes = max_bytes
        self._failing = False

    def write(self, record: Record) -> None:
        """Append a record with the current time. Never raises."""
        now = self._clock.now().isoformat(timespec="milliseconds")
        cleaned = {"time": now, **{key: self._clean(value) for key, value in record.items()}}
        try:
            line = json_line(cleaned, compact=False).encode()
            if append_line(self._path, line) >= self._max_bytes:
                rotate_files(audit_files(self._path))
        except OSError as error:
            if not self._failing:
                logger.error("the audit log cannot be written: {}", error.strerror or error)
            self._failing = True
        else:
            self._failing = False

    def _clean(self, value: Value) -> Value:
        if not isinstance(value, str):
            return value
        text = self._redactor.redact(value)  # before cutting, because half a secret would not match
        if len(text) <= _MAX_TEXT:
            return text
        # Cut at a line end, because erasing would not find half of a name.
        end = max(text.rfind("\n", 0, _MAX_TEXT), text.rfind("\\n", 0, _MAX_TEXT), 0)
        return f"{text[:end]}… ({len(value):,} characters)"


def audit_files(path: Path) -> tuple[Path, ...]:
    """Return the possible files of the log at `path`, the newest first."""
    older = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in range(1, KEPT + 1))
    return (path, *older)


def expire(path: Path, horizon: datetime) -> int:
    """Remove files whose lines are all older than `horizon` (aware), and return their number. Raise
    `OSError`.

    Whole files are removed, so that no line being written is lost. If the current file has an older
    line, it is rotated, to be removed later."""
    current, *older = audit_files(path)
    removed = 0
    for file in older:
        with suppress(FileNotFoundError):
            seen = file.stat()
            newest = find_time(reversed(read_lines(file)))
            if newest and newest < horizon and os.path.samestat(seen, file.stat()):
                file.unlink()  # not rotated since
                removed += 1
    with suppress(FileNotFoundError), current.open("rb") as lines:
        oldest = find_time(line for line, _ in whole_lines(lines))
        if oldest and oldest < horizon:
            rotate_files(audit_files(path))
    return removed


def newest_records(path: Path, wanted: Callable[[Record], bool], limit: int) -> tuple[Record, ...]:
    """Return the last `limit` records that are `wanted`, the oldest first. Skip unreadable lines.
    Raise `OSError`."""
    found: list[Record] = []
    for file in audit_files(path):
        if len(found) == limit:
            break  # don't read the large older files
        with suppress(FileNotFoundError):
            records = filter(None, map(parse_record, reversed(read_lines(file))))
            found += islice(filter(wanted, records), limit - len(found))
    return tuple(reversed(found))


def read_lines(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return without_long_lines(file.fileno())[0].splitlines()


def find_time(lines: Iterable[bytes]) -> datetime | None:
    """Return the time of the first line that has one."""
    for record in filter(None, map(parse_record, lines)):
        with suppress(ValueError):
            time = datetime.fromisoformat(str(record.get("time")))
            if time.tzinfo:
                return time
    return None


def parse_record(line: bytes) -> Record | None:
    if len(line) > _MAX_LINE:
        return None
    with suppress(ValueError):
        record = json.loads(line)
        if isinstance(record, dict):
            return {key: one for key, one in record.items() if isinstance(one, str | int | bool)}
    return None
