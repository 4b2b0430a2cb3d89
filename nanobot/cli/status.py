"""`nanobot status`, `state` and `doctor`: health, pending work, and fixes.

A gateway that runs and does not answer counts as failing. Exit code of `--check`: 0 if messages are
accepted and stored, 1 if not or nothing runs.

The doctor works next to a running gateway and prints no secret. Models are only tried on request
(`--ask-model`), and only then something is changed: the detected dialect replaces the stored one.
Exit code 1 if something does not work."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from nanobot.cli.client import Client, Data
from nanobot.cli.command import (
    Options,
    Parser,
    indent,
    log_errors_only,
    print_json,
    print_text,
    settings_of,
    settings_or_defaults,
    size,
    table,
    write_stdout,
    zone_of,
)
from nanobot.cli.gateway import operate
from nanobot.cli.team import format_workers, team_settings, workers_of
from nanobot.config import not_imported
from nanobot.errors import ConnectionLost, NanobotError, NoGateway, StorageError
from nanobot.text import clean, duration, pluralize

TIMEOUT_SECONDS = 15.0
"""A healthy gateway answers in 10 ms, one with a slow disk in a few seconds."""

_TOKENS = ("prompt", "cached", "completion", "memory")
_WORKING = ("ok", "degraded")
_NOTHING_RUNS = Data(health={"state": "stopped"})
_SILENT = "the gateway is running but does not respond"


def add_status(status: Parser) -> None:
    status.set_defaults(run=run_status)
    status.flag(
        "--check", "print one line, and exit with 1 unless a gateway is running and working"
    )
    status.json()


def add_state(state: Parser) -> None:
    what = state.group()
    summary = (
        "print a document: jobs, access, approvals, skills, mcp, dream, facts, dialects, or usage"
    )
    show = what.add("show", summary, show_document)
    show.argument("name", "NAME", "the document's name (default: list all documents)", nargs="?")


def add_doctor(doctor: Parser) -> None:
    doctor.set_defaults(run=run_doctor)
    asked = (
        "also test each model: request an answer and a tool call, and send a picture (costs "
        "tokens and time)"
    )
    doctor.flag("--ask-model", asked)
    doctor.json()


def show_document(options: Options) -> int:
    from nanobot.bus.state import DOCUMENTS

    found, name = documents_of(options.home), options.name
    if name is None:
        return write_stdout(f"Documents: {', '.join(sorted(found)) or 'none'}\n")
    if name not in found and name not in DOCUMENTS:
        hint = f"Documents: {', '.join(sorted({*found, *DOCUMENTS}))}."
        raise NanobotError(f"there is no document {name!r}", hint=hint)
    if name not in found:
        print_text(f"note: {name} is empty\n", sys.stderr)
    content = found.get(name, b"{}").decode("utf-8", "replace")
    return write_stdout(f"{clean(content).rstrip()}\n")


def documents_of(home: Path) -> Mapping[str, bytes]:
    """Return the documents of the home's journal, or of the team's database, by name."""
    from nanobot.bus.damage import inspect_journal

    if settings_of(home).team.shared:
        settings = team_settings(home)
        from nanobot.app.transfer import address_of
        from nanobot.team.maintenance import documents

        return documents(address_of(settings))
    path = home / "state" / "journal.db"
    found = inspect_journal(path)
    if found.damage:
        raise StorageError(path, found.damage, hint="Run `nanobot doctor`.")
    return found.documents


def run_status(options: Options) -> int:
    return status(options.home, as_json=options.json, check=options.check)


def status(home: Path, *, as_json: bool, check: bool, timeout: float = TIMEOUT_SECONDS) -> int:
    """Print the status. A gateway may take `timeout` seconds to answer."""
    data = of_gateway(home, timeout) or (_NOTHING_RUNS if check else operate(home, "status"))
    if hint := not_imported(home):
        print_text(f"note: {hint}\n", sys.stderr)
    if data.get("shared") and not check:
        data["workers"] = workers_of(home)
    if as_json:
        print_json(data)
    else:
        print_text(_format_line(data) if check else format_status(data))
    well = data.record("health").field("state") in _WORKING
    return 0 if well or not check else 1


def of_gateway(home: Path, timeout: float = TIMEOUT_SECONDS) -> Data | None:
    """Return the status of the running gateway, or None if none runs. A silent one is reported as
    failing."""
    try:
        with Client(home, timeout=timeout) as client:
            answer = client.ask("status", {})
    except NoGateway:
        return None
    except ConnectionLost as lost:
        if not isinstance(lost.__cause__, TimeoutError):
            return None  # it has just ended
        hint = (
            "Find the cause with `nanobot logs`, then restart the gateway, which resumes "
            f"unfinished work. Its pid is in {home / 'state' / 'gateway.lock'}."
        )
        concern = {"level": "failing", "text": _SILENT, "hint": hint}
        health = {"state": "failing", "concerns": [concern]}
        return Data(running=True, home=str(home), health=health)
    return Data(answer) if isinstance(answer, dict) else Data()


def _format_line(data: Data) -> str:
    health = data.record("health")
    concerns = "; ".join(concern.field("text") for concern in health.records("concerns"))
    state = health.field("state") or "failing"
    return f"{state}: {concerns}\n" if concerns else f"{state}\n"


def format_status(status: Data) -> str:
    """Describe the state of a home and its gateway."""
    blocks = [table(row for row in _status_rows(status) if row[1])]
    blocks.append("".join(map(_format_concern, status.record("health").records("concerns"))))
    if channels := status.records("channels"):
        blocks.append("channels\n" + table(map(_channel_row, channels), margin=2))
    if workers := status.records("workers"):
        zone = zone_of(Path(status.field("home", 4_096)))
        blocks.append("workers\n" + indent(format_workers(workers, zone)))
    if sizes := status.record("sizes"):
        rows = [(name, size(sizes.number(name))) for name in sizes]
        blocks.append("on disk\n" + table(rows, margin=2))
    return "\n".join(filter(None, blocks))


def _status_rows(status: Data) -> Iterator[tuple[str, str]]:
    queue, today, since = (status.record(key) for key in ("queue", "today", "since_start"))
    gateway = "not running (start it with `nanobot gateway`)"
    if status.get("running"):
        uptime = duration(status.number("uptime_seconds"))
        # The pid of a silent gateway is unknown.
        gateway = f"running for {uptime}, pid {status['pid']}" if "pid" in status else "running"
    yield "gateway", gateway
    yield "health", status.record("health").field("state")
    yield "version", status.field("version")
    yield "home", status.field("home")
    yield "shared", status.field("shared")
    names = dict.fromkeys((status.field("model"), status.field("provider")))
    yield "model", " · ".join(filter(None, names))
    yield "sessions", status.field("sessions")
    if today:
        ended = today.record("turns").counts(done="done", failed="failed", stopped="stopped")
        running = status.number("turns_running")
        yield "turns", f"{running} running, today: {ended.replace('empty', 'none')}"
        cost = f", cost {today['cost']:.2f}" if isinstance(today.get("cost"), float) else ""
        tokens = [f"{today.number(f'{kind}_tokens'):,}" for kind in _TOKENS]
        yield "tokens", "today: {} in ({} cached), {} out, {} for memory".format(*tokens) + cost
    if since:
        errors, warnings = since.number("errors"), since.number("warnings")
        counts = f"{pluralize(errors, 'error')} and {pluralize(warnings, 'warning')}"
        yield "log", f"{counts} since nanobot started"
    if pending := status.records("pending_approvals"):
        yield "approvals", f"{len(pending)} pending (`nanobot approvals` lists them)"
    yield "inbox", queue.counts(received="pending", working="in progress", failed="failed")
    yield "outbox", queue.counts(outbox_pending="pending", dead="undeliverable")
    if process := status.record("process"):
        yield "process", f"{size(process.number('resident'))} of memory"


def _format_concern(concern: Data) -> str:
    head = f"{concern.field('level')}: {concern.field('text', 600)}\n"
    return head + indent(concern.field("hint", 600))


def _channel_row(channel: Data) -> tuple[str, ...]:
    heard = channel.get("heard_seconds")
    ago = f"last contact {duration(round(heard))} ago" if isinstance(heard, int | float) else ""
    return channel.field("name"), channel.field("state"), ago, channel.field("detail")


def run_doctor(options: Options) -> int:
    """Run the checks and print each finding at once, because an unreachable server takes seconds.
    Stop after a configuration that is not valid."""
    from nanobot.app.base import secret_values
    from nanobot.cli.checks import CHECKS, CheckContext, safely
    from nanobot.clock import SystemClock
    from nanobot.security.redaction import Redactor

    log_errors_only()
    settings = settings_or_defaults(options.home)
    case = CheckContext(settings, SystemClock(settings.agent.timezone), options.ask_model)
    redactor = Redactor(secret_values(settings))
    found: list[dict[str, str]] = []
    for name, check in CHECKS.items():
        for finding in safely(check(case)):
            text, hint = redactor.redact(finding.text), redactor.redact(finding.hint)
            found.append({"check": name, "state": finding.state, "text": text, "hint": hint})
            if not options.json:
                print_text(_format_finding(found[-1]))
        if name == "configuration" and found[-1]["state"] == "fail":
            break
    if options.json:
        print_json(found)
    return 1 if any(one["state"] == "fail" for one in found) else 0


def _format_finding(data: Mapping[str, str]) -> str:
    first, *more = [*data["text"].splitlines(), *data["hint"].splitlines()] or [""]
    beneath = [(" " * 4, " " * 14, line.strip()) for line in more if line.strip()]
    return table([(data["state"].ljust(4), data["check"].ljust(14), first), *beneath])
