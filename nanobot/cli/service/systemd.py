"""What `nanobot service` does: it installs a unit, takes it away, and shows how it does.

Doing it twice is doing it once: what is as it should be is left alone. A unit file that is not ours
is never touched, and the home never taken away.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from nanobot.cli.command import (
    Data,
    field,
    indent,
    print_result,
    print_text,
    put,
    record,
    records,
    table,
)
from nanobot.cli.gateway import expect_free
from nanobot.cli.logs import show as show_log
from nanobot.cli.service.unit import MARK, Account, Place, Unit, account, lingers, planned_unit
from nanobot.cli.status import of_gateway
from nanobot.errors import HomeLocked, NanobotError
from nanobot.io import replace_file, storage_errors
from nanobot.logs import LogLine
from nanobot_cli.text import clean

_SECONDS = 240.0
"""Longer than a start may take."""

_CANNOT_EXECUTE = 203
_UP = ("running", "degraded", "starting", "initializing", "maintenance", "stopping")
_FACTS = (
    "ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts", "Result",
    "ExecMainStatus", "ActiveEnterTimestamp", "StatusText",
)  # fmt: skip
_ENABLED = ("enabled", "enabled-runtime", "linked")

Answer = subprocess.CompletedProcess[str]


def _last_line(answer: Answer) -> str:
    """What a program said last, for an error of ours."""
    if lines := (answer.stderr or answer.stdout).strip().splitlines():
        return lines[-1].strip()
    code = answer.returncode
    return "it cannot be executed" if code == _CANNOT_EXECUTE else f"exit code {code}"


def _run(words: Sequence[str]) -> Answer:
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
        raise NanobotError(f"{words[0]} cannot be used: {error}") from error


def _environment() -> dict[str, str]:
    """Ours, with where the user's manager is: `su` and `sudo` leave that out."""
    runtime = Path("/run/user", str(os.geteuid()))
    added = {"XDG_RUNTIME_DIR": str(runtime)} if runtime.is_dir() else {}
    return {**added, **os.environ, "LC_ALL": "C.UTF-8"}


class Systemd:
    """The manager of the machine, or that of the user who we are."""

    def __init__(self, *, system: bool) -> None:
        self._scope = () if system else ("--user",)
        self.prefix = " ".join(("systemctl", *self._scope))
        """How a person begins a command to it."""

    def expect_running(self) -> None:
        """Raise where nothing can be asked of it, with what to do instead."""
        try:
            answer = _run(("systemctl", *self._scope, "is-system-running"))
        except NanobotError:
            answer = Answer((), 1, "offline", "")
        state = answer.stdout.strip()
        if state in _UP:
            return
        if not self._scope or state == "offline" or "not been booted" in answer.stderr:
            hint = "`nanobot gateway` runs in the foreground, under any other supervisor as well."
            raise NanobotError("this machine was not started by systemd", hint=hint)
        raise NanobotError(
            f"systemd has no manager for you: {_last_line(answer)}",
            hint="Log in as this user itself, not by `su`; or `sudo loginctl enable-linger "
            f"{account().pw_name}` starts one. "
            "`sudo nanobot service install --system` needs none.",
        )

    def tell(self, *arguments: str, may_fail: bool = False) -> Answer:
        """Have something done; raises `NanobotError` where it refuses, unless it `may_fail`."""
        answer = _run(("systemctl", *self._scope, *arguments))
        if answer.returncode and not may_fail:
            raise NanobotError(f"{self.prefix} {' '.join(arguments)}: {_last_line(answer)}")
        return answer

    def facts(self, unit: str) -> Mapping[str, str]:
        """What it knows of a unit, by the names of its properties."""
        answer = self.tell("show", unit, f"--property={','.join(_FACTS)}", may_fail=True)
        pairs = (line.partition("=") for line in answer.stdout.splitlines())
        return {key: value for key, _, value in pairs}

    def trial(self, unit: Unit) -> Answer:
        """Run the unit's program for a moment, with its hardening, to say its version."""
        options = [f"--property={key}={value}" for key, value in unit.hardening]
        if unit.user:
            options.append(f"--property=User={unit.user}")
        words = ("--quiet", "--wait", "--collect", "--pipe", *options, f"--setenv=PATH={unit.path}")
        return _run(("systemd-run", *self._scope, *words, *unit.command[:-1], "--version"))

    def journal(self, unit: str, count: int, *, follow: bool = False) -> Iterator[str]:
        """The last lines of the journal about a unit, then with `follow` new ones; none where it
        cannot be read."""
        words = ("--lines", str(count), "--no-pager", "--quiet", "--output=cat")
        command = ("journalctl", *self._scope, "--unit", unit, *words)
        try:
            journal = subprocess.Popen(  # noqa: S603 - our words, and no shell
                (*command, "--follow") if follow else command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env=_environment(),
            )
        except OSError:
            return
        colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        with journal:
            assert journal.stdout is not None
            try:
                for line in journal.stdout:
                    own, said = LogLine.parse(line), line.decode("utf-8", "replace")
                    yield own.to_text(colours=colours) if own else clean(said).rstrip()
            finally:
                with suppress(ProcessLookupError):
                    journal.terminate()


def install(options: argparse.Namespace) -> int:
    """`nanobot service install`. Raises `NanobotError` where it cannot be, before anything is
    changed if that can be known."""
    place = Place.of(options.name, system=options.system)
    if place.system and not options.dry_run:
        _expect_root("install")
    who = account(place.system, options.user)
    planned = planned_unit(place, who, options.given_home or "")
    if options.dry_run:
        _warn(place, who)
        print_text(f"This would be {place.file}:\n\n", sys.stderr)
        return put(planned.text)
    systemd = Systemd(system=place.system)
    systemd.expect_running()
    before = _expect_ours(place)
    _expect_free(place, planned.home, systemd)
    _warn(place, who)
    who = _make_account(who) if who.pw_uid < 0 else who
    _make_home(planned.home, who)
    unit = _tried(planned, systemd)
    renewed = unit.text != before
    if renewed:
        with storage_errors(place.file):
            place.file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(place.file, unit.text.encode(), 0o644)
        systemd.tell("daemon-reload")
    systemd.tell("enable", "--quiet", place.service)
    if not options.no_start:
        _start(place, systemd, renewed=renewed)
    return print_text(_report(place, unit, who, systemd, renewed=renewed))


def uninstall(options: argparse.Namespace) -> int:
    """`nanobot service uninstall`: what is remembered stays."""
    place = Place.found(options.name, system=options.system)
    if not place.read():
        return print_text(f"There is no {place.file}: nothing to take away.\n")
    if place.system:
        _expect_root("uninstall")
    _expect_ours(place)
    home, systemd = place.home(), Systemd(system=place.system)
    systemd.expect_running()
    systemd.tell("disable", "--now", "--quiet", place.service)
    with storage_errors(place.file):
        place.file.unlink(missing_ok=True)
    systemd.tell("daemon-reload", may_fail=True)
    systemd.tell("reset-failed", place.service, may_fail=True)
    return print_text(f"{place.service} is stopped and gone. {home} stays as it is.\n")


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
    command = (
        "useradd", "--system", "--user-group", "--shell", "/usr/sbin/nologin",
        "--home-dir", wanted.pw_dir, "--create-home", wanted.pw_name,
    )  # fmt: skip
    done = _run(command)
    if done.returncode:
        hint = f"Make the account yourself, with {wanted.pw_dir} as its home, and try again."
        raise NanobotError(f"useradd: {_last_line(done)}", hint=hint)
    with storage_errors(wanted.pw_dir):
        Path(wanted.pw_dir).chmod(0o700)
    return account(system=True, name=wanted.pw_name)


def _make_home(home: Path, who: Account) -> None:
    """The home, for its owner alone. Raises where it is another's."""
    with storage_errors(home):
        if not home.exists():
            home.mkdir(mode=0o700, parents=True)
            if os.geteuid() == 0:
                # The account may own the folder that it lies in, and put a link in its place.
                os.chown(home, who.pw_uid, who.pw_gid, follow_symlinks=False)
        owner = home.stat().st_uid
    if owner != who.pw_uid:
        give = f"`sudo chown -R {who.pw_name}: {shlex.quote(str(home))}`"
        hint = f"{give} gives it to it, or choose another with --home."
        raise NanobotError(f"{home} does not belong to {who.pw_name}", hint=hint)


def _tried(unit: Unit, systemd: Systemd) -> Unit:
    """The unit as far as this machine can have it; raises where its program does not run."""
    first = answer = systemd.trial(unit)
    if first.returncode and unit.shut_in:
        unit = replace(unit, shut_in=False)
        answer = systemd.trial(unit)
        if not answer.returncode:
            said = f"warning: systemd cannot shut it in here: {_last_line(first)}\n"
            print_text(said, sys.stderr)
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
    said = "\n".join(systemd.journal(place.service, 6)) or _last_line(answer)
    raise NanobotError(
        f"{place.service} is installed but does not start:\n{said}",
        hint=f"Fix it, then `nanobot service install{place.options}` again. "
        f"`nanobot service logs{place.options}` says more.",
    )


def _report(place: Place, unit: Unit, who: Account, systemd: Systemd, *, renewed: bool) -> str:
    facts = systemd.facts(place.service)
    is_active = facts.get("ActiveState") == "active"
    runs = f"runs, pid {facts.get('MainPID')}" if is_active else "does not run"
    lines = [
        f"{place.service} is {'installed' if renewed else 'as it was'} and {runs}.",
        f"  unit  {place.file}",
        f"  home  {unit.home}{f', as {unit.user}' if unit.user else ''}",
    ]
    if not unit.user and not lingers(who.pw_name):
        lines.append(
            "It ends when you log out, and starts when you log in. To have it run all the time: "
            f"`sudo loginctl enable-linger {who.pw_name}`"
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
        print_text(f"warning: {', '.join(names)} {said}\n", sys.stderr)
    if who.pw_uid == 0:
        option = "--user NAME" if place.system else "--system"
        own = f"`nanobot service install {option}` gives it an account of its own"
        print_text(f"warning: it runs as root; {own}\n", sys.stderr)


def _installed(options: argparse.Namespace) -> tuple[Place, Path]:
    """Where the service is, and its home. Raises where there is none of ours."""
    place = Place.found(options.name, system=options.system)
    if (home := place.home()) is None:
        hint = f"`nanobot service install{place.options}` makes one."
        raise NanobotError(f"there is no service: no {place.file} of nanobot's", hint=hint)
    return place, home


def status(options: argparse.Namespace) -> int:
    """`nanobot service status`: exit code 1 where it does not run, or runs and works badly."""
    place, home = _installed(options)
    systemd = Systemd(system=place.system)
    systemd.expect_running()
    facts = systemd.facts(place.service)
    health: Data = {}
    with suppress(NanobotError):  # it is another user's, or ends just now
        health = record(of_gateway(home) or {}, "health")

    def counted(key: str) -> int:
        return int(facts[key]) if facts.get(key, "").isdecimal() else 0

    data = {
        "unit": place.service,
        "system": place.system,
        "file": str(place.file),
        "home": str(home),
        "enabled": facts.get("UnitFileState") in _ENABLED,
        "running": facts.get("ActiveState") == "active",
        "state": f"{facts.get('ActiveState')} ({facts.get('SubState')})",
        "since": facts.get("ActiveEnterTimestamp", ""),
        "pid": counted("MainPID"),
        "restarts": counted("NRestarts"),
        "result": facts.get("Result", ""),
        "exit_code": counted("ExecMainStatus"),
        "told": facts.get("StatusText", ""),
        "health": health,
    }
    print_result(options, data, lambda data: _status_text(data, place))
    return 0 if data["running"] and not _how(data).startswith("failing") else 1


def _status_text(data: Data, place: Place) -> str:
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
    text = table(row for row in rows if row[1])
    for concern in records(record(data, "health"), "concerns"):
        text += indent(f"{field(concern, 'text', 500)}\n{field(concern, 'hint', 500)}")
    if not data["running"]:
        start = f"{Systemd(system=place.system).prefix} start {place.unit}"
        logs = f"nanobot service logs{place.options}"
        text += f"`{start}` starts it; `{logs}` may say why it does not run.\n"
    return text


def _how(data: Data) -> str:
    """What the gateway says of itself, to us or, where it is another user's, to systemd."""
    return field(record(data, "health"), "state") or field(data, "told")


def logs(options: argparse.Namespace) -> int:
    """`nanobot service logs`: from the journal, or nanobot's own log where that says nothing."""
    place, home = _installed(options)
    is_empty = True
    for line in Systemd(system=place.system).journal(
        place.service, options.n, follow=options.follow
    ):
        is_empty = False
        put(f"{line}\n")
        sys.stdout.flush()
    if not is_empty:
        return 0
    sys.stderr.write("The journal has nothing about it, or is not yours to read. Its own log:\n")
    return show_log(home, options.n, follow=options.follow)
