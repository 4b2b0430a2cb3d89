"""What nanobot needs around it: the gateway and its systemd unit, the model and its fallbacks, what
tools need, the channels, and the clock."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nanobot import __version__
from nanobot.bus.events import TERMINAL
from nanobot.bus.journal_file import inspect_journal
from nanobot.channel.entry_points import Check, CheckRequest
from nanobot.channel.entry_points import CheckFinding as Finding
from nanobot.cli.command import field, record, records
from nanobot.cli.doctor import Case, safely
from nanobot.cli.onboard.model import Candidate, answer, is_near
from nanobot.cli.service.unit import Place, account, lingers
from nanobot.cli.status import is_silent, of_gateway
from nanobot.config.values import revealed
from nanobot.errors import NanobotError
from nanobot.text import duration

if TYPE_CHECKING:
    from nanobot.config.tools import McpServerSettings


def check_gateway(case: Case) -> Iterator[Finding]:
    """How a running gateway says that it is."""
    data = of_gateway(case.home, case.patience)
    if data is None:
        yield Finding("ok", "not running; `nanobot gateway` starts it")
        return
    case.judged = not is_silent(data)
    concerns = records(record(data, "health"), "concerns")
    for concern in concerns:
        failing = field(concern, "level") == "failing"
        text, hint = field(concern, "text", 500), field(concern, "hint", 500)
        yield Finding("fail" if failing else "warn", text, hint)
    if not concerns:
        yield Finding("ok", f"running, pid {field(data, 'pid')}")
    if field(data, "version") not in ("", __version__):
        hint = "Restart it: `/restart` in a chat, or as it was started."
        text = f"it runs nanobot {field(data, 'version')}; {__version__} is installed"
        yield Finding("warn", text, hint)


def check_service(case: Case) -> Iterator[Finding]:
    """Whether the units for this home start this nanobot, also when nobody is logged in."""
    for system in (False, True):
        for path in sorted(Place.of(system=system).file.parent.glob("nanobot*.service")):
            place = Place(path.stem, system, path)
            if place.home() == case.home:
                yield _unit(place, case.home)


def _unit(place: Place, home: Path) -> Finding:
    name = f"{place.unit} ({'system' if place.system else 'user'} unit)"
    program = place.program()
    if program is None or not os.access(program, os.X_OK) or not _is_ours(program):
        text = f"{name} starts {program or 'nothing'}, which is not the nanobot that you run now"
        command = f"nanobot --home {shlex.quote(str(home))} service install{place.options}"
        gone = program is None or not program.exists()
        return Finding("fail" if gone else "warn", text, f"`{command}` writes it again.")
    me = account().pw_name
    if not place.system and not lingers(me):
        text = f"{name} ends when you log out, and does not start before you log in"
        return Finding("warn", text, f"`loginctl enable-linger {me}`")
    return Finding("ok", f"{name} starts {program}")


def _is_ours(program: Path) -> bool:
    return program.parent.resolve() == Path(sys.executable).parent.resolve()


_PROBE_SECONDS = 8.0
_WHOLE_PROBE_SECONDS = 20.0
_ANSWER_SECONDS = 90.0
_SHOWN_MODELS = 5
_QUESTION = "This is a test. Answer with the one word: ready"


def check_model(case: Case) -> Iterator[Finding]:
    """The main model, then its fallbacks; without a fallback the agent still works."""
    model = case.settings.model
    if model.provider == "offline":
        hint = "`nanobot onboard` sets one up; or set model.name and model.api_key."
        yield Finding("warn", "only the small built-in one", hint)
        return
    main = Candidate(model.name, model.base_url, model.api_key.get_secret_value())
    yield from _examined(case, main, "the model's server")
    yield from _window(case, main)
    for other in model.fallbacks:
        wanted = Candidate(other.name, other.base_url, other.api_key.get_secret_value())
        for found in _examined(case, wanted, f"the fallback {other.name}'s server"):
            state = "warn" if found.state == "fail" else found.state
            yield replace(found, state=state, text=f"fallback {other.name}: {found.text}")


def _examined(case: Case, model: Candidate, server: str) -> Iterator[Finding]:
    try:
        yield asyncio.run(_served(case, model))
        if case.ask_model:
            yield asyncio.run(_answering(case, model))
    except NanobotError as error:
        yield Finding("fail", str(error), error.hint)
    except TimeoutError:
        hint = "Is it overloaded, or still loading the model? Try again in a minute."
        yield Finding("fail", f"{server} did not answer in time", hint)


async def _served(case: Case, model: Candidate) -> Finding:
    from nanobot.providers.discovery import probe

    async with asyncio.timeout(_WHOLE_PROBE_SECONDS):
        served = await probe(model.base_url, model.key, seconds=_PROBE_SECONDS)
    names = served.names
    if not names or not model.name or model.name in names:
        named = model.name or next(iter(names), "the one it serves")
        return Finding("ok", f"{named}; its server answers", told=served.told)
    offers = ", ".join(names[:_SHOWN_MODELS]) + (", …" if len(names) > _SHOWN_MODELS else "")
    text, hint = f"the server does not list {model.name}", f"It offers {offers}."
    return Finding("warn", text, hint, served.told)


async def _answering(case: Case, model: Candidate) -> Finding:
    async with asyncio.timeout(_ANSWER_SECONDS):
        reply, took = await answer(model, case.clock, _QUESTION)
    said = " ".join(reply.text.split())[:40]
    tokens = f"{reply.usage.prompt} tokens asked, {reply.usage.completion} answered"
    if not said:
        hint = "Try another model: this one cannot be talked to."
        return Finding("fail", f"it answers nothing ({tokens})", hint)
    return Finding("ok", f"it answers “{said}” after {took:.1f} s ({tokens})")


def _window(case: Case, model: Candidate) -> Iterator[Finding]:
    """Whether the server takes as much as the settings say, and whether that is enough to talk."""
    from nanobot.config.model import SMALL_WINDOW
    from nanobot.providers.discovery import told_window

    if not is_near(model.base_url):
        return
    asking = told_window(model.base_url, model.name, model.key, seconds=_PROBE_SECONDS)
    told = asyncio.run(asking)
    set_here = case.settings.model.context_window
    how = f"{told.to_raise} Then set model.context_window." if told.to_raise else ""
    if 0 < told.now < set_here:
        text = (
            f"{told.server or 'its server'} takes {told.now:,} tokens and model.context_window says"
            f" {set_here:,}: what is more is cut silently, and nanobot forgets"
        )
        yield Finding("warn", text, how or f"Set model.context_window: {told.now}.")
    elif set_here < SMALL_WINDOW:
        text = f"a window of {set_here:,} tokens: nanobot works with few tools and forgets quickly"
        yield Finding("warn", text, how or f"Give it {SMALL_WINDOW:,} or more.")


_MENDING = "docs/security.md, “Which sandbox, and how to get it”, says what to do."
_SYSTEM = ("/usr", "/bin", "/sbin")


def check_sandbox(case: Case) -> Iterator[Finding]:
    """Whether commands are shut in, which is tried and not assumed."""
    settings = case.settings.tools.exec
    if not settings.enabled:
        yield Finding("ok", "there is no shell (tools.exec.enabled: false)")
        return
    if settings.sandbox == "none":
        hint = "Remove tools.exec.sandbox from config.yaml to have them shut in."
        yield Finding("warn", "commands run without one, as you", hint)
        return
    from nanobot.security.sandbox.finding import find_sandbox

    found = asyncio.run(find_sandbox(settings.sandbox, private=(case.home,)))
    if found.sandbox is None:
        others = "\nWith tools.exec.sandbox: auto any other is tried."
        others = "" if settings.sandbox == "auto" else others
        hint = f"{found.problem}\n{_MENDING}{others}"
        yield Finding("fail", "none works here, so there is no shell", hint)
        return
    text = f"{found.sandbox.kind}, proven to hold\n{found.sandbox.notes}".rstrip()
    hint = f"{found.problem}\n{_MENDING}" if found.problem else ""
    yield Finding("warn" if found.problem else "ok", text, hint)


def check_mcp(case: Case) -> Iterator[Finding]:
    """Whether servers can be started; none is."""
    servers = {name: one for name, one in case.settings.mcp.servers.items() if one.enabled}
    if servers and find_spec("mcp") is None:
        hint = f"`{sys.executable} -m pip install mcp`"
        yield Finding("fail", "the package for MCP servers is not installed", hint)
    for name, server in servers.items():
        yield _server(name, server)


def _server(name: str, server: McpServerSettings) -> Finding:
    if server.url:
        return Finding("ok", f"{name}: at {server.url}")
    program = shutil.which(server.command, path=revealed(server.env).get("PATH"))
    if program is None:
        hint = f"Install it, or write its whole path into mcp.servers.{name}.command."
        return Finding("fail", f"{name}: there is no program {server.command!r}", hint)
    shown, places = (*_SYSTEM, *server.paths, *server.writable), (Path(program).resolve(), program)
    if server.sandbox and not all(
        any(Path(place).is_relative_to(folder) for folder in shown) for place in places
    ):
        folder = Path(program).resolve().parent
        hint = f"Add its folder ({folder}, or the one above) to mcp.servers.{name}.paths, and "
        hint += f"write {program} as its command."
        return Finding("fail", f"{name}: the sandbox does not show {program}", hint)
    return Finding("ok", f"{name}: {program}")


_SECONDS = 10.0


def check_channels(case: Case) -> Iterator[Finding]:
    """What is enabled, whether it can work, and who is told to be the owner there."""
    enabled = [name for name, channel in case.settings.channels.items() if channel.enabled]
    yield Finding("ok", ", ".join([TERMINAL, *enabled]))
    points = {point.name: point for point in entry_points(group="nanobot.channel_checks")}
    for name in enabled:
        if name in points:
            for found in safely(partial(_channel, case, name, points[name])):
                yield replace(found, text=f"{name}: {found.text}")
    named = {name for name, ids in case.settings.owner.items() if ids}
    if not named.issuperset(enabled):
        named.update(_paired_owners(case))
    for name in enabled:
        if name not in named:
            hint = (
                f"Write to the bot, then `nanobot pair approve CODE --owner`, or set owner.{name}."
            )
            yield Finding("warn", f"{name}: you are not named as its owner", hint)


def _channel(case: Case, name: str, point: EntryPoint) -> Sequence[Finding]:
    check: Check = point.load()
    folder = case.home / "state" / "channels" / name
    options = case.settings.channels[name].options

    async def look() -> Sequence[Finding]:
        return await check(CheckRequest(options, folder, case.clock, _SECONDS))

    return asyncio.run(look())


def _paired_owners(case: Case) -> Iterator[str]:
    """The channels on which pairing has made somebody the owner."""
    journal = inspect_journal(case.home / "state" / "journal.db")
    with suppress(ValueError):
        told = json.loads(journal.documents.get("access", b"{}"))
        for known in records(told, "approved") if isinstance(told, dict) else ():
            if known.get("owner") is True:
                yield field(known, "channel")


_OFF_SECONDS = 120.0


def check_time(case: Case) -> Iterator[Finding]:
    """What time it is here, and what those say who were asked."""
    zone = case.settings.agent.timezone
    now = case.clock.now()
    shown = f"{now:%Y-%m-%d %H:%M} {now.isoformat()[-6:]}"
    if zone or now.utcoffset():
        yield Finding("ok", f"{shown}, {zone or 'as the system has it'}")
    else:
        hint = "Set agent.timezone (such as Europe/Berlin) if that is not your time."
        yield Finding("warn", f"{shown}: the system has no time zone of its own", hint)
    for ahead in [one for one in case.ahead if abs(one) > _OFF_SECONDS][:1]:
        way = "ahead of" if ahead > 0 else "behind"
        hint = "`timedatectl set-ntp true` keeps the clock right; reminders come at wrong times."
        span = duration(60 * round(abs(ahead) / 60))
        yield Finding("warn", f"this machine's clock is {span} {way} that of a server", hint)
