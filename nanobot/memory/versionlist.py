"""All versions of a repository, which are read once: that takes half a millisecond for each.

What was read is kept beside them, in the repository's own folder: where versions are erased or set
aside, it goes with them. Invariant: a commit's id stands for all that came before it, so what is
kept up to a commit that is still there holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from msgspec import DecodeError
from msgspec.json import Decoder, Encoder

from nanobot.io import replace_file
from nanobot.memory.git import Commit, Repository
from nanobot.memory.version import CommitMessage, Version, belongs
from nanobot.tasks import paced

KEPT_FROM = 32
"""So many versions are read anew each time at most; where there are more, they are kept."""

Entry = TypeVar("Entry")


def read_kept(path: Path, kind: type[Entry]) -> list[Entry]:
    """The entries in a cache file, a line each. It may be deleted at any time: what cannot be read
    is not there."""
    try:
        return Decoder(kind).decode_lines(path.read_bytes())
    except (OSError, DecodeError):
        return []


def keep(path: Path, entries: Iterable[object]) -> None:
    """Replace the entries in a cache file; what cannot be written is not kept. One writer at a
    time."""
    with suppress(OSError, UnicodeEncodeError):  # of names that are no text
        replace_file(path, Encoder().encode_lines(entries), durable=False)


class VersionList:
    """The versions in a repository, which is that of the scope with this prefix. Callers exclude
    all others who write there."""

    def __init__(self, repository: Repository, prefix: str) -> None:
        self._repository, self._prefix = repository, prefix
        self._file = repository.path / "versions.jsonl"
        self._known: list[Version] = []
        self._kept = 0

    def read(self) -> Sequence[Version]:
        """All of them, oldest first; what is known is not read again."""
        known, tip = self._known, self._repository.tip()
        if tip == (known[-1].commit if known else ""):  # it is asked for every text that is read
            return known
        if not known:
            known = read_kept(self._file, Version)
            self._kept = len(known)
        last, new = known[-1].commit if known else "", list[Commit]()
        for commit in paced(self._repository.chain(tip)):
            if commit.id == last:
                break
            new.append(commit)
        else:  # the first time, or another history
            known, self._kept = [], 0
        self._known = [*known, *self._read(new, known[-1] if known else None)]
        if len(self._known) >= self._kept + KEPT_FROM:
            keep(self._file, self._known)
            self._kept = len(self._known)
        return self._known

    def _read(self, commits: Sequence[Commit], before: Version | None) -> Iterable[Version]:
        """The versions of these commits, which are newest first; `before` is the one before."""
        tree = self._repository.commit(before.commit).tree if before and commits else ""
        number = before.number if before else 0
        for commit, changed in self._repository.changes(reversed(commits), tree):
            said = CommitMessage.parse(commit.message)
            number = max(number + 1, said.number)  # it has none where a person committed it
            blobs = {path: blob for path, blob in changed.items() if belongs(path, self._prefix)}
            yield Version(number, commit.id, commit.when, said.scope, said.change, blobs)
