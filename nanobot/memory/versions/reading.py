"""Reading versions: the log, what one did, when a line was written, what undoes a change.

Version N is the Nth commit of this device's branch. What each version touched is read from the
commits once in a process and extended by what was committed since. Everything here blocks and
writes nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import unified_diff
from itertools import islice
from pathlib import Path

from nanobot.memory.documents import TRACKED
from nanobot.memory.text.layout import split
from nanobot.memory.text.lines import merge
from nanobot.memory.versions.git import Commit, Repository
from nanobot.memory.versions.version import (
    Author,
    Message,
    Revert,
    Snapshot,
    UnknownVersion,
    Version,
)
from nanobot.security.paths import Root

_LIMIT = 10_000_000
_BATCH = 32
"""How many versions are read at once, while others wait; opening the repository takes time, too."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A version as the index has it: `time` in seconds since 1970, the prefix of the `scope` that
    it was made for, the history entries (`cursors`) behind it, the `run` it shares with others,
    and of each file that it changed the id of the content, empty where the file went."""

    commit: str
    time: int
    scope: str
    run: str
    cursors: tuple[int, ...]
    blobs: Mapping[str, str]

    def is_in(self, prefix: str) -> bool:
        """Whether it concerns the scope with this prefix; an empty prefix is the owner's."""
        return self.scope == prefix or any(belongs(path, prefix) for path in self.blobs)


def belongs(path: str, prefix: str) -> bool:
    """Whether a path is a file of the scope with this prefix."""
    if prefix:
        return path.startswith(prefix)
    return not path.startswith(("people/", "groups/"))


class VersionReader:
    """The versions in the folder `repository` of the files in `work_tree`, the workspace.

    Paths are relative to the workspace; a `prefix` is that of a scope (`people/x/`), empty for the
    owner's. Raises `StorageError` where the repository is damaged.
    """

    def __init__(self, repository: Path, work_tree: Root) -> None:
        self.repository = Repository(repository)
        self._work_tree = work_tree
        self._entries: list[Entry] = []
        self._lock = threading.RLock()
        self._depth = 0

    def log(self, prefix: str = "", limit: int = 20) -> list[Version]:
        """The newest versions of a scope, newest first; those of one run are one."""
        with self._reading() as entries:
            inside = (n for n in range(len(entries), 0, -1) if entries[n - 1].is_in(prefix))
            runs = ((number, _run(number, entries)) for number in inside)
            found = (run for number, run in runs if run[-1] == number)
            return [self._joined(run, entries) for run in islice(found, limit)]

    def version(self, number: int, prefix: str = "") -> Version:
        """One version, with those of its run. Raises `UnknownVersion`, for one of another scope as
        well."""
        with self._reading() as entries:
            if not (0 < number <= len(entries)) or not entries[number - 1].is_in(prefix):
                raise UnknownVersion(number)
            return self._joined(_run(number, entries), entries)

    def diff(self, number: int, prefix: str = "") -> str:
        """What a version changed in a scope, as a unified diff of all its files."""
        lines: list[str] = []
        with self._reading() as entries:
            if not 0 < number <= len(entries):
                raise UnknownVersion(number)
            for one in _run(number, entries):
                for path in entries[one - 1].blobs:
                    if belongs(path, prefix):
                        old, new = map(split, self._texts(one, path, entries))
                        lines += unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm="")
        return "".join(f"{line}\n" for line in lines)

    def lineage(self, path: str) -> Iterator[Snapshot]:
        """The versions that changed `path`, newest first, read as they are asked for."""
        with self._reading() as entries:
            waiting = [(n, entry) for n, entry in enumerate(entries, 1) if path in entry.blobs]
        while waiting:
            with self._reading() as entries:
                snapshots = [
                    Snapshot(self._version(number, entries), *self._texts(number, path, entries))
                    for number, entry in waiting[: -_BATCH - 1 : -1]
                    if entries[number - 1 : number] == [entry]  # not erased meanwhile
                ]
            del waiting[-_BATCH:]
            yield from snapshots

    def written(self, path: str) -> dict[str, datetime]:
        """When each line of the newest version of `path` was written as it stands there."""
        times: dict[str, datetime] = {}
        standing: set[str] | None = None
        for snapshot in self.lineage(path):
            standing = _lines(snapshot.after) if standing is None else standing
            times |= dict.fromkeys(standing, snapshot.version.when)
            standing &= _lines(snapshot.before)
            if not standing:
                break
        return times

    def text_at(self, path: str, moment: datetime) -> str | None:
        """The text that stood in `path` then; None where no version is as old, or no file was."""
        with self._reading() as entries:
            for number in range(len(entries), 0, -1):
                if entries[number - 1].time <= moment.timestamp():
                    return self._text(number, path, entries)
        return None

    def applied_cursors(self, prefix: str = "") -> frozenset[int]:
        """The history entries of a scope on which a version rests."""
        with self._reading() as entries:
            inside = (entry for entry in entries if entry.cursors and entry.is_in(prefix))
            return frozenset(cursor for entry in inside for cursor in entry.cursors)

    def reverted(self, number: int, prefix: str = "") -> Revert:
        """What undoes a version and keeps all that was changed since; writes nothing."""
        revert = Revert({}, {})
        conflicts: list[str] = []
        for path in self.version(number, prefix).paths:
            if not belongs(path, prefix):
                continue
            with self._reading() as entries:
                run = [n for n in _run(number, entries) if path in entries[n - 1].blobs]
                steps = [self._texts(one, path, entries) for one in reversed(run)]
            now = self._standing_text(path)
            text = now or ""
            for before, after in steps:
                merged = merge(after, text, before)
                if merged.conflicts:
                    conflicts += [f"{path}: {conflict}" for conflict in merged.conflicts]
                    break
                text = merged.text
            else:
                revert = revert.adding(path, now, text)
        return replace(revert, conflicts=tuple(conflicts))

    def restored(self, number: int, prefix: str = "") -> Revert:
        """What brings the files of a scope back to what they were after a version; writes nothing.
        Raises `UnknownVersion`."""
        number = self.version(number, prefix).number
        revert = Revert({}, {})
        for path in (prefix + name for name in TRACKED):
            with self._reading() as entries:
                wanted = self._text(number, path, entries)
            revert = revert.adding(path, self._standing_text(path), wanted or "")
        return revert

    def tip_number(self) -> int:
        """The number of the newest version, 0 for none."""
        with self._open():
            tip = self.repository.tip()
            return Message.parse(self.repository.commit(tip).message).number if tip else 0

    def author_of(self, number: int) -> Author:
        """Whose version it is."""
        with self._reading() as entries:
            return self._version(number, entries).author

    @contextmanager
    def _reading(self) -> Iterator[list[Entry]]:
        """All versions, oldest first; other readers and writers wait."""
        with self._open():
            known = self._entries[-1].commit if self._entries else ""
            new: list[Entry] = []
            for commit in self.repository.chain(self.repository.tip()):
                if commit.id == known:
                    break
                new.append(self._entry(commit))
            else:
                self._entries = []  # the first time, or another history
            self._entries += reversed(new)
            yield self._entries

    def _entry(self, commit: Commit) -> Entry:
        parent = self.repository.commit(commit.parent).tree if commit.parent else ""
        changed = self.repository.changed(parent, commit.tree)
        blobs = {sys.intern(path): blob for path, blob in changed}
        message, time = Message.parse(commit.message), int(commit.when.timestamp())
        change = message.change
        return Entry(commit.id, time, sys.intern(message.scope), change.run, change.cursors, blobs)

    @contextmanager
    def _open(self) -> Iterator[None]:
        """One thread at a time; the last one out closes the repository's files."""
        with self._lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    self.repository.close()

    def _standing(self, path: str) -> bytes | None:
        return self._work_tree.place(path).read_bytes(_LIMIT)

    def _standing_text(self, path: str) -> str | None:
        content = self._standing(path)
        return None if content is None else decoded(content)

    def _version(self, number: int, entries: Sequence[Entry]) -> Version:
        commit = self.repository.commit(entries[number - 1].commit)
        change = Message.parse(commit.message).change
        paths = tuple(entries[number - 1].blobs)
        return Version(number, commit.id, commit.when, change.author, change.summary, paths, change)

    def _joined(self, numbers: Sequence[int], entries: Sequence[Entry]) -> Version:
        """Versions that were made together as one, with the number of the last."""
        versions = [self._version(number, entries) for number in numbers]
        changes = [version.change for version in versions]
        summaries = dict.fromkeys(version.summary for version in versions if version.summary)
        paths = dict.fromkeys(path for version in versions for path in version.paths)
        change = replace(
            changes[-1],
            cursors=tuple(sorted({cursor for one in changes for cursor in one.cursors})),
            operations=tuple(step for one in changes for step in one.operations),
        )
        summary = "; ".join(summaries)
        return replace(versions[-1], summary=summary, paths=tuple(paths), change=change)

    def _texts(self, number: int, path: str, entries: Sequence[Entry]) -> tuple[str, str]:
        """What a version found in a file, and what it made of it."""
        before, after = (self._text(one, path, entries) for one in (number - 1, number))
        return before or "", after or ""

    def _text(self, number: int, path: str, entries: Sequence[Entry]) -> str | None:
        """What stood in a file after a version; None for no file."""
        blobs = (entries[n - 1].blobs.get(path) for n in range(number, 0, -1))
        blob = next((blob for blob in blobs if blob is not None), "")
        return decoded(self.repository.content(blob)) if blob else None


def _run(number: int, entries: Sequence[Entry]) -> list[int]:
    """The numbers of the versions that were made together with one, itself among them."""
    one = entries[number - 1]
    if not one.run:
        return [number]
    made = enumerate(entries, 1)
    return [n for n, other in made if (other.run, other.scope) == (one.run, one.scope)]


def _lines(text: str) -> set[str]:
    return {line.strip() for line in split(text) if line.strip()}


def decoded(content: bytes) -> str:
    """The text of a file; what is no UTF-8 in it is marked."""
    return content.decode("utf-8", "replace")
