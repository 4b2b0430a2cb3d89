"""Versions of the long-term files: who changed what, why, and how to undo it. Blocks.

A scope's repository is in the state folder, outside the agent's reach. The person's own
repositories in the workspace are ignored. Invariants:

- a version holds the change of one writer: hand edits are committed before an agent's write;
- the first version holds the files as they were found, and is no one's change;
- a commit is stored on its own branch before the file is written, and becomes the newest version
  afterwards. After a crash it does so if the file has the same content;
- a version keeps the number in its commit, also after erasing or a sync.

A lock orders the threads of a scope, a lock file its processes. Scopes do not wait for each other.
All share `versions.lock`, which a backup holds exclusively, with every repository at rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from loguru import logger
from msgspec.structs import replace

from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError, ToolError
from nanobot.io import hold_lock, storage_errors
from nanobot.memory.documents import PENDING, TRACKED, text_of
from nanobot.memory.git import (
    Commit,
    DamagedRepository,
    Files,
    Repository,
    blob_id,
    find_changed_paths,
    repository_of,
)
from nanobot.memory.guard import summary_of_change
from nanobot.memory.importance import without_importance
from nanobot.memory.line_changes import blocks_of, undo
from nanobot.memory.line_changes import split as split_lines
from nanobot.memory.version import (
    CONFIRMED,
    Author,
    Change,
    CommitMessage,
    Revert,
    Version,
    VersionSnapshot,
)
from nanobot.security.paths import Root
from nanobot.tasks import pace

_EVERY_LOCK = "versions.lock"
LIMIT = 10_000_000
"""Bytes of the largest file that is read."""
PACK_EVERY = 500
"""Number of versions after which the loose objects become one file."""
_PREPARED = "prepared"
"""The branch of the write in progress."""


class GitStore:
    """Versions, in the folder `state`, of the files of one scope in the workspace `work_tree`.

    `prefix` is that of the scope (`people/x/`), empty for the owner's. Paths are relative to the
    workspace. The first version creates the repository. Synchronous and thread-safe: callers on the
    event loop use `asyncio.to_thread`. If not `is_held`, another worker of a team may be writing
    and finishes its own work. Raises `StorageError` if the disk refuses or the repository is
    damaged."""

    def __init__(
        self,
        state: Path,
        work_tree: Root,
        clock: Clock,
        prefix: str = "",
        is_held: Callable[[], bool] = lambda: True,
    ) -> None:
        self.repository = Repository(repository_of(state, prefix))
        self.prefix, self.work_tree, self.clock = prefix, work_tree, clock
        self.is_held = is_held
        self._state = state
        self._lock = threading.RLock()
        self._depth = 0
        self._is_recovered = False
        self._known: Sequence[Version] = ()
        self._line_times: dict[str, tuple[str, dict[str, datetime]]] = {}

    # Writing

    def recover(self) -> None:
        """Let the next access finish the work of a process that died. The first access always does.

        A damaged repository is then set aside and a new one begins: versions are for looking back,
        and memory must not stop for them."""
        self._is_recovered = False

    def _recover(self) -> None:
        path = self.repository.path
        try:
            self.repository.remove_leftovers()
            self._settle()
            self._load_recorded()
        except DamagedRepository as error:
            aside = path.with_name(f"{path.name}.damaged-{self.clock.now():%Y%m%dT%H%M%S}")
            with storage_errors(path):
                path.rename(aside)
            logger.error("{}. It was moved to {}, and a new one was started", error, aside.name)

    def write(
        self, path: str, before: bytes | None, after: bytes, change: Change, put: Callable[[], None]
    ) -> int:
        """Let `put` write the file, record that as a version, and return its number.

        `before` is the present content, `after` the content that `put` writes. A person's changes
        become a separate version first. If `put` raises, there is no version. A change with history
        entries is a version even if it changes no line, so that the entries count as applied. Any
        other change that changes nothing has the number 0."""
        with self.acquire():
            self.repository.create()
            self.record_hand_edits()
            if before == after and not change.cursors:
                put()
                return 0
            number = self.tip_number() + 1
            commit = self._store({path: after}, change, number)
            self.repository.set_tip(commit, _PREPARED)
            try:
                put()
            except BaseException:
                self._settle()
                raise
            self._advance(commit, number)
            self.repository.remove_branch(_PREPARED)
            return number

    def record_hand_edits(self, author: Author = "you") -> int:
        """Record the changes since the newest version as a version of `author`. Return its number,
        or 0.

        If the scope has no versions, its present files become the first."""
        with self.acquire():
            self._settle()
            recorded, files = self._load_recorded(), dict[str, bytes | None]()
            for path in (self.prefix + name for name in TRACKED):
                try:
                    content = self._current(path)
                except ToolError as error:  # a link must not stop the others
                    logger.warning("could not record a version of {}: {}", path, error)
                    continue
                if recorded.get(path) != (None if content is None else blob_id(content)):
                    files[path] = content
            if not files:
                return 0
            change = Change("start", "initial files")
            if self.repository.tip():
                before = {path: self.repository.content(recorded.get(path, "")) for path in files}
                summaries = (
                    summary_of_change(path.rpartition("/")[2], text_of(before[path]), text_of(now))
                    for path, now in files.items()
                )
                change = Change(author, "; ".join(summaries))
            number = self.tip_number() + 1
            self._advance(self._store(files, change, number), number)
            return number

    def rewrite(self, redact: Callable[[str], str]) -> int:
        """Redact every text in every version and return how many versions changed.

        A crash leaves the old history or the new one. Numbers, dates and authors stay, and a
        version without remaining changes stays as an empty one. The other devices' branches and all
        old objects are deleted. The files in the workspace are not touched. A running sync ends
        first."""

        def redact_message(text: str) -> str:
            message = CommitMessage.parse(text)
            if not message.number:  # a person's own commit
                return redact(text)
            redacted = message.redact(redact)
            # Foreign lines, such as those of an amended commit, are redacted with it.
            is_free = redacted == message and redact(text) == text
            return text if is_free else redacted.text

        def redact_content(content: bytes) -> bytes:
            text = redact(content.decode("utf-8", "surrogateescape"))
            return text.encode("utf-8", "surrogateescape")

        with self.sync_lock(), self.acquire():
            self._settle()
            return self.repository.rewrite(redact_message, redact_content)

    @contextmanager
    def sync_lock(self) -> Iterator[None]:
        """Exclude other syncs and the replacement of the history. Writing continues."""
        with hold_lock(self._lock_file("syncing"), wait=True):
            yield

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Exclude other threads and processes from the versions. The outermost caller closes the
        repository's files."""
        with self._lock, ExitStack() as stack:
            if not self._depth:
                stack.enter_context(hold_lock(self._state / _EVERY_LOCK, wait=True, shared=True))
                stack.enter_context(hold_lock(self._lock_file("lock"), wait=True))
                stack.callback(self.repository.close)
            self._depth += 1
            try:
                if not self._is_recovered and self.is_held():
                    self._recover()
                    self._is_recovered = True
                yield
            finally:
                self._depth -= 1

    def _lock_file(self, kind: str) -> Path:
        return self.repository.path.with_name(f"{self.repository.path.name}.{kind}")

    def _settle(self) -> None:
        """Make the prepared commit the newest version if its files were written, else drop it."""
        repository = self.repository
        if not (prepared := repository.tip(_PREPARED)):
            return
        commit, recorded = repository.commit(prepared), self._load_recorded()
        if commit.parent == repository.tip():
            files = repository.files(prepared)
            changed = find_changed_paths(recorded, files)
            contents = {path: self._current(path) or b"" for path in changed}
            if all(files.get(path) == blob_id(contents[path]) for path in changed):
                self._advance(prepared, CommitMessage.parse(commit.message).number)
        repository.remove_branch(_PREPARED)

    def _store(self, files: Files, change: Change, number: int) -> str:
        message = CommitMessage(change, number).text
        self.repository.create()
        try:
            return self.repository.store(self.repository.tip(), files, message, self.clock.now())
        except StorageError:
            self.repository.remove_leftovers()  # of the lock on a file that could not be written
            raise

    def _advance(self, commit: str, number: int) -> None:
        self.repository.set_tip(commit)
        if number % PACK_EVERY == 0:
            self.repository.pack()

    def _load_recorded(self) -> dict[str, str]:
        """Return the files of the newest version, each with the id of its content."""
        return self.repository.files(self.repository.tip())

    def _current(self, path: str) -> bytes | None:
        return self.work_tree.place(path).read_bytes(LIMIT)

    # Reading

    def versions(self) -> Sequence[Version]:
        """Return all versions, oldest first. Later calls only read new ones."""
        with self.acquire():
            known, new = self._known, list[Commit]()
            last = known[-1] if known else None
            for commit in pace(self.repository.chain(self.repository.tip())):
                if last and commit.id == last.commit:
                    break
                new.append(commit)
            else:  # the first time, or another history
                known, last = (), None
            self._known = known = (*known, *self._read(reversed(new), last)) if new else known
            return known

    def _read(self, commits: Iterable[Commit], last: Version | None) -> Iterator[Version]:
        before = self.repository.files(last.commit) if last else {}
        number = last.number if last else 0
        for commit in pace(commits):
            said, files = CommitMessage.parse(commit.message), self.repository.files(commit)
            number = max(number + 1, said.number)  # a person's own commit has none
            blobs = {path: files.get(path, "") for path in find_changed_paths(before, files)}
            yield Version(number, commit.id, commit.when, said.change, blobs)
            before = files

    def log(self, limit: int = 20, skip: int = 0) -> list[Version]:
        """Return the newest versions after the `skip` newest, newest first. The versions of one run
        are joined."""
        return [join_run(run) for run in self._runs()[skip : skip + limit]]

    def count(self) -> int:
        """Return the number of all versions that `log` has."""
        return len(self._runs())

    def version(self, number: int) -> Version:
        """Return one version, joined with the others of its run. Raise `NanobotError`."""
        return join_run(self._run(number))

    def tip_number(self) -> int:
        """Return the number of the newest version, or 0."""
        with self.acquire():
            if not (tip := self.repository.tip()):
                return 0
            said = CommitMessage.parse(self.repository.commit(tip).message)
            return said.number or self.versions()[-1].number  # a person's own commit has none

    def diff(self, number: int) -> str:
        """Return the changes of a version as a unified diff of all its files."""
        from difflib import unified_diff  # seldom needed

        lines: list[str] = []
        for path, shot in self._snapshots(self._run(number)):
            old, new = split_lines(shot.before), split_lines(shot.after)
            lines += unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm="")
        return "".join(f"{line}\n" for line in lines)

    def lineage(self, path: str) -> Iterator[VersionSnapshot]:
        """Yield the versions that changed `path`, newest first, read one by one. Hold `acquire`
        while reading many."""
        text = lru_cache(2)(self._blob_text)  # the text before a version is the next one to read
        for version, old, new in reversed([*self._steps(path)]):
            with self.acquire():
                snapshot = VersionSnapshot(version, text(old), text(new))
            yield snapshot

    def line_times(self, path: str) -> dict[str, datetime]:
        """Return when each line of a file's newest version was written in this form, without
        importance. Versions before the last call are not read again."""
        with self.acquire():
            known_at, times = self._line_times.get(path, ("", {}))
            steps = list(self._steps(path))
            commits = [version.commit for version, _, _ in steps]
            known = commits.index(known_at) + 1 if known_at in commits else 0
            times = times if known else {}
            for version, _, blob in pace(steps[known:]):
                text = without_importance(self._blob_text(blob))
                lines = {raw.strip() for raw in split_lines(text)} - {""}
                times = {line: times.get(line, version.when) for line in lines}
            self._line_times[path] = commits[-1] if commits else "", times
            return times

    def find_applied_cursors(self) -> frozenset[int]:
        """Return the history entries whose changes a version contains. Blocks. Dream's versions
        also name entries that it only read, whose changes may be pending, so they do not count."""
        made = (one.change for one in self.versions() if one.author == "consolidate")
        return frozenset(cursor for change in made for cursor in change.cursors)

    def plan_undo(self, number: int) -> Revert:
        """Return the texts that undo a version and keep all later changes. Write nothing."""
        made: dict[str, list[VersionSnapshot]] = {}
        for path, snapshot in self._snapshots(self._run(number)):
            made.setdefault(path, []).append(snapshot)
        wanted, conflicts = dict[str, str](), list[str]()
        for path, steps in made.items():
            wanted[path], disputed = undo_steps(text_of(self._current(path)), steps)
            conflicts += [f"{path}: {conflict}" for conflict in disputed]
        return self._revert(wanted, conflicts)

    def plan_restore(self, number: int) -> Revert:
        """Return the texts that restore the files to their state after a version. Pending facts
        stay, and facts accepted since then are pending again."""
        with self.acquire():
            versions = [one for one in self.versions() if one.number <= number]
            files = self.repository.files(versions[-1].commit) if versions else {}
            paths = (self.prefix + name for name in TRACKED)
            texts = {path: self._blob_text(files.get(path, "")) for path in paths}
            pending = self.prefix + PENDING
            since = takewhile(lambda one: one.version.number > number, self.lineage(pending))
            now = text_of(self._current(pending))
            texts[pending] = restore_pending(now, texts[pending], list(since))
            return self._revert(texts)

    def _revert(self, wanted: Mapping[str, str], conflicts: Sequence[str] = ()) -> Revert:
        now = {path: text_of(self._current(path)) for path in wanted}
        texts = {path: text for path, text in wanted.items() if text != now[path]}
        return Revert(texts, {path: now[path] for path in texts}, tuple(conflicts))

    def _run(self, number: int) -> list[Version]:
        """Return the versions of the same run as this one. Raise `NanobotError`."""
        for run in self._runs():
            if any(version.number == number for version in run):
                return run
        hint = "`/dream-restore --list` shows the latest."
        raise NanobotError(f"there is no version {number}", hint=hint)

    def _runs(self) -> list[list[Version]]:
        """Return the versions grouped by run, newest first."""
        runs: dict[object, list[Version]] = {}
        for version in self.versions():
            runs.setdefault(version.change.run or version.number, []).append(version)
        return sorted(runs.values(), key=lambda run: run[-1].number, reverse=True)

    def _steps(self, path: str) -> Iterator[tuple[Version, str, str]]:
        """Yield the versions that changed `path`, oldest first, with the ids of its content before
        and after."""
        before = ""
        for version in self.versions():
            if (after := version.blobs.get(path)) is not None:
                yield version, before, after
                before = after

    def _snapshots(self, run: Sequence[Version]) -> Iterator[tuple[str, VersionSnapshot]]:
        """Yield the snapshots of these versions for each of their files, oldest first."""
        with self.acquire():
            for path in dict.fromkeys(path for version in run for path in version.paths):
                for version, old, new in self._steps(path):
                    if version in run:
                        before, after = self._blob_text(old), self._blob_text(new)
                        yield path, VersionSnapshot(version, before, after)

    def _blob_text(self, blob: str) -> str:
        return text_of(self.repository.content(blob))


def join_run(versions: Sequence[Version]) -> Version:
    """Join the versions of one run into one, with the number of the last."""
    changes = [version.change for version in versions]
    change = replace(
        changes[-1],
        summary="; ".join(dict.fromkeys(one.summary for one in changes if one.summary)),
        cursors=tuple(sorted({cursor for one in changes for cursor in one.cursors})),
        operations=tuple(step for one in changes for step in one.operations),
    )
    blobs = {path: blob for version in versions for path, blob in version.blobs.items()}
    return replace(versions[-1], change=change, blobs=blobs)


def restore_pending(now: str, then: str, since: Iterable[VersionSnapshot]) -> str:
    """Add to the pending facts `now` the facts of `then` that the person accepted in the meantime.
    Dropped facts stay away. `since` are the later versions of the file, newest first."""
    accepted: dict[str, bool] = {}
    for shot in since:
        by_person = shot.version.author == "you" and shot.version.summary.startswith(CONFIRMED)
        for block in set(blocks_of(shot.before)).difference(blocks_of(shot.after)):
            accepted.setdefault(block, by_person)
    begun = now or then.partition("- [")[0]
    present = blocks_of(begun if begun.endswith("\n") else f"{begun}\n")
    again = [one for one in blocks_of(then) if accepted.get(one) and one not in present]
    return "".join([*present, *again]) if again else now


def undo_steps(text: str, steps: Sequence[VersionSnapshot]) -> tuple[str, tuple[str, ...]]:
    """Return `text` without the changes `steps`, or unchanged with the conflicts."""
    undone = text
    for step in reversed(steps):
        made = step.version.change.operations
        merged = undo(step.after, undone, step.before, made)
        if merged.conflicts:
            return text, merged.conflicts
        undone = merged.text
    return undone, ()
