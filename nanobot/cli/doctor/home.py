"""What lies in a home, and what nanobot runs on: folders, disk, packages, stores, backups.

All of it is opened for reading alone. A database at rest is read as a file that nobody changes, so
that SQLite leaves nothing beside it; one that is in use, as it asks for.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from loguru import logger

from nanobot import __version__
from nanobot.channel.entry_points import CheckFinding as Finding
from nanobot.cli.command import size
from nanobot.cli.doctor import Case
from nanobot.config import not_imported
from nanobot.io import storage_errors
from nanobot.upkeep.backups import backup_folder, list_backups
from nanobot.upkeep.retention import free_bytes

_MEGABYTE = 1_000_000
_SCARCE = 1_000 * _MEGABYTE
_FOLDERS = ("", "state", "sessions", "logs", "media", "spill", "workspace", "workspace/memory")
_SECRET = ("config.yaml", "secrets.env", "state/journal.db", "state/documents.json")
_SHOWN = 5


def check_configuration(case: Case) -> Iterator[Finding]:
    """What was doubtful in the configuration, which is right."""
    path = case.home / "config.yaml"
    if hint := not_imported(case.home):
        yield Finding("warn", "this home was not imported yet", hint)
    where = f"{path} can be used" if path.exists() else f"there is no {path}; the defaults apply"
    yield Finding("ok", where)
    for warning in case.settings.warnings:
        yield Finding("warn", warning)


def check_home(home: Path) -> Iterator[Finding]:
    """Whether the home is the user's, theirs alone, and can be written."""
    with storage_errors(home):
        try:
            troubles = [*_foreign(home)] or [*_locked(home), *_exposed(home)]
        except FileNotFoundError:
            yield Finding("ok", f"{home} is made at the first start")
            return
    yield from troubles or [Finding("ok", f"{home} is yours alone")]


def _foreign(home: Path) -> Iterator[Finding]:
    """Files of somebody else's, as `sudo nanobot` leaves them behind."""
    me, take_over = os.geteuid(), f"`sudo chown -R {os.geteuid()} {shlex.quote(str(home))}`"
    if (owner := home.stat().st_uid) != me:
        hint = f"Run nanobot as that user, or take the folder over: {take_over}"
        yield Finding("warn" if me == 0 else "fail", f"{home} belongs to user {owner}", hint)
        return
    for folder in (home / name for name in _FOLDERS):
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if (uid := entry.stat(follow_symlinks=False).st_uid) != me:
                    yield Finding("fail", f"{entry.path} belongs to user {uid}", take_over)
                    return


def _locked(home: Path) -> Iterator[Finding]:
    for folder in (home / name for name in _FOLDERS):
        with suppress(PermissionError):  # what lies above it is named
            mode = os.R_OK | os.W_OK | os.X_OK
            if folder.exists() and not os.access(folder, mode, effective_ids=True):
                text = f"{folder} cannot be written, or is no folder"
                yield Finding("fail", text, f"`chmod u+rwx {shlex.quote(str(folder))}`")


def _exposed(home: Path) -> Iterator[Finding]:
    """What others may read. Where nobody can enter the home, nothing in it is exposed."""
    if not home.stat().st_mode & 0o077:
        return
    hint = f"`chmod 700 {shlex.quote(str(home))}`"
    yield Finding("warn", f"{home} can be looked into by other users", hint)
    for path in (home / name for name in _SECRET):
        if path.is_file() and path.stat().st_mode & 0o077:
            hint = f"`chmod 600 {shlex.quote(str(path))}`"
            yield Finding("warn", f"{path} can be read by other users", hint)


def check_disk(home: Path, reserve: int) -> Iterator[Finding]:
    """How much room there is, as the owner's `reserve` in megabytes asks for it."""
    there = next((folder for folder in (home, *home.parents) if folder.exists()), Path("/"))
    try:
        free = free_bytes(there)
    except OSError as error:
        yield Finding("warn", f"the disk does not tell its room: {error.strerror}")
        return
    least = f"retention.disk_reserve_megabytes: {reserve}"
    hint = f"Free some space: below {reserve} MB messages wait ({least})."
    if free < reserve * _MEGABYTE:
        yield Finding("fail", f"{free // _MEGABYTE} MB are free", hint)
    elif free < max(_SCARCE, 2 * reserve * _MEGABYTE):
        yield Finding("warn", f"{free // _MEGABYTE} MB are free", hint)
    else:
        yield Finding("ok", f"{free / 1_000_000_000:.1f} GB are free")


def check_packages() -> Iterator[Finding]:
    """What nanobot runs on, and what SQLite can do."""
    from nanobot.memory.search.database import sqlite_version

    sqlite, has_full_text = sqlite_version()
    versions = f"nanobot {__version__}, Python {platform.python_version()}, SQLite {sqlite}"
    yield Finding("ok", versions)
    if not has_full_text:
        hint = "Use a Python whose SQLite has FTS5; that of every distribution does."
        yield Finding("fail", "this SQLite has no full-text search", hint)


def check_journal(case: Case) -> Iterator[Finding]:
    """Whether the journal is whole, of a format that is known, and has nothing that failed."""
    from nanobot.bus.journal_file import FORMAT, inspect_journal

    path = case.home / "state" / "journal.db"
    if not path.exists():
        return
    found = inspect_journal(path)
    if found.version > FORMAT:
        text = f"it was written by a newer nanobot (format {found.version})"
        yield Finding("fail", text, "Install that version again.")
        return
    if found.damage:
        move = f"`mv {shlex.quote(str(path))} {shlex.quote(f'{path}.broken')}`"
        aside = f"End the gateway, then {move} and start again: conversations and memory are in"
        aside += " other files, jobs and pairings in documents.json; only messages that waited in"
        aside += " it have to be sent again."
        yield Finding("fail", f"it is damaged: {found.damage}", aside)
        return
    held = f", documents: {', '.join(sorted(found.documents))}" if found.documents else ""
    yield Finding("ok", f"whole, format {found.version}, {size(path.stat().st_size)}{held}")
    failed, dead = found.counts.failed, found.counts.dead
    if failed + dead and not case.judged:
        text = f"{failed} messages failed, {dead} parts could not be delivered"
        yield Finding("warn", text, "`nanobot queue list` shows them and how to fix it.")


def check_versions(case: Case) -> Iterator[Finding]:
    """Whether the newest version of memory is there with all that is in it."""
    from nanobot.memory.gitstore import read_newest

    path = case.home / "state" / "memory.git"
    if not os.path.lexists(path):
        return
    found = read_newest(path)
    if found is None:
        yield Finding("ok", "there is none of memory yet")
        return
    when = f"{found.when.astimezone(case.clock.now().tzinfo):%Y-%m-%d %H:%M}"
    yield Finding("ok", f"whole; the newest is of {when}, with {found.files} files")


def check_conversations(case: Case) -> Iterator[Finding]:
    """Read each conversation as the next message in it would."""
    from nanobot.session.manager import conversations_in

    folder = case.home / "sessions"
    if not folder.is_dir():
        return
    complaints: list[str] = []
    sink = logger.add(lambda said: complaints.append(said.record["message"]), level="WARNING")
    try:
        checked = list(conversations_in(folder, case.clock.now(), archive=False))
    finally:
        logger.remove(sink)
    errors = [one.error for one in checked if one.error]
    yield from (Finding("fail", str(error), error.hint) for error in errors[:_SHOWN])
    if complaints:
        hint = "What can be read is used, and the lines stay in the file for you to look at."
        yield Finding("warn", "\n".join(complaints[:_SHOWN]), hint)
    yield Finding("ok", f"{len(checked) - len(errors)} can be read")


_ASIDE = re.compile(r"\.(?:corrupt|broken|damaged)(?:-|$)")
_WHERE = ("state", "sessions", "workspace/memory", "workspace/people", "workspace/groups")
_PASSED_BY = frozenset({"node_modules", "objects", "undo", "pack"})
"""Folders with thousands of files, none of which is ever set aside."""


def check_set_aside(case: Case) -> Iterator[Finding]:
    """Files that nanobot could not read and moved away, which a person should know of."""
    found = sorted(path for name in _WHERE for path in _aside_in(case.home / name))
    if found:
        shown = [str(path.relative_to(case.home)) for path in found[:_SHOWN]]
        text = "\n".join([f"unreadable once, and kept aside: {len(found)}", *shown])
        hint = "See whether something in there is worth saving, then delete it."
        yield Finding("warn", text, hint)


def _aside_in(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        aside = [name for name in (*folders, *files) if _ASIDE.search(name)]
        yield from (Path(place, name) for name in aside)
        folders[:] = [name for name in folders if name not in _PASSED_BY and name not in aside]


_GRACE = timedelta(days=1)
"""How late a backup may be: a machine that was off makes it soon after its start."""


def check_backups(case: Case) -> Iterator[Finding]:
    """Whether a backup is there that is as new as the schedule promises."""
    from nanobot.cron.schedule import parse

    if not case.home.is_dir():
        return
    settings = case.settings.backup
    folder, now = backup_folder(case.home, settings.folder), case.clock.now()
    made = [stored.made_at for stored in list_backups(folder)]
    newest = made[0].astimezone(now.tzinfo) if made else None
    shown = f"the newest is of {newest:%Y-%m-%d %H:%M}" if newest else "there is none"
    if not settings.schedule:
        hint = "Set backup.schedule to have them made, best with backup.folder on another disk."
        text = f"none are made by themselves; {shown} in {folder}"
        yield Finding("ok" if newest else "warn", text, hint)
        return
    due = parse(settings.schedule).next_after(newest, now.tzinfo) if newest else None
    if newest is None or (due is not None and due + _GRACE < now):
        hint = "The gateway makes them while it runs. `nanobot backup` makes one now."
        text = f"they are due at `{settings.schedule}`; {shown} in {folder}"
        yield Finding("warn", text, hint)
    else:
        yield Finding("ok", f"{shown} in {folder}")
