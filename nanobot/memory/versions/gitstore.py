"""Every version of the long-term files: who changed what, why, and how to take it back.

`GitStore` keeps the files of all scopes in one repository in the state folder, outside the agent's
reach; a repository that the person keeps in the workspace is not looked at. Invariants:

- a version holds the change of one writer: what a person edited by hand is committed as theirs
  before an agent's write, so that it is never taken for the agent's;
- the first version of a scope holds its files as they were found, and is no one's change;
- an intent is on the disk before each write, so that a crash at any step attributes the change
  rightly; at most one is open;
- version N is the Nth commit of this device's branch, even after erasing or a sync.

Everything here blocks. A lock of its own orders threads, a lock on a file beside the repository
orders processes; both are released when their holder ends.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import ToolError
from nanobot.io import locked, storage_errors, sync_folder
from nanobot.memory.documents import TRACKED
from nanobot.memory.text.lines import told
from nanobot.memory.versions.git import (
    Commit,
    Damaged,
    Repository,
    blob_id,
    build,
)
from nanobot.memory.versions.reading import VersionReader, belongs, decoded
from nanobot.memory.versions.version import Author, Change, Message, scope_of
from nanobot.security.paths import Root

_INTENT = "intent.json"
_KEPT = ("pushed.json", "inherited.json")
"""Files of a repository that say what other devices have, and hold no words."""


@dataclass(frozen=True, slots=True)
class _Intent:
    """A change of the file `path`; `before` and `after` are SHA-256 in hex, empty for no file.

    `message` is the message of the version to be, `parent` the commit before it, `when` its time.
    """

    path: str
    before: str
    after: str
    parent: str
    message: str
    when: str


class GitStore(VersionReader):
    """The versions in the folder `repository` of the files in `work_tree`, the workspace.

    The repository is made by the first version. Synchronous and thread-safe: callers on the event
    loop use `asyncio.to_thread`. Paths are relative to the workspace; a `prefix` is that of a
    scope (`people/x/`), empty for the owner's. After `pack_every` versions their objects become one
    file. Raises `StorageError` where the disk refuses or the repository is damaged.
    """

    def __init__(
        self, repository: Path, work_tree: Root, clock: Clock, *, pack_every: int = 500
    ) -> None:
        super().__init__(repository, work_tree)
        self._clock = clock
        self._pack_every = pack_every
        self._locked = False
        self._recorded_at: tuple[str, dict[str, str]] = ("", {})

    def recover(self) -> None:
        """Finish what a process that died left half done; at start, before anything else.

        A damaged repository is set aside and a new one begins: versions are for looking back, and
        memory must not stop for them.
        """
        if not self.repository.path.parent.exists():
            return
        with self.locked():
            try:
                self.repository.check()
                if self.repository.exists:
                    self.repository.heal()
                    self._settle()
                    self._recorded()
            except Damaged as error:
                aside = self.repository.set_aside(f"{self._clock.now():%Y%m%dT%H%M%S}")
                logger.error("{}; it is now {}, and new versions begin", error, aside.name)

    def write(
        self,
        path: str,
        before: bytes | None,
        after: bytes,
        change: Change,
        put: Callable[[], None],
    ) -> int:
        """Let `put` write the file and make that a version; return its number.

        `before` is the present content, `after` what `put` will have written. What a person changed
        in the same scope becomes versions of theirs first. Where `put` raises, there is no version.
        A change that rests on history entries is a version even if it changes no line, so that the
        entries count as applied; another one that changes nothing has the number 0.
        """
        with self.locked():
            self.repository.create()
            self._settle()
            scope = scope_of(path) or ""
            self._begin(scope, {path: before})
            self._record_hand_edit(path, before)
            self.record_hand_edits(scope)
            if before == after and not change.cursors:
                put()
                return 0
            message = Message(change, self.tip_number() + 1, scope).text
            now, tip = self._clock.now(), self.repository.tip()
            intent = _Intent(path, _digest(before), _digest(after), tip, message, now.isoformat())
            self.repository.write_file(_INTENT, json.dumps(asdict(intent)).encode())
            try:
                put()
            except BaseException:
                self._settle()
                raise
            return self._commit({path: after}, message, now)

    def record_hand_edits(self, prefix: str = "", author: Author = "you") -> tuple[int, ...]:
        """Make versions of what was changed in a scope since the last one, by a person or by the
        `author` given; their numbers.

        Where the scope has no versions, its files as they stand become the first.
        """
        with self.locked():
            if number := self._begin(prefix, {}):
                return (number,)
            numbers = [
                self._record_hand_edit(path, content, author)
                for path, content in self._readable(prefix).items()
            ]
            return tuple(number for number in numbers if number)

    def rewrite(self, redact: Callable[[str], str]) -> int:
        """Put every text in every version through `redact`; return how many versions changed.

        The new repository is built beside the old one and put in its place: a crash leaves one or
        the other. Numbers, dates and authors stay, and a version in which nothing is left to change
        stays as an empty one; the other devices' branches and all old objects go. The files in the
        workspace are not touched. A sync under way ends first.
        """
        with self.syncing(), self.locked():
            if not self.repository.tip():
                return 0
            self._settle()
            path = self.repository.path
            new = Repository(_beside(path, "new"), durable=False)
            with storage_errors(path):
                shutil.rmtree(new.path, ignore_errors=True)
                build(new.path, self.repository.branch)
                changed, tip = _copy(self.repository, new, redact)
                new.pack()
                for name in _KEPT:
                    with suppress(FileNotFoundError):
                        new.write_file(name, self.repository.read_file(name))
                new.set_tip(tip)
                new.close()
                self.repository.close()
                path.rename(_beside(path, "old"))
                _finish_rewrite(path)
            return changed

    @contextmanager
    def syncing(self) -> Iterator[None]:
        """Excludes other syncs and the replacement of the history; writing goes on."""
        path = self.repository.path
        with locked(path.with_name(f"{path.name}.syncing"), wait=True):
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Excludes all other writers of versions."""
        with self._open():
            if self._locked:
                yield
                return
            path = self.repository.path
            with locked(path.with_name(f"{path.name}.lock"), wait=True):
                self._locked = True
                try:
                    _finish_rewrite(path)
                    yield
                finally:
                    self._locked = False

    def _settle(self) -> None:
        """Give the change of an open intent to whom it belongs, where there is one to be read."""
        with suppress(OSError, ValueError, TypeError):
            intent = _Intent(**json.loads(self.repository.read_file(_INTENT)))
            when = datetime.fromisoformat(intent.when)
            if self.repository.tip() == intent.parent:
                content = self._standing(intent.path)
                if content is not None and _digest(content) == intent.after:
                    logger.info("a change of {} gets the version it missed", intent.path)
                    self._commit({intent.path: content}, intent.message, when)
                elif _digest(content) != intent.before:
                    self._record_hand_edit(intent.path, content)
        (self.repository.path / _INTENT).unlink(missing_ok=True)

    def _begin(self, scope: str, standing: Mapping[str, bytes | None]) -> int:
        """The first version of a scope: its files as they stand, but for what is known better."""
        if any(belongs(path, scope) for path in self._recorded()):
            return 0
        files = {**self._readable(scope), **standing}
        found = {path: content for path, content in files.items() if content is not None}
        if not found:
            return 0
        self.repository.create()
        message = Message(Change("start", "the files as they were"), self.tip_number() + 1, scope)
        return self._commit(found, message.text, self._clock.now())

    def _record_hand_edit(self, path: str, content: bytes | None, author: Author = "you") -> int:
        recorded = self._recorded().get(path)
        if recorded == (None if content is None else blob_id(content)):
            return 0
        name = path.rpartition("/")[2]
        summary = f"removed {name}"
        if content is not None:
            before = self.repository.content(recorded) if recorded else b""
            summary = told(name, decoded(before), decoded(content))
        change = Change(author, summary)
        message = Message(change, self.tip_number() + 1, scope_of(path) or "").text
        return self._commit({path: content}, message, self._clock.now())

    def _commit(self, files: Mapping[str, bytes | None], message: str, when: datetime) -> int:
        recorded = self._recorded()
        tip = self.repository.store(self.repository.tip(), files, message, when)
        self.repository.set_tip(tip)
        (self.repository.path / _INTENT).unlink(missing_ok=True)
        for path, content in files.items():
            recorded.pop(path, None)
            if content is not None:
                recorded[path] = blob_id(content)
        self._recorded_at = (tip, recorded)
        number = self.tip_number()
        if number % self._pack_every == 0:
            self.repository.pack()
        return number

    def _readable(self, scope: str) -> dict[str, bytes | None]:
        """The contents of a scope's files, without those that cannot be read: a link in the place
        of one must not keep the others from being written."""
        files: dict[str, bytes | None] = {}
        for path in (scope + name for name in TRACKED):
            try:
                files[path] = self._standing(path)
            except ToolError as error:
                logger.warning("{} is not kept in the versions: {}", path, error)
        return files

    def _recorded(self) -> dict[str, str]:
        """The files of the newest version, each with the id of its content."""
        tip = self.repository.tip()
        if self._recorded_at[0] != tip:
            tree = self.repository.commit(tip).tree if tip else ""
            self._recorded_at = (tip, self.repository.files(tree) if tree else {})
        return self._recorded_at[1]


def read_newest(repository: Repository) -> tuple[Commit, int] | None:
    """The newest version and how many files it has, every one of them read; None where there is
    none. Raises `StorageError` for what is damaged."""
    repository.check()
    tip = repository.tip()
    if not tip:
        return None
    newest = repository.commit(tip)
    files = repository.files(newest.tree)
    for blob in set(files.values()):
        repository.content(blob)
    return newest, len(files)


def _digest(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()


def _beside(path: Path, kind: str) -> Path:
    return path.with_name(f"{path.name}.{kind}")


def _copy(source: Repository, target: Repository, redact: Callable[[str], str]) -> tuple[int, str]:
    """Commit every version again in `target`; how many changed, and the newest commit."""
    changed, parent, tree = 0, "", ""
    for commit in reversed(list(source.chain(source.tip()))):
        before = Message.parse(commit.message)
        after = before.redacted(redact)
        files: dict[str, bytes | None] = {}
        touched = after != before
        for path, blob in source.changed(tree, commit.tree):
            content = source.content(blob) if blob else None
            files[path] = content
            if content is not None:
                text = redact(content.decode("utf-8", "surrogateescape"))
                files[path] = text.encode("utf-8", "surrogateescape")
                touched = touched or files[path] != content
        text = commit.message if after == before else after.text
        parent, tree = target.store(parent, files, text, commit.when), commit.tree
        changed += touched
    return changed, parent


def _finish_rewrite(path: Path) -> None:
    """Complete a replacement that was under way, or forget one that never got that far."""
    old, new = _beside(path, "old"), _beside(path, "new")
    if old.exists() and not path.exists():  # the new one was complete before the old one moved
        new.rename(path)
        sync_folder(path.parent)
    for rest in (old, new):
        if rest.exists():
            shutil.rmtree(rest)
            sync_folder(path.parent)
