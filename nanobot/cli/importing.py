"""`nanobot import`: convert a home of HKUDS/nanobot."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from nanobot.cli.command import Options, Parser, find_shared_folder, path_of, print_text, table
from nanobot.cli.gateway import own_home
from nanobot.errors import NanobotError
from nanobot_cli.text import one_line

if TYPE_CHECKING:
    from nanobot.importing.files import ImportReport
    from nanobot.importing.importer import ImportPlan

_HEADER = ("content", "amount", "result", "place")
_MOST = 20
_WIDTH = 500

_TO = (
    "the new home, which must be empty or missing (default: nanobot's home; if that is FROM, "
    "FROM is moved to FROM.before-import)"
)
_OWNER = "your account, such as telegram:12345 (repeatable); required if several people have access"


def add_import(command: Parser) -> None:
    command.set_defaults(run=import_home)
    source = "the home to import (its files are not changed; default: ~/.nanobot)"
    command.argument("source", "FROM", source, nargs="?", default="~/.nanobot")
    command.option("--to", "HOME", _TO)
    command.option(
        "--workspace", "DIR", "the workspace to import (default: the one in its configuration)"
    )
    command.option("--owner", "CHANNEL:ID", _OWNER, action="append", default=[])
    command.flag("--dry-run", "show the plan and change nothing")
    command.yes("skip the confirmation")
    command.json()


def import_home(options: Options) -> int:
    from nanobot.clock import SystemClock
    from nanobot.importing.importer import carry_out, prepare

    source = path_of(options.source)
    target = path_of(options.to) if options.to else options.home
    workspace = path_of(options.workspace) if options.workspace else None
    clock = SystemClock()
    if find_shared_folder(target) != target:
        raise NanobotError(
            f"{target} is the home of a worker in a team",
            hint="Import into a separate home (--to), and move it into the team with `nanobot "
            "team init`.",
        )
    print_text(f"Reading {source} …\n", sys.stderr)
    plan = prepare(source, target, workspace, tuple(options.owner), clock)
    if options.dry_run:
        return options.print_either(plan.report.as_json(), lambda: format_plan(plan))
    options.expect_consent("Review the plan with --dry-run, then add --yes.")
    if not options.ask_consent(format_plan(plan), "\nImport it?"):
        return 1
    print_text(f"Writing {plan.target} …\n", sys.stderr)
    with ExitStack() as stack:
        state = plan.source.home / "state"
        if plan.aside and state.is_dir():  # do not move the home of a running gateway
            stack.enter_context(own_home(plan.source.home))
        report = carry_out(plan, clock)
    shown = format_report(report) if options.yes else ""  # else the person has just seen it
    return options.print_either(report.as_json(), lambda: shown + _format_end(report, plan))


def format_plan(plan: ImportPlan) -> str:
    moved = f"\n{plan.source.home} will then be moved to {plan.aside}." if plan.aside else ""
    stays = "" if plan.aside else f" {plan.source.home} will not be changed."
    stop = "Stop the other program first, because later changes are not imported."
    workspace = f" The workspace is {plan.source.workspace}." if plan.source.workspace else ""
    head = (
        f"This imports {plan.source.home} into {plan.target}.{workspace}{stays}{moved}\n{stop}\n\n"
    )
    return head + format_report(plan.report)


def _format_end(report: ImportReport, plan: ImportPlan) -> str:
    moved = f" The previous home was moved to {plan.aside}." if plan.aside else ""
    return (
        f"\nImported into {plan.target}.{moved}\n"
        f"{plan.target}/{report.file} lists every file.\n"
        f"Start nanobot with `{report.command} gateway`, or open a chat with `{report.command} "
        "agent`.\n"
    )


def format_report(report: ImportReport) -> str:
    blocks = [table(report.rows(), *_HEADER)]
    for title, texts in (
        ("Changes", report.changes),
        ("Notes", report.unusual()),
        ("To do", report.todo),
    ):
        if texts:
            shown = [f"  - {one_line(text, _WIDTH)}\n" for text in texts[:_MOST]]
            more = len(texts) - len(shown)
            rest = f"  - and {more} more, in the report\n" if more > 0 else ""
            blocks.append(f"{title}\n{''.join(shown)}{rest}")
    return "\n".join(blocks)
