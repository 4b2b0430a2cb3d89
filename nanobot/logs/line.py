"""One line of the log: as it is stored, and as people see it. Pure.

A stored line is one JSON object in ASCII: `time` (ISO 8601 with the offset from UTC), `level`
(`debug`, `info`, `warning` or `error`), `turn` (where it was logged during one), `where` (module
and line), `message`, and `error` (a traceback, where there is one).
"""

from __future__ import annotations

import json
import re
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import tzinfo

    from loguru import Record

    from nanobot.security.redaction import Redactor

LEVELS = ("debug", "info", "warning", "error")
"""From the least to the most important."""

_MOST_MESSAGE = 10_000
_MOST_ERROR = 30_000
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_COLOURS = {"debug": "2", "warning": "33", "error": "31"}
_DIM = "2"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line, redacted. `turn` and `error` are empty where there is none."""

    time: str
    level: str
    where: str
    message: str
    turn: str = ""
    error: str = ""

    @classmethod
    def of(cls, record: Record, redactor: Redactor, zone: tzinfo | None = None) -> LogLine:
        """What loguru hands on, its time in `zone` (None: the system's). What is endless is
        shortened, once it is redacted."""
        error, turn = record["exception"], record["extra"].get("turn", "")
        trace = ""
        if error is not None and error.value is not None:
            trace = "".join(traceback.format_exception(error.value)).rstrip()
        message, trace = redactor.redact(record["message"]), redactor.redact(trace)
        if len(message) > _MOST_MESSAGE:
            message = f"{message[:_MOST_MESSAGE]}… ({len(message):,} characters)"
        if len(trace) > _MOST_ERROR:
            trace = f"… ({len(trace):,} characters)\n{trace[-_MOST_ERROR:]}"
        return cls(
            record["time"].astimezone(zone).isoformat(timespec="milliseconds"),
            level_of(record["level"].no),
            f"{record['name']}:{record['line']}",
            message,
            redactor.redact(str(turn)),
            trace,
        )

    @classmethod
    def parse(cls, stored: bytes) -> LogLine | None:
        """What `to_json` made; None for anything else."""
        try:
            data = json.loads(stored)
        except (ValueError, RecursionError):
            return None
        if not isinstance(data, dict):
            return None
        values = [data.get(key, "") for key in ("time", "level", "where", "message")]
        extra = [data.get(key, "") for key in ("turn", "error")]
        if data.get("level") not in LEVELS or not all(map(_is_text, (*values, *extra))):
            return None
        return cls(*values, *extra)

    def to_json(self) -> str:
        """The stored form, without the end of the line."""
        fields = {"time": self.time, "level": self.level, "turn": self.turn}
        fields |= {"where": self.where, "message": self.message, "error": self.error}
        return json.dumps({k: v for k, v in fields.items() if v or k == "message"})

    def to_text(self, *, colours: bool = False) -> str:
        """For people: one line, what follows the first line of the message or is a traceback moved
        to the right, so that no message looks like a line of its own. Nothing in it can control a
        terminal."""
        turn = f"[{self.turn}] " if self.turn else ""
        where = "" if self.level == "info" else f"  ({self.where})"
        level = self.level.upper().ljust(7)
        time, message = _safe(self.time[:19].replace("T", " ")), _indented(_safe(self.message))
        error = f"\n    {_indented(_safe(self.error))}" if self.error else ""
        turn, where = _safe(turn), _safe(where)
        if colours:
            level = _in_colour(level, _COLOURS.get(self.level, ""))
            time, turn, where, error = (_in_colour(t, _DIM) for t in (time, turn, where, error))
        return f"{time} {level} {turn}{message}{where}{error}"


def level_of(number: int) -> str:
    """The level that loguru's or the standard library's number stands for."""
    return LEVELS[max(0, min(number // 10, 4) - 1)]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")


def _safe(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    text = text.encode("utf-8", "backslashreplace").decode()
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _in_colour(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if text and colour else text
