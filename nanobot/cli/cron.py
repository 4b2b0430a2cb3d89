"""`nanobot cron list|add|remove|run|pause|resume`: what is scheduled.

The work is done by the running gateway, so that it holds at once, or on the files where none runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nanobot.cli.admin import asked, put, to_json
from nanobot.cli.show import Data, field, fitted, records, table, text
from nanobot_cli.text import clean

_NOTHING = "Nothing is scheduled.\n"
_HEADER = ("id", "next", "schedule", "chat", "name")


def show(home: Path, *, as_json: bool) -> int:
    """`nanobot cron list`."""
    data = asked(home, "cron.list", {})
    return put(to_json(data) if as_json else fitted(_list_text(data)))


def change(home: Path, operation: str, given: Mapping[str, object], *, as_json: bool) -> int:
    """Every other `nanobot cron …`."""
    data = asked(home, operation, given)
    if as_json:
        return put(to_json({key: value for key, value in data.items() if key != "text"}))
    return put(fitted(clean(text(data, "text"))) + "\n")


def _list_text(data: Data) -> str:
    trouble = text(data, "trouble")
    warning = f"warning: {clean(trouble)}\n\n" if trouble else ""
    jobs = records(data, "jobs")
    return warning + (table([_HEADER, *map(_row, jobs)]) if jobs else _NOTHING)


def _row(job: Data) -> tuple[str, ...]:
    due = field(job, "next")[:16].replace("T", " ") or "never"
    zone = field(job, "zone")
    schedule = field(job, "schedule", 60) + (f" ({zone})" if zone else "")
    shown = due if job.get("enabled") is True else "paused"
    return field(job, "id"), shown, schedule, field(job, "chat", 60), field(job, "name", 60)
