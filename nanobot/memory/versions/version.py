"""What a version is, and what is asked of versions: the values that `gitstore` speaks in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from nanobot.errors import NanobotError
from nanobot.memory.change import Author, Change

TRACKED = (
    "AGENTS.md",
    "HEARTBEAT.md",
    "SOUL.md",
    "TOOLS.md",
    "USER.md",
    "memory/MEMORY.md",
    "memory/pending.md",
    "memory/retired.md",
)
"""The files of a scope that have versions, relative to its folder."""


class UnknownVersion(NanobotError):
    """There is no version with this number in this scope."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"there is no version {number}", hint="`/dream-restore --list` shows the latest."
        )
        self.number = number


@dataclass(frozen=True, slots=True)
class Version:
    """One change of long-term files; `commit` is its id in hex, `when` is aware."""

    number: int
    commit: str
    when: datetime
    author: Author
    summary: str
    paths: tuple[str, ...]
    change: Change


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a version made of one file; an absent file has the text ""."""

    version: Version
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Revert:
    """The texts that undo a change. `expected` is what stands there now (None: no file).

    A file in which part of the change cannot be undone is not in `texts`; `conflicts` says why.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, str | None] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a sync brought: the versions it made here, from these other devices.

    `conflicts` says where two devices changed the same line; what either wrote was kept.
    """

    numbers: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def scope_of(path: str) -> str | None:
    """The prefix of the scope whose tracked file `path` is; None for a file of no scope."""
    for name in TRACKED:
        prefix = path.removesuffix(name)
        if prefix == "":
            return prefix
        parts = prefix.split("/")
        if prefix != path and len(parts) == 3 and parts[0] in {"people", "groups"} and parts[1]:
            return prefix if not parts[2] else None
    return None


class Versions(Protocol):
    """What a sync needs of the store."""

    def syncing(self) -> AbstractContextManager[None]: ...
    def locked(self) -> AbstractContextManager[None]: ...
    def knowing(self, known: Mapping[str, int]) -> AbstractContextManager[None]: ...
    def tip_number(self) -> int: ...
    def author_of(self, number: int) -> Author: ...
    def record_hand_edits(self, prefix: str = "") -> tuple[int, ...]: ...
    def write(
        self,
        path: str,
        before: bytes | None,
        after: bytes,
        change: Change,
        put: Callable[[], None],
    ) -> int: ...
