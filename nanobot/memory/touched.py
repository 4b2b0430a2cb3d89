"""Which lines each version of a file touched: so of all versions only those are read that a
question is about, and it is known when each line was written.

Lines are kept as hashes, in a file beside the versions (see `versionlist`). A line goes by what it
says, without its importance and the blanks around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from hashlib import blake2b

from msgspec import Struct

from nanobot.memory.gitstore import GitStore
from nanobot.memory.importance import importance_mark, without_importance
from nanobot.memory.lines import split
from nanobot.memory.version import Version, VersionSnapshot
from nanobot.memory.versionlist import KEPT_FROM, keep, read_kept


class Touched(Struct, frozen=True, gc=False):
    """What a version did to the lines of a file: those that it brought, with their importance too
    where it gave them one, and those that it took, without their list marks. As hashes."""

    commit: str
    path: str
    added: tuple[int, ...]
    removed: tuple[int, ...]

    @classmethod
    def by(cls, snapshot: VersionSnapshot, path: str) -> Touched:
        """By a version of the file at `path`."""
        before, after = set(split(snapshot.before)), set(split(snapshot.after))
        was, now = _said(before), _said(after)
        marked = {line.strip() for line in after - before if importance_mark(line)}
        sets = ((now - was) | marked, {bare(line) for line in was - now})
        return cls(snapshot.version.commit, path, *(tuple(map(_hash, lines)) for lines in sets))

    def has_brought(self, line: str) -> bool:
        """Whether it brought this line."""
        return _hash(_said_by(line)) in self.added

    def has_marked(self, line: str) -> bool:
        """Whether it gave this line the importance that it has."""
        return _hash(line.strip()) in self.added

    def has_taken(self, line: str) -> bool:
        """Whether it took this line, whatever its list mark was."""
        return _hash(bare(_said_by(line))) in self.removed


def versions_touching(
    versions: GitStore, path: str, is_wanted: Callable[[Touched], bool]
) -> Iterator[VersionSnapshot]:
    """Those versions of the file at `path` that are wanted, newest first; each is asked for when
    the one before it was looked at. Blocks."""
    for version, touched in _touched(versions, path):
        if is_wanted(touched) and (snapshot := versions.snapshot(version.number, path)):
            yield snapshot


class LineTimes:
    """When lines were written, as the `versions` tell."""

    def __init__(self, versions: GitStore) -> None:
        self._versions = versions
        self._known: dict[str, tuple[str, dict[str, datetime]]] = {}

    def of(self, path: str) -> dict[str, datetime]:
        """When each line of the newest version of `path` was written as it stands there, without
        its importance. It looks back to the version that was the newest when it was asked before.
        Blocks."""
        commit, known = self._known.get(path, ("", {}))
        touched = _touched(self._versions, path, commit)
        if not touched:
            return known
        newest, _ = touched[0]
        snapshot = self._versions.snapshot(newest.number, path)
        left = {_hash(line): line for line in _said(split(snapshot.after) if snapshot else ())}
        times = dict[str, datetime]()
        for version, lines in touched:
            there = (left.pop(one, "") for one in lines.added)
            times |= dict.fromkeys(filter(None, there), version.when)
        times |= {line: known[line] for line in left.values() if line in known}
        self._known[path] = newest.commit, times
        return times


def bare(line: str) -> str:
    """A line without its list mark."""
    return line.strip().lstrip("-*+ ")


def _touched(versions: GitStore, path: str, since: str = "") -> list[tuple[Version, Touched]]:
    """What the versions of a file did to its lines, newest first; of those after the commit `since`
    where it is one of them. What is not known yet is read: that are the newest."""
    after = [version for version in versions.versions() if path in version.blobs]
    commits = [version.commit for version in after]
    after = after[commits.index(since) + 1 :] if since in commits else after
    if not after:
        return []
    file = versions.repository.path / "touched.jsonl"
    kept = read_kept(file, Touched) if len(after) >= KEPT_FROM else []
    by_commit, new = {one.commit: one for one in kept if one.path == path}, list[Touched]()
    found = {one.number: by_commit[one.commit] for one in after if one.commit in by_commit}
    for snapshot in versions.lineage(path):
        if snapshot.version.number in found or snapshot.version.commit == since:
            break
        new.append(Touched.by(snapshot, path))
        found[snapshot.version.number] = new[-1]
    if len(new) >= KEPT_FROM:
        with versions.locked():  # so that nothing of a history is kept that was erased meanwhile
            there = {version.commit for version in versions.versions()}
            keep(file, (one for one in (*kept, *reversed(new)) if one.commit in there))
    return [(one, found[one.number]) for one in reversed(after) if one.number in found]


def _said(lines: Iterable[str]) -> set[str]:
    return {said for line in lines if (said := _said_by(line))}


def _said_by(line: str) -> str:
    return without_importance(line).strip()


def _hash(line: str) -> int:
    encoded = line.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(encoded, digest_size=6).digest(), "big")
