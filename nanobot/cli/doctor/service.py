"""The gateway that runs, and the systemd unit that starts it, where one is installed."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from nanobot import __version__
from nanobot.cli.doctor.finding import Case, Finding
from nanobot.cli.service.places import Choice, Place, lingers
from nanobot.cli.show import Data, field, record, records
from nanobot.cli.status import is_silent, of_gateway

_WELL = ("running", "stopped", "starting", "lent")


def check_gateway(case: Case) -> Iterator[Finding]:
    """How a running gateway says that it is."""
    data = of_gateway(case.home, case.patience)
    if data is None:
        yield Finding("gateway", "ok", "not running; `nanobot gateway` starts it")
        return
    case.heard.judged = "health" in data and not is_silent(data)
    concerns = [*(_concerns(data) if "health" in data else _ill_channels(data))]
    if not concerns:
        yield Finding("gateway", "ok", f"running, pid {field(data, 'pid')}")
    yield from concerns
    if field(data, "version") not in ("", __version__):
        hint = "Restart it: `/restart` in a chat, or as it was started."
        text = f"it runs nanobot {field(data, 'version')}; {__version__} is installed"
        yield Finding("gateway", "warn", text, hint)


def _ill_channels(status: Data) -> Iterator[Finding]:
    ill = [c for c in records(status, "channels") if field(c, "state") not in _WELL]
    if ill:
        said = "; ".join(
            f"{field(c, 'name')} is {field(c, 'state')}: {field(c, 'detail')}" for c in ill
        )
        yield Finding("gateway", "warn", f"running, but {said}", "`nanobot status` says more.")


def _concerns(status: Data) -> Iterator[Finding]:
    for concern in records(record(status, "health"), "concerns"):
        failing = field(concern, "level") == "failing"
        text, hint = field(concern, "text", 500), field(concern, "hint", 500)
        yield Finding("gateway", "fail" if failing else "warn", text, hint)


def check_service(case: Case, environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Whether the unit for this home starts this nanobot, also when nobody is logged in."""
    for place in _units(environ):
        if place.home() == case.home:
            yield _unit(place, case.home)


def _unit(place: Place, home: Path) -> Finding:
    name = f"{place.unit} ({'system' if place.system else 'user'} unit)"
    program = _program(place.read())
    command = f"nanobot --home {shlex.quote(str(home))} service install{place.options}"
    reinstall = f"`{command}` writes it anew."
    if program is None or not os.access(program, os.X_OK):
        text = f"{name} starts {program or 'nothing'}, which is not there"
        return Finding("service", "fail", text, reinstall)
    if program.parent.resolve() != Path(sys.executable).parent.resolve():
        text = f"{name} starts {program}, which is not the nanobot that you run now"
        return Finding("service", "warn", text, reinstall)
    me = pwd.getpwuid(os.geteuid()).pw_name
    if not place.system and not lingers(me):
        text = f"{name} ends when you log out, and does not start before you log in"
        return Finding("service", "warn", text, f"`loginctl enable-linger {me}`")
    return Finding("service", "ok", f"{name} starts {program}")


def _units(environ: Mapping[str, str]) -> Iterator[Place]:
    """The units that may be ours, the user's and the machine's."""
    for system in (False, True):
        folder = Place.of(Choice(system=system), environ).file.parent
        for path in sorted(folder.glob("nanobot*.service")):
            yield Place(path.stem, system, path)


def _program(unit: str) -> Path | None:
    """What a unit file starts."""
    lines = (line.partition("=") for line in unit.splitlines())
    started = [value for key, _, value in lines if key == "ExecStart"]
    try:
        words = shlex.split(started[-1].lstrip(":")) if started else []
    except ValueError:
        return None
    return Path(words[0].replace("%%", "%")) if words else None
