"""`nanobot audit`: what was decided about tool calls, what the owner answered, what took effect.

Read from the log itself, so a gateway may run or not. What models and strangers wrote stands in it:
what is printed is cleaned first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import partial
from pathlib import Path

from nanobot.cli.admin import put, to_json
from nanobot.cli.show import Data, field, table
from nanobot.cli.zone import zone_of
from nanobot.errors import StorageError
from nanobot.security.audit import FILE, Record, newest_records

_NOTHING = "Nothing of that kind is recorded.\n"
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Selection:
    """The last `count` records, those of a tool or of a session where these are named."""

    count: int
    tool: str = ""
    session: str = ""

    def holds(self, record: Record) -> bool:
        """Whether a record is of the kind."""
        tool, session = record.get("tool"), record.get("session")
        return self.tool in ("", tool) and self.session in ("", session)


def show(home: Path, selection: Selection, *, as_json: bool) -> int:
    """`nanobot audit`."""
    path = home / "logs" / FILE
    try:
        records = newest_records(path, selection.holds, selection.count)
    except OSError as error:
        raise StorageError.of(path, error) from error
    if as_json:
        return put(to_json(records))
    if not records:
        return put(_NOTHING)
    return put(table(map(partial(_row, zone_of(home)), records)))


def _row(zone: tzinfo | None, record: Data) -> tuple[str, ...]:
    time = _told(field(record, "time"), zone)
    return time, _what(record), field(record, "tool"), field(record, "session"), _details(record)


def _told(time: str, zone: tzinfo | None) -> str:
    """A time in `zone`; as it stands where it is none."""
    try:
        moment = datetime.fromisoformat(time).astimezone(zone)
    except (ValueError, OverflowError):
        return time[:19]
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _what(record: Data) -> str:
    outcome = field(record, "outcome")
    match field(record, "event"):
        case "answered":
            return f"{outcome} by owner" if outcome == "allowed" else f"{outcome} when asked"
        case "ended":
            return "done" if outcome == "ok" else "failed"
        case _:
            return outcome


def _details(record: Data) -> str:
    for key in ("because", "error", "changed", "arguments"):
        if said := field(record, key, _WIDTH):
            return said
    return ""
