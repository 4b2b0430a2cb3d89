"""`nanobot cron`: what is scheduled.

The work is done by the running gateway, so that it holds at once, or on the files where none runs.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.command import (
    Data,
    add,
    add_group,
    asked,
    field,
    put_data,
    put_text,
    records,
    table,
    warning,
    words,
)

if TYPE_CHECKING:
    from nanobot.cli.command import Commands

_CHANGES = (
    ("remove", "take a job away"),
    ("run", "run a job now, beside its schedule"),
    ("pause", "let a job rest"),
    ("resume", "let a paused job go on"),
)


def add_cron(commands: Commands) -> None:
    """`nanobot cron …`."""
    summary = "schedule reminders and recurring work"
    what = add_group(commands, "cron", summary)
    add(what, "list", "what is scheduled", _list).json()
    new = add(what, "add", "schedule something", _add)
    new.argument(
        "schedule",
        "SCHEDULE",
        "'in 20m', 'at 2026-12-01T09:00', 'every 2h' or a cron expression ('0 8 * * 1-5')",
        type=words,
    )
    new.argument("message", "MESSAGE", "what the agent is to do then", type=words)
    new.option("--name", "NAME", "what the job is called")
    new.option(
        "--chat",
        "CHANNEL:ID",
        "where it speaks, as `sessions list` shows it (default: the chat that the owner used last)",
    )
    new.option("--zone", "ZONE", "the schedule's time zone (default: agent.timezone)")
    new.json()
    for name, summary in _CHANGES:
        change = add(what, name, summary, _change)
        change.argument("id", "ID", "as `cron list` shows it", type=words)
        change.json()


def _list(options: argparse.Namespace) -> int:
    return put_data(options, asked(options.home, "cron.list"), _list_text)


def _add(options: argparse.Namespace) -> int:
    given = {"schedule": options.schedule, "message": options.message}
    given |= {k: v for k in ("name", "chat", "zone") if (v := getattr(options, k))}
    return put_text(options, asked(options.home, "cron.add", **given))


def _change(options: argparse.Namespace) -> int:
    return put_text(options, asked(options.home, f"cron.{options.what}", id=options.id))


def _list_text(data: Data) -> str:
    rows = [_row(job) for job in records(data, "jobs")]
    header = ("id", "next", "schedule", "chat", "name")
    return warning(data) + (table([header, *rows]) if rows else "Nothing is scheduled.\n")


def _row(job: Data) -> tuple[str, ...]:
    due = field(job, "next")[:16].replace("T", " ") or "never"
    zone = field(job, "zone")
    schedule = field(job, "schedule", 60) + (f" ({zone})" if zone else "")
    shown = due if job.get("enabled") is True else "paused"
    return field(job, "id"), shown, schedule, field(job, "chat", 60), field(job, "name", 60)
