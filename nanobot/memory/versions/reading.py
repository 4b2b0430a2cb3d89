"""Reading versions: the log, what one did, who wrote a line and when, what undoes a change.

Everything here blocks and writes nothing. One thread at a time reads the repository's files.

The versions in order: which commit a number is, what it touched, and when.

Numbers are places on the chain of commits, so they need no table; this one spares reading thousands
of commits for a question about one. It is a cache in a file of the repository: read once, extended
by what was committed since, made anew where it does not fit the branch.

When the lines of a file were written, worked out version by version and remembered. Pure.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path

from nanobot.memory.text.layout import split
from nanobot.memory.text.lines import merge
from nanobot.memory.versions.git import Commit, Repository
from nanobot.memory.versions.version import (
    TRACKED,
    Author,
    Message,
    Revert,
    Snapshot,
    UnknownVersion,
    Version,
    unified,
)
from nanobot.security.paths import Root

_CACHE = "chain.jsonl"


@dataclass(frozen=True, slots=True)
class Link:
    """One version; `time` is in seconds since 1970. `cursors` are the history entries behind it.

    `scope` is the prefix of the scope that it was made for, even if it changed nothing there.
    `blobs` are the ids of what it made of each of `paths`, empty for a file that it removed.
    `run` is what it shares with the others that were made together.
    """

    commit: str
    time: int
    paths: tuple[str, ...]
    cursors: tuple[int, ...]
    scope: str = ""
    blobs: tuple[str, ...] = ()
    run: str = ""

    def blob(self, path: str) -> str:
        """The id of what it made of a path that it changed, empty where it removed the file."""
        return self.blobs[self.paths.index(path)]

    def is_in(self, prefix: str) -> bool:
        """Whether it concerns the scope with this prefix; an empty prefix is the owner's."""
        return self.scope == prefix or any(belongs(path, prefix) for path in self.paths)


def belongs(path: str, prefix: str) -> bool:
    """Whether a path is a file of the scope with this prefix."""
    if prefix:
        return path.startswith(prefix)
    return not path.startswith(("people/", "groups/"))


class Chain:
    """The links of this device's own branch, oldest first; version N is `links[N - 1]`."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._links: list[Link] = []
        self._loaded = False

    def links(self) -> list[Link]:
        """All versions up to the branch's present tip."""
        if not self._loaded:
            self._links, self._loaded = self._cached(), True
        tip = self._repository.tip()
        if not self._links or self._links[-1].commit != tip:
            self._extend(tip)
        return self._links

    def forget(self) -> None:
        """Read everything anew next time."""
        self._links, self._loaded = [], False

    def _extend(self, tip: str) -> None:
        last = self._links[-1].commit if self._links else ""
        known: dict[str, int] = {}
        new: list[Link] = []
        keep = 0
        for commit in self._repository.chain(tip):
            if commit.id == last:
                keep = len(self._links)
                break
            if new and not known:  # not just one more: this may be another history
                known = {link.commit: place for place, link in enumerate(self._links, 1)}
            if keep := known.get(commit.id, 0):
                break
            new.append(self._link(commit))
        cut = keep < len(self._links)
        del self._links[keep:]
        self._links += reversed(new)
        self._keep(self._links if cut else self._links[keep:], whole=cut or not keep)

    def _link(self, commit: Commit) -> Link:
        parent = self._repository.commit(commit.parent).tree if commit.parent else ""
        changed = dict(self._repository.changed(parent, commit.tree))
        message, time = Message.parse(commit.message), int(commit.when.timestamp())
        paths, cursors = _names(changed), message.change.cursors
        scope, run = sys.intern(message.scope), message.change.run
        return Link(commit.id, time, paths, cursors, scope, tuple(changed.values()), run)

    def _keep(self, links: Iterable[Link], *, whole: bool) -> None:
        lines = (
            json.dumps(
                [link.commit, link.time, link.paths, link.cursors, link.scope, link.blobs, link.run]
            )
            + "\n"
            for link in links
        )
        with (
            suppress(OSError),  # a cache: the next process reads the commits again
            open(  # for its owner only from the first moment
                self._repository.path / _CACHE,
                "w" if whole else "a",
                encoding="utf-8",
                opener=partial(os.open, mode=0o600),
            ) as file,
        ):
            file.writelines(lines)

    def _cached(self) -> list[Link]:
        try:
            text = self._repository.read_file(_CACHE).decode()
            rows = [json.loads(line) for line in text.splitlines()]
            return [
                Link(
                    str(commit),
                    int(time),
                    _names(paths),
                    tuple(cursors),
                    sys.intern(scope),
                    tuple(blobs),
                    str(run),
                )
                for commit, time, paths, cursors, scope, blobs, run in rows
            ]
        except (OSError, ValueError, LookupError, TypeError):
            return []


def _names(paths: Iterable[str]) -> tuple[str, ...]:
    """The few there are, again and again in each version, take memory once."""
    return tuple(map(sys.intern, paths))


@dataclass(slots=True)
class WrittenLines:
    """The lines of a file, each with the time (in seconds since 1970) of the version that brought
    it in as it stands, as of version `number`, whose commit is `commit`."""

    number: int = 0
    commit: str = ""
    times: dict[str, int] = field(default_factory=dict)

    def became(self, text: str, time: int) -> None:
        """The next version of the file says `text`."""
        lines = {line.strip() for line in split(text) if line.strip()}
        self.times = {line: self.times.get(line, time) for line in lines}


_LIMIT = 10_000_000
_FIRST_BATCH, _BATCH = 16, 256
"""How many versions are read at once, while others wait; opening the repository takes time, too."""


class VersionReader:
    """The versions in the folder `repository` of the files in `work_tree`, the workspace.

    Paths are relative to the workspace; a `prefix` is that of a scope (`people/x/`), empty for the
    owner's. Raises `StorageError` where the repository is damaged.
    """

    def __init__(self, repository: Path, work_tree: Root) -> None:
        self.repository = Repository(repository)
        self._chain = Chain(self.repository)
        self._work_tree = work_tree
        self._lock = threading.RLock()
        self._depth = 0
        self._written: dict[str, WrittenLines] = {}

    def log(self, prefix: str = "", limit: int = 20) -> list[Version]:
        """The newest versions of a scope, newest first; those of one run are one."""
        with self._reading() as links:
            numbers = range(len(links), 0, -1)
            inside = (number for number in numbers if links[number - 1].is_in(prefix))
            found = (number for number in inside if _run(number, links)[-1] == number)
            return [self._joined(_run(number, links), links) for number in islice(found, limit)]

    def version(self, number: int, prefix: str = "") -> Version:
        """One version, with those of its run. Raises `UnknownVersion`, for one of another scope as
        well."""
        with self._reading() as links:
            if not (0 < number <= len(links)) or not links[number - 1].is_in(prefix):
                raise UnknownVersion(number)
            return self._joined(_run(number, links), links)

    def diff(self, number: int, prefix: str = "") -> str:
        """What a version changed in a scope, as a unified diff of all its files."""
        with self._reading() as links:
            if not 0 < number <= len(links):
                raise UnknownVersion(number)
            pairs = [
                (path, *self._texts(one, path, links))
                for one in _run(number, links)
                for path in links[one - 1].paths
                if belongs(path, prefix)
            ]
        return "".join(unified(path, before or "", after or "") for path, before, after in pairs)

    def lineage(self, path: str) -> Iterator[Snapshot]:
        """The versions that changed `path`, newest first, read as they are asked for."""
        with self._reading() as links:
            concerned = [
                (number, link) for number, link in enumerate(links, 1) if path in link.paths
            ]
        texts: dict[str, str] = {}
        size = _FIRST_BATCH
        while concerned:
            batch = concerned[: -size - 1 : -1]
            before = concerned[-size - 1 : -size]
            del concerned[-size:]
            size = min(2 * size, _BATCH)
            with self._reading() as links:
                # Not those that were erased meanwhile; what came before them is left.
                batch = [one for one in batch if links[one[0] - 1 : one[0]] == [one[1]]]
                # What one began with is what the one before had made of the file.
                blobs = [link.blob(path) for _, link in (*batch, *before)] if batch else []
                texts = {blob: texts.get(blob) or self._content(blob) for blob in blobs}
                versions = [self._version(number, links) for number, _ in batch]
            pairs = zip_longest(blobs, blobs[1:], fillvalue="")
            for version, (after, earlier) in zip(versions, pairs, strict=False):
                yield Snapshot(version, texts.get(earlier, ""), texts[after])

    def written(self, path: str) -> dict[str, datetime]:
        """When each line of the newest version of `path` was written as it stands there."""
        while True:
            with self._reading() as links:
                found = self._lines_so_far(path, links)
                for link in links[found.number : found.number + _BATCH]:
                    if path in link.paths:
                        found.became(self._content(link.blob(path)), link.time)
                    found.number, found.commit = found.number + 1, link.commit
                if found.number == len(links):
                    return {
                        line: datetime.fromtimestamp(time, UTC)
                        for line, time in found.times.items()
                    }

    def text_at(self, path: str, moment: datetime) -> str | None:
        """The text that stood in `path` then; None where no version is as old, or no file was."""
        with self._reading() as links:
            for number in range(len(links), 0, -1):
                if links[number - 1].time <= moment.timestamp():
                    return self._text(links[number - 1].commit, path)
        return None

    def applied_cursors(self, prefix: str = "") -> frozenset[int]:
        """The history entries of a scope on which a version rests."""
        with self._reading() as links:
            return frozenset(
                cursor for link in links if link.is_in(prefix) for cursor in link.cursors
            )

    def reverted(self, number: int, prefix: str = "") -> Revert:
        """What undoes a version and keeps all that was changed since; writes nothing."""
        version = self.version(number, prefix)
        texts: dict[str, str] = {}
        expected: dict[str, str | None] = {}
        conflicts: list[str] = []
        for path in version.paths:
            if not belongs(path, prefix):
                continue
            content = self._standing(path)
            now = None if content is None else decoded(content)
            text = now or ""
            for before, after in self._steps(number, path):
                merged = merge(after, text, before)
                if merged.conflicts:
                    conflicts += [f"{path}: {conflict}" for conflict in merged.conflicts]
                    break
                text = merged.text
            else:
                if text != (now or ""):
                    texts[path], expected[path] = text, now
        return Revert(texts, expected, tuple(conflicts))

    def restored(self, number: int, prefix: str = "") -> Revert:
        """What brings the files of a scope back to what they were after a version; writes nothing.
        Raises `UnknownVersion`."""
        number = self.version(number, prefix).number
        texts: dict[str, str] = {}
        expected: dict[str, str | None] = {}
        for path in (prefix + name for name in TRACKED):
            with self._reading() as links:
                wanted = self._text(links[number - 1].commit, path)
            content = self._standing(path)
            now = None if content is None else decoded(content)
            if (wanted or "") != (now or ""):
                texts[path], expected[path] = wanted or "", now
        return Revert(texts, expected)

    def _steps(self, number: int, path: str) -> list[tuple[str, str]]:
        """What the versions of a run made of a file, before and after, the newest first."""
        with self._reading() as links:
            members = [one for one in _run(number, links) if path in links[one - 1].paths]
            texts = [self._texts(one, path, links) for one in reversed(members)]
        return [(before or "", after or "") for before, after in texts]

    def tip_number(self) -> int:
        """The number of the newest version, 0 for none."""
        with self._reading() as links:
            return len(links)

    def author_of(self, number: int) -> Author:
        """Whose version it is."""
        with self._reading() as links:
            return self._version(number, links).author

    def close(self) -> None:
        """Let go of open files; what is asked next opens them again."""
        with self._open():
            self.repository.close()

    @contextmanager
    def _reading(self) -> Iterator[list[Link]]:
        with self._open():
            yield self._chain.links() if self.repository.exists else []

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

    def _version(self, number: int, links: list[Link]) -> Version:
        link = links[number - 1]
        commit = self.repository.commit(link.commit)
        change = Message.parse(commit.message).change
        paths, summary = link.paths, change.summary
        return Version(number, link.commit, commit.when, change.author, summary, paths, change)

    def _joined(self, numbers: Sequence[int], links: list[Link]) -> Version:
        """Versions that were made together as one, with the number of the last."""
        versions = [self._version(number, links) for number in numbers]
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

    def _lines_so_far(self, path: str, links: list[Link]) -> WrittenLines:
        found = self._written.get(path, WrittenLines())
        newest = links[found.number - 1 : found.number]
        if found.number and (not newest or newest[0].commit != found.commit):
            found = WrittenLines()  # erased, or moved away
        self._written[path] = found
        return found

    def _content(self, blob: str) -> str:
        return decoded(self.repository.content(blob)) if blob else ""

    def _texts(self, number: int, path: str, links: list[Link]) -> tuple[str | None, str | None]:
        before = self._text(links[number - 2].commit, path) if number > 1 else None
        return before, self._text(links[number - 1].commit, path)

    def _text(self, commit: str, path: str) -> str | None:
        content = self.repository.read(self.repository.commit(commit).tree, path)
        return None if content is None else decoded(content)


def _run(number: int, links: list[Link]) -> list[int]:
    """The numbers of the versions that were made together with one, itself among them."""
    link = links[number - 1]
    if not link.run:
        return [number]
    return [
        at
        for at, other in enumerate(links, 1)
        if other.run == link.run and other.scope == link.scope
    ]


def decoded(content: bytes) -> str:
    """The text of a file; what is no UTF-8 in it is marked."""
    return content.decode("utf-8", "replace")
