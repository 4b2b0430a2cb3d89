"""What the versions of a long-term file say about its past: its text a week ago, its lines' ages.

The guard measures losses against the text of a week ago, less what went since by the person's own
will, so that many small ones count like a large one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from nanobot.clock import Clock
from nanobot.memory.change import Author
from nanobot.memory.store.guard import lost_facts
from nanobot.memory.text.layout import split
from nanobot.memory.versions.gitstore import GitStore

PERSONAL: frozenset[Author] = frozenset({"you", "restore", "forget", "sync"})
"""Authors of changes that the person made or asked for: these may drop what they like."""

_AGE = timedelta(days=7)


class WeekAgo:
    """Reads the versions of one scope; `prefix` is where its files lie. Blocks."""

    def __init__(self, versions: GitStore, clock: Clock, prefix: str) -> None:
        self._versions = versions
        self._clock = clock
        self._prefix = prefix

    def __call__(self, path: str) -> str | None:
        """The text as of seven days ago, None where no version is that old."""
        self._versions.record_hand_edits(self._prefix)
        moment = self._clock.now() - _AGE
        text = self._versions.text_at(f"{self._prefix}{path}", moment)
        if text is None:
            return None
        gone: set[str] = set()
        for snapshot in self._versions.lineage(f"{self._prefix}{path}"):
            if snapshot.version.when <= moment:
                break
            if snapshot.version.author in PERSONAL:
                gone.update(lost_facts(snapshot.before, snapshot.after))
        kept = (line for line in split(text) if line.strip() not in gone)
        return "\n".join(kept)


def line_ages(text: str, written: Mapping[str, datetime], now: datetime) -> dict[str, int]:
    """How many days ago each line of `text` was written as it stands.

    `written` says when each line of the newest version was; a line that is not in it has no age.
    """
    lines = {line.strip() for line in split(text)}
    return {line: max(0, (now - written[line]).days) for line in lines if line in written}
