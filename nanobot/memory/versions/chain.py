"""The versions in order: which commit a number is, what it touched, and when.

Numbers are places on the chain of commits, so they need no table; this one spares reading thousands
of commits for a question about one. It is a cache in a file of the repository: read once, extended
by what was committed since, made anew where it does not fit the branch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from nanobot.memory.versions.git import Commit, Repository
from nanobot.memory.versions.trailers import Message

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
