"""Every version of the long-term files: who changed what, why, and how to take it back.

`GitStore` keeps the files of all scopes in one repository in the state folder, outside the agent's
reach; a repository that the person keeps in the workspace is not looked at. What always holds:

- a version holds the change of one writer: what a person edited by hand is committed as theirs
  before an agent's write, so that it is never taken for the agent's;
- the first version of a scope holds its files as they stood, and is nobody's change;
- an intent precedes each write, so that a crash at any step attributes the change rightly;
- version N is the Nth commit of this device's branch, and stays so, whatever is erased or synced.

Everything here blocks. A lock of its own orders threads, a lock on a file beside the repository
orders processes; both are let go by whoever dies.

What is about to be written, on the disk before it is.

A crash between a file's change and its version then leaves no doubt whose change it was.
At most one is open at a time, in a file of the repository.

Whether the newest version of memory could be used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import ToolError
from nanobot.memory.text.lines import told
from nanobot.memory.versions.git import Commit, Damaged, Repository, blob_id, process_lock
from nanobot.memory.versions.reading import VersionReader, decoded
from nanobot.memory.versions.recast import finish, recast
from nanobot.memory.versions.version import (
    TRACKED,
    Author,
    Change,
    Message,
    Revert,
    Snapshot,
    UnknownVersion,
    Version,
    scope_of,
)
from nanobot.security.paths import Root

_FILE = "intent.json"


@dataclass(frozen=True, slots=True)
class Intent:
    """A change of the file `path`; `before` and `after` are SHA-256 in hex, empty for no file.

    `message` is the message of the version to be, `parent` the commit before it.
    """

    path: str
    before: str
    after: str
    parent: str
    message: str
    when: datetime


def digest(content: bytes | None) -> str:
    """What an intent knows a content by."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def save_intent(repository: Repository, intent: Intent) -> None:
    """Put the intent on the disk."""
    fields = {name: getattr(intent, name) for name in ("path", "before", "after", "parent")}
    fields |= {"message": intent.message, "when": intent.when.isoformat()}
    repository.write_file(_FILE, json.dumps(fields).encode())


def load_intent(repository: Repository) -> Intent | None:
    """The open intent; None where there is none that can be read."""
    try:
        fields = json.loads(repository.read_file(_FILE))
        when = datetime.fromisoformat(fields.pop("when"))
        return Intent(**{name: str(value) for name, value in fields.items()}, when=when)
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None


def drop_intent(repository: Repository) -> None:
    """The change has its version, or did not happen."""
    (repository.path / _FILE).unlink(missing_ok=True)


__all__ = [
    "TRACKED",
    "GitStore",
    "Revert",
    "Snapshot",
    "UnknownVersion",
    "Version",
    "scope_of",
]


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
        self._files: tuple[str, dict[str, str]] = ("", {})

    def recover(self) -> None:
        """Finish what a process that died left half done; at start, before anything else.

        A damaged repository is set aside and a new one begins: versions are for looking back, and
        memory must not stop for them.
        """
        path = self.repository.path
        if not path.parent.exists():
            return
        with self.locked():
            try:
                self.repository.check()
                if self.repository.exists:
                    self.repository.heal()
                    self._settle()
                    self._recorded()
                    self._chain.links()
            except Damaged as error:
                aside = self.repository.set_aside(f"{self._clock.now():%Y%m%dT%H%M%S}")
                self._chain.forget()
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

        `before` is what stands there, `after` what `put` will have written. What a person changed
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
            message = Message(change, len(self._chain.links()) + 1, scope)
            now = self._clock.now()
            tip = self.repository.tip()
            intent = Intent(path, digest(before), digest(after), tip, message.text, now)
            save_intent(self.repository, intent)
            try:
                put()
            except BaseException:
                self._settle()
                raise
            return self._commit({path: after}, message.text, now)

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

        Numbers, dates and authors stay. The files in the workspace are not touched. A sync under
        way ends first.
        """
        with self.syncing(), self.locked():
            if not self.repository.tip():
                return 0
            self._settle()
            changed = recast(self.repository, redact)
            self._chain.forget()
            self._written.clear()
            return changed

    @contextmanager
    def syncing(self) -> Iterator[None]:
        """While this is held nobody else syncs and the history is not replaced; writing goes on."""
        path = self.repository.path
        with process_lock(path.with_name(f"{path.name}.syncing")):
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While this is held, nobody else writes versions."""
        with self._open():
            if self._locked:
                yield
                return
            path = self.repository.path
            with process_lock(path.with_name(f"{path.name}.lock")):
                self._locked = True
                try:
                    finish(path)
                    yield
                finally:
                    self._locked = False

    def _settle(self) -> None:
        """Give the change of an open intent to whom it belongs."""
        intent = load_intent(self.repository)
        if intent is not None and self.repository.tip() == intent.parent:
            content = self._standing(intent.path)
            if content is not None and digest(content) == intent.after:
                logger.info("a change of {} gets the version it missed", intent.path)
                self._commit({intent.path: content}, intent.message, intent.when)
            elif digest(content) != intent.before:
                self._record_hand_edit(intent.path, content)
        drop_intent(self.repository)

    def _begin(self, scope: str, standing: Mapping[str, bytes | None]) -> int:
        """The first version of a scope: its files as they stand, but for what is known better."""
        if self.repository.exists and any(link.is_in(scope) for link in self._chain.links()):
            return 0
        files = {**self._readable(scope), **standing}
        found = {path: content for path, content in files.items() if content is not None}
        if not found:
            return 0
        self.repository.create()
        number = len(self._chain.links()) + 1
        message = Message(Change("start", "the files as they were"), number, scope).text
        return self._commit(found, message, self._clock.now())

    def _record_hand_edit(self, path: str, content: bytes | None, author: Author = "you") -> int:
        recorded = self._recorded().get(path)
        if recorded == (None if content is None else blob_id(content)):
            return 0
        self.repository.create()
        name = path.rpartition("/")[2]
        summary = f"removed {name}"
        if content is not None:
            before = self.repository.content(recorded) if recorded else b""
            summary = told(name, decoded(before), decoded(content))
        number = len(self._chain.links()) + 1
        message = Message(Change(author, summary), number, scope_of(path) or "").text
        return self._commit({path: content}, message, self._clock.now())

    def _commit(self, files: Mapping[str, bytes | None], message: str, when: datetime) -> int:
        recorded = self._recorded()
        tip = self.repository.store(self.repository.tip(), files, message, when)
        self.repository.set_tip(tip)
        drop_intent(self.repository)
        for path, content in files.items():
            recorded.pop(path, None)
            if content is not None:
                recorded[path] = blob_id(content)
        self._files = (tip, recorded)
        number = len(self._chain.links())
        if number % self._pack_every == 0:
            self.repository.pack()
        return number

    def _readable(self, scope: str) -> dict[str, bytes | None]:
        """What stands in a scope's files, those left out that cannot be read: a link in the place
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
        if self._files[0] != tip:
            tree = self.repository.commit(tip).tree if tip else ""
            self._files = (tip, self.repository.files(tree))
        return self._files[1]


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
