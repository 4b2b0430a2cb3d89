"""Every version of the long-term files: who changed what, why, and how to undo it.

`GitStore` keeps the files of one scope in a repository in the state folder, outside the agent's
reach; a repository that the person keeps in the workspace is not looked at. Invariants:

- a version holds the change of one writer: what a person edited by hand is committed as theirs
  before an agent's write, so that it is never taken for the agent's;
- the first version of a scope holds its files as they were found, and is no one's change;
- an intent is on the disk before each write, so that a crash at any step attributes the change
  rightly; at most one is open;
- a version has the number that its commit names, for good, also after erasing or a sync. Numbers
  count up from 1; they have gaps where earlier versions of nanobot kept other scopes in the same
  repository (see `repositories`).

Everything here blocks. A lock of its own orders the threads of a scope, one on a file beside the
repository its processes; scopes do not wait for each other. All who work on versions share
`versions.lock`: who holds it alone, a backup, finds every repository at rest. The system releases
the locks of a process that ends.
"""

from __future__ import annotations

import hashlib
import json
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import cache
from operator import attrgetter
from pathlib import Path

from loguru import logger
from msgspec.structs import replace

from nanobot.clock import Clock
from nanobot.errors import StorageError, ToolError
from nanobot.io import locked, storage_errors
from nanobot.memory.documents import TRACKED
from nanobot.memory.files import text_of
from nanobot.memory.git import PACK_EVERY, Damaged, Repository, blob_id
from nanobot.memory.guard import summary_of_change
from nanobot.memory.lines import merge
from nanobot.memory.lines import split as split_lines
from nanobot.memory.repositories import is_split, repository_of, split
from nanobot.memory.version import (
    Author,
    Change,
    CommitMessage,
    Revert,
    UnknownVersion,
    Version,
    VersionSnapshot,
    belongs,
    scope_of,
)
from nanobot.memory.versionlist import VersionList
from nanobot.security.paths import Root
from nanobot.tasks import paced

_EVERY_LOCK = "versions.lock"
LIMIT = 10_000_000
"""Bytes of the largest file that is read."""
_BATCH = 32
"""How many versions are read at once at most, while others wait; opening the repository takes time,
too."""


class GitStore:
    """The versions, in the state folder `state`, of the files of one scope in `work_tree`, the
    workspace.

    `prefix` is that of the scope (`people/x/`), empty for the owner's; paths are relative to the
    workspace. The repository is made by the first version. Synchronous and thread-safe: callers on
    the event loop use `asyncio.to_thread`. After `pack_every` versions their objects become one
    file. Where not `is_held`, another worker of a team may be writing: what looks half done is its
    to finish. Raises `StorageError` where the disk refuses or the repository is damaged.
    """

    def __init__(
        self,
        state: Path,
        work_tree: Root,
        clock: Clock,
        prefix: str = "",
        *,
        pack_every: int = PACK_EVERY,
        is_held: Callable[[], bool] = lambda: True,
    ) -> None:
        path = repository_of(state, prefix)
        self.is_held = is_held
        self.repository = Repository(path)
        self.prefix = prefix
        self._intent = path / "intent.json"
        self._state = state
        self.work_tree = work_tree
        self.clock = clock
        self._pack_every = pack_every
        self._lock = threading.RLock()
        self._depth = 0
        self._is_recovered = False
        self._list = VersionList(self.repository, prefix)
        self._recorded_at: tuple[str, dict[str, str]] = ("", {})

    # Writing

    def recover(self) -> None:
        """Finish what a process that died left half done, before anything else: for the owner's at
        start; of another scope, the first work on it does it.

        A damaged repository is set aside and a new one begins: versions are for looking back, and
        memory must not stop for them.
        """
        if not self._state.exists():
            return
        with self.locked():
            try:
                self.repository.remove_leftovers()
                self._settle()
                self._recorded()
            except Damaged as error:
                path = self.repository.path
                aside = path.with_name(f"{path.name}.damaged-{self.clock.now():%Y%m%dT%H%M%S}")
                with storage_errors(path):
                    path.rename(aside)
                logger.error("{}; it is now {}, and new versions begin", error, aside.name)
            self._is_recovered = True

    def split(self) -> None:
        """Give the other scopes their part of a repository that was for all of them, where that was
        not done yet; called on the owner's store. See `repositories`."""
        if is_split(self._state):
            return
        self.recover()
        with self.locked():
            if not is_split(self._state):
                split(self._state)

    def write(
        self, path: str, before: bytes | None, after: bytes, change: Change, put: Callable[[], None]
    ) -> int:
        """Let `put` write the file and make that a version; return its number.

        `before` is the present content, `after` what `put` will have written. What a person changed
        becomes versions of theirs first. Where `put` raises, there is no version.
        A change that rests on history entries is a version even if it changes no line, so that the
        entries count as applied; another one that changes nothing has the number 0.
        """
        with self.locked():
            self.repository.create()
            self._settle()
            self.record_hand_edits()
            if before == after and not change.cursors:
                put()
                return 0
            message, now = self._message(change), self.clock.now()
            intent = {"path": path, "after": _sha(after), "parent": self.repository.tip()}
            intent |= {"message": message, "when": now.isoformat()}
            self.repository.write_file(self._intent.name, json.dumps(intent).encode())
            try:
                put()
            except BaseException:
                self._settle()
                raise
            return self._commit({path: after}, message, now)

    def record_hand_edits(self, author: Author = "you") -> tuple[int, ...]:
        """Make versions of what was changed since the last one, by a person or by the `author`
        given; their numbers.

        Where the scope has no versions, its files as they stand become the first.
        """
        with self.locked():
            files = dict[str, bytes | None]()
            for path in (self.prefix + name for name in TRACKED):
                try:
                    files[path] = self._current(path)
                except ToolError as error:  # a link must not keep the others from being written
                    logger.warning("{} is not kept in the versions: {}", path, error)
            if any(belongs(path, self.prefix) for path in self._recorded()):
                numbers = [self._record(path, files[path], author) for path in files]
                return tuple(filter(None, numbers))
            found = {path: content for path, content in files.items() if content is not None}
            if not found:
                return ()
            message = self._message(Change("start", "the files as they were"))
            return (self._commit(found, message, self.clock.now()),)

    def rewrite(self, redact: Callable[[str], str]) -> int:
        """Put every text in every version through `redact`; return how many versions changed.

        A crash leaves the old history or the new one. Numbers, dates and authors stay, and a
        version in which nothing is left to change stays as an empty one; the other devices'
        branches and all old objects go. The files in the workspace are not touched. A sync under
        way ends first.
        """

        def redact_message(text: str) -> str:
            message = CommitMessage.parse(text)
            redacted = message.redacted(redact)
            return text if redacted == message else redacted.text

        def redact_content(content: bytes) -> bytes:
            text = redact(content.decode("utf-8", "surrogateescape"))
            return text.encode("utf-8", "surrogateescape")

        with self.sync_lock(), self.locked():
            if not self.repository.tip():
                return 0
            self._settle()
            return self.repository.rewrite(redact_message, redact_content)

    @contextmanager
    def sync_lock(self) -> Iterator[None]:
        """Excludes other syncs and the replacement of the history; writing goes on."""
        with locked(self._lock_file("syncing"), wait=True):
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Excludes other threads and processes from the versions; the outermost one closes the
        repository's files."""
        with self._lock, ExitStack() as stack:
            if not self._depth:
                own = self._lock_file("lock")
                stack.enter_context(locked(self._state / _EVERY_LOCK, wait=True, shared=True))
                stack.enter_context(locked(own, wait=True))
                stack.callback(self.repository.close)
            self._depth += 1
            try:
                if self._depth == 1 and self.is_held():
                    self.repository.finish_rewrite()
                    if self.prefix and not self._is_recovered:
                        self.recover()
                yield
            finally:
                self._depth -= 1

    def _lock_file(self, kind: str) -> Path:
        """A file for a lock beside the repository, whose folder is there for the split only."""
        if self.prefix and not is_split(self._state):
            GitStore(self._state, self.work_tree, self.clock).split()
        return self.repository.path.with_name(f"{self.repository.path.name}.{kind}")

    def _settle(self) -> None:
        """Give the change of an open intent to whom it belongs, where there is one to be read."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            intent = json.loads(self._intent.read_bytes())
            path, when = intent["path"], datetime.fromisoformat(intent["when"])
            if self.repository.tip() == intent["parent"]:
                content = self._current(path)
                if content is not None and _sha(content) == intent["after"]:
                    logger.info("a change of {} that had no version gets one", path)
                    self._commit({path: content}, intent["message"], when)
                else:
                    self._record(path, content)
        with suppress(NotADirectoryError):  # writing a version reports it
            self._intent.unlink(missing_ok=True)

    def _record(self, path: str, content: bytes | None, author: Author = "you") -> int:
        """Make a version of what stands in a file; 0 where the newest version has the same."""
        recorded = self._recorded().get(path)
        if recorded == (None if content is None else blob_id(content)):
            return 0
        name = path.rpartition("/")[2]
        summary = f"removed {name}"
        if content is not None:
            before = self.repository.content(recorded) if recorded else b""
            summary = summary_of_change(name, text_of(before), text_of(content))
        message = self._message(Change(author, summary), scope_of(path))
        return self._commit({path: content}, message, self.clock.now())

    def _message(self, change: Change, scope: str | None = None) -> str:
        scope = self.prefix if scope is None else scope
        return CommitMessage(change, self.tip_number() + 1, scope).text

    def _commit(self, files: Mapping[str, bytes | None], message: str, when: datetime) -> int:
        self.repository.create()
        try:
            tip = self.repository.store(self.repository.tip(), files, message, when)
        except StorageError:
            self.repository.remove_leftovers()  # of the lock on a file that the disk did not take
            raise
        self.repository.set_tip(tip)
        self._intent.unlink(missing_ok=True)
        number = CommitMessage.parse(message).number
        if number % self._pack_every == 0:
            self.repository.pack()
        return number

    def _recorded(self) -> dict[str, str]:
        """The files of the newest version, each with the id of its content."""
        tip = self.repository.tip()
        if self._recorded_at[0] != tip:
            tree = self.repository.commit(tip).tree if tip else ""
            self._recorded_at = (tip, dict(self.repository.changed("", tree)) if tree else {})
        return self._recorded_at[1]

    def _current(self, path: str) -> bytes | None:
        return self.work_tree.place(path).read_bytes(LIMIT)

    # Reading

    def versions(self) -> Sequence[Version]:
        """All of this repository, oldest first. They are read once in a process, and then what is
        new."""
        with self.locked():
            return self._list.read()

    def at(self, number: int) -> Version | None:
        """The newest version whose number is not above `number`."""
        versions = self.versions()
        found = bisect_right(versions, number, key=attrgetter("number"))
        return versions[found - 1] if found else None

    def log(self, limit: int = 20, skip: int = 0) -> list[Version]:
        """The newest versions of the scope after the `skip` newest, newest first; those of one run
        are one."""
        return [_joined(run) for run in self._runs()[skip : skip + limit]]

    def count(self) -> int:
        """How many `log` has in all."""
        return len(self._runs())

    def version(self, number: int) -> Version:
        """One version, with those of its run. Raises `UnknownVersion`, for one of another scope as
        well."""
        return _joined(self._run(number))

    def diff(self, number: int) -> str:
        """What a version changed, as a unified diff of all its files."""
        from difflib import unified_diff  # seldom needed

        lines: list[str] = []
        for version in self._run(number):
            for path in version.paths:
                if shot := self.snapshot(version.number, path):
                    old, new = split_lines(shot.before), split_lines(shot.after)
                    lines += unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm="")
        return "".join(f"{line}\n" for line in lines)

    def lineage(self, path: str) -> Iterator[VersionSnapshot]:
        """The versions that changed `path`, newest first, read as they are asked for."""
        known, count = self.versions(), 1
        found = {step[0].number: step for step in self._steps(path)}
        waiting = list(found)
        while waiting:
            with self.locked():
                if (now := self.versions()) is not known:  # some may have been erased since
                    known, found = now, {step[0].number: step for step in self._steps(path)}
                steps = [found[one] for one in waiting[-count:] if one in found]
                text = cache(self._blob_text)  # what one made is what the next one found
                batch = [
                    VersionSnapshot(one, text(old), text(new)) for one, old, new in paced(steps)
                ]
            del waiting[-count:]
            count = min(2 * count, _BATCH)
            yield from reversed(batch)

    def snapshot(self, number: int, path: str) -> VersionSnapshot | None:
        """What a version made of the file at `path`; None where it changed nothing of that."""
        with self.locked():
            for version, old, new in self._steps(path):
                if version.number == number:
                    return VersionSnapshot(version, self._blob_text(old), self._blob_text(new))
        return None

    def applied_cursors(self) -> frozenset[int]:
        """The history entries of the scope whose changes a version holds. Dream's versions name
        entries as well, those that it read: it may read one whose changes still wait."""
        inside = (one.change for one in self.versions() if one.is_in(self.prefix))
        made = (change.cursors for change in inside if change.author == "consolidate")
        return frozenset(cursor for cursors in made for cursor in cursors)

    def plan_undo(self, number: int) -> Revert:
        """What undoes a version and keeps all that was changed since; writes nothing."""
        wanted: dict[str, str] = {}
        conflicts: list[str] = []
        run = self._run(number)
        for path in dict.fromkeys(path for one in run for path in one.paths):
            made = (self.snapshot(one.number, path) for one in run if path in one.blobs)
            wanted[path], disputed = _undone(text_of(self._current(path)), [*filter(None, made)])
            conflicts += [f"{path}: {conflict}" for conflict in disputed]
        return self._revert(wanted, conflicts)

    def plan_restore(self, number: int) -> Revert:
        """What brings the files back to what they were after a version."""
        wanted: dict[str, str] = {}
        with self.locked():
            for path in (self.prefix + name for name in TRACKED):
                blobs = [blob for one, _, blob in self._steps(path) if one.number <= number]
                wanted[path] = self._blob_text(blobs[-1] if blobs else "")
        return self._revert(wanted)

    def tip_number(self) -> int:
        """The number of the newest version, 0 for none."""
        with self.locked():
            if not (tip := self.repository.tip()):
                return 0
            said = CommitMessage.parse(self.repository.commit(tip).message)
            return said.number or self.versions()[-1].number  # a person's commit names none

    def _revert(self, wanted: Mapping[str, str], conflicts: Sequence[str] = ()) -> Revert:
        now = {path: text_of(self._current(path)) for path in wanted}
        texts = {path: text for path, text in wanted.items() if text != now[path]}
        return Revert(texts, {path: now[path] for path in texts}, tuple(conflicts))

    def _run(self, number: int) -> list[Version]:
        """A version and those that were made together with it. Raises `UnknownVersion`."""
        version = self.at(number)
        if version is None or version.number != number or not version.is_in(self.prefix):
            raise UnknownVersion(number)
        if not (run := version.change.run):
            return [version]
        together = (run, version.scope)
        return [one for one in self.versions() if (one.change.run, one.scope) == together]

    def _runs(self) -> list[list[Version]]:
        """The versions of the scope, those of one run together; the newest first."""
        runs: dict[object, list[Version]] = {}
        for version in self.versions():
            run = version.change.run
            runs.setdefault((run, version.scope) if run else version.number, []).append(version)
        inside = (run for run in runs.values() if run[-1].is_in(self.prefix))
        return sorted(inside, key=lambda run: run[-1].number, reverse=True)

    def _steps(self, path: str) -> Iterator[tuple[Version, str, str]]:
        """The versions that changed `path`, oldest first, with the ids of its content before and
        after."""
        before = ""
        for version in self.versions():
            if (after := version.blobs.get(path)) is not None:
                yield version, before, after
                before = after

    def _blob_text(self, blob: str) -> str:
        return text_of(self.repository.content(blob)) if blob else ""


def _joined(versions: Sequence[Version]) -> Version:
    """Versions that were made together as one, with the number of the last."""
    changes = [version.change for version in versions]
    change = replace(
        changes[-1],
        summary="; ".join(dict.fromkeys(one.summary for one in changes if one.summary)),
        cursors=tuple(sorted({cursor for one in changes for cursor in one.cursors})),
        operations=tuple(step for one in changes for step in one.operations),
    )
    blobs = {path: blob for version in versions for path, blob in version.blobs.items()}
    return replace(versions[-1], change=change, blobs=blobs)


def _undone(text: str, steps: Sequence[VersionSnapshot]) -> tuple[str, tuple[str, ...]]:
    """`text` without the changes `steps`, and what is against it; then unchanged. Pure."""
    undone = text
    for step in reversed(steps):
        merged = merge(step.after, undone, step.before)
        if merged.conflicts:
            return text, merged.conflicts
        undone = merged.text
    return undone, ()


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
