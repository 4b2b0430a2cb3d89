"""The operations `audit.list` and `logs.tail`: what was decided about tool calls, and the log.

Both read files that were redacted when they were written, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import asdict

from nanobot.channel import Operation
from nanobot.commands import in_threads, number_argument, optional_text
from nanobot.io import storage_errors
from nanobot.logs import LEVELS, LOG_FILE, LogLine, LogReader
from nanobot.security.audit import FILE, Record, newest_records

_MOST = 500
_DEFAULT = 50


class Records:
    """Those of the home whose folder of logs is `logs`."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs

    def table(self) -> Mapping[str, Operation]:
        """By name, as they are called over the socket."""
        return in_threads({"audit.list": self.audit, "logs.tail": self.tail})

    def audit(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Records, the newest first: `limit` after the newest `offset`, of one `tool` and one
        `session` where these are given; with `more`, older ones are left."""
        tool, session = optional_text(arguments, "tool"), optional_text(arguments, "session")
        offset, limit = number_argument(arguments, "offset"), _limit(arguments)

        def holds(record: Record) -> bool:
            return tool in ("", record.get("tool")) and session in ("", record.get("session"))

        path = self._logs / FILE
        with storage_errors(path):
            found = newest_records(path, holds, offset + limit + 1)
        newest = found[::-1][offset:]
        return {
            "records": [dict(record) for record in newest[:limit]],
            "more": len(newest) > limit,
        }

    def tail(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """The newest `limit` lines of the log from `level` on, of one `turn` where it is given; or
        with `after`, the `position` of an earlier answer, what was added since. The oldest first.
        """
        level, turn = optional_text(arguments, "level"), optional_text(arguments, "turn")
        least = LEVELS.index(level) if level in LEVELS else 0
        after, limit = optional_text(arguments, "after"), _limit(arguments)

        def is_wanted(line: LogLine) -> bool:
            return LEVELS.index(line.level) >= least and turn in ("", line.turn)

        path = self._logs / LOG_FILE
        reader = LogReader(path, after)
        with storage_errors(path):
            if after:
                lines = list(filter(is_wanted, reader.new_lines()))[-limit:]
            else:
                lines = reader.newest_lines(is_wanted, limit)
        return {"lines": [asdict(line) for line in lines], "position": reader.position}


def _limit(arguments: Mapping[str, object]) -> int:
    return min(max(1, number_argument(arguments, "limit", _DEFAULT)), _MOST)
