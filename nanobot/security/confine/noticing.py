"""Notices at once what a command, or anybody meanwhile, makes of `autorun`'s list (inotify).

A person can make a repository while a command runs, and it could have its say in that before the
person has typed the next word. So the first sign of one ends the command, be it gone again or not.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from nanobot.security.confine import autorun, folders, kernel
from nanobot.security.confine.folders import Trigger
from nanobot.security.confine.spec import Spec

_MADE = 0x100 | 0x80  # IN_CREATE, IN_MOVED_TO
_FOLDER, _OVERFLOW = 0x40000000, 0x4000
_EVENT = struct.Struct("=iIII")
_AT_ONCE = 256 * 1024
_REPLACED = "a protected file was replaced while it ran"
_APPEARED = (
    "{!r} appeared, which programs outside run or obey by themselves (what needs it can be done in"
    " $TMPDIR; settings other than .git can be written with write_file)"
)

_LONGEST = 0.2
"""Seconds for what is known to have happened; where that takes longer, everything is looked at."""

_SHARE = 20
"""Where there are not enough watches, one part of time in so many goes into looking instead."""


class _Event(NamedTuple):
    watch: int
    mask: int
    name: str


class Noticing:
    """Watches where a command can write. Made before it starts; `appeared` is asked while it runs,
    whenever `descriptor` is readable, and from time to time. `known` is what was there."""

    def __init__(self, spec: Spec) -> None:
        self._git, self._mounted = not spec.hide_git, spec.kind == "bubblewrap"
        self._guarded = spec.guarded
        self._watched: dict[int, tuple[str, str]] = {}
        self._blind = self._missed = False
        self._look_at = 0.0
        self.descriptor = kernel.inotify()
        self.known = {tree: set(self._survey(tree, "")) for tree in spec.trees}
        self._held = {(tree, path) for tree, path, _ in self.held()}

    def held(self) -> Iterator[tuple[str, str, str]]:
        """What no command may change, as `Spec.held`."""
        for tree, known in self.known.items():
            yield from ((tree, one.path, one.kind) for one in known if one.kind != "late")

    def retire(self) -> Iterator[tuple[str, str]]:
        """Put what is new out of use; says what it was called and is called."""
        for tree, known in self.known.items():
            yield from folders.retire(tree, known, git=self._git, without=self._guarded)

    def appeared(self) -> str:
        """What ends the command, in words, or nothing."""
        begun = time.monotonic()
        if self._missed or (self._blind and begun >= self._look_at):
            self._missed = False
            for tree in self.known:
                if reason := self._new(tree, ""):
                    return reason
            self._look_at = time.monotonic() + (time.monotonic() - begun) * _SHARE
        until = time.monotonic() + _LONGEST
        for event in self._events():
            if event.mask & _OVERFLOW or time.monotonic() > until:
                self._missed = True
                return ""
            if reason := self._looked_into(event):
                return reason
        return ""

    def _looked_into(self, event: _Event) -> str:
        tree, folder = self._watched.get(event.watch, ("", ""))
        if not tree:
            return ""
        kind = autorun.kind(folder, event.name)
        path = f"{folder}{event.name}"
        if path in self._guarded or (tree, path) in self._held:
            return _REPLACED if self._mounted else ""
        if kind == "setting" or (kind == "repository" and not self._git):
            return _APPEARED.format(path)
        if event.name.casefold() in (*autorun.SHAPE, "head") and (
            reason := self._new(tree, folder)
        ):
            return reason
        return self._new(tree, path) if event.mask & _FOLDER else ""

    def _new(self, tree: str, folder: str) -> str:
        known = self.known[tree]
        new = (found for found in self._survey(tree, folder.rstrip("/")) if found not in known)
        return next((_APPEARED.format(found.path) for found in new if found.kind != "late"), "")

    def _survey(self, tree: str, folder: str) -> list[Trigger]:
        def watch(descriptor: int, path: str) -> None:
            try:
                number = kernel.watch(self.descriptor, descriptor, _MADE)
            except OSError:
                self._blind = True
            else:
                self._watched[number] = (tree, path)

        found = folders.survey(tree, folder, watch, without=self._guarded)
        return [one for one in found if not (self._git and one.kind == "repository")]

    def _events(self) -> Iterator[_Event]:
        events = b""
        with suppress(OSError):
            events = os.read(self.descriptor, _AT_ONCE)
        at = 0
        while at < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size
            name = events[at : at + length].rstrip(b"\0")
            at += length
            yield _Event(watch, mask, os.fsdecode(name))
