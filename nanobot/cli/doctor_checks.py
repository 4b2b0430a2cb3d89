"""The checks of `nanobot doctor`. Each says what it found and, where needed, what to do."""

from __future__ import annotations

import asyncio
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nanobot.cli.connection import NoGateway
from nanobot.cli.show import Data, field, records
from nanobot.errors import NanobotError

if TYPE_CHECKING:
    from nanobot.config.mcp import McpServerSettings
    from nanobot.config.settings import Settings

_GIGABYTE = 1_000_000_000
_SCARCE, _TOO_LITTLE = _GIGABYTE, _GIGABYTE // 10
_MENDING = "docs/security.md, “Which sandbox, and how to get it”, says what to do."
_PROBE_SECONDS = 8.0
_SHOWN_MODELS = 5
_SYSTEM = ("/usr", "/bin", "/sbin")
_WELL = ("running", "stopped", "starting", "lent")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `hint` says what to do about it."""

    check: str
    state: Literal["ok", "warn", "fail"]
    text: str
    hint: str = ""


def findings_of(settings: Settings) -> list[Finding]:
    """All that can be said once the configuration is right, without secrets."""
    from nanobot.app.model import secrets
    from nanobot.security.redaction import Redactor

    redact = Redactor(secrets(settings)).redact
    return [
        Finding(found.check, found.state, redact(found.text), redact(found.hint))
        for found in _all(settings)
    ]


def _all(settings: Settings) -> Iterator[Finding]:
    checks: tuple[tuple[str, Callable[[Settings], Iterable[Finding]]], ...] = (
        ("configuration", _configuration),
        ("gateway", _gateway),
        ("model", _model),
        ("sandbox", _sandbox),
        ("web", _web),
        ("mcp", _mcp),
        ("channels", _channels),
        ("time", _time),
    )
    for name, check in checks:
        try:
            yield from check(settings)
        except NanobotError as error:
            yield Finding(name, "fail", str(error), error.hint)
        except Exception as error:  # noqa: BLE001 - the boundary: one broken check hides no other
            yield Finding(name, "fail", f"this could not be checked: {type(error).__name__}")


def _configuration(settings: Settings) -> Iterator[Finding]:
    yield Finding("configuration", "ok", _where(settings.home))
    for warning in settings.warnings:
        yield Finding("configuration", "warn", warning)


def home_findings(home: Path) -> list[Finding]:
    """What can be said of the home whatever the configuration is."""
    return [_permissions(home), _room(home)]


def _where(home: Path) -> str:
    path = home / "config.yaml"
    return f"{path} can be used" if path.exists() else f"there is no {path}; the defaults apply"


def _permissions(home: Path) -> Finding:
    try:
        mode = home.stat().st_mode
    except FileNotFoundError:
        return Finding("home", "ok", f"{home} is made at the first start")
    except OSError as error:
        hint = "Mend the permissions, or choose another folder with NANOBOT_HOME."
        return Finding("home", "fail", f"{home} cannot be used: {error.strerror}", hint)
    if not stat.S_ISDIR(mode):
        return Finding("home", "fail", f"{home} is not a folder", "Move it away.")
    if mode & 0o077:
        hint = f"`chmod 700 {home}`"
        return Finding("home", "warn", f"{home} can be looked into by other users", hint)
    return Finding("home", "ok", f"{home} is yours alone")


def _room(home: Path) -> Finding:
    there = next((folder for folder in (home, *home.parents) if folder.exists()), Path("/"))
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Finding("disk", "fail", f"the disk cannot be asked: {error.strerror}")
    text = f"{free / _GIGABYTE:.1f} GB are free"
    if free >= _SCARCE:
        return Finding("disk", "ok", text)
    hint = "Free some space: on a full disk messages wait."
    return Finding("disk", "warn" if free >= _TOO_LITTLE else "fail", text, hint)


def _gateway(settings: Settings) -> Iterator[Finding]:
    from nanobot.cli.client import Client
    from nanobot.cli.reach import state_folder

    try:
        with Client(state_folder(settings.home)) as client:
            status = client.ask("status", {})
    except NoGateway:
        yield Finding("gateway", "ok", "not running; `nanobot gateway` starts it")
        return
    data: Data = status if isinstance(status, dict) else {}
    ill = [c for c in records(data, "channels") if field(c, "state") not in _WELL]
    if not ill:
        yield Finding("gateway", "ok", f"running, pid {field(data, 'pid')}")
        return
    said = "; ".join(
        f"{field(c, 'name')} is {field(c, 'state')}: {field(c, 'detail')}" for c in ill
    )
    yield Finding("gateway", "warn", f"running, but {said}", "`nanobot status` says more.")


def _model(settings: Settings) -> Iterator[Finding]:
    model = settings.model
    if model.provider == "offline":
        hint = "Set model.name and model.api_key; docs/configuration.md shows how."
        yield Finding("model", "warn", "only the small built-in one", hint)
        return
    from nanobot.clock import SystemClock
    from nanobot.providers.probing import served_models

    key = model.api_key.get_secret_value()
    served = asyncio.run(served_models(model.base_url, key, SystemClock(), seconds=_PROBE_SECONDS))
    if not served or not model.name or model.name in served:
        named = model.name or next(iter(served), "the one it serves")
        yield Finding("model", "ok", f"{named}; its server answers")
        return
    offers = ", ".join(served[:_SHOWN_MODELS]) + (", …" if len(served) > _SHOWN_MODELS else "")
    text = f"the server does not list {model.name}"
    yield Finding("model", "warn", text, f"It offers {offers}.")


def _sandbox(settings: Settings) -> Iterator[Finding]:
    wanted = settings.tools.exec.sandbox
    if not settings.tools.exec.enabled:
        yield Finding("sandbox", "ok", "there is no shell (tools.exec.enabled: false)")
        return
    if wanted == "none":
        hint = "Remove tools.exec.sandbox from config.yaml to have them shut in."
        yield Finding("sandbox", "warn", "commands run without one, as you", hint)
        return
    from nanobot.security.sandbox import find_sandbox

    found = asyncio.run(find_sandbox(wanted, private=(settings.home,)))
    if found.sandbox is None:
        others = "" if wanted == "auto" else "\nWith tools.exec.sandbox: auto any other is tried."
        hint = f"{found.problem}\n{_MENDING}{others}"
        yield Finding("sandbox", "fail", "none works here, so there is no shell", hint)
        return
    text = f"{found.sandbox.kind}, proven to hold\n{found.sandbox.notes}".rstrip()
    hint = f"{found.problem}\n{_MENDING}" if found.problem else ""
    yield Finding("sandbox", "warn" if found.problem else "ok", text, hint)


def _web(settings: Settings) -> Iterator[Finding]:
    web = settings.tools.web
    by = " by way of a proxy" if web.proxy.get_secret_value() else ""
    text = f"pages are fetched{by}; {web.search.provider} searches"
    yield Finding("web", "ok", text if web.enabled else "off (tools.web.enabled: false)")


def _mcp(settings: Settings) -> Iterator[Finding]:
    servers = {name: one for name, one in settings.mcp.servers.items() if one.enabled}
    if servers and find_spec("mcp") is None:
        hint = f"`{sys.executable} -m pip install mcp`"
        yield Finding("mcp", "fail", "the package for MCP servers is not installed", hint)
    for name, server in servers.items():
        yield _server(name, server)


def _server(name: str, server: McpServerSettings) -> Finding:
    if server.url:
        return Finding("mcp", "ok", f"{name}: at {server.url}")
    program = shutil.which(server.command, path=server.variables.get("PATH"))
    if program is None:
        hint = f"Install it, or write its whole path into mcp.servers.{name}.command."
        return Finding("mcp", "fail", f"{name}: there is no program {server.command!r}", hint)
    if server.sandbox and not _is_shown(Path(program), server):
        folder = Path(program).resolve().parent
        hint = f"Add its folder ({folder}, or the one above) to mcp.servers.{name}.paths, and "
        hint += f"write {program} as its command."
        return Finding("mcp", "fail", f"{name}: the sandbox does not show {program}", hint)
    return Finding("mcp", "ok", f"{name}: {program}")


def _is_shown(program: Path, server: McpServerSettings) -> bool:
    """Whether a program and what it is a link to can be seen in the sandbox."""
    folders = [*_SYSTEM, *server.paths, *server.writable]
    return all(
        any(place.is_relative_to(folder) for folder in folders)
        for place in (program, program.resolve())
    )


def _channels(settings: Settings) -> Iterator[Finding]:
    enabled = [name for name, channel in settings.channels.items() if channel.enabled]
    yield Finding("channels", "ok", ", ".join(["cli", *enabled]))
    named = {name for name, ids in settings.owner.items() if ids}
    if not named.issuperset(enabled):
        named.update(_paired_owners(settings.home))
    for name in enabled:
        if name not in named:
            hint = (
                f"Write to the bot, then `nanobot pair approve CODE --owner`, or set owner.{name}."
            )
            yield Finding("channels", "warn", f"{name}: you are not named as its owner", hint)


def _paired_owners(home: Path) -> Iterator[str]:
    """The channels on which pairing has made somebody the owner."""
    from nanobot.cli.admin import asked

    for known in records(asked(home, "pair.list", {}), "approved") if home.is_dir() else ():
        if known.get("owner") is True:
            yield field(known, "address").partition(":")[0]


def _time(settings: Settings) -> Iterator[Finding]:
    from nanobot.clock import SystemClock

    zone = settings.agent.timezone
    now = SystemClock(zone).now()
    shown = f"{now:%Y-%m-%d %H:%M} {now.isoformat()[-6:]}"
    if zone or now.utcoffset():
        yield Finding("time", "ok", f"{shown}, {zone or 'as the system has it'}")
        return
    hint = "Set agent.timezone (such as Europe/Berlin) if that is not your time."
    yield Finding("time", "warn", f"{shown}: the system has no time zone of its own", hint)
