"""`nanobot service install|uninstall`.

Doing it twice is doing it once: what is as it should be is left alone. A unit file that is not ours
is never touched, and the home never taken away.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from nanobot.cli.command import put
from nanobot.cli.service.systemd import Systemd
from nanobot.cli.service.unit import MARK, Account, Choice, Place, Plan, Unit, lingers, plan
from nanobot.cli.show import fitted
from nanobot.errors import HomeLocked, NanobotError, StorageError
from nanobot_cli.text import clean

_FILE_MODE = 0o644


def preview(choice: Choice, user: str) -> int:
    """`nanobot service install --dry-run`."""
    planned = plan(choice, user)
    _warn(planned.warnings)
    sys.stderr.write(clean(f"This would be {planned.place.file}:\n\n"))
    return put(planned.unit.text)


def install(choice: Choice, user: str, *, start: bool) -> int:
    """`nanobot service install`. Raises `NanobotError` where it cannot be, before anything is
    changed if that can be known."""
    if choice.system:
        _expect_root("install")
    planned = plan(choice, user)
    systemd = Systemd(system=choice.system)
    systemd.expect_running()
    before = _ours(planned.place)
    _expect_free(planned, systemd)
    _warn(planned.warnings)
    who = _make_account(planned.account)
    _make_home(planned.unit.home, who)
    unit = _tried(planned.unit, systemd)
    renewed = unit.text != before
    if renewed:
        _write(planned.place.file, unit.text)
        systemd.tell("daemon-reload")
    systemd.tell("enable", "--quiet", planned.place.service)
    if start:
        _start(planned.place, systemd, renewed=renewed)
    return put(fitted(clean(_report(planned, systemd, renewed=renewed))))


def uninstall(choice: Choice) -> int:
    """`nanobot service uninstall`: what is remembered stays."""
    place = Place.found(choice, os.environ)
    if not place.read():
        return put(fitted(f"There is no {place.file}: nothing to take away.\n"))
    if place.system:
        _expect_root("uninstall")
    _ours(place)
    home = place.home()
    systemd = Systemd(system=place.system)
    try:
        systemd.expect_running()
    except NanobotError:  # nobody can be told to stop it: only the file is left
        outcome = "is gone; what still runs of it has to be ended"
    else:
        systemd.tell("disable", "--now", "--quiet", place.service)
        outcome = "is stopped and gone"
    try:
        place.file.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError.of(place.file, error) from error
    with contextlib.suppress(NanobotError):
        systemd.attempt("daemon-reload")
        systemd.attempt("reset-failed", place.service)
    return put(fitted(clean(f"{place.service} {outcome}. {home} stays as it is.\n")))


def _expect_root(what: str) -> None:
    if os.geteuid():
        hint = f"`sudo {sys.argv[0]} service {what} --system`; without --system it is yours alone."
        raise NanobotError("a service of the machine is root's to change", hint=hint)


def _ours(place: Place) -> str:
    """What stands there now, empty for nothing; raises where it is somebody else's."""
    text = place.read()
    if text and not text.startswith(MARK):
        raise NanobotError(
            f"{place.file} was not written by `nanobot service install`",
            hint="Move it away, or choose another name with --name.",
        )
    return text


def _expect_free(planned: Plan, systemd: Systemd) -> None:
    """Raise where a gateway of another kind runs on the home, or the unit is another home's."""
    place, home = planned.place, planned.unit.home
    installed = place.home()
    if installed not in (None, home):
        raise NanobotError(
            f"{place.service} is there already, for {installed}",
            hint=f"`--home {installed}` renews it; --name makes another one beside it.",
        )
    from nanobot.gateway.lock import HomeLock

    lock = HomeLock(home / "state")
    if not lock.exists():
        return
    try:
        lock.acquire()
        lock.release()
    except HomeLocked as error:
        if not error.pid or str(error.pid) != systemd.facts(place.service).get("MainPID"):
            raise


def _make_account(wanted: Account) -> Account:
    """The account, made where it is missing."""
    if not wanted.is_missing:
        return wanted
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
    found = pwd.getpwnam(wanted.name)
    try:
        wanted.folder.chmod(0o700)
    except OSError as error:
        raise StorageError.of(wanted.folder, error) from error
    return Account(found.pw_name, found.pw_uid, found.pw_gid, Path(found.pw_dir))


def _make_home(home: Path, who: Account) -> None:
    """The home, for its owner alone. Raises where it is another's."""
    try:
        if not home.exists():
            home.mkdir(mode=0o700, parents=True)
            if os.geteuid() == 0:
                # The account may own the folder that it lies in, and put a link in its place.
                os.chown(home, who.uid, who.gid, follow_symlinks=False)
        owner = home.stat().st_uid
    except OSError as error:
        raise StorageError.of(home, error) from error
    if owner != who.uid:
        give = f"`sudo chown -R {who.name}: {shlex.quote(str(home))}`"
        hint = f"{give} gives it to it, or choose another with --home."
        raise NanobotError(f"{home} does not belong to {who.name}", hint=hint)


def _tried(unit: Unit, systemd: Systemd) -> Unit:
    """The unit as far as this machine can have it; raises where its program does not run."""
    answer = systemd.trial(unit)
    if not answer.code or not unit.shut_in:
        tried = unit
    else:
        tried = replace(unit, shut_in=False)
        first, answer = answer, systemd.trial(tried)
        if not answer.code:
            _warn([f"systemd cannot shut it in here: {first.last_line}"])
    if answer.code:
        who = f" as {unit.user}" if unit.user else ""
        hint = (
            f"Install nanobot where {unit.user or 'systemd'} can read it, such as in /opt/nanobot, "
            "and run that one."
        )
        said = answer.last_line
        raise NanobotError(f"{unit.command[0]} does not run{who}: {said}", hint=hint)
    return tried


def _write(file: Path, text: str) -> None:
    from nanobot.io import replace_file

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, text.encode(), _FILE_MODE)
    except OSError as error:
        raise StorageError.of(file, error) from error


def _start(place: Place, systemd: Systemd, *, renewed: bool) -> None:
    """Start it, and again where it runs as it was before; raises with what it said."""
    answer = systemd.attempt("restart" if renewed else "start", place.service)
    if not answer.code:
        return
    said = systemd.last_words(place.service).rstrip() or answer.last_line
    raise NanobotError(
        f"{place.service} is installed but does not start:\n{said}",
        hint=f"Mend it, then `nanobot service install{place.options}` again. "
        f"`nanobot service logs{place.options}` says more.",
    )


def _report(planned: Plan, systemd: Systemd, *, renewed: bool) -> str:
    place, unit = planned.place, planned.unit
    facts = systemd.facts(place.service)
    runs = facts.get("ActiveState") == "active"
    pid = f", pid {facts['MainPID']}" if runs and facts.get("MainPID") else ""
    lines = [
        f"{place.service} is {'installed' if renewed else 'as it was'}"
        + (f" and runs{pid}." if runs else "; it is not started."),
        f"  unit  {place.file}",
        f"  home  {unit.home}" + (f", as {unit.user}" if unit.user else ""),
        *_advice(planned),
        f"`nanobot service status{place.options}` says how it does.",
    ]
    return "\n".join(lines) + "\n"


def _advice(planned: Plan) -> Iterator[str]:
    unit, who = planned.unit, planned.account
    program = unit.command[0]
    if not unit.user and not lingers(who.name):
        yield (
            f"It ends when you log out, and starts when you log in. To have it run all the time: "
            f"`sudo loginctl enable-linger {who.name}`"
        )
    if unit.user and not (unit.home / "config.yaml").exists():
        yield f"It has no model yet: `sudo -Hu {unit.user} {program} onboard`"
    if unit.user:
        yield f"Other commands reach it as `sudo -Hu {unit.user} {program} …`."


def _warn(warnings: tuple[str, ...] | list[str]) -> None:
    for warning in warnings:
        sys.stderr.write(fitted(clean(f"warning: {warning}\n"), sys.stderr))
