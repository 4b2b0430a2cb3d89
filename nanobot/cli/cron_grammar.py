"""The grammar of `nanobot cron`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.grammar import add, add_json, choices, home_of, words

if TYPE_CHECKING:
    from nanobot.cli.grammar import Commands

_CHANGES = (
    ("remove", "take a job away"),
    ("run", "run a job now, beside its schedule"),
    ("pause", "let a job rest"),
    ("resume", "let a paused job go on"),
)


def add_cron(commands: Commands) -> None:
    """`nanobot cron …`."""
    cron = commands.add_parser(
        "cron",
        help="schedule reminders and recurring work",
        description="Schedule reminders and recurring work.",
    )
    what = choices(cron)
    add_json(add(what, "list", "what is scheduled", _list))
    new = add(what, "add", "schedule something", _add)
    new.add_argument(
        "schedule",
        type=words,
        metavar="SCHEDULE",
        help="'in 20m', 'at 2026-12-01T09:00', 'every 2h' or a cron expression ('0 8 * * 1-5')",
    )
    new.add_argument("message", type=words, metavar="MESSAGE", help="what the agent is to do then")
    new.add_argument("--name", metavar="NAME", help="what the job is called")
    new.add_argument(
        "--chat",
        metavar="CHANNEL:ID",
        help="where it speaks, as `sessions list` shows it (default: the chat that the owner used"
        " last)",
    )
    new.add_argument(
        "--zone", metavar="ZONE", help="the schedule's time zone (default: agent.timezone)"
    )
    add_json(new)
    for name, summary in _CHANGES:
        change = add(what, name, summary, _change)
        change.add_argument("id", type=words, metavar="ID", help="as `cron list` shows it")
        add_json(change)


def _list(options: argparse.Namespace) -> int:
    from nanobot.cli.cron import show

    return show(home_of(options), as_json=options.json)


def _add(options: argparse.Namespace) -> int:
    from nanobot.cli.cron import change

    given = {"schedule": options.schedule, "message": options.message}
    given |= {k: v for k in ("name", "chat", "zone") if (v := getattr(options, k))}
    return change(home_of(options), "cron.add", given, as_json=options.json)


def _change(options: argparse.Namespace) -> int:
    from nanobot.cli.cron import change

    return change(
        home_of(options), f"cron.{options.what}", {"id": options.id}, as_json=options.json
    )
