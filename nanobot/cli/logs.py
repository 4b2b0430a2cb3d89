"""`nanobot logs` and `nanobot audit`: log lines, and decisions about tool calls.

Both read the files, with or without a gateway. The files contain untrusted text, so all output is
cleaned."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from nanobot.cli.client import Data
from nanobot.cli.command import (
    Options,
    Parser,
    print_json,
    print_text,
    table,
    write_stdout,
    zone_of,
)

if TYPE_CHECKING:
    from nanobot.logs import LogLine
    from nanobot.security.audit import Record

_LEVELS = ("debug", "info", "warning", "error")

_PAUSE = 0.25  # seconds between two checks for new lines

_NOTHING = "No matching entries.\n"
_NO_LOG = "There is no log yet. `nanobot gateway` writes its log to {}\n"
_WIDTH = 100


def add_logs(logs: Parser) -> None:
    logs.set_defaults(run=show_log)
    logs.count(50, "lines")
    logs.flag("--follow", "keep printing new lines until Ctrl-C", "-f")
    logs.option("--turn", "ID", "show only lines from this turn")
    level = "show only lines at this level or above"
    logs.add_argument("--level", choices=_LEVELS, default=_LEVELS[0], help=level)
    logs.flag("--json", "print JSON, one object per line")


def add_audit(audit: Parser) -> None:
    audit.set_defaults(run=show_audit)
    audit.count(20, "entries")
    audit.option("--tool", "T", "show only calls of this tool")
    audit.option("--session", "KEY", "show only calls in this conversation")
    audit.json()


def show_log(options: Options) -> int:
    """Print the last lines. With --follow, print new ones until Ctrl-C."""
    from nanobot.io import storage_errors
    from nanobot.logs import LEVELS, LOG_FILE, LogReader

    def is_wanted(line: LogLine) -> bool:
        important = LEVELS.index(line.level) >= LEVELS.index(options.level)
        return important and options.turn in ("", line.turn)

    path = options.home / "logs" / LOG_FILE
    with storage_errors(path):
        reader = LogReader(path)
        lines = reader.newest_lines(is_wanted, options.n)
    write_stdout(_render_lines(lines, as_json=options.json))
    while options.follow:
        sys.stdout.flush()
        time.sleep(_PAUSE)
        with storage_errors(path):
            new = [line for line in reader.new_lines() if is_wanted(line)]
        write_stdout(_render_lines(new, as_json=options.json))
    if not lines and not options.json:
        print_text(_NOTHING if path.exists() else _NO_LOG.format(path))
    return 0


def _render_lines(lines: Iterable[LogLine], *, as_json: bool) -> str:
    if as_json:
        return "".join(f"{line.to_json()}\n" for line in lines)
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return "".join(f"{line.to_text(colours=colours)}\n" for line in lines)


def show_audit(options: Options) -> int:
    from nanobot.io import storage_errors
    from nanobot.security.audit import FILE, newest_records

    def holds(record: Record) -> bool:
        tool, session = record.get("tool"), record.get("session")
        return options.tool in ("", tool) and options.session in ("", session)

    path = options.home / "logs" / FILE
    with storage_errors(path):
        found = newest_records(path, holds, options.n)
    if options.json:
        return print_json(found)
    zone = zone_of(options.home)
    rows = (_format_record(Data(one), zone) for one in found)
    return print_text(table(rows) or _NOTHING)


def _format_record(record: Data, zone: tzinfo | None) -> tuple[str, ...]:
    time = record.field("time")
    try:
        time = f"{datetime.fromisoformat(time).astimezone(zone):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError):
        time = time[:19]
    keys = ("subject", "because", "error", "changed", "arguments", "by")
    details = (record.field(key, _WIDTH) for key in keys)
    outcome, by = record.field("outcome"), record.field("by", 40)
    match record.field("event"):
        case "answered":
            outcome += {"allowed": " by the owner", "denied": " when asked"}.get(outcome, "")
        case "standing approval":
            outcome = f"approval {outcome}, {by}"
        case "changed":
            outcome = f"{outcome}, {by}"
        case "ended":
            outcome = "done" if outcome == "ok" else "failed"
    return time, outcome, *record.fields("tool", "session"), next(filter(None, details), "")
