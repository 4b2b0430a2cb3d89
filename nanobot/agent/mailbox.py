"""The messages that wait for their turn, by session, in the order they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import InboxEntry


class Mailbox:
    """One queue per session key. A paused one keeps its messages until it is resumed; most commands
    get past them, so that a person whose model is out can still ask for help or change the model.
    `is_command` says of a message whether it is one, `overtakes` whether it is one of those."""

    def __init__(
        self,
        is_command: Callable[[InboundMessage], bool],
        overtakes: Callable[[InboundMessage], bool],
    ) -> None:
        self.is_command, self._overtakes = is_command, overtakes
        self._waiting: dict[str, deque[InboxEntry]] = {}
        self._paused: set[str] = set()
        self._newest = 0

    @property
    def newest(self) -> int:
        """The highest entry id seen: what comes later has a higher one."""
        return self._newest

    def put(self, entry: InboxEntry) -> None:
        """Behind the others of its session."""
        self._newest = max(self._newest, entry.id)
        self._waiting.setdefault(entry.message.session_key, deque()).append(entry)

    def give_back(self, entries: Sequence[InboxEntry]) -> None:
        """In front of the others, in this order: they were taken and not handled."""
        for entry in reversed(entries):
            self._waiting.setdefault(entry.message.session_key, deque()).appendleft(entry)

    def put_back(self, entry: InboxEntry) -> None:
        """In front of the others, and pause the session until `resume`."""
        self.give_back((entry,))
        self.pause(entry.message.session_key)

    def pause(self, key: str) -> None:
        """Keep what waits in a session until `resume`."""
        self._paused.add(key)

    def is_paused(self, key: str) -> bool:
        """Whether what waits in a session is kept."""
        return key in self._paused

    def resume(self, key: str) -> int:
        """Let a paused session go on; how many of its messages wait."""
        self._paused.discard(key)
        return len(self._waiting.get(key, ()))

    def take(self, key: str) -> InboxEntry | None:
        """The next message of a session, if it may be handled now."""
        queue = self._waiting.get(key, ())
        ready = (e for e in queue if key not in self._paused or self._overtakes(e.message))
        entry = next(ready, None)
        if entry is not None:
            self._remove(entry)
        return entry

    def first(self, key: str) -> InboxEntry | None:
        """What waits longest in a session, paused or not."""
        return next(iter(self._waiting.get(key, ())), None)

    def take_all(self, key: str, before: int) -> list[InboxEntry]:
        """Every message that waits in a session and came before entry `before`, paused or not; the
        commands among them stay, and are paused no longer."""
        self._paused.discard(key)
        return self.take_those(key, lambda e: e.id < before and not self.is_command(e.message))

    def take_those(self, key: str, wanted: Callable[[InboxEntry], bool]) -> list[InboxEntry]:
        """What waits in a session and is wanted, wherever it stands in the queue."""
        taken = [entry for entry in self._waiting.get(key, ()) if wanted(entry)]
        for entry in taken:
            self._remove(entry)
        return taken

    def waiting(self, key: str) -> tuple[InboxEntry, ...]:
        """What waits in a session, in order; nothing while it is paused."""
        return () if key in self._paused else tuple(self._waiting.get(key, ()))

    def _remove(self, entry: InboxEntry) -> None:
        key = entry.message.session_key
        self._waiting[key].remove(entry)
        if not self._waiting[key]:
            del self._waiting[key]
