"""What lies in a home, and what nanobot runs on: folders, disk, packages, stores, backups.

All of it is opened for reading alone. A database at rest is read as a file that nobody changes, so
that SQLite leaves nothing beside it; one that is in use, as it asks for.
"""

from __future__ import annotations

import os
import platform
import pwd
import re
import shlex
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import islice
from pathlib import Path

from loguru import logger

from nanobot import __version__
from nanobot.cli.command import size
from nanobot.cli.doctor import Case, Finding
from nanobot.config import not_imported
from nanobot.errors import StorageError
from nanobot.upkeep.backups import backup_folder, list_backups
from nanobot.upkeep.retention import free_bytes

_MEGABYTE = 1_000_000
_SCARCE = 1_000 * _MEGABYTE
_NAME = re.compile(r"[^A-Za-z0-9._-]")
_FOLDERS = ("", "state", "sessions", "logs", "media", "spill", "workspace", "workspace/memory")
_SECRET = ("config.yaml", "secrets.env", "state/journal.db", "state/documents.json")
_LOOKED_AT = 2_000
"""Files of one folder: whoever ran nanobot as root once left more than one behind."""


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
    try:
        mode = home.stat().st_mode
    except FileNotFoundError:
        yield Finding("ok", f"{home} is made at the first start")
        return
    except OSError as error:
        hint = "Fix the permissions, or choose another folder with NANOBOT_HOME."
        yield Finding("fail", f"{home} cannot be used: {error.strerror}", hint)
        return
    if not stat.S_ISDIR(mode):
        yield Finding("fail", f"{home} is not a folder", "Move it away.")
        return
    if not os.access(home, os.X_OK, effective_ids=True):  # nothing in it can be looked at
        hint = f"`chmod u+rwx {shlex.quote(str(home))}`"
        shut = Finding("fail", f"{home} cannot be entered", hint)
        yield next((one for one in _strangers(home) if one.state == "fail"), shut)
        return
    troubles = [*_strangers(home), *_locked(home), *_exposed(home)]
    yield from troubles or [Finding("ok", f"{home} is yours alone")]


def _strangers(home: Path) -> Iterator[Finding]:
    """Files of somebody else's, as `sudo nanobot` leaves them behind."""
    me, take_over = os.geteuid(), f"`sudo chown -R {os.geteuid()} {shlex.quote(str(home))}`"
    if (owner := home.stat().st_uid) != me:
        text = f"{home} belongs to {_name(owner)}"
        hint = f"Run nanobot as {_name(owner)}, or take the folder over: {take_over}"
        yield Finding("warn" if me == 0 else "fail", text, hint)
        return
    for folder in (home / name for name in _FOLDERS):
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in islice(entries, _LOOKED_AT):
                uid = entry.stat(follow_symlinks=False).st_uid
                if uid != me:
                    yield Finding("fail", f"{entry.path} belongs to {_name(uid)}", take_over)
                    return


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _locked(home: Path) -> Iterator[Finding]:
    if os.statvfs(home).f_flag & os.ST_RDONLY:
        hint = "Have it mounted for writing; `dmesg` may say why it is not."
        yield Finding("fail", f"{home} lies on a disk that is read-only", hint)
        return
    for folder in (home / name for name in _FOLDERS):
        if folder.is_dir() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            hint = f"`chmod u+rwx {shlex.quote(str(folder))}`"
            yield Finding("fail", f"{folder} cannot be written", hint)


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
        free, nodes = free_bytes(there), os.statvfs(there)
    except OSError as error:
        yield Finding("warn", f"the disk does not tell its room: {error.strerror}")
        return
    least = f"retention.disk_reserve_megabytes: {reserve}"
    hint = f"Free some space: below {reserve} MB messages wait ({least})."
    if free < reserve * _MEGABYTE:
        yield Finding("fail", f"{free // _MEGABYTE} MB are free", hint)
    else:
        is_scarce = free < max(_SCARCE, 2 * reserve * _MEGABYTE)
        text = f"{free / 1_000_000_000:.1f} GB are free"
        yield Finding("warn", text, hint) if is_scarce else Finding("ok", text)
    if nodes.f_files and not nodes.f_favail:
        hint = "There are too many files on it: `df -i` shows where."
        yield Finding("fail", "no file can be made on the disk", hint)


def check_packages() -> Iterator[Finding]:
    """Whether the packages that nanobot requires are there, and what SQLite can do."""
    from nanobot.memory.search.tables import sqlite_version

    ours = f"nanobot {__version__}, Python {platform.python_version()}, "
    sqlite, has_full_text = sqlite_version()
    ours += f"SQLite {sqlite}"
    try:
        wanted = [line for line in requires("nanobot") or () if "extra ==" not in line]
    except PackageNotFoundError:
        yield Finding("ok", f"{ours}; run without being installed")
        return
    if missing := [name for line in wanted if not _is_installed(name := _NAME.split(line, 1)[0])]:
        hint = f"`{sys.executable} -m pip install --upgrade nanobot` in the environment of nanobot"
        yield Finding("warn", f"{ours}; not installed: {', '.join(missing)}", hint)
    else:
        yield Finding("ok", ours)
    if not has_full_text:
        hint = "Use a Python whose SQLite has FTS5; that of every distribution does."
        yield Finding("fail", "this SQLite has no full-text search", hint)


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def check_journal(case: Case) -> Iterator[Finding]:
    """Whether the journal is whole, of a format that is known, and has nothing that failed."""
    from nanobot.bus.journal_file import FORMAT, inspect_journal

    path = case.home / "state" / "journal.db"
    if not path.exists():
        return
    found = inspect_journal(path, case.clock)
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


def check_index(case: Case) -> Iterator[Finding]:
    """Whether the search index can be used. It is a cache, so nothing is lost with it."""
    from nanobot.memory.search.tables import VERSION, inspect_index

    path = case.home / "state" / "index.db"
    if not path.exists():
        return
    rebuild = "`nanobot memory rebuild` makes it anew; nothing is lost."
    version, damage = inspect_index(path, case.clock)
    if damage:
        yield Finding("warn", f"it is damaged: {damage}", rebuild)
    elif version != VERSION:
        text = f"it is of another version ({version}), and made anew when it is used next"
        yield Finding("ok", text)
    else:
        yield Finding("ok", f"whole, {size(path.stat().st_size)}")


def check_versions(case: Case) -> Iterator[Finding]:
    """Whether the newest version of memory is there with all that is in it."""
    from nanobot.memory.versions.git import Repository
    from nanobot.memory.versions.gitstore import read_newest

    path = case.home / "state" / "memory.git"
    if not os.path.lexists(path):
        return
    repository = Repository(path)
    try:
        found = read_newest(repository)
    except StorageError as error:
        yield Finding("fail", str(error), error.hint)
        return
    finally:
        repository.close()
    if found is None:
        yield Finding("ok", "there is none of memory yet")
        return
    newest, files = found
    when = f"{newest.when.astimezone(case.clock.now().tzinfo):%Y-%m-%d %H:%M}"
    yield Finding("ok", f"whole; the newest is of {when}, with {files} files")


_ASIDE = re.compile(r"\.(?:corrupt|broken|damaged)(?:-|$)")
_WHERE = ("state", "sessions", "workspace/memory", "workspace/people", "workspace/groups")
_PASSED_BY = frozenset({"node_modules", "objects", "undo", "pack"})
"""Folders with thousands of files, none of which is ever set aside."""

_SHOWN = 5


def check_conversations(case: Case) -> Iterator[Finding]:
    """Read each conversation as the next message in it would."""
    from nanobot.session.checking import conversations_in

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


def check_set_aside(case: Case) -> Iterator[Finding]:
    """Files that nanobot could not read and moved away, which a person should know of."""
    found = sorted(path for name in _WHERE for path in _aside_in(case.home / name))
    if not found:
        return
    shown = "\n".join(str(path.relative_to(case.home)) for path in found[:_SHOWN])
    more = f"\nand {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    one = len(found) == 1
    text = f"{len(found)} {'file was' if one else 'files were'} unreadable once:\n{shown}{more}"
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
    elif folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
        hint = "Fix its permissions, or set backup.folder to another one."
        yield Finding("fail", f"{folder} cannot be written", hint)
    elif newest is None or _is_late(settings.schedule, newest, now):
        hint = "The gateway makes them while it runs. `nanobot backup` makes one now."
        text = f"they are due at `{settings.schedule}`; {shown} in {folder}"
        yield Finding("warn", text, hint)
    else:
        yield Finding("ok", f"{shown} in {folder}")


def _is_late(schedule: str, newest: datetime, now: datetime) -> bool:
    from nanobot.cron.schedule import parse

    due = parse(schedule).next_after(newest, now.tzinfo)
    return due is not None and due + _GRACE < now
