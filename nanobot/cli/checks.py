"""The checks of `nanobot doctor`, as a table: the home, its stores, and the environment.

Files are only read. A database at rest is opened as immutable, so that SQLite creates no files next
to it. A database in use is opened the normal way."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot import __version__
from nanobot.bus.damage import damage_reports, inspect_journal
from nanobot.bus.events import TERMINAL
from nanobot.bus.journal_file import SCHEMA, documents_set_aside
from nanobot.channel import Check, CheckRequest
from nanobot.channel import CheckFinding as Finding
from nanobot.cli.client import Data
from nanobot.cli.command import settings_of, size
from nanobot.cli.modelcheck import try_models, try_voice
from nanobot.cli.service import lingers, me
from nanobot.cli.status import documents_of, of_gateway
from nanobot.cli.unit import UnitPlace, program_in, services_of
from nanobot.clock import Clock
from nanobot.config import not_imported
from nanobot.config.document import ConfigErrors
from nanobot.config.extras import EXTRAS, extras_needed, is_installed, missing_extra
from nanobot.config.settings import Settings
from nanobot.config.values import plain_values
from nanobot.errors import NanobotError, StorageError
from nanobot.gateway.lock import MOVED
from nanobot.io import storage_errors
from nanobot.programs import find
from nanobot.text import pluralize

_MEGABYTE = 1_000_000
_SCARCE = 1_000  # warn below this free space, in megabytes
_FOLDERS = ("", "state", "sessions", "logs", "media", "spill", "workspace", "workspace/memory")
_SHOWN = 5


class CheckContext(Struct, frozen=True):
    """The input of a check. With `ask_model` the models are tried."""

    settings: Settings
    clock: Clock
    ask_model: bool = False

    @property
    def home(self) -> Path:
        return self.settings.home


def safely(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings of a check. If the check fails, yield that as a finding."""
    try:
        yield from findings
    except NanobotError as error:
        yield Finding("fail", str(error), error.hint)
    except Exception as error:  # noqa: BLE001 - the boundary: one broken check hides no other
        yield Finding("fail", f"the check itself failed: {type(error).__name__}")


def check_home(case: CheckContext) -> Iterator[Finding]:
    """Check that the home belongs to the user, is private, and can be written."""
    home = case.home
    with storage_errors(home):
        if not home.exists():
            yield Finding("ok", f"{home} will be created when nanobot first starts")
            return
        wrong = next((one for folder in case.settings.folders for one in _unusable(folder)), None)
        mode = home.stat().st_mode
    if wrong is not None:
        yield wrong
    elif mode & 0o077:
        hint = f"Run `chmod 700 {shlex.quote(str(home))}`."
        yield Finding("warn", f"other users can read {home}", hint)
    else:
        yield Finding("ok", f"only you can access {home}")


def _unusable(home: Path) -> Iterator[Finding]:
    """Yield the paths of another user, as `sudo nanobot` leaves them, and unwritable ones."""
    uid = os.geteuid()
    for folder in (home / name for name in _FOLDERS):
        if not folder.exists():
            continue
        usable = os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True)
        for path in [folder, *folder.iterdir()] if usable else [folder]:
            if (owner := path.lstat().st_uid) != uid:
                command = f"`sudo chown -R {uid} {shlex.quote(str(home))}`"
                hint = f"Run nanobot as that user, or run {command}."
                yield Finding("fail" if uid else "warn", f"{path} belongs to user {owner}", hint)
        if not usable:
            hint = f"Run `chmod u+rwx {shlex.quote(str(folder))}`."
            yield Finding("fail", f"nanobot cannot read and write {folder}", hint)


def check_disk(case: CheckContext) -> Iterator[Finding]:
    """Check the free space against `retention.disk_reserve_megabytes`."""
    from nanobot.upkeep.retention import free_bytes

    reserve = case.settings.retention.disk_reserve_megabytes
    there = next((one for one in (case.home, *case.home.parents) if one.exists()), Path("/"))
    try:
        free = free_bytes(there) // _MEGABYTE
    except OSError as error:
        yield Finding("warn", f"cannot determine the free disk space: {error.strerror}")
        return
    if free < max(_SCARCE, 2 * reserve):
        setting = f"retention.disk_reserve_megabytes: {reserve}"
        hint = f"Free some space. Below {reserve} MB, nanobot accepts no new messages ({setting})."
        yield Finding("fail" if free < reserve else "warn", f"{free} MB free", hint)
    else:
        yield Finding("ok", f"{free / 1_000:.1f} GB free")


def check_packages(case: CheckContext) -> Iterator[Finding]:
    """Show the versions, and check that the extras which the configuration needs are installed."""
    versions = f"nanobot {__version__}, Python {platform.python_version()}"
    yield Finding("ok", f"{versions}, SQLite {sqlite3.sqlite_version}")
    needed = {extra for extra, is_needed in extras_needed(case.settings).items() if is_needed}
    library = case.settings.data_folder / "workspace" / "library"
    if not is_installed("pdf") and any(library.rglob("*.[pP][dD][fF]")):
        needed.add("pdf")
    spare = []
    for extra in (one for one in EXTRAS if not is_installed(one)):
        if extra in needed:
            yield Finding("fail", *missing_extra(extra))
        else:
            spare.append(f"{extra} ({EXTRAS[extra][1]})")
    if spare:
        yield Finding("ok", f"optional extras not installed: {', '.join(spare)}")


def check_configuration(case: CheckContext) -> Iterator[Finding]:
    path = case.home / "config.yaml"
    if hint := not_imported(case.home):
        yield Finding("warn", "this home has not been imported yet", hint)
    try:
        warnings = settings_of(case.home).warnings
    except ConfigErrors as errors:
        yield from (Finding("fail", str(one), one.hint) for one in errors.problems)
        return
    where = f"{path} is valid" if path.exists() else f"{path} does not exist, so the defaults apply"
    yield Finding("ok", where)
    yield from (Finding("warn", warning) for warning in warnings)


def check_gateway(case: CheckContext) -> Iterator[Finding]:
    data = of_gateway(case.home)
    if data is None:
        yield Finding("ok", "not running (start it with `nanobot gateway`)")
        return
    concerns = data.record("health").records("concerns")
    for concern in concerns:
        failing = concern.field("level") == "failing"
        text, hint = concern.field("text", 500), concern.field("hint", 500)
        yield Finding("fail" if failing else "warn", text, hint)
    if not concerns:
        yield Finding("ok", f"running, pid {data.field('pid')}")
    if data.field("version") not in ("", __version__):
        hint = "Restart it, for example with `/restart` in a chat."
        text = f"nanobot {data.field('version')} is running, but {__version__} is installed"
        yield Finding("warn", text, hint)


def _unit(place: UnitPlace, home: Path) -> Finding:
    """Check that a unit of this home starts this nanobot, even if nobody is logged in."""
    program = Path(program_in(place.read()))
    name = f"{place.unit} ({'system' if place.system else 'user'} unit)"
    if program.parent.resolve() != Path(sys.executable).parent.resolve():
        text = f"{name} starts {program}, not this installation"
        command = f"nanobot --home {shlex.quote(str(home))} service install{place.options}"
        hint = f"Update it with `{command}`."
        return Finding("warn" if program.exists() else "fail", text, hint)
    if not place.system and not lingers(me().pw_name):
        text = f"{name} runs only while you are logged in"
        return Finding("warn", text, f"Run `loginctl enable-linger {me().pw_name}`.")
    return Finding("ok", f"{name} starts {program}")


_SANDBOXES = "See “Install a sandbox” in docs/security.md."


def check_sandbox(case: CheckContext) -> Iterator[Finding]:
    """Check the sandbox by running a command in it."""
    settings = case.settings.tools.exec
    if not settings.enabled:
        yield Finding("ok", "the shell is disabled (tools.exec.enabled: false)")
        return
    if settings.sandbox == "none":
        hint = "To sandbox them, remove tools.exec.sandbox from config.yaml."
        yield Finding("warn", "commands run without a sandbox, with all your permissions", hint)
        return
    from nanobot.security.sandbox import find_sandbox

    found = asyncio.run(find_sandbox(settings.sandbox, private=(case.home,)))
    hint = f"{found.problem}\n{_SANDBOXES}" if found.problem else ""
    if found.sandbox is None:
        yield Finding("fail", "no sandbox works on this machine, so the shell is disabled", hint)
        return
    text = f"{found.sandbox.kind}, tested\n{found.sandbox.notes}".rstrip()
    yield Finding("warn" if found.problem else "ok", text, hint)


def check_mcp(case: CheckContext) -> Iterator[Finding]:
    """Check that the program of each server exists, without starting it."""
    from nanobot.security.sandbox import PATH

    for name, server in case.settings.mcp.active.items():
        path = plain_values(server.env).get("PATH", PATH if server.sandbox else None)
        command = server.command
        if "/" in command:
            command = str(case.home / "mcp" / name / command)
        if server.url or (program := find(command, path)):
            yield Finding("ok", f"{name}: {f'at {server.url}' if server.url else program}")
        else:
            hint = f"Install it, or set mcp.servers.{name}.command to its full path."
            yield Finding("fail", f"{name}: the program {server.command!r} was not found", hint)


_CHANNEL_SECONDS = 10.0


def check_channels(case: CheckContext) -> Iterator[Finding]:
    """Show the enabled channels, and check each one and its owner."""
    enabled = [name for name, channel in case.settings.channels.items() if channel.enabled]
    yield Finding("ok", ", ".join([TERMINAL, *enabled]))
    for point in entry_points(group="nanobot.channel_checks"):
        if point.name in enabled:
            for found in safely(_channel(case, point)):
                yield replace(found, text=f"{point.name}: {found.text}")
    for name in _ownerless(case, enabled):
        command = "`nanobot pair approve CODE --owner`"
        hint = f"Send the bot a message and run {command}, or set owner.{name}."
        yield Finding("warn", f"{name}: no owner is set", hint)


def _channel(case: CheckContext, point: EntryPoint) -> Iterator[Finding]:
    check: Check = point.load()
    folder = case.settings.data_folder / "state" / "channels" / point.name
    options = case.settings.channels[point.name].options

    async def look() -> Sequence[Finding]:
        return await check(CheckRequest(options, folder, case.clock, _CHANNEL_SECONDS))

    yield from asyncio.run(look())


def _ownerless(case: CheckContext, enabled: Sequence[str]) -> Sequence[str]:
    """Return the channels without an owner in the settings or by pairing."""
    if not (left := [name for name in enabled if not case.settings.owner.get(name)]):
        return ()
    with suppress(ValueError, StorageError):  # its own check reports this
        access = json.loads(documents_of(case.home).get("access", b"{}"))
        approved = Data(access).records("approved") if isinstance(access, dict) else ()
        paired = {one.field("channel") for one in approved if one.get("owner") is True}
        return [name for name in left if name not in paired]
    return left


def check_journal(case: CheckContext) -> Iterator[Finding]:
    """Check that the journal is intact and its format known, and report failed entries."""
    path = case.home / "state" / "journal.db"
    if not path.exists():
        return
    found = inspect_journal(path)
    if found.damage and found.version not in (0, SCHEMA.version):
        hint = "Use that version, or start a new journal (docs/upgrade.md)."
        yield Finding("fail", found.damage, hint)
    elif found.damage:
        hint = (
            "Restart the gateway. It keeps a copy, rebuilds the journal from the readable rows, "
            "and reports any loss."
        )
        yield Finding("fail", f"damaged: {found.damage}", hint)
    else:
        documents = f", documents: {', '.join(sorted(found.documents))}" if found.documents else ""
        text = f"intact, format {found.version}, {size(path.stat().st_size)}{documents}"
        yield Finding("ok", text)
        damaged = (report[1:] for report in damage_reports(path.parent))
        for text, hint in (*damaged, *documents_set_aside(path.parent)):
            yield Finding("warn", text, hint)
        failed, dead = found.counts.failed, found.counts.dead
        if failed + dead:
            parts = pluralize(dead, "part of a reply", "parts of replies")
            text = f"{pluralize(failed, 'message')} failed, and {parts} could not be delivered"
            yield Finding("warn", text, "Run `nanobot queue list` to see them and how to fix them.")


_CLOCK_SECONDS = 2.0
"""Largest accepted difference between the clocks of a worker and of the database."""


def check_team(case: CheckContext) -> Iterator[Finding]:
    """Check that the team's database and folder work and belong to the same team."""
    settings = case.settings
    if not settings.team.shared or find_spec("psycopg") is None:
        return
    from nanobot.app.transfer import address_of
    from nanobot.team.folder import check_folder, expect_together, unknown_caches
    from nanobot.team.maintenance import clock_ahead, survey

    address = address_of(settings)
    check_folder(case.home, settings.data_folder)
    if kind := unknown_caches(settings.data_folder):
        text = f"{settings.data_folder} is on {kind}, whose attribute cache time is unknown"
        hint = "Set the cache time to 0, because workers must see each other's changes immediately."
        yield Finding("warn", text, hint)
    found = survey(address)
    if not found["schema_version"]:
        hint = "Create the team with `nanobot team init`."
        yield Finding("warn", f"{address.place} has no team yet", hint)
        return
    expect_together(address, settings.data_folder)
    ahead = clock_ahead(address, lambda: case.clock.now().timestamp())
    if abs(ahead) > _CLOCK_SECONDS:
        text = f"the clocks of this machine and the database server differ by {abs(ahead):,.0f} s"
        hint = "Synchronize both with NTP. Schedules and limits depend on all workers' clocks."
        yield Finding("warn", text, hint)
    alive = sum(one["alive"] for one in found["workers"])
    text = f"{address.place}, schema version {found['schema_version']},"
    text += f" {pluralize(alive, 'worker')}"
    yield Finding("ok", f"{text}, shared folder {settings.data_folder}")
    failed = sum(one["failed"] + one["undeliverable"] for one in found["queues"])
    if failed:
        text = f"{pluralize(failed, 'message')} failed or could not be delivered"
        yield Finding("warn", text, "Run `nanobot queue list` to see them and how to fix them.")
    if (aside := case.home / "state" / MOVED).exists():
        text = f"the data from before the move to the team is still in {aside}"
        hint = f"Once the team works, delete it with `rm {aside}`."
        yield Finding("warn", text, hint)


def check_conversations(case: CheckContext) -> Iterator[Finding]:
    """Read each conversation as its next message would."""
    from nanobot.session.manager import read_conversations

    folder = case.settings.data_folder / "sessions"
    if not folder.is_dir():
        return
    complaints: list[str] = []
    sink = logger.add(lambda said: complaints.append(said.record["message"]), level="WARNING")
    try:
        checked = list(read_conversations(folder, case.clock.now(), archive=False))
    finally:
        logger.remove(sink)
    errors = [one.error for one in checked if one.error]
    yield from (Finding("fail", str(error), error.hint) for error in errors[:_SHOWN])
    if complaints:
        hint = (
            "nanobot uses the readable lines. The others stay in the file so that you can check "
            "them."
        )
        yield Finding("warn", "\n".join(complaints[:_SHOWN]), hint)
    yield Finding("ok", f"{len(checked) - len(errors)} readable")


def check_versions(case: CheckContext) -> Iterator[Finding]:
    """Check that the newest version of each scope is complete."""
    from nanobot.memory.git import NewestVersion, read_newest, repositories

    newest, errors = list[NewestVersion](), list[NanobotError]()
    for path in (places := repositories(case.settings.data_folder / "state")).values():
        try:
            newest += filter(None, [read_newest(path)])
        except NanobotError as error:
            errors.append(error)
    yield from (Finding("fail", str(error), error.hint) for error in errors[:_SHOWN])
    if newest:
        when = max(one.when for one in newest).astimezone(case.clock.now().tzinfo)
        files = pluralize(sum(one.files for one in newest), "file")
        of = f" in {len(newest)} scopes" if len(newest) > 1 else ""
        yield Finding("ok", f"intact, newest from {when:%Y-%m-%d %H:%M}, {files}{of}")
    elif places and not errors:
        yield Finding("ok", "no memory versions yet")


_GRACE = timedelta(days=1)
"""Accepted delay of a backup: a machine that was off makes it soon after its start."""


def check_backups(case: CheckContext) -> Iterator[Finding]:
    """Check that the newest backup is as recent as the schedule promises."""
    from nanobot.cron.schedule import parse
    from nanobot.upkeep.backups import list_backups

    if not case.home.is_dir():
        return
    settings = case.settings.backup
    if case.settings.team.shared:
        yield Finding(
            "ok", "not available in a team: use pg_dump, and copy the shared folder (docs/team.md)"
        )
        return
    folder, now = settings.place(case.home), case.clock.now()
    text = f"schedule `{settings.schedule}`" if settings.schedule else "no schedule"
    hint = "Run `nanobot backup` now, or set backup.schedule for regular backups."
    if not (stored := list_backups(folder)):
        yield Finding("warn", f"{text}, no backups in {folder}", hint)
        return
    newest = stored[0].made_at.astimezone(now.tzinfo)
    text = f"{text}, newest from {newest:%Y-%m-%d %H:%M} in {folder}"
    due = parse(settings.schedule).next_after(newest, now.tzinfo) if settings.schedule else None
    yield Finding("warn", text, hint) if due and due + _GRACE < now else Finding("ok", text)


def check_time(case: CheckContext) -> Iterator[Finding]:
    zone, now = case.settings.agent.timezone, case.clock.now()
    shown = f"{now:%Y-%m-%d %H:%M} {now.isoformat()[-6:]}"
    if zone or now.utcoffset():
        yield Finding("ok", f"{shown}, {zone or 'the system time zone'}")
    else:
        hint = "If this is not your local time, set agent.timezone, for example to Europe/Berlin."
        yield Finding("warn", f"{shown} (the system has no time zone)", hint)


CHECKS: Mapping[str, Callable[[CheckContext], Iterable[Finding]]] = {
    "home": check_home,
    "disk": check_disk,
    "packages": check_packages,
    "configuration": check_configuration,
    "gateway": check_gateway,
    "service": lambda case: (_unit(place, case.home) for place in services_of(case.home)),
    "model": lambda case: try_models(case.settings, case.clock, ask=case.ask_model),
    "sandbox": check_sandbox,
    "voice": lambda case: try_voice(case.settings, case.clock, ask_servers=case.ask_model),
    "mcp": check_mcp,
    "channels": check_channels,
    "journal": check_journal,
    "team": check_team,
    "conversations": check_conversations,
    "versions": check_versions,
    "backups": check_backups,
    "time": check_time,
}
"""All checks in order. Those from the gateway on need a valid configuration."""
