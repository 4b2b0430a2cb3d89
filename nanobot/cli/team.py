"""`nanobot team …`: move a home into a team and back, and show its workers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from nanobot.cli.client import Data
from nanobot.cli.command import (
    Options,
    Parser,
    log_errors_only,
    print_text,
    settings_of,
    table,
    zone_of,
)
from nanobot.cli.gateway import own_home
from nanobot.errors import ExtraMissing, NanobotError
from nanobot.text import duration

if TYPE_CHECKING:
    from datetime import tzinfo
    from pathlib import Path

    from nanobot.config.settings import Settings

_INIT = """\
Move this home into the team that its settings specify (team.database, team.shared). If the team
already exists, set up this home as another worker (nothing is moved). Stop the gateway first. If
the command is interrupted, run it again."""

_LEAVE = """\
Move all of the team's data into this home, which then works without the team. Stop all workers
first. If the command is interrupted, run it again."""

_COUNTED = {
    "waiting": "pending", "working": "in progress", "failed": "failed", "sending": "to send",
    "undeliverable": "undeliverable",
}  # fmt: skip
_INITED = "Done. Start a worker with `nanobot gateway`, here and in every other home.\n"
_LEFT = "Done. Remove `team` from config.yaml, then run `nanobot gateway`.\n"


def add_team(team: Parser) -> None:
    what = team.group()
    for name, summary, description in (
        ("init", "move this home into the team that its settings specify", _INIT),
        ("leave", "move all of the team's data into this home", _LEAVE),
    ):
        move = what.add(name, summary, move_home)
        move.description = description
        move.yes()
    what.add("status", "show the workers, their scopes, and pending work", show_status).json()


def move_home(options: Options) -> int:
    """Show the plan, ask, and execute it. Return 1 if the answer is no."""
    settings = team_settings(options.home)
    from nanobot.app.transfer import plan_init, plan_leave

    make_plan, done = (plan_init, _INITED) if options.what == "init" else (plan_leave, _LEFT)
    log_errors_only()
    with own_home(options.home):
        plan = make_plan(settings)
        lines = [*plan.about, *(text for text, _ in plan.steps)]
        shown = "Planned steps:\n" + "".join(f"  {line}\n" for line in lines)
        if not options.ask_consent(shown, "Continue?"):
            return 1
        for text, step in plan.steps:
            print_text(f"{text} …\n")
            step()
    return print_text(done)


def team_settings(home: Path) -> Settings:
    """Return the settings of the home. Raises `ExtraMissing` without psycopg, so call this before
    an import that needs it."""

    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise ExtraMissing("a team", "team") from None
    return settings_of(home)


def show_status(options: Options) -> int:
    zone = zone_of(options.home)
    return options.print_result(_survey(options.home), lambda data: format_team(data, zone))


def _survey(home: Path) -> Data:
    settings = team_settings(home)
    from nanobot.app.transfer import address_of
    from nanobot.team.maintenance import survey

    return Data(survey(address_of(settings)))


def workers_of(home: Path) -> list[Data]:
    """Return the workers of the home's team. If the database fails, print a note and return
    none."""
    try:
        return _survey(home).records("workers")
    except NanobotError as error:
        print_text(f"note: cannot list the workers: {error.for_people()}\n", sys.stderr)
        return []


def format_team(data: Data, zone: tzinfo | None) -> str:
    queues = [
        (one.field("scope", 100), one.counts(**_COUNTED), whose)
        for one in data.records("queues")
        for whose in [one.field("worker")]
    ]
    blocks = [
        f"schema     version {data.number('schema_version')}\n",
        format_workers(data.records("workers"), zone),
        table(queues, "scope", "messages", "worker"),
    ]
    return "\n".join(block for block in blocks if block)


def format_workers(workers: list[Data], zone: tzinfo | None) -> str:
    rows = [
        (
            *one.fields("id", "name", "version"),
            one.local_minute("since", zone),
            f"{duration(one.number('seen_seconds'))} ago"
            + ("" if one.get("alive") else ", assumed dead"),
            one.field("scopes"),
            ", ".join(one.lines("single")),
        )
        for one in workers
    ]
    head = ("worker", "name", "version", "since", "last seen", "scopes", "team tasks")
    return table(rows, *head) or "No workers.\n"
