"""Asking systemd: the one place that runs its programs.

`nanobot service status|logs`: what systemd says, and what nanobot itself says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nanobot.cli.command import put, to_json
from nanobot.cli.service.unit import Choice, Place, Unit
from nanobot.cli.show import Data, field, fitted, indent, record, records, table
from nanobot.errors import NanobotError
from nanobot_cli.text import clean, one_line

_SECONDS = 240.0
"""Longer than a start may take."""

_CANNOT_EXECUTE = 203
_UP = ("running", "degraded", "starting", "initializing", "maintenance", "stopping")
_FACTS = (
    "ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts", "Result",
    "ExecMainStatus", "ActiveEnterTimestamp", "StatusText",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program said; `code` is its exit code."""

    code: int
    out: str
    error: str

    @property
    def last_line(self) -> str:
        """What it said last, for an error of ours."""
        lines = [line.strip() for line in (self.error or self.out).splitlines() if line.strip()]
        nothing = "it cannot be executed" if self.code == _CANNOT_EXECUTE else ""
        return lines[-1] if lines else nothing or f"exit code {self.code}"


class Systemd:
    """The manager of the machine, or that of the user who we are."""

    def __init__(self, *, system: bool) -> None:
        self._scope = () if system else ("--user",)

    @property
    def prefix(self) -> str:
        """How a person begins a command to it."""
        return " ".join(("systemctl", *self._scope))

    def expect_running(self) -> None:
        """Raise where nothing can be asked of it, with what to do instead."""
        foreground = "`nanobot gateway` runs in the foreground, under any other supervisor as well."
        if shutil.which("systemctl") is None:
            raise NanobotError("there is no systemd on this machine", hint=foreground)
        answer = self._run("systemctl", ("is-system-running",))
        if answer.out.strip() in _UP:
            return
        if answer.out.strip() == "offline" or "not been booted" in answer.error:
            raise NanobotError("this machine was not started by systemd", hint=foreground)
        if not self._scope:
            raise NanobotError(f"systemd does not answer: {answer.last_line}", hint=foreground)
        raise NanobotError(
            f"systemd has no manager for you: {answer.last_line}",
            hint=f"Log in as this user itself, not by `su`; or `sudo loginctl enable-linger "
            f"{_me()}` starts one. `sudo nanobot service install --system` needs none.",
        )

    def tell(self, *arguments: str) -> None:
        """Have something done; raises `NanobotError` where it refuses."""
        answer = self._run("systemctl", arguments)
        if answer.code:
            raise NanobotError(f"{self.prefix} {' '.join(arguments)}: {answer.last_line}")

    def attempt(self, *arguments: str) -> Answer:
        """Have something done that may fail."""
        return self._run("systemctl", arguments)

    def facts(self, unit: str) -> Mapping[str, str]:
        """What it knows of a unit, by the names of its properties."""
        answer = self._run("systemctl", ("show", unit, f"--property={','.join(_FACTS)}"))
        pairs = (line.partition("=") for line in answer.out.splitlines())
        return {key: value for key, _, value in pairs}

    def trial(self, unit: Unit) -> Answer:
        """Run the unit's program for a moment, with its hardening, to say its version."""
        options = [f"--property={key}={value}" for key, value in unit.hardening]
        if unit.user:
            options.append(f"--property=User={unit.user}")
        words = ("--quiet", "--wait", "--collect", "--pipe", *options, f"--setenv=PATH={unit.path}")
        return self._run("systemd-run", (*words, *unit.command[:-1], "--version"))

    def journal(self, unit: str, count: int, *more: str) -> tuple[str, ...]:
        """The command that prints the last lines of the journal about a unit."""
        return (
            "journalctl", *self._scope, "--unit", unit, "--lines", str(count),
            "--no-pager", "--quiet", *more,
        )  # fmt: skip

    def last_words(self, unit: str, count: int = 6) -> str:
        """The last lines of the journal about a unit; empty where there is none."""
        program, *arguments = self.journal(unit, count, "--output=cat")
        if shutil.which(program) is None:
            return ""
        said = self._run(program, arguments, scoped=False).out
        return "".join(f"{plain(line)}\n" for line in said.splitlines())

    def _run(self, program: str, arguments: Sequence[str], *, scoped: bool = True) -> Answer:
        words = (program, *(self._scope if scoped else ()), *arguments)
        try:
            done = subprocess.run(  # noqa: S603 - our words, and no shell
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                env=environment(),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NanobotError(f"{program} cannot be used: {error}") from error
        return Answer(done.returncode, done.stdout, done.stderr)


def plain(message: str) -> str:
    """A message of the journal for people: a line of our log as `nanobot logs` shows it."""
    from nanobot.logs.output import LogLine

    own = LogLine.parse(message.encode("utf-8", "replace"))
    return own.to_text() if own else message


def environment() -> dict[str, str]:
    """Ours, with where the user's manager is: `su` and `sudo` leave that out."""
    runtime = Path("/run/user", str(os.geteuid()))
    added = {"XDG_RUNTIME_DIR": str(runtime)} if runtime.is_dir() else {}
    return {**added, **os.environ, "LC_ALL": "C.UTF-8"}


def _me() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


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
    from nanobot.cli.logs import show

    return show(home, count, follow=follow)


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
