"""A folder that a command can write in: what runs by itself there, before, while and after it runs.

Each part serves one promise. `find_triggers`: the sandbox holds fast what was there. `TreeWatch`: a
command that makes something that runs by itself is ended at once, also if a person makes it, since
the command could have its say in it before the person has typed the next word.
`disable_triggers`: afterwards nothing new is in use.
"""

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
"""So deep may these lie in each other."""

_SETTLE = 1.0
"""Seconds in which a file that a program needs for a moment is gone again."""


ENDING: tuple[Kind, ...] = ("repository", "trigger")
"""Kinds of which a new one, or one in place of another, ends the command."""

_MOST_LINKED = 1_000


class Trigger(NamedTuple):
    """Something that runs by itself; of a bare repository its folder. `mark` changes with
    whatever makes it another one. `entry` is what has to be renamed to put it out of use."""

    path: str
    kind: Kind
    mark: str
    entry: str


Entered = Callable[[int, str], None]
"""Told of each folder before it is listed: its descriptor, and its path with a `/` at the end."""


Links = dict[tuple[int, int, int], list[str]]
"""The names of files with several (hard links), by the file and how many it has."""


class Tree(NamedTuple):
    """A folder that a command can write in, `without` some paths in it. Triggers of the `allowed`
    kinds may be made there; `strict` is as for `kind`."""

    path: str
    without: Collection[str] = ()
    allowed: Collection[Kind] = ()
    strict: bool = False

    def find_triggers(
        self, start: str = "", entered: Entered | None = None, links: Links | None = None
    ) -> list[Trigger]:
        """All triggers in the folder `start` and below. Takes note of `links`, if given, save
        among packages.

        Another process may be changing the tree: no link is followed, and what is gone or belongs
        to another user is passed over.
        """
        found: list[Trigger] = []
        waiting = [start]
        with self._opened() as root:
            while waiting:
                path = waiting.pop()
                prefix = f"{path}/" if path else ""
                try:
                    with kernel.closing(_listable(root, path or ".")) as folder:
                        if entered:
                            entered(folder, prefix)
                        triggers, inner = self._look_at(folder, prefix, links)
                except PermissionError:  # it was closed at once, and may hold anything
                    found.append(Trigger(path, "trigger", _CLOSED, path))
                except OSError:
                    continue
                else:
                    found += triggers
                    waiting += inner
        return [one for one in found if one.kind not in self.allowed]

    def disable_triggers(self, known: Collection[Trigger] = ()) -> Iterator[tuple[str, str]]:
        """Put what is not `known` out of use, by another name; says which and what."""

        def new() -> list[Trigger]:
            # What is in a closed folder has no new name.
            return [one for one in self.find_triggers() if one not in known and one.mark != _CLOSED]

        # What another program needs for a moment is gone by the second look.
        first = {one.path for one in new() if one.kind == "dot"}
        if first:
            time.sleep(_SETTLE)
        tried, moved = set[Trigger](), set[str]()
        for _ in range(_MOST_ROUNDS):  # there may be more of it inside what was renamed
            found = [one for one in new() if one not in tried and _stays(one, first, moved)]
            if not found:
                return
            tried.update(found)
            for one, renamed in self._rename(found):
                moved.update((renamed, one.path))  # a bare repository hid the rest of it
                yield one.entry, renamed

    def _rename(self, found: Collection[Trigger]) -> Iterator[tuple[Trigger, str]]:
        """Rename them, as far as they are still there; says what each is called now."""
        with self._opened() as root:
            for one in found:
                folder, slash, name = one.entry.rpartition("/")
                with suppress(OSError), kernel.closing(_listable(root, folder or ".")) as above:
                    yield one, f"{folder}{slash}{_renamed(above, folder, name)}"

    def _opened(self) -> AbstractContextManager[int]:
        return kernel.closing(os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def _look_at(
        self, descriptor: int, folder: str, links: Links | None
    ) -> tuple[list[Trigger], list[str]]:
        """The triggers in one folder, and the folders in it that have to be looked at."""
        with os.scandir(descriptor) as entries:
            names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        below = folder.rstrip("/")
        heads = _heads_of_repository(names)
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
            if plain(name) == HEAD and name not in heads:  # no repository is around it
                of_kind = ""
            if of_kind:
                with suppress(FileNotFoundError):
                    triggers.append(_trigger(descriptor, path, name, of_kind))
            if is_folder and of_kind not in ENDING:
                inner.append(path)
            elif links is not None and not of_kind:
                _note_link(descriptor, name, path, links)
        return triggers, inner


def _stays(one: Trigger, first: set[str], moved: set[str]) -> bool:
    """Whether it is there for more than a moment."""
    return one.kind != "dot" or one.path in first or not moved.isdisjoint(parents(one.path))


def _listable(root: int, path: str) -> int:
    """Open a folder, also one that may not be listed: that hides nothing from who owns it. Raises
    `OSError`: `PermissionError` only for one of ours that is closed again at once."""
    flags = os.O_RDONLY | os.O_DIRECTORY
    try:
        descriptor = kernel.opened(root, path, flags)
    except PermissionError:
        with kernel.closing(kernel.opened(root, path)) as named:
            status = os.fstat(named)
            if status.st_uid != os.geteuid():
                raise FileNotFoundError(path) from None  # a command cannot enter it either
            os.chmod(f"/proc/self/fd/{named}", stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
        descriptor = kernel.opened(root, path, flags)
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if not mode & stat.S_IXUSR:
        with suppress(OSError):
            os.fchmod(descriptor, mode | stat.S_IRWXU)
    return descriptor


def _note_link(descriptor: int, name: str, path: str, links: Links) -> None:
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        if status.st_nlink > 1:
            file = status.st_dev, status.st_ino, status.st_nlink
            links.setdefault(file, []).append(path)


def _heads_of_repository(names: dict[str, bool]) -> list[str]:
    """The names of `HEAD` in a folder that is a bare repository; git asks for no more."""
    heads = [name for name in names if plain(name) == HEAD]
    if not heads or len(OF_BARE & {plain(name) for name in names}) < 2:
        return []
    return [name for name in heads if not names[name]]


def _trigger(descriptor: int, path: str, name: str, kind: Kind) -> Trigger:
    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    if kind in ("trigger", "dot") and stat.S_ISLNK(status.st_mode):
        kind = "late"  # what a link leads to cannot be held fast
    if kind == "late":
        mark = f"{status.st_ino} {_changed(descriptor, name, status)}"
    else:
        mark = f"{status.st_ino}" if plain(name) == GIT else ""
    return Trigger(path, kind, mark, path)


def _changed(descriptor: int, name: str, status: os.stat_result) -> int:
    """When a file was changed last, or anything in a folder, as the kernel notes it."""
    latest = status.st_ctime_ns
    if stat.S_ISDIR(status.st_mode):
        for _, _, files, folder in os.fwalk(name, dir_fd=descriptor):
            for file in (".", *files):
                with suppress(FileNotFoundError):
                    inner = os.stat(file, dir_fd=folder, follow_symlinks=False)
                    latest = max(latest, inner.st_ctime_ns)
    return latest


def _renamed(folder: int, path: str, name: str) -> str:
    """Rename it in its folder to a name that no program obeys; returns the new name."""
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

REPLACED = "a protected file was replaced while it ran"

_NEVER = float("inf")
_PAUSE = 1.0
"""Seconds between two looks at everything, where there are not enough watches."""


class TreeWatch:
    """Watches the folders that a command can write in. Made before it starts; `appeared` is asked
    while it runs, whenever `descriptor` is readable, and from time to time. `known` are the
    triggers that were there. The first sign of a new one counts, even if it is gone again.
    """

    def __init__(self, spec: Spec) -> None:
        git: tuple[Kind, ...] = () if spec.hide_git else ("repository",)
        self._guarded, self._trees = spec.guarded, dict[str, Tree]()
        for tree in spec.trees:
            own = spec.own_folder and tree == spec.workspace
            allowed = (*git, "dot") if own else git
            self._trees[tree] = Tree(tree, self._guarded, allowed, spec.strict)
        self._watched: dict[int, tuple[str, str]] = {}
        self._blind, self._look_at = False, _NEVER
        self.descriptor = kernel.inotify()
        links: dict[str, Links] = {tree: {} for tree in spec.trees}
        self.known = {tree: self._find_triggers(tree, "", links[tree]) for tree in spec.trees}
        self._held = {(tree, path) for tree, path, _ in self.held()}
        self._linked = list(self._reaching(links))
        self._mounted = self._held_by_mounts(spec) if spec.kind == "bubblewrap" else set()

    def _held_by_mounts(self, spec: Spec) -> set[tuple[str, str]]:
        """What is protected, and the folders above: what is made in their place is not."""
        own = ((spec.workspace, path) for path in self._guarded)
        held = ((tree, path) for tree, path, kind in self.held() if kind in ENDING)
        return {(tree, one) for tree, path in (*own, *held) for one in (*parents(path), path)}

    def held(self) -> Iterator[tuple[str, str, str]]:
        """What no command may change, as `Spec.held`."""
        for tree, known in self.known.items():
            yield from ((tree, one.path, one.kind) for one in known if one.kind != "late")

    def linked(self) -> Iterator[tuple[str, str, str]]:
        """The files that have another name elsewhere, where a command may not change them, as
        `Spec.held`. Raises `ConfineRefused` if they are too many."""
        if len(self._linked) > _MOST_LINKED:
            raise ConfineRefused(
                f"{len(self._linked):,} files such as {self._linked[0][1]} have hard links "
                "outside, which are too many to protect. Copy the files"
            )
        yield from ((tree, path, "linked") for tree, path in self._linked)

    def _reaching(self, links: dict[str, Links]) -> Iterator[tuple[str, str]]:
        """Files that have a name which a command can't change, by tree; files with all their names
        in the tree are ordinary."""
        for tree, files in links.items():
            for (_, _, count), paths in files.items():
                names = [[(tree, up) for up in (path, *parents(path))] for path in paths]
                free = [first for first, *above in names if self._held.isdisjoint(above)]
                if len(free) < count:
                    yield from free

    def disable_triggers(self) -> Iterator[tuple[str, str]]:
        """Put what is new out of use; says what it was called and is called."""
        for tree, known in self.known.items():
            yield from self._trees[tree].disable_triggers(known)

    def appeared(self) -> str:
        """What ends the command, in words, or nothing."""
        for watch, mask, name in self._events():
            if mask & _OVERFLOW:
                self._look_at = 0.0
            elif watch in self._watched and (
                reason := self._looked_into(*self._watched[watch], name, bool(mask & _FOLDER))
            ):
                return reason
        if time.monotonic() >= self._look_at:
            self._look_at = _NEVER
            for tree in self.known:
                if reason := self._new(tree, ""):
                    return reason
            if self._blind:
                self._look_at = time.monotonic() + _PAUSE
        return ""

    def _looked_into(self, tree: str, folder: str, name: str, is_folder: bool) -> str:
        """What has come up in a folder under a name."""
        of_kind, path = kind(folder.rstrip("/"), name), f"{folder}{name}"
        if (tree, path) in self._mounted:  # its number may be that of the old one
            return REPLACED
        if path in self._guarded or (tree, path) in self._held:
            return ""
        if plain(name) in OF_BARE:  # git replaces the HEAD of a bare repository that was there
            return self._new(tree, folder)
        if of_kind in ENDING and of_kind not in self._trees[tree].allowed:
            return _APPEARED.format(path)
        return self._new(tree, path) if is_folder else ""

    def _new(self, tree: str, folder: str) -> str:
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

    def _events(self) -> Iterator[tuple[int, int, str]]:
        """Of each the number of the watch, what happened, and to which name."""
        events = b""
        with suppress(OSError):
            events = os.read(self.descriptor, _AT_ONCE)
        at = 0
        while at < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size
            yield watch, mask, os.fsdecode(events[at : at + length].rstrip(b"\0"))
            at += length
