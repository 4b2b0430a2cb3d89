"""Telegram's queue of updates between people and the bot.

An update stays until it is confirmed: by a `getUpdates` with a higher offset, or by a webhook that
answered 2xx. Reading confirms nothing. There is one reader at a time: a new poll ends the older one
with 409, and while a webhook is set every poll is rejected."""

from __future__ import annotations

import asyncio
from bisect import insort
from dataclasses import dataclass

from tests.doubles.server import Changes
from tests.doubles.telegram.values import Json, Refusal

FIRST_UPDATE = 1000
TERMINATED = (
    "Conflict: terminated by other getUpdates request; "
    "make sure that only one bot instance is running"
)
WEBHOOK_ACTIVE = (
    "Conflict: can't use getUpdates method while webhook is active; "
    "use deleteWebhook to delete the webhook first"
)
_NOT_BY_DEFAULT = {"chat_member", "message_reaction", "message_reaction_count"}


@dataclass(frozen=True, slots=True)
class Pending:
    """An unconfirmed update. `payload` may be any JSON, also a malformed one."""

    update_id: int
    payload: object


class Updates:
    """The queue for the bot. `confirmed` is the highest requested offset."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._queue: list[Pending] = []
        self._all: dict[int, object] = {}
        self._again: list[Pending] = []
        self._next_id = FIRST_UPDATE
        self._reader = 0
        self._polling = 0
        self._ended = 0
        self._allowed: frozenset[str] = frozenset()
        self.confirmed: int | None = None
        self.webhook_set = False

    @property
    def pending(self) -> int:
        """The number of unconfirmed updates."""
        return len(self._queue)

    @property
    def polls(self) -> int:
        """The number of polls that wait for an update."""
        return self._polling

    @property
    def last(self) -> int:
        """The id of the newest update."""
        return self._next_id - 1

    def first(self) -> Pending | None:
        """Return the oldest unconfirmed update, or None."""
        return self._queue[0] if self._queue else None

    def add(self, update: Json) -> int:
        """Queue an update, with the next id if it has none, and return its id."""
        update.setdefault("update_id", self._next_id)
        return self.add_raw(update)

    def add_raw(self, payload: object) -> int:
        """Queue anything unchanged, and return its id, or its position among the ids."""
        given = payload.get("update_id") if isinstance(payload, dict) else None
        update_id = given if isinstance(given, int) else self._next_id
        self._next_id = max(self._next_id, update_id + 1)
        if self._is_wanted(payload):
            insort(self._queue, Pending(update_id, payload), key=lambda one: one.update_id)
            self._all[update_id] = payload
        self._changes.tell()
        return update_id

    def repeat(self, update_id: int) -> None:
        """Deliver this update once more in the next batch, confirmed or not."""
        self._again.append(Pending(update_id, self._all[update_id]))
        self._changes.tell()

    def allow(self, kinds: frozenset[str]) -> None:
        """Queue only these kinds of updates from now on. None means the usual ones."""
        self._allowed = kinds

    def confirm(self, offset: int) -> None:
        """Forget all before `offset`. A negative one counts from the end of the queue."""
        if offset < 0:
            self._queue = self._queue[offset:]
            return
        self._queue = [one for one in self._queue if one.update_id >= offset]
        if offset > 0:
            self.confirmed = max(offset, self.confirmed or 0)
        self._changes.tell()

    def drop(self) -> None:
        """Forget all pending updates."""
        self._queue = []
        self._changes.tell()

    def end_polls(self) -> None:
        """Answer the waiting polls with the pending updates, which may be none."""
        self._ended += 1
        self._changes.tell()

    def conflict(self) -> None:
        """End the waiting poll with 409, because another reader came."""
        self._reader += 1
        self._changes.tell()

    async def poll(self, offset: int, limit: int, timeout: float) -> list[object]:
        """Return up to `limit` updates from `offset` on. Wait up to `timeout` seconds for the
        first."""
        if self.webhook_set:
            raise Refusal(409, WEBHOOK_ACTIVE)
        self.conflict()
        self.confirm(offset)
        reader, ended = self._reader, self._ended
        batch = self._batch(limit)
        if timeout > 0 and not batch:
            self._polling += 1
            self._changes.tell()
            try:
                async with asyncio.timeout(timeout):
                    await self._changes.until(
                        lambda: self._batch(limit) or self._reader != reader or self._ended != ended
                    )
            except TimeoutError:
                pass
            finally:
                self._polling -= 1
                self._changes.tell()
            if self._reader != reader:
                raise Refusal(409, TERMINATED)
            batch = self._batch(limit)
        self._again = self._again[limit:]
        self._changes.tell()
        return [one.payload for one in batch]

    def _batch(self, limit: int) -> list[Pending]:
        return (self._again + self._queue)[:limit]

    def _is_wanted(self, payload: object) -> bool:
        """Check whether the bot gets it. Malformed payloads are never filtered."""
        kinds = set(payload) - {"update_id"} if isinstance(payload, dict) else set()
        if len(kinds) != 1:
            return True
        return bool(kinds & self._allowed) if self._allowed else not kinds & _NOT_BY_DEFAULT
