"""Which entries a history file has, and where in it they stand. Pure.

The entries themselves stay in the file: a history of years takes fifty bytes of memory an entry.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nanobot.memory.files.linefile import Fingerprint
from nanobot.memory.history.entries import HistoryEntry


class Spot(NamedTuple):
    """Where an entry stands: its line is `size` bytes from `start` on. The rest as in the entry."""

    cursor: int
    start: int
    size: int
    session: str
    first: int
    last: int

    @classmethod
    def of(cls, entry: HistoryEntry, start: int, size: int) -> Spot:
        """The spot of `entry`."""
        return cls(entry.cursor, start, size, entry.session, entry.first, entry.last)


class Contents:
    """What a file with this fingerprint holds, by cursor; of two with the same one the first.

    `highest` is the highest cursor on any line, also where the line is no entry. `committed` is the
    highest seq of each session that an entry stands for. `foreign` says that some lines are of
    another program's kind.
    """

    def __init__(
        self,
        fingerprint: Fingerprint,
        found: Iterable[Spot] = (),
        highest: int = 0,
        *,
        foreign: bool = False,
    ) -> None:
        self.fingerprint = fingerprint
        self.highest, self.foreign = highest, foreign
        self.committed: dict[str, int] = {}
        self._cursors, self._starts, self._sizes = array("q"), array("q"), array("q")
        self._sessions, self._firsts, self._lasts = list[str](), array("q"), array("q")
        for spot in sorted(found, key=lambda spot: spot.cursor):
            if spot.cursor not in self._cursors[-1:]:
                self._add(spot)

    def grow(self, fingerprint: Fingerprint, spot: Spot) -> None:
        """The file has one more line, an entry whose cursor is higher than all others."""
        self._add(spot)
        self.fingerprint = fingerprint

    def after(self, cursor: int) -> list[Spot]:
        """The entries with a higher cursor, in order."""
        return [self._spot(at) for at in range(bisect_right(self._cursors, cursor), len(self))]

    def cursors(self, after: int) -> Sequence[int]:
        """The cursors of the entries with a higher one than `after`, in order."""
        return self._cursors[bisect_right(self._cursors, after) :]

    def get(self, cursor: int) -> Spot | None:
        """The entry with this cursor."""
        at = bisect_right(self._cursors, cursor) - 1
        return self._spot(at) if at >= 0 and self._cursors[at] == cursor else None

    def covering(self, session: str, seq: int) -> Spot | None:
        """The latest entry that stands for message `seq` of a session."""
        spots = map(self._spot, reversed(range(len(self))))
        return next((s for s in spots if s.session == session and s.first <= seq <= s.last), None)

    def __len__(self) -> int:
        return len(self._cursors)

    def _spot(self, at: int) -> Spot:
        return Spot(
            self._cursors[at],
            self._starts[at],
            self._sizes[at],
            self._sessions[at],
            self._firsts[at],
            self._lasts[at],
        )

    def _add(self, spot: Spot) -> None:
        self.highest = max(self.highest, spot.cursor)
        self.committed[spot.session] = max(spot.last, self.committed.get(spot.session, 0))
        self._cursors.append(spot.cursor)
        self._starts.append(spot.start)
        self._sizes.append(spot.size)
        self._sessions.append(sys.intern(spot.session))
        self._firsts.append(spot.first)
        self._lasts.append(spot.last)
