"""What the workspace held before each turn changed it, so that `/undo` can put it back.

One folder per turn, one file per change, written before the change is made: a JSON header (path,
the hash of what is about to be written, whether a file stood there) on the first line, then the old
content. A change that was announced and never made does no harm: undoing it finds the old content
in place. What someone changed after the turn is never overwritten.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from nanobot.errors import NanobotError, StorageError
from nanobot.io import storage_errors
from nanobot.security.paths import Place, Root

Outcome = Literal["restored", "removed", "unchanged", "changed since", "failed"]

_TURN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")
_LIMIT = 64_000_000
_UNDONE = "undone"  # marks a turn of which something was left alone
_LEFT_ALONE: tuple[Outcome, ...] = ("changed since", "failed")


class FileChange(Struct, frozen=True):
    """One change of a file. `previous` is None where there was no file; `new_hash` is SHA-256."""

    path: str
    previous: bytes | None
    new_hash: str

    def encoded(self) -> bytes:
        header = {"path": self.path, "existed": self.previous is not None, "new": self.new_hash}
        return json.dumps(header).encode() + b"\n" + (self.previous or b"")

    @classmethod
    def decoded(cls, stored: bytes) -> FileChange:
        """What `encoded` made. Raises `ValueError` for anything else."""
        line, _, previous = stored.partition(b"\n")
        header = json.loads(line)
        match header:
            case {"path": str(path), "existed": bool(existed), "new": str(new)}:
                return cls(path, previous if existed else None, new)
        raise ValueError("not an undo record")


class UndoLog:
    """Keeps pre-images in `folder`, outside the workspace, and restores them.

    `workspace` must be the root that the tools write through: it holds the lock of its writers.
    Everything here blocks; callers on the event loop use a thread.
    """

    def __init__(self, folder: Path, workspace: Root) -> None:
        self._root = Root(folder, name="undo log")
        self._workspace = workspace
        self._numbering = threading.Lock()

    def before_change(self, turn_id: str, path: str, previous: bytes | None, new: bytes) -> None:
        """Store what stands at `path` before `new` is written there. Raises `StorageError`."""
        change = FileChange(path, previous, hashlib.sha256(new).hexdigest())
        self._root.create()
        with self._numbering:
            records = self._records(turn_id)
            number = int(records[-1].names[-1]) + 1 if records else 1
            self._turn(turn_id).child(f"{number:06d}").write_bytes(change.encoded(), expected=None)
        if number == 1:
            self.prune()

    def not_changed(self, turn_id: str, path: str, new: bytes) -> None:
        """Drop the last record of `before_change`: `new` was not written. Raises `StorageError`."""
        wanted = hashlib.sha256(new).hexdigest()
        with self._numbering:
            for record in reversed(self._records(turn_id)):
                change = FileChange.decoded(record.read_bytes(_LIMIT) or b"")
                if (change.path, change.new_hash) == (path, wanted):
                    record.remove()
                    return

    def path_of(self, place: Place) -> str:
        """A place's path from the workspace, also where its root is a folder inside that."""
        inner = os.path.relpath(place.root.path, self._workspace.path)
        return place.relative if inner == "." else f"{inner}/{place.relative}"

    def turns(self) -> list[str]:
        """The turns that changed something and were not undone, the latest first."""
        return [turn for turn in self._folders() if self._turn(turn).child(_UNDONE).stat() is None]

    def paths(self, turn_id: str) -> list[str]:
        """The files that a turn changed, as far as they were not put back."""
        found = []
        for record in self._records(turn_id) if _TURN_ID.fullmatch(turn_id) else ():
            with suppress(ValueError):
                found.append(FileChange.decoded(record.read_bytes(_LIMIT) or b"").path)
        return list(dict.fromkeys(found))

    def revert(self, turn_id: str) -> list[tuple[str, Outcome]]:
        """Undo a turn, newest change first; say per file what came of it.

        A file that is no longer what the turn wrote is left alone ("changed since"). Records of
        what was put back are dropped, so that undoing twice does nothing; the others stay.
        """
        outcomes: dict[str, Outcome] = {}
        for record in reversed(self._records(turn_id)):
            try:
                change = FileChange.decoded(record.read_bytes(_LIMIT) or b"")
            except ValueError:
                outcomes[record.relative] = "failed"
                continue
            outcome = self._restore(change)
            before = outcomes.setdefault(change.path, outcome)
            if outcome != "unchanged" and before not in _LEFT_ALONE:
                outcomes[change.path] = outcome
            if outcome not in _LEFT_ALONE:
                record.remove()
        if self._records(turn_id):
            self._turn(turn_id).child(_UNDONE).write_bytes(b"")
        else:
            self._drop(turn_id)
        return list(outcomes.items())

    def prune(self, keep: int = 200) -> None:
        for turn_id in self._folders()[keep:]:
            with suppress(StorageError):  # another turn may forget it just now; else the next does
                self._drop(turn_id)

    def _restore(self, change: FileChange) -> Outcome:
        place = self._workspace.place(change.path)
        try:
            current = place.read_bytes(_LIMIT)
            if current == change.previous:
                return "unchanged"
            if current is None or hashlib.sha256(current).hexdigest() != change.new_hash:
                return "changed since"
            if change.previous is None:
                place.remove(expected=current)
                return "removed"
            place.write_bytes(change.previous, expected=current)
        except NanobotError:
            return "failed"
        return "restored"

    def _turn(self, turn_id: str) -> Place:
        if not _TURN_ID.fullmatch(turn_id):
            raise ValueError(f"{turn_id!r} is not the id of a turn")
        return self._root.place(turn_id)

    def _records(self, turn_id: str) -> list[Place]:
        turn = self._turn(turn_id)
        if turn.stat() is None:
            return []
        names = sorted(entry.name for entry in turn.entries() if entry.name.isdigit())
        return [turn.child(name) for name in names]

    def _folders(self) -> list[str]:
        if not self._root.path.is_dir():
            return []
        folders = [
            entry
            for entry in self._root.place(".").entries()
            if entry.kind == "folder" and _TURN_ID.fullmatch(entry.name)
        ]
        folders.sort(key=lambda entry: (entry.mtime_ns, entry.name), reverse=True)
        return [entry.name for entry in folders]

    def _drop(self, turn_id: str) -> None:
        turn = self._turn(turn_id)
        if turn.stat() is None:
            return
        for entry in turn.entries():
            turn.child(entry.name).remove()
        with storage_errors(self._root.path / turn_id):
            (self._root.path / turn_id).rmdir()
