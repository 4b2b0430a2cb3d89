"""The home on disk: whose it is, who else may look into it, how much room there is."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from nanobot.cli.doctor.finding import Case, Finding
from nanobot.config import not_imported
from nanobot.upkeep.retention import free_bytes

_GIGABYTE = 1_000_000_000
_MEGABYTE = 1_000_000
_SCARCE = _GIGABYTE
_FOLDERS = ("", "state", "sessions", "logs", "media", "spill", "workspace", "workspace/memory")
_SECRET = ("config.yaml", "secrets.env", "state/journal.db", "state/access.json")
_LOOKED_AT = 2_000
"""Files of one folder: whoever ran nanobot as root once left more than one behind."""


def check_configuration(case: Case) -> Iterator[Finding]:
    """What was doubtful in the configuration, which is right."""
    path = case.home / "config.yaml"
    if hint := not_imported(case.home):
        yield Finding("configuration", "warn", "this home was not imported yet", hint)
    where = f"{path} can be used" if path.exists() else f"there is no {path}; the defaults apply"
    yield Finding("configuration", "ok", where)
    for warning in case.settings.warnings:
        yield Finding("configuration", "warn", warning)


def check_home(home: Path) -> Iterator[Finding]:
    """Whether the home is the user's, theirs alone, and can be written."""
    try:
        mode = home.stat().st_mode
    except FileNotFoundError:
        yield Finding("home", "ok", f"{home} is made at the first start")
        return
    except OSError as error:
        hint = "Mend the permissions, or choose another folder with NANOBOT_HOME."
        yield Finding("home", "fail", f"{home} cannot be used: {error.strerror}", hint)
        return
    if not stat.S_ISDIR(mode):
        yield Finding("home", "fail", f"{home} is not a folder", "Move it away.")
        return
    if not os.access(home, os.X_OK, effective_ids=True):
        yield _shut(home)
        return
    troubles = [*_strangers(home), *_locked(home), *_exposed(home, mode)]
    yield from troubles or [Finding("home", "ok", f"{home} is yours alone")]


def _shut(home: Path) -> Finding:
    """A home that cannot be entered, so that nothing in it can be looked at."""
    owner = home.stat().st_uid
    if owner != os.geteuid():
        return _theirs(home, owner)
    return Finding(
        "home", "fail", f"{home} cannot be entered", f"`chmod u+rwx {shlex.quote(str(home))}`"
    )


def _exposed(home: Path, mode: int) -> Iterator[Finding]:
    """What others may read. Where nobody can enter the home, nothing in it is exposed."""
    if not mode & 0o077:
        return
    hint = f"`chmod 700 {shlex.quote(str(home))}`"
    yield Finding("home", "warn", f"{home} can be looked into by other users", hint)
    for path in (home / name for name in _SECRET):
        if path.is_file() and path.stat().st_mode & 0o077:
            hint = f"`chmod 600 {shlex.quote(str(path))}`"
            yield Finding("home", "warn", f"{path} can be read by other users", hint)


def _strangers(home: Path) -> Iterator[Finding]:
    """Files of somebody else's, as `sudo nanobot` leaves them behind."""
    owner = home.stat().st_uid
    me = os.geteuid()
    if owner != me:
        yield _theirs(home, owner)
        return
    for folder in _FOLDERS:
        for path in _entries(home / folder):
            uid = path.lstat().st_uid
            if uid != me:
                hint = f"`sudo chown -R {me} {shlex.quote(str(home))}`"
                yield Finding("home", "fail", _belongs(path, uid), hint)
                return


def _theirs(home: Path, owner: int) -> Finding:
    me = os.geteuid()
    hint = f"Run nanobot as {_name(owner)}, or take the folder over: `sudo chown -R "
    hint += f"{me} {shlex.quote(str(home))}`"
    return Finding("home", "warn" if me == 0 else "fail", _belongs(home, owner), hint)


def _locked(home: Path) -> Iterator[Finding]:
    if os.statvfs(home).f_flag & os.ST_RDONLY:
        hint = "Have it mounted for writing; `dmesg` may say why it is not."
        yield Finding("home", "fail", f"{home} lies on a disk that is read-only", hint)
        return
    folders = (home / name for name in _FOLDERS)
    for folder in (one for one in folders if one.is_dir()):
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            hint = f"`chmod u+rwx {shlex.quote(str(folder))}`"
            yield Finding("home", "fail", f"{folder} cannot be written", hint)


def _entries(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            yield from (Path(entry.path) for entry in islice(entries, _LOOKED_AT))
    except OSError:
        return


def _belongs(path: Path, uid: int) -> str:
    return f"{path} belongs to {_name(uid)}"


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def check_disk(case: Case) -> Iterator[Finding]:
    """How much room there is, as the owner's reserve asks for it."""
    return room(case.home, case.settings.retention.disk_reserve_megabytes)


def room(home: Path, reserve: int) -> Iterator[Finding]:
    """How much room there is; `reserve` is in megabytes."""
    there = next((folder for folder in (home, *home.parents) if folder.exists()), Path("/"))
    try:
        free, nodes = free_bytes(there), os.statvfs(there)
    except OSError as error:
        yield Finding("disk", "warn", f"the disk does not tell its room: {error.strerror}")
        return
    text = f"{free / _GIGABYTE:.1f} GB are free"
    least = f"retention.disk_reserve_megabytes: {reserve}"
    if free < reserve * _MEGABYTE:
        hint = f"Free some space: below {reserve} MB messages wait ({least})."
        yield Finding("disk", "fail", f"{free // _MEGABYTE} MB are free", hint)
    elif free < max(_SCARCE, 2 * reserve * _MEGABYTE):
        hint = f"Free some space: below {reserve} MB messages wait ({least})."
        yield Finding("disk", "warn", text, hint)
    else:
        yield Finding("disk", "ok", text)
    if nodes.f_files and not nodes.f_favail:
        hint = "There are too many files on it: `df -i` shows where."
        yield Finding("disk", "fail", "no file can be made on the disk", hint)
