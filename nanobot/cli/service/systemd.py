"""What `nanobot service` does: it installs a unit, takes it away, and shows how it does.

Doing it twice is doing it once: what is as it should be is left alone. A unit file that is not ours
is never touched, and the home never taken away.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from nanobot.cli.command import (
    Data,
    field,
    fitted,
    indent,
    print_result,
    put,
    record,
    records,
    table,
)
from nanobot.cli.gateway import expect_free
from nanobot.cli.logs import show as show_log
from nanobot.cli.service.unit import MARK, Account, Place, Unit, account, planned_unit
from nanobot.cli.status import of_gateway
from nanobot.errors import HomeLocked, NanobotError
from nanobot.io import replace_file, storage_errors
from nanobot.logs import LogLine
from nanobot_cli.text import clean, one_line

_SECONDS = 240.0
"""Longer than a start may take."""

_CANNOT_EXECUTE = 203
_UP = ("running", "degraded", "starting", "initializing", "maintenance", "stopping")
_FACTS = (
    "ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts", "Result",
    "ExecMainStatus", "ActiveEnterTimestamp", "StatusText",
)  # fmt: skip


Answer = subprocess.CompletedProcess[str]


def _last_line(answer: Answer) -> str:
    """What a program said last, for an error of ours."""
    if lines := (answer.stderr or answer.stdout).strip().splitlines():
        return lines[-1].strip()
    code = answer.returncode
    return "it cannot be executed" if code == _CANNOT_EXECUTE else f"exit code {code}"


class Systemd:
    """The manager of the machine, or that of the user who we are."""

    def __init__(self, *, system: bool) -> None:
        self._scope = () if system else ("--user",)
        self.prefix = " ".join(("systemctl", *self._scope))
        """How a person begins a command to it."""

    def expect_running(self) -> None:
        """Raise where nothing can be asked of it, with what to do instead."""
        foreground = "`nanobot gateway` runs in the foreground, under any other supervisor as well."
        if shutil.which("systemctl") is None:
            raise NanobotError("there is no systemd on this machine", hint=foreground)
        answer = self._run("systemctl", ("is-system-running",))
        state = answer.stdout.strip()
        if state in _UP:
            return
        if state == "offline" or "not been booted" in answer.stderr:
            raise NanobotError("this machine was not started by systemd", hint=foreground)
        if not self._scope:
            raise NanobotError(f"systemd does not answer: {_last_line(answer)}", hint=foreground)
        raise NanobotError(
            f"systemd has no manager for you: {_last_line(answer)}",
            hint="Log in as this user itself, not by `su`; or `sudo loginctl enable-linger "
            f"{account(system=False, name='').name}` starts one. "
            "`sudo nanobot service install --system` needs none.",
        )

    def tell(self, *arguments: str, may_fail: bool = False) -> Answer:
        """Have something done; raises `NanobotError` where it refuses, unless it `may_fail`."""
        answer = self._run("systemctl", arguments)
        if answer.returncode and not may_fail:
            raise NanobotError(f"{self.prefix} {' '.join(arguments)}: {_last_line(answer)}")
        return answer

    def facts(self, unit: str) -> Mapping[str, str]:
        """What it knows of a unit, by the names of its properties."""
        answer = self._run("systemctl", ("show", unit, f"--property={','.join(_FACTS)}"))
        pairs = (line.partition("=") for line in answer.stdout.splitlines())
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
        said = self._run(program, arguments, scoped=False).stdout.splitlines()
        own = [(LogLine.parse(line.encode("utf-8", "replace")), line) for line in said]
        return "\n".join(log.to_text() if log else line for log, line in own)

    def _run(self, program: str, arguments: Sequence[str], *, scoped: bool = True) -> Answer:
        words = (program, *(self._scope if scoped else ()), *arguments)
        try:
            return subprocess.run(  # noqa: S603 - our words, and no shell
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                env=_environment(),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NanobotError(f"{program} cannot be used: {error}") from error


def _environment() -> dict[str, str]:
    """Ours, with where the user's manager is: `su` and `sudo` leave that out."""
    runtime = Path("/run/user", str(os.geteuid()))
    added = {"XDG_RUNTIME_DIR": str(runtime)} if runtime.is_dir() else {}
    return {**added, **os.environ, "LC_ALL": "C.UTF-8"}


def install(place: Place, home: str, user: str, *, start: bool, dry_run: bool) -> int:
    """`nanobot service install`. Raises `NanobotError` where it cannot be, before anything is
    changed if that can be known."""
    if place.system and not dry_run:
        _expect_root("install")
    who = account(place.system, user)
    planned = planned_unit(place, who, home)
    if dry_run:
        _warn(place, who)
        sys.stderr.write(clean(f"This would be {place.file}:\n\n"))
        return put(planned.text)
    systemd = Systemd(system=place.system)
    systemd.expect_running()
    before = _expect_ours(place)
    _expect_free(place, planned.home, systemd)
    _warn(place, who)
    who = _make_account(who) if who.uid < 0 else who
    _make_home(planned.home, who)
    unit = _tried(planned, systemd)
    renewed = unit.text != before
    if renewed:
        with storage_errors(place.file):
            place.file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(place.file, unit.text.encode(), 0o644)
        systemd.tell("daemon-reload")
    systemd.tell("enable", "--quiet", place.service)
    if start:
        _start(place, systemd, renewed=renewed)
    return put(fitted(clean(_report(place, unit, who, systemd, renewed=renewed))))


def uninstall(place: Place) -> int:
    """`nanobot service uninstall`: what is remembered stays."""
    if not place.read():
        return put(fitted(f"There is no {place.file}: nothing to take away.\n"))
    if place.system:
        _expect_root("uninstall")
    _expect_ours(place)
    home = place.home()
    systemd = Systemd(system=place.system)
    try:
        systemd.expect_running()
    except NanobotError:  # nobody can be told to stop it: only the file is left
        outcome = "is gone; what still runs of it has to be ended"
    else:
        systemd.tell("disable", "--now", "--quiet", place.service)
        outcome = "is stopped and gone"
    with storage_errors(place.file):
        place.file.unlink(missing_ok=True)
    with suppress(NanobotError):
        systemd.tell("daemon-reload", may_fail=True)
        systemd.tell("reset-failed", place.service, may_fail=True)
    return put(fitted(clean(f"{place.service} {outcome}. {home} stays as it is.\n")))


def _expect_root(what: str) -> None:
    if os.geteuid():
        hint = f"`sudo {sys.argv[0]} service {what} --system`; without --system it is yours alone."
        raise NanobotError("a service of the machine is root's to change", hint=hint)


def _expect_ours(place: Place) -> str:
    """What stands there now, empty for nothing; raises where it is somebody else's."""
    text = place.read()
    if text and not text.startswith(MARK):
        raise NanobotError(
            f"{place.file} was not written by `nanobot service install`",
            hint="Move it away, or choose another name with --name.",
        )
    return text


def _expect_free(place: Place, home: Path, systemd: Systemd) -> None:
    """Raise where a gateway of another kind runs on the home, or the unit is another home's."""
    if (installed := place.home()) not in (None, home):
        raise NanobotError(
            f"{place.service} is there already, for {installed}",
            hint=f"`--home {installed}` renews it; --name makes another one beside it.",
        )
    try:
        expect_free(home)
    except HomeLocked as error:
        if not error.pid or str(error.pid) != systemd.facts(place.service).get("MainPID"):
            raise


def _make_account(wanted: Account) -> Account:
    """Make the account."""
    command = (
        "useradd", "--system", "--user-group", "--shell", "/usr/sbin/nologin",
        "--home-dir", str(wanted.folder), "--create-home", wanted.name,
    )  # fmt: skip
    try:
        done = subprocess.run(  # noqa: S603 - our words, and no shell
            command, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise NanobotError(f"useradd cannot be used: {error}") from error
    if done.returncode:
        hint = f"Make the account yourself, with {wanted.folder} as its home, and try again."
        raise NanobotError(f"useradd: {done.stderr.strip()}", hint=hint)
    with storage_errors(wanted.folder):
        wanted.folder.chmod(0o700)
    return Account.named(wanted.name)


def _make_home(home: Path, who: Account) -> None:
    """The home, for its owner alone. Raises where it is another's."""
    with storage_errors(home):
        if not home.exists():
            home.mkdir(mode=0o700, parents=True)
            if os.geteuid() == 0:
                # The account may own the folder that it lies in, and put a link in its place.
                os.chown(home, who.uid, who.gid, follow_symlinks=False)
        owner = home.stat().st_uid
    if owner != who.uid:
        give = f"`sudo chown -R {who.name}: {shlex.quote(str(home))}`"
        hint = f"{give} gives it to it, or choose another with --home."
        raise NanobotError(f"{home} does not belong to {who.name}", hint=hint)


def _tried(unit: Unit, systemd: Systemd) -> Unit:
    """The unit as far as this machine can have it; raises where its program does not run."""
    first = answer = systemd.trial(unit)
    if first.returncode and unit.shut_in:
        unit = replace(unit, shut_in=False)
        answer = systemd.trial(unit)
        if not answer.returncode:
            _say_warning(f"systemd cannot shut it in here: {_last_line(first)}")
    if answer.returncode:
        who = f" as {unit.user}" if unit.user else ""
        hint = (
            f"Install nanobot where {unit.user or 'systemd'} can read it, such as in /opt/nanobot, "
            "and run that one."
        )
        raise NanobotError(f"{unit.command[0]} does not run{who}: {_last_line(answer)}", hint=hint)
    return unit


def _start(place: Place, systemd: Systemd, *, renewed: bool) -> None:
    """Start it, and again where it runs as it was before; raises with what it said."""
    answer = systemd.tell("restart" if renewed else "start", place.service, may_fail=True)
    if not answer.returncode:
        return
    said = systemd.last_words(place.service) or _last_line(answer)
    raise NanobotError(
        f"{place.service} is installed but does not start:\n{said}",
        hint=f"Fix it, then `nanobot service install{place.options}` again. "
        f"`nanobot service logs{place.options}` says more.",
    )


def _report(place: Place, unit: Unit, who: Account, systemd: Systemd, *, renewed: bool) -> str:
    facts = systemd.facts(place.service)
    runs = facts.get("ActiveState") == "active"
    pid = f", pid {facts['MainPID']}" if runs and facts.get("MainPID") else ""
    as_user = f", as {unit.user}" if unit.user else ""
    lines = [
        f"{place.service} is {'installed' if renewed else 'as it was'}"
        + (f" and runs{pid}." if runs else "; it is not started."),
        f"  unit  {place.file}",
        f"  home  {unit.home}{as_user}",
    ]
    if not unit.user and not who.lingers:
        lines.append(
            "It ends when you log out, and starts when you log in. To have it run all the time: "
            f"`sudo loginctl enable-linger {who.name}`"
        )
    if unit.user:
        ours = f"sudo -Hu {unit.user} {unit.command[0]}"
        if not (unit.home / "config.yaml").exists():
            lines.append(f"It has no model yet: `{ours} onboard`")
        lines.append(f"Other commands reach it as `{ours} …`.")
    lines.append(f"`nanobot service status{place.options}` says how it does.")
    return "\n".join(lines) + "\n"


def _warn(place: Place, who: Account) -> None:
    """Say what its owner should know beforehand."""
    ours = ("NANOBOT_HOME", "NANOBOT_DEBUG")
    if names := [n for n in sorted(os.environ) if n.startswith("NANOBOT_") and n not in ours]:
        said = "of your shell will not hold for the service: write it into config.yaml"
        _say_warning(f"{', '.join(names)} {said}")
    if who.uid == 0:
        option = "--user NAME" if place.system else "--system"
        own = f"`nanobot service install {option}` gives it an account of its own"
        _say_warning(f"it runs as root; {own}")


def _say_warning(text: str) -> None:
    sys.stderr.write(fitted(clean(f"warning: {text}\n"), sys.stderr))


_ENABLED = ("enabled", "enabled-runtime", "linked")


def status(options: argparse.Namespace, place: Place) -> int:
    """`nanobot service status`: exit code 1 where it does not run, or runs and works badly."""
    home = _home_of(place)
    systemd = Systemd(system=place.system)
    systemd.expect_running()
    facts = systemd.facts(place.service)
    health: Data = {}
    with suppress(NanobotError):  # it is another user's, or ends just now
        health = record(of_gateway(home) or {}, "health")
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
    print_result(options, data, lambda data: _text(data, place))
    return 0 if runs and not _how(data).startswith("failing") else 1


def logs(place: Place, *, count: int, follow: bool) -> int:
    """`nanobot service logs`: from the journal, or nanobot's own log where that says nothing."""
    home = _home_of(place)
    if shutil.which("journalctl") is not None:
        systemd = Systemd(system=place.system)
        if follow or systemd.last_words(place.service, 1):
            more = ("--output=json", *(("--follow",) if follow else ()))
            return _journal(systemd.journal(place.service, count, *more))
    sys.stderr.write("The journal has nothing about it, or is not yours to read. Its own log:\n")
    return show_log(home, count, follow=follow)


def _home_of(place: Place) -> Path:
    home = place.home()
    if home is None:
        hint = f"`nanobot service install{place.options}` makes one."
        raise NanobotError(f"there is no service: no {place.file} of nanobot's", hint=hint)
    return home


def _text(data: Data, place: Place) -> str:
    state = f"{field(data, 'state')}, {'enabled' if data['enabled'] else 'not enabled'}"
    if since := field(data, "since"):
        state += f", since {since}" if data["running"] else f", last started {since}"
    ended = f"none; the last one ended with {field(data, 'result')} ({field(data, 'exit_code')})"
    rows = [
        ("service", state),
        ("unit", field(data, "file")),
        ("home", field(data, "home")),
        ("process", f"pid {field(data, 'pid')}" if data["running"] else ended),
        ("restarts", f"{field(data, 'restarts')} by systemd" if data["restarts"] else ""),
        ("health", _how(data) if data["running"] else ""),
    ]
    lines = [table([row for row in rows if row[1]])]
    lines += (
        indent(f"{field(concern, 'text', 500)}\n{field(concern, 'hint', 500)}")
        for concern in records(record(data, "health"), "concerns")
    )
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


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _journal(command: tuple[str, ...]) -> int:
    """Print what a `journalctl` prints as JSON, the way `nanobot logs` prints things."""
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    with subprocess.Popen(  # noqa: S603 - our words, and no shell
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=_environment()
    ) as journal:
        assert journal.stdout is not None
        try:
            for line in journal.stdout:
                with suppress(ValueError, RecursionError):
                    entry = json.loads(line)
                    put(_shown(entry, colours=colours) if isinstance(entry, dict) else "")
                sys.stdout.flush()
        finally:
            with suppress(ProcessLookupError):
                journal.terminate()
    return 0


def _shown(entry: Data, *, colours: bool) -> str:
    """An entry of the journal: a line of nanobot's log, or what somebody else said about it."""
    said = entry.get("MESSAGE")
    # What is not text comes byte by byte.
    message = bytes(said) if isinstance(said, list) else str(said or "").encode("utf-8", "replace")
    if own := LogLine.parse(message):
        return f"{own.to_text(colours=colours)}\n"
    microseconds = _number(str(entry.get("__REALTIME_TIMESTAMP", "")))
    when = datetime.fromtimestamp(microseconds / 1_000_000, UTC).astimezone()
    who = one_line(str(entry.get("SYSLOG_IDENTIFIER", "")), 40)
    return f"{when:%Y-%m-%d %H:%M:%S} {who}: {clean(message.decode('utf-8', 'replace'))}\n"
