"""Which sessions consolidation looks after though nobody uses them.

Those that were left `behind`, and those that rest, each once while it does. One that could not be
put away is tried again after 1, 2, 4 … 60 minutes, so that it is not forgotten, and keeps no others
from their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from nanobot.memory.history.log import HistoryLog
from nanobot.session.catalogue import SessionInfo
from nanobot.session.records import is_own

_LONGEST = 60


def behind(
    listed: Callable[[], Iterable[SessionInfo]], histories: Sequence[HistoryLog]
) -> list[str]:
    """The keys of sessions that are not consolidated as far as an epoch or one of the histories
    says, as far as can be told without opening them, which would take long. Blocks."""
    return [
        info.key
        for info in listed()
        if not is_own(info.key)
        and info.last_consolidated
        < max([info.epoch_seq, *(history.committed(info.key) for history in histories)])
    ]


class Resting:
    """Remembers which sessions were seen to, as they were last used."""

    def __init__(self) -> None:
        self._done: dict[str, datetime] = {}
        self._failed: dict[str, tuple[int, datetime]] = {}

    def due(self, infos: Iterable[SessionInfo], unused_since: datetime, now: datetime) -> list[str]:
        """The keys of those to be seen to."""
        return [
            info.key
            for info in infos
            if not is_own(info.key)
            and info.updated_at <= unused_since
            and self._done.get(info.key) != info.updated_at
            and (info.key not in self._failed or self._failed[info.key][1] <= now)
        ]

    def done(self, key: str, used: datetime) -> None:
        """A session that was last used then is put away."""
        self._done[key] = used
        self._failed.pop(key, None)

    def failed(self, key: str, now: datetime) -> None:
        """It could not be put away for now."""
        times = self._failed.get(key, (0, now))[0]
        pause = timedelta(minutes=min(2**times, _LONGEST))
        self._failed[key] = (min(times + 1, _LONGEST), now + pause)
