"""`nanobot import`: a home of HKUDS/nanobot becomes one of ours."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nanobot.cli.admin import put, said_yes, to_json
from nanobot.cli.agent import WrongUse
from nanobot.cli.show import fitted, table
from nanobot.clock import SystemClock
from nanobot.gateway.lock import HomeLock
from nanobot.importing.importer import Plan, carry_out, prepare
from nanobot.importing.report import Report
from nanobot_cli.text import clean, one_line

_HEADER = ("what", "how much", "what becomes of it", "where")
_MOST = 20
_WIDTH = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says; paths are absolute."""

    source: Path
    target: Path
    workspace: Path | None
    owners: Sequence[str]
    dry_run: bool
    sure: bool
    as_json: bool


def run_import(wanted: Wanted) -> int:
    """`nanobot import`; the exit code."""
    clock = SystemClock()
    _tell(f"Looking at {wanted.source} …")
    plan = prepare(wanted.source, wanted.target, wanted.workspace, wanted.owners, clock)
    if wanted.dry_run:
        return put(to_json(plan.report.as_json()) if wanted.as_json else fitted(_plan_text(plan)))
    if not wanted.sure and not _agreed(plan, as_json=wanted.as_json):
        return 1
    _tell(f"Writing {plan.target} …")
    with contextlib.ExitStack() as stack:
        state = plan.source.home / "state"
        if plan.aside and state.is_dir():  # nobody's home is moved away beneath their feet
            stack.enter_context(HomeLock(state))
        report = carry_out(plan, clock)
    if wanted.as_json:
        return put(to_json(report.as_json()))
    is_known = not wanted.sure and _report_text(report) == _report_text(plan.report)
    return put(fitted(_done_text(report, plan, is_known=is_known)))


def _tell(text: str) -> None:
    sys.stderr.write(fitted(clean(text), sys.stderr) + "\n")
    sys.stderr.flush()


def _agreed(plan: Plan, *, as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        raise WrongUse(
            "this has to be confirmed",
            hint="Look at it with --dry-run, then add --yes to do it without being asked.",
        )
    put(fitted(_plan_text(plan)))
    if said_yes("\nImport it?"):
        return True
    put("Nothing was changed.\n")
    return False


def _plan_text(plan: Plan) -> str:
    moved = f"\n{plan.source.home} is then moved to {plan.aside}." if plan.aside else ""
    stays = "" if plan.aside else f" {plan.source.home} stays as it is."
    stop = "Stop the other program first: what it writes from now on is not taken."
    elsewhere = plan.source.workspace if not plan.source.inside else None
    workspace = f" Its workspace is {elsewhere}." if elsewhere else ""
    head = f"From {plan.source.home} into {plan.target}.{workspace}{stays}{moved}\n{stop}\n\n"
    return clean(head) + _report_text(plan.report)


def _done_text(report: Report, plan: Plan, *, is_known: bool) -> str:
    """`is_known`: the person has just seen the report."""
    moved = f" What stood there is {plan.aside} now." if plan.aside else ""
    end = (
        f"\nImported into {plan.target}.{moved}\n"
        f"Every file is named in {plan.target}/{report.originals}/report.md.\n"
        f"Start it: `{report.command} gateway`, or talk to it here: `{report.command} agent`.\n"
    )
    return clean(end) if is_known else _report_text(report) + clean(end)


def _report_text(report: Report) -> str:
    blocks = [table([_HEADER, *report.rows()])]
    for title, texts in (
        ("Changes", report.changes),
        ("Worth knowing", report.unusual()),
        ("To do", report.todo),
    ):
        if texts:
            shown = [f"  - {one_line(text, _WIDTH)}\n" for text in texts[:_MOST]]
            more = len(texts) - len(shown)
            rest = f"  - and {more} more, in the report\n" if more > 0 else ""
            blocks.append(f"{title}\n{''.join(shown)}{rest}")
    return "\n".join(blocks)
