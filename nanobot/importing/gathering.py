"""What lies in the other home, and what becomes of each file: every file is dealt with once, and
stands in the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from nanobot.importing.newhome import NewHome
from nanobot.importing.report import Item, Kind, Outcome, Report
from nanobot.importing.source import Found, Root, Source, opened, read_small, reason, walk

KNOWN = ("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "HEARTBEAT.md")
WORKSPACE_ID = ".nanobot/workspace-id"
_PARTS = (*KNOWN, "memory", "skills", "sessions", "cron", "prompts")
_CHANGED = "it changed while it was read: stop the other program, and import again"


class Gathering:
    """Reads all names at once. `report.originals` is the folder of untouched copies in the new
    home."""

    def __init__(self, source: Source, new: NewHome, report: Report) -> None:
        self._source, self._report = source, report
        self.new = new
        places = {self._path(found): found for found in self._everything()}
        self._left = {(found.root, found.path): found for found in places.values()}

    def get(self, root: Root, path: str) -> Found | None:
        """A plain file that was not dealt with yet."""
        found = self._left.get((root, path))
        return found if found is not None and found.kind == "file" else None

    def below(self, root: Root, folder: str = "") -> list[Found]:
        """What was not dealt with yet of a root, or of a folder in it."""
        prefix = f"{folder}/" if folder else ""
        found = (f for f in self._left.values() if f.root == root and f.path.startswith(prefix))
        return sorted(found, key=lambda one: one.path)

    def opened(self, found: Found) -> AbstractContextManager[BinaryIO]:
        """A file, for reading. Raises `OSError`."""
        return opened(self._path(found))

    def read(self, found: Found | None, limit: int) -> bytes:
        """A small file's content; empty where there is none. Raises `OSError`."""
        return read_small(self._path(found), limit) if found is not None else b""

    def take(self, kind: Kind, found: Found, target: str) -> None:
        """Copy a file to `target`."""
        self._copy(kind, found, "taken", target, target)

    def keep(self, kind: Kind, found: Found, note: str = "") -> None:
        """Copy a file to the originals; what is none is left."""
        if found.kind == "file":
            self._copy(kind, found, "kept", self._original(found), note=note)
        elif found.kind == "link":
            self.leave(kind, found, f"a link to {found.detail}, which was not followed")
        else:
            self.leave(kind, found, found.detail)

    def convert(
        self, kind: Kind, found: Found, target: str, note: str = "", count: int = 0
    ) -> None:
        """Note that a file's content is at `target` in another form, and copy it to the originals.
        Without a target it is only kept."""
        if target:
            self._copy(kind, found, "converted", self._original(found), target, note, count)
        else:
            self.keep(kind, found, note)

    def leave(self, kind: Kind, found: Found, why: str) -> None:
        """Note that something is not copied."""
        self.done(kind, found, "left", "", why)

    def done(
        self,
        kind: Kind,
        found: Found,
        outcome: Outcome,
        target: str,
        note: str = "",
        count: int = 0,
    ) -> None:
        """Note what became of something."""
        del self._left[found.root, found.path]
        item = Item(kind, self.shown(found), outcome, target, note, found.size, count)
        self._report.items.append(item)

    def write(self, target: str, content: bytes) -> None:
        """Write a file that is new."""
        self.new.write(target, [content])

    def stream(
        self,
        kind: Kind,
        found: Found,
        target: str,
        conversion: Callable[[BinaryIO], Iterable[bytes]],
    ) -> bool:
        """Write what becomes of a file; that it is dealt with is still to be said. False where it
        cannot be read, and is left."""
        try:
            with self.opened(found) as file:
                self.new.write(target, conversion(file))
        except OSError as error:
            self.new.remove(target)
            self.leave(kind, found, f"it cannot be read: {reason(error)}")
            return False
        return True

    def shown(self, found: Found) -> str:
        """The path of a file for people: within the home where it is in there."""
        if found.root == "home":
            return found.path
        inside = self._source.inside
        return f"{inside}/{found.path}" if inside else str(self._path(found))

    def _copy(
        self,
        kind: Kind,
        found: Found,
        outcome: Outcome,
        copy: str,
        target: str = "",
        note: str = "",
        count: int = 0,
    ) -> None:
        try:
            with self.opened(found) as file:
                before = os.fstat(file.fileno())
                self.new.copy(copy, file)
                after = os.fstat(file.fileno())
        except OSError as error:
            self.new.remove(copy)
            self.leave(kind, found, f"it cannot be read: {reason(error)}")
            return
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            self._report.ask(f"{self.shown(found)}: {_CHANGED}.")
        self.done(kind, found, outcome, target or copy, note, count)

    def _original(self, found: Found) -> str:
        if found.root == "workspace" and self._source.inside:
            return f"{self._report.originals}/home/{self._source.inside}/{found.path}"
        return f"{self._report.originals}/{found.root}/{found.path}"

    def _path(self, found: Found) -> Path:
        base = self._source.home if found.root == "home" else self._source.workspace
        assert base is not None  # nothing was found in a workspace that is not there
        return base / found.path

    def _everything(self) -> Iterator[Found]:
        """What comes twice, as the workspace holds the home, is the workspace's."""
        source = self._source
        yield from walk(source.home, "home", lambda path: source.whole and path == source.inside)
        if source.workspace is not None:
            skip = (lambda _: False) if source.whole else _is_no_part
            yield from walk(source.workspace, "workspace", skip)


def _is_no_part(path: str) -> bool:
    """Whether something in a workspace is not nanobot's own."""
    return path.partition("/")[0] not in _PARTS and path not in (".nanobot", WORKSPACE_ID)
