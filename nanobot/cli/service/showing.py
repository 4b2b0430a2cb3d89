"""`nanobot service status|logs`: what systemd says, and what nanobot itself says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from nanobot.cli.admin import put, to_json
from nanobot.cli.service.places import Choice, Place
from nanobot.cli.service.systemctl import Systemd, environment
from nanobot.cli.show import Data, field, fitted, indent, record, records, table
from nanobot.errors import NanobotError
from nanobot_cli.text import clean, one_line

_ENABLED = ("enabled", "enabled-runtime", "linked")


def status(choice: Choice, *, as_json: bool) -> int:
    """`nanobot service status`: exit code 1 where it does not run, or runs and works badly."""
    place = Place.found(choice, os.environ)
    home = _home_of(place)
    systemd = Systemd(system=place.system)
    systemd.expect_running()
    facts = systemd.facts(place.service)
    health = _health(home)
    runs = facts.get("ActiveState") == "active"
    data = {
        "unit": place.service,
        "system": place.system,
        "file": str(place.file),
        "home": str(home),
        "enabled": facts.get("UnitFileState") in _ENABLED,
        "running": runs,
        "state": f"{facts.get('ActiveState')} ({facts.get('SubState')})",
        "since": facts.get("ActiveEnterTimestamp", ""),
        "pid": _number(facts.get("MainPID", "")),
        "restarts": _number(facts.get("NRestarts", "")),
        "result": facts.get("Result", ""),
        "exit_code": _number(facts.get("ExecMainStatus", "")),
        "told": facts.get("StatusText", ""),
        "health": health,
    }
    put(to_json(data) if as_json else fitted(_text(data, place)))
    return 0 if runs and not _how(data).startswith("failing") else 1


def logs(choice: Choice, *, count: int, follow: bool) -> int:
    """`nanobot service logs`: from the journal, or nanobot's own log where that says nothing."""
    place = Place.found(choice, os.environ)
    home = _home_of(place)
    if shutil.which("journalctl") is not None:
        systemd = Systemd(system=place.system)
        if follow or systemd.last_words(place.service, 1):
            more = ("--output=json", *(("--follow",) if follow else ()))
            return _journal(systemd.journal(place.service, count, *more))
    sys.stderr.write("The journal has nothing about it, or is not yours to read. Its own log:\n")
    from nanobot.cli.logs import Selection, show

    return show(home, Selection(count), follow=follow, as_json=False)


def _home_of(place: Place) -> Path:
    home = place.home()
    if home is None:
        hint = f"`nanobot service install{place.options}` makes one."
        raise NanobotError(f"there is no service: no {place.file} of nanobot's", hint=hint)
    return home


def _health(home: Path) -> Data:
    """What the gateway says of itself; empty where it cannot be asked."""
    with suppress(OSError):
        if home.stat().st_uid != os.geteuid():  # it answers nobody but its own user
            return {}
    from nanobot.cli.status import of_gateway

    try:
        return record(of_gateway(home) or {}, "health")
    except NanobotError:  # it is another user's, or ends just now
        return {}


def _text(data: Data, place: Place) -> str:
    state = f"{field(data, 'state')}, {'enabled' if data['enabled'] else 'not enabled'}"
    if since := field(data, "since"):
        state += f", since {since}" if data["running"] else f", last started {since}"
    health = record(data, "health")
    rows = [
        ("service", state),
        ("unit", field(data, "file")),
        ("home", field(data, "home")),
        ("process", f"pid {field(data, 'pid')}" if data["running"] else _ended(data)),
        ("restarts", f"{field(data, 'restarts')} by systemd" if data["restarts"] else ""),
        ("health", _how(data) if data["running"] else ""),
    ]
    lines = [table([row for row in rows if row[1]])]
    lines += [
        indent(f"{field(concern, 'text', 500)}\n{field(concern, 'hint', 500)}")
        for concern in records(health, "concerns")
    ]
    if not data["enabled"]:
        lines.append(f"It does not start by itself: `nanobot service install{place.options}`\n")
    if field(data, "state").startswith("inactive"):
        start = f"{Systemd(system=place.system).prefix} start {place.unit}"
        lines.append(f"It was stopped: `{start}` starts it.\n")
    elif not data["running"]:
        lines.append(f"`nanobot service logs{place.options}` may say why it does not run.\n")
    return "".join(lines)


def _how(data: Data) -> str:
    """What the gateway says of itself, to us or, where it is another user's, to systemd."""
    return field(record(data, "health"), "state") or field(data, "told")


def _ended(data: Data) -> str:
    return f"none; the last one ended with {field(data, 'result')} ({field(data, 'exit_code')})"


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _journal(command: tuple[str, ...]) -> int:
    """Print what a `journalctl` prints as JSON, the way `nanobot logs` prints things."""
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    with subprocess.Popen(  # noqa: S603 - our words, and no shell
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment()
    ) as journal:
        assert journal.stdout is not None
        try:
            for line in journal.stdout:
                put("".join(f"{text}\n" for text in _shown(line, colours=colours)))
                sys.stdout.flush()
        finally:
            with suppress(ProcessLookupError):
                journal.terminate()
    return 0


def _shown(stored: bytes, *, colours: bool) -> Iterator[str]:
    """An entry of the journal: a line of nanobot's log, or what somebody else said about it."""
    from nanobot.logs.output import LogLine

    with suppress(ValueError, RecursionError):
        entry = json.loads(stored)
        if isinstance(entry, dict) and (message := _message(entry)):
            own = LogLine.parse(message.encode("utf-8", "replace"))
            yield own.to_text(colours=colours) if own else _foreign(entry, message)


def _message(entry: Mapping[str, object]) -> str:
    message = entry.get("MESSAGE")
    if isinstance(message, list):  # what is not text, byte by byte
        return bytes(byte for byte in message if isinstance(byte, int)).decode("utf-8", "replace")
    return message if isinstance(message, str) else ""


def _foreign(entry: Mapping[str, object], message: str) -> str:
    from datetime import UTC, datetime

    stamp = entry.get("__REALTIME_TIMESTAMP")
    microseconds = _number(stamp) if isinstance(stamp, str) else 0
    when = datetime.fromtimestamp(microseconds / 1_000_000, UTC).astimezone()
    who = one_line(str(entry.get("SYSLOG_IDENTIFIER", "")), 40)
    return f"{when:%Y-%m-%d %H:%M:%S} {who}: {clean(message)}"
