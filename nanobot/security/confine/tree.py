"""Files that run automatically in a writable folder, before, during and after a command.

`find_triggers`: the sandbox protects the existing ones. `TreeWatch`: a command during which one
appears is killed at once, even if a person created it, because the command could change it before
the person types the next word. `disable_triggers`: afterwards new ones are renamed."""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple

from nanobot.security.confine import ConfineRefused, Spec, kernel, parents
from nanobot.security.confine.autorun import GIT, HEAD, OF_BARE, Kind, is_built, kind, plain

_CLOSED = "closed"
_MOST_ROUNDS = 1_000
"""Maximum nesting depth of triggers."""

_SETTLE = 1.0
"""Seconds after which a program's temporary file is gone."""


ENDING: tuple[Kind, ...] = ("repository", "trigger")
"""Kinds that end the command when one appears or is replaced."""

_MOST_LINKED = 1_000


class Trigger(NamedTuple):
    """A file that runs automatically, or the folder of a bare repository. `mark` changes with its
    identity. `entry` is the path to rename to disable it."""

    path: str
    kind: Kind
    mark: str
    entry: str


OnFolder = Callable[[int, str], None]
"""Called for each folder before it is listed: its descriptor, and its path with a final `/`."""


Links = dict[tuple[int, int, int], list[str]]
"""The paths of files with several hard links, by the file and its link count."""


class Tree(NamedTuple):
    """A writable folder, `without` some paths in it. Triggers of the `allowed` kinds may be created
    there; `strict` is as for `kind`."""

    path: str
    without: Collection[str] = ()
    allowed: Collection[Kind] = ()
    strict: bool = False

    def find_triggers(
        self, start: str = "", entered: OnFolder | None = None, links: Links | None = None
    ) -> list[Trigger]:
        """Return all triggers in the folder `start` and below. Record hard links in `links`, if
        given, except among packages.

        Another process may change the tree: links are not followed, and files that are gone or
        belong to another user are skipped."""
        found: list[Trigger] = []
        waiting = [start]
        with self._open() as root:
            while waiting:
                path = waiting.pop()
                prefix = f"{path}/" if path else ""
                try:
                    with kernel.closing(open_listable(root, path or ".")) as folder:
                        if entered:
                            entered(folder, prefix)
                        triggers, inner = self._look_at(folder, prefix, links)
                except PermissionError:  # closed again at once, so it may contain anything
                    found.append(Trigger(path, "trigger", _CLOSED, path))
                except OSError:
                    continue
                else:
                    found += triggers
                    waiting += inner
        return [one for one in found if one.kind not in self.allowed]

    def disable_triggers(self, known: Collection[Trigger] = ()) -> Iterator[tuple[str, str]]:
        """Rename all triggers that are not `known`. Yield the old and the new path."""

        def new() -> list[Trigger]:
            # Files in a closed folder can't be renamed.
            return [one for one in self.find_triggers() if one not in known and one.mark != _CLOSED]

        # Temporary files of other programs are gone at the second scan.
        first = {one.path for one in new() if one.kind == "dot"}
        if first:
            time.sleep(_SETTLE)
        tried, moved = set[Trigger](), set[str]()
        for _ in range(_MOST_ROUNDS):  # a renamed folder may contain more
            found = [one for one in new() if one not in tried and is_lasting(one, first, moved)]
            if not found:
                return
            tried.update(found)
            for one, renamed in self._rename(found):
                moved.update((renamed, one.path))  # a bare repository hid its contents
                yield one.entry, renamed

    def _rename(self, found: Collection[Trigger]) -> Iterator[tuple[Trigger, str]]:
        """Rename the existing ones and yield their new paths."""
        with self._open() as root:
            for one in found:
                folder, slash, name = one.entry.rpartition("/")
                with suppress(OSError), kernel.closing(open_listable(root, folder or ".")) as above:
                    yield one, f"{folder}{slash}{rename_entry(above, folder, name)}"

    def _open(self) -> AbstractContextManager[int]:
        return kernel.closing(os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def _look_at(
        self, descriptor: int, folder: str, links: Links | None
    ) -> tuple[list[Trigger], list[str]]:
        """Return the triggers in one folder, and its subfolders to check."""
        with os.scandir(descriptor) as entries:
            names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        below = folder.rstrip("/")
        heads = find_heads(names)
        if below and heads:
            return [Trigger(below, "repository", "", f"{folder}{head}") for head in heads], []
        return self._sort_out(descriptor, folder, names, None if is_built(below) else links, heads)

    def _sort_out(
        self,
        descriptor: int,
        folder: str,
        names: dict[str, bool],
        links: Links | None,
        heads: Collection[str],
    ) -> tuple[list[Trigger], list[str]]:
        triggers, inner = [], []
        for name, is_folder in names.items():
            path = f"{folder}{name}"
            if path in self.without:
                continue
            of_kind = kind(folder.rstrip("/"), name, strict=self.strict)
            if plain(name) == HEAD and name not in heads:  # not in a repository
                of_kind = ""
            if of_kind:
                with suppress(FileNotFoundError):
                    triggers.append(make_trigger(descriptor, path, name, of_kind))
            if is_folder and of_kind not in ENDING:
                inner.append(path)
            elif links is not None and not of_kind:
                record_link(descriptor, name, path, links)
        return triggers, inner


def is_lasting(one: Trigger, first: set[str], moved: set[str]) -> bool:
    """Check whether a trigger is more than a temporary file."""
    return one.kind != "dot" or one.path in first or not moved.isdisjoint(parents(one.path))


def open_listable(root: int, path: str) -> int:
    """Open a folder and make it listable if we own it. Raise `OSError`, and `PermissionError` only
    for our own folder that is closed again at once."""
    flags = os.O_RDONLY | os.O_DIRECTORY
    try:
        descriptor = kernel.open_below(root, path, flags)
    except PermissionError:
        with kernel.closing(kernel.open_below(root, path)) as named:
            status = os.fstat(named)
            if status.st_uid != os.geteuid():
                raise FileNotFoundError(path) from None  # the command can't enter it either
            os.chmod(f"/proc/self/fd/{named}", stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
        descriptor = kernel.open_below(root, path, flags)
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if not mode & stat.S_IXUSR:
        with suppress(OSError):
            os.fchmod(descriptor, mode | stat.S_IRWXU)
    return descriptor


def record_link(descriptor: int, name: str, path: str, links: Links) -> None:
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        if status.st_nlink > 1:
            file = status.st_dev, status.st_ino, status.st_nlink
            links.setdefault(file, []).append(path)


def find_heads(names: dict[str, bool]) -> list[str]:
    """Return the names of `HEAD` in a bare repository's folder, by git's criteria."""
    heads = [name for name in names if plain(name) == HEAD]
    if not heads or len(OF_BARE & {plain(name) for name in names}) < 2:
        return []
    return [name for name in heads if not names[name]]


def make_trigger(descriptor: int, path: str, name: str, kind: Kind) -> Trigger:
    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    if kind in ("trigger", "dot") and stat.S_ISLNK(status.st_mode):
        kind = "late"  # the target of a link can't be protected
    if kind == "late":
        mark = f"{status.st_ino} {find_latest_change(descriptor, name, status)}"
    else:
        mark = f"{status.st_ino}" if plain(name) == GIT else ""
    return Trigger(path, kind, mark, path)


def find_latest_change(descriptor: int, name: str, status: os.stat_result) -> int:
    """Return the latest ctime of a file or of anything in a folder."""
    latest = status.st_ctime_ns
    if stat.S_ISDIR(status.st_mode):
        for _, _, files, folder in os.fwalk(name, dir_fd=descriptor):
            for file in (".", *files):
                with suppress(FileNotFoundError):
                    inner = os.stat(file, dir_fd=folder, follow_symlinks=False)
                    latest = max(latest, inner.st_ctime_ns)
    return latest


def rename_entry(folder: int, path: str, name: str) -> str:
    """Rename an entry to a harmless name in the same folder and return it."""
    base = GIT if plain(name) == GIT else name
    new = stem = f"dot-{base.lstrip('.')[:50]}"
    taken, number = set(os.listdir(folder)), 1
    while new in taken or kind(path, new):
        number += 1
        new = f"{stem.replace('.', '-')}-{number}"
    try:
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)
    except PermissionError:
        os.fchmod(folder, stat.S_IMODE(os.fstat(folder).st_mode) | stat.S_IRWXU)
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)
    return new


_MADE = 0x100 | 0x80  # IN_CREATE, IN_MOVED_TO
_FOLDER, _OVERFLOW = 0x40000000, 0x4000
_EVENT = struct.Struct("=iIII")
_AT_ONCE = 256 * 1024
_APPEARED = (
    "{!r} appeared, and programs outside the sandbox run such files automatically. Use "
    "$TMPDIR instead, or write_file for files other than .git"
)

REPLACED = "a protected file was replaced while the command ran"

_NEVER = float("inf")
_PAUSE = 1.0
"""Seconds between full scans if there are too few inotify watches."""


class TreeWatch:
    """Watches the writable folders of a command. Create it before the command starts, and call
    `check_events` while it runs, when `descriptor` is readable and at intervals. `known` are the
    existing triggers. The first sign of a new one counts, even if it is gone again."""

    def __init__(self, spec: Spec) -> None:
        git: tuple[Kind, ...] = () if spec.hide_git else ("repository",)
        self._guarded, self._trees = spec.read_only_paths, dict[str, Tree]()
        for tree in spec.trees:
            own = spec.own_folder and tree == spec.workspace
            allowed = (*git, "dot") if own else git
            self._trees[tree] = Tree(tree, self._guarded, allowed, spec.strict)
        self._watched: dict[int, tuple[str, str]] = {}
        self._blind, self._look_at = False, _NEVER
        self.descriptor = kernel.inotify()
        links: dict[str, Links] = {tree: {} for tree in spec.trees}
        self.known = {tree: self._find_triggers(tree, "", links[tree]) for tree in spec.trees}
        self._held = {(tree, path) for tree, path, _ in self.list_held()}
        self._linked = list(self._list_reaching(links))
        self._mounted = self._list_mounted(spec) if spec.kind == "bubblewrap" else set()

    def _list_mounted(self, spec: Spec) -> set[tuple[str, str]]:
        """Return the mounted paths and their parents. A replacement would be unprotected."""
        own = ((spec.workspace, path) for path in self._guarded)
        held = ((tree, path) for tree, path, kind in self.list_held() if kind in ENDING)
        return {(tree, one) for tree, path in (*own, *held) for one in (*parents(path), path)}

    def list_held(self) -> Iterator[tuple[str, str, str]]:
        """Yield the files that no command may change, as in `Spec.held`."""
        for tree, known in self.known.items():
            yield from ((tree, one.path, one.kind) for one in known if one.kind != "late")

    def list_linked(self) -> Iterator[tuple[str, str, str]]:
        """Yield the files with another name elsewhere, which a command may not change, as in
        `Spec.held`. Raise `ConfineRefused` if there are too many."""
        if len(self._linked) > _MOST_LINKED:
            raise ConfineRefused(
                f"{len(self._linked):,} files, such as {self._linked[0][1]}, have hard links "
                "outside the writable folders, which is too many to protect. Use copies instead"
            )
        yield from ((tree, path, "linked") for tree, path in self._linked)

    def _list_reaching(self, links: dict[str, Links]) -> Iterator[tuple[str, str]]:
        """Yield the files with a name that a command can't change, by tree. Files with all names in
        the tree are ordinary."""
        for tree, files in links.items():
            for (_, _, count), paths in files.items():
                names = [[(tree, up) for up in (path, *parents(path))] for path in paths]
                free = [first for first, *above in names if self._held.isdisjoint(above)]
                if len(free) < count:
                    yield from free

    def disable_triggers(self) -> Iterator[tuple[str, str]]:
        """Rename new triggers. Yield the old and the new path."""
        for tree, known in self.known.items():
            yield from self._trees[tree].disable_triggers(known)

    def check_events(self) -> str:
        """Return the reason to end the command, or an empty text."""
        for watch, mask, name in self._read_events():
            if mask & _OVERFLOW:
                self._look_at = 0.0
            elif watch in self._watched and (
                reason := self._check_name(*self._watched[watch], name, bool(mask & _FOLDER))
            ):
                return reason
        if time.monotonic() >= self._look_at:
            self._look_at = _NEVER
            for tree in self.known:
                if reason := self._find_new(tree, ""):
                    return reason
            if self._blind:
                self._look_at = time.monotonic() + _PAUSE
        return ""

    def _check_name(self, tree: str, folder: str, name: str, is_folder: bool) -> str:
        """Return the reason to end the command after a change of this name."""
        of_kind, path = kind(folder.rstrip("/"), name), f"{folder}{name}"
        if (tree, path) in self._mounted:  # its inode number may be the old one
            return REPLACED
        if path in self._guarded or (tree, path) in self._held:
            return ""
        if plain(name) in OF_BARE:  # git replaces the HEAD of an existing bare repository
            return self._find_new(tree, folder)
        if of_kind in ENDING and of_kind not in self._trees[tree].allowed:
            return _APPEARED.format(path)
        return self._find_new(tree, path) if is_folder else ""

    def _find_new(self, tree: str, folder: str) -> str:
        found = self._find_triggers(tree, folder.rstrip("/")) - self.known[tree]
        return next((_APPEARED.format(one.path) for one in found if one.kind in ENDING), "")

    def _find_triggers(self, tree: str, folder: str, links: Links | None = None) -> set[Trigger]:
        def watch(descriptor: int, path: str) -> None:
            try:
                number = kernel.watch(self.descriptor, descriptor, _MADE)
            except OSError:
                self._blind, self._look_at = True, 0.0
            else:
                self._watched[number] = (tree, path)

        return set(self._trees[tree].find_triggers(folder, watch, links))

    def _read_events(self) -> Iterator[tuple[int, int, str]]:
        """Yield the watch number, mask and name of each event."""
        events = b""
        with suppress(OSError):
            events = os.read(self.descriptor, _AT_ONCE)
        at = 0
        while at < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size
            yield watch, mask, os.fsdecode(events[at : at + length].rstrip(b"\0"))
            at += length
