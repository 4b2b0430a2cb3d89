"""The journal in memory: a second implementation of the port `Journal`, without SQL or a thread.

`MemoryTables` is what a process leaves behind: give it to the next `MemoryJournal`.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from itertools import islice
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from nanobot.bus.events import InboundMessage, OutboundMessage, OutboundPart
from nanobot.bus.journal import (
    GIVE_UP_AFTER,
    KEEP_DAYS,
    LEARNING,
    MOST_DOUBTS,
    QUESTION,
    Committed,
    Completion,
    DayTimes,
    DayUsage,
    InboxEntry,
    Leftovers,
    MessageTurn,
    OutboxPart,
    Outgoing,
    QueueCounts,
    QueueRow,
    Redact,
    Spent,
    Step,
    TurnCounts,
    TurnRecord,
    TurnRow,
    Unfiled,
    UsageTotals,
)
from nanobot.bus.rows import encode_event, excerpt
from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError
from nanobot.providers.port import added_cost

T = TypeVar("T")

_OPEN = ("received", "working")
_NOTICE = "undelivered-"
_TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens")


class Received(Struct):
    """A message as it is stored."""

    entry: InboxEntry
    at: datetime
    state: str = "received"
    reason: str = ""
    turn_id: str = ""


class Sent(Struct):
    """A part as it is stored."""

    item: OutboxPart
    at: datetime
    state: str = "pending"
    reason: str = ""
    platform_id: str = ""
    is_kept: bool = False

    @property
    def turn_id(self) -> str:
        return self.item.part.key.rsplit("/", 2)[0]

    @property
    def is_undelivered(self) -> bool:
        dead = self.state == "dead" and not self.turn_id.startswith(_NOTICE)
        return self.state in ("pending", "sending") or dead


class Turn(Struct):
    """A turn as it is stored."""

    session_key: str
    at: datetime
    state: str = "running"
    report: str = ""
    progress: bool = False
    asked: int = 0
    steps: dict[int, Step] = field(default_factory=dict)


class MemoryTables(Struct):
    """All that a journal holds."""

    inbox: list[Received] = field(default_factory=list)
    outbox: list[Sent] = field(default_factory=list)
    turns: dict[str, Turn] = field(default_factory=dict)
    cursors: dict[str, str] = field(default_factory=dict)
    unfiled: dict[int, Unfiled] = field(default_factory=dict)
    buttons: dict[str, tuple[str, str, str, str, datetime]] = field(default_factory=dict)
    prompts: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    helpers: dict[str, InboundMessage] = field(default_factory=dict)
    spending: dict[tuple[date, str], Spent] = field(default_factory=dict)
    used: dict[tuple[str, str], UsageTotals] = field(default_factory=dict)
    last: int = 0

    def number(self) -> int:
        self.last += 1
        return self.last


def _known(value: T) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


class MemoryJournal:
    """See `Journal` for what each method does."""

    has_died = False
    refusal: StorageError | None = None

    def __init__(self, tables: MemoryTables, clock: Clock) -> None:
        self._tables, self._clock = tables, clock

    async def open(self) -> None:
        t, horizon = self._tables, self._clock.now() - timedelta(days=KEEP_DAYS)
        t.inbox[:] = [r for r in t.inbox if r.at >= horizon or r.state not in ("done", "stopped")]
        t.outbox[:] = [s for s in t.outbox if s.at >= horizon or s.state != "sent"]
        t.turns = {k: v for k, v in t.turns.items() if v.at >= horizon or v.state == "running"}
        t.buttons = {k: v for k, v in t.buttons.items() if v[-1] >= horizon}
        kept = (self._clock.now().date() - timedelta(days=400)).isoformat()
        t.used = {k: v for k, v in t.used.items() if k[0] >= kept}
        t.prompts = {k: v for k, v in t.prompts.items() if v[-1] >= horizon}

    async def close(self) -> None:
        """Nothing is queued."""

    def receive(
        self, channel: str, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> asyncio.Future[tuple[InboxEntry, ...]]:
        if cursor is not None:
            self._tables.cursors[channel] = cursor
        return _known(self._insert(messages))

    async def cursor(self, channel: str) -> str | None:
        return self._tables.cursors.get(channel)

    async def has_received(
        self, channel: str, chat_id: str, event_id: str, *, unanswered: bool = False
    ) -> bool:
        open_ones = {
            (one.channel, one.chat_id, one.event_id)
            for row in self._tables.inbox
            if row.state in _OPEN
            for one in [row.entry.message]
        }
        return (channel, chat_id, event_id) in (open_ones if unanswered else self._events())

    async def find_turn(self, channel: str, chat_id: str, platform_id: str) -> MessageTurn | None:
        for row in self._tables.inbox:
            event = row.entry.message
            if row.turn_id and (event.channel, event.chat_id, event.event_id) == (
                channel,
                chat_id,
                platform_id,
            ):
                same = [one for one in self._tables.inbox if one.turn_id == row.turn_id]
                key = event.session_key
                return MessageTurn(row.turn_id, key, same.index(row))
        for sent in self._tables.outbox:
            part = sent.item.part
            if (part.channel, part.chat_id, sent.platform_id) == (channel, chat_id, platform_id):
                return MessageTurn(sent.turn_id, self._tables.turns[sent.turn_id].session_key)
        return None

    async def is_busy(self, session_key: str) -> bool:
        rows = (row for row in self._tables.inbox if row.state in _OPEN)
        return any(row.entry.message.session_key == session_key for row in rows)

    def claim(
        self, turn_id: str, session_key: str, entry_ids: Sequence[int], *, at_once: bool
    ) -> None:
        turn = self._tables.turns.setdefault(turn_id, Turn(session_key, self._clock.now()))
        turn.progress = False
        for row in self._rows(entry_ids):
            if row.state in _OPEN:
                runs = row.entry.runs + (row.turn_id != turn_id)
                row.state, row.turn_id, row.entry = (
                    "working",
                    turn_id,
                    replace(row.entry, runs=runs),
                )

    async def mark_model_asked(self, turn_id: str) -> None:
        if turn := self._tables.turns.get(turn_id):
            turn.progress, turn.asked = True, turn.asked + 1

    async def mark_owner_asked(self, turn_id: str) -> None:
        if turn := self._tables.turns.get(turn_id):
            turn.progress = True

    async def begin_command(self, entry_id: int) -> None:
        for row in self._rows((entry_id,)):
            row.entry = replace(row.entry, runs=row.entry.runs + 1)

    def add_steps(
        self, turn_id: str, first: int, steps: Sequence[Step], joined: Sequence[int] = ()
    ) -> asyncio.Future[None]:
        turn = self._tables.turns.setdefault(turn_id, Turn("", self._clock.now()))
        turn.steps |= dict(enumerate(steps, first))
        turn.progress, turn.asked = True, 0
        for row in self._rows(joined):
            row.state, row.turn_id = "working", turn_id
        return _known(None)

    def remember_prompt(self, prompt_id: str, text: str) -> None:
        self._tables.prompts[prompt_id] = (text, self._clock.now())

    async def complete(self, completion: Completion) -> Committed:
        tables, done = self._tables, completion
        for row in self._rows(done.entry_ids):
            row.state = "stopped" if done.given_up else done.state
            row.reason = done.reason
        if done.report and (turn := tables.turns.get(done.turn_id)):
            if turn.state == "running":
                told, key = json.loads(done.report), (turn.at.date().isoformat(), turn.session_key)
                tables.used[key] = _sum(tables.used.get(key, UsageTotals()), _used(told))
            turn.state, turn.report, turn.steps = done.state, done.report, {}
        unfiled_id = 0
        if done.lines:
            unfiled_id = tables.number()
            tables.unfiled[unfiled_id] = Unfiled(unfiled_id, done.session_key, done.lines)
        for row in tables.inbox:
            if done.replaces_turn and row.turn_id == done.replaces_turn and row.state == "failed":
                row.state = "done"
        parts = [part for item in done.outgoing for part in self._put(done.turn_id, item)]
        return Committed(unfiled_id, tuple(parts), self._insert(done.republish))

    def mark_filed(self, unfiled_ids: Sequence[int]) -> None:
        for unfiled_id in unfiled_ids:
            self._tables.unfiled.pop(unfiled_id, None)

    async def postpone(self, entry_ids: Sequence[int], not_before: float, reason: str) -> None:
        for row in self._rows(entry_ids):
            row.entry, row.reason = replace(row.entry, not_before=not_before), reason
            if turn := self._tables.turns.get(row.turn_id):
                turn.progress, turn.asked = True, 0

    async def may_act(self) -> None:
        """At once."""

    async def release(self, scopes: Collection[str] | None = None) -> None:
        for turn in self._tables.turns.values():
            turn.progress, turn.asked = True, 0

    async def leftovers(self, scopes: Collection[str] | None = None) -> Leftovers:
        entries: list[InboxEntry] = []
        turns: dict[str, list[InboxEntry]] = {}
        for row in self._tables.inbox:
            if row.state not in _OPEN:
                continue
            turn = self._tables.turns.get(row.turn_id)
            attempts = row.entry.attempts
            if row.state == "working" and turn is not None and turn.state == "running":
                attempts += not turn.progress
                attempts = GIVE_UP_AFTER if turn.asked >= 10 else attempts
            row.entry = replace(row.entry, attempts=attempts)
            entry = replace(row.entry, recovered=True, reason=row.reason)
            if row.state == "working":
                turns.setdefault(row.turn_id, []).append(replace(entry, turn_id=row.turn_id))
            else:
                entries.append(replace(entry, previous_turn=row.turn_id))
        for turn_id, (first, *joined) in turns.items():
            steps = tuple(step for _, step in sorted(self._tables.turns[turn_id].steps.items()))
            entries.append(replace(first, joined=tuple(joined), steps=steps))
        for turn in self._tables.turns.values():
            turn.progress = True
        for part in self._tables.outbox:
            if part.state != "sent" and part.turn_id.startswith(QUESTION):
                part.state = "sent"
        parts = [row.item for row in self._tables.outbox if row.state in ("pending", "sending")]
        unfiled = tuple(self._tables.unfiled.values())
        return Leftovers(unfiled, tuple(sorted(entries, key=lambda e: e.id)), tuple(parts))

    async def resolve_button(
        self, button_id: str, channel: str, chat_id: str, sender_ids: Collection[str]
    ) -> str | None:
        found = self._tables.buttons.get(button_id)
        if found is None or found[:2] != (channel, chat_id):
            return None
        return found[3] if not found[2] or found[2] in sender_ids else None

    def add_outgoing(
        self, turn_id: str, outgoing: Outgoing
    ) -> asyncio.Future[tuple[OutboxPart, ...]]:
        return _known(self._put(turn_id, outgoing))

    def mark_sending(self, item: OutboxPart) -> None:
        row = self._part(item.id)
        row.state, row.item = "sending", replace(item, doubts=item.doubts + 1)

    async def mark_sent(
        self, item: OutboxPart, platform_id: str, *, keep: bool = False
    ) -> tuple[OutboxPart, ...]:
        row = self._part(item.id)
        row.state, row.platform_id, row.is_kept = "sent", platform_id, keep
        here = (item.part.channel, item.part.chat_id)
        notices = [
            row
            for row in self._tables.outbox
            if row.state == "dead" and row.turn_id.startswith(_NOTICE)
            if row.item.doubts < MOST_DOUBTS
            and (row.item.part.channel, row.item.part.chat_id) == here
        ]
        for row in notices:
            row.state = "pending"
        return tuple(row.item for row in notices)

    async def mark_undelivered(self, channel: str, platform_id: str, reason: str) -> str:
        for row in self._tables.outbox:
            here = (row.item.part.channel, row.platform_id) == (channel, platform_id)
            if here and row.state == "sent" and row.is_kept:
                row.state, row.reason = "dead", reason
                return f"out-{row.item.id}"
        return ""

    def retry_later(self, item: OutboxPart, reason: str) -> None:
        row = self._part(item.id)
        row.state, row.reason, row.item = "pending", reason, item

    async def give_up(self, item: OutboxPart, reason: str) -> tuple[OutboxPart, ...]:
        row = self._part(item.id)
        row.state, row.reason = "dead", reason
        row.item = replace(row.item, doubts=item.doubts)
        if row.turn_id.startswith(_NOTICE):
            return ()
        channel, chat_id = self._asked_in(row)
        text = f"{reason}: /resend out-{item.id}"
        notice = OutboundMessage(channel, chat_id, text)
        call = item.part.key.rsplit("/", 2)[1]
        return self._put(f"{_NOTICE}{row.turn_id}", Outgoing(call, (notice,)))

    async def add_helper(self, helper_id: str, if_lost: InboundMessage) -> None:
        self._tables.helpers[helper_id] = if_lost

    async def remove_helper(self, helper_id: str) -> None:
        self._tables.helpers.pop(helper_id, None)

    async def lost_helpers(
        self, scopes: Collection[str] | None = None
    ) -> list[tuple[str, InboundMessage]]:
        return list(self._tables.helpers.items())

    def _rows(self, entry_ids: Sequence[int]) -> list[Received]:
        return [row for row in self._tables.inbox if row.entry.id in entry_ids]

    def _part(self, part_id: int) -> Sent:
        return next(row for row in self._tables.outbox if row.item.id == part_id)

    def _events(self) -> set[tuple[str, str, str]]:
        messages = (row.entry.message for row in self._tables.inbox)
        return {(each.channel, each.chat_id, each.event_id) for each in messages}

    def _insert(self, messages: Sequence[InboundMessage]) -> tuple[InboxEntry, ...]:
        new = []
        for message in messages:
            if (message.channel, message.chat_id, message.event_id) in self._events():
                continue
            number = 1 + max((row.entry.id for row in self._tables.inbox), default=0)
            entry = InboxEntry(number, message, received_at=self._clock.now().timestamp())
            self._tables.inbox.append(Received(entry, self._clock.now()))
            new.append(entry)
        return tuple(new)

    def _put(self, turn_id: str, outgoing: Outgoing) -> tuple[OutboxPart, ...]:
        known, new = {row.item.part.key for row in self._tables.outbox}, []
        for number, message in enumerate(outgoing.parts):
            key, last = f"{turn_id}/{outgoing.call}/{number}", number == len(outgoing.parts) - 1
            if key in known:
                continue
            buttons = []
            for button in message.buttons:
                place = (message.channel, message.chat_id)
                button_id = f"{self._tables.number():024x}"
                told = (*place, button.only, button.value, self._clock.now())
                self._tables.buttons[button_id] = told
                buttons.append(replace(button, id=button_id))
            part = OutboundPart.of(key, message, outgoing.event_ids, last)
            part = replace(part, buttons=tuple(buttons))
            row_id = 1 + max((row.item.id for row in self._tables.outbox), default=0)
            self._tables.outbox.append(Sent(OutboxPart(row_id, part), self._clock.now()))
            new.append(self._tables.outbox[-1].item)
        return tuple(new)

    async def counts(self) -> QueueCounts:
        inbox = [(row.state, row.entry.not_before > 0) for row in self._tables.inbox]
        outbox = [row.state for row in self._tables.outbox if row.is_undelivered]
        put_off = sum(state in _OPEN and late for state, late in inbox)
        received = inbox.count(("received", False)) + put_off
        failed, dead = sum(state == "failed" for state, _ in inbox), outbox.count("dead")
        working = inbox.count(("working", False))
        return QueueCounts(received, working, failed, len(outbox) - dead, dead, put_off)

    async def queue_rows(self) -> tuple[list[QueueRow], list[QueueRow]]:
        inbox = [
            QueueRow(
                f"in-{row.entry.id}",
                row.entry.message.session_key,
                "waiting" if row.entry.not_before and row.state in _OPEN else row.state,
                row.entry.attempts,
                row.at.isoformat(),
                row.reason,
                excerpt(encode_event(row.entry.message), 80),
            )
            for row in self._tables.inbox
            if row.state in (*_OPEN, "failed")
        ]
        outbox = [
            QueueRow(
                f"out-{row.item.id}",
                f"{row.item.part.channel}:{row.item.part.chat_id}",
                row.state,
                row.item.attempts,
                row.at.isoformat(),
                row.reason,
                excerpt(encode_event(row.item.part), 80),
            )
            for row in self._tables.outbox
            if row.is_undelivered
        ]
        return inbox, outbox

    async def retry_row(self, row: str) -> InboxEntry | OutboxPart:
        found = self._in_trouble(row)
        if isinstance(found, Received):
            found.state, found.reason = "received", ""
            found.entry = replace(found.entry, attempts=0, not_before=0.0)
            return replace(found.entry, previous_turn=found.turn_id, received_at=0.0)
        return await self._revive(found)

    async def resend(self, row: str, chat: tuple[str, str] | None) -> tuple[OutboxPart, ...]:
        found = next((one for one in self._tables.outbox if f"out-{one.item.id}" == row), None)
        here = found and (found.item.part.channel, found.item.part.chat_id)
        if found is None or chat not in (None, here, self._asked_in(found)):
            raise NanobotError(f"no message of this chat is {row!r}")
        message = found.item.part.key.rpartition("/")[0]
        dead = [
            one
            for one in self._tables.outbox
            if one.state == "dead" and one.item.part.key.rpartition("/")[0] == message
        ]
        return tuple([await self._revive(one) for one in dead])

    async def _revive(self, row: Sent) -> OutboxPart:
        row.state, row.reason = "pending", ""
        row.item = replace(row.item, attempts=0, next_try_at=0.0, doubts=0)
        notice = f"{_NOTICE}{row.item.part.key.rpartition('/')[0]}/"
        self._tables.outbox[:] = [
            one
            for one in self._tables.outbox
            if one.state == "pending" or not one.item.part.key.startswith(notice)
        ]
        return row.item

    def _asked_in(self, row: Sent) -> tuple[str, str]:
        asked = [one for one in self._tables.inbox if one.turn_id == row.turn_id]
        place = asked[0].entry.message if asked else row.item.part
        return place.channel, place.chat_id

    async def drop_row(self, row: str) -> None:
        found = self._in_trouble(row)
        found.state = "stopped" if isinstance(found, Received) else "sent"

    async def turn_record(self, turn_id: str) -> TurnRecord:
        turn = self._tables.turns.get(turn_id)
        if turn is None:
            raise NanobotError(f"no turn {turn_id!r}", hint="`nanobot sessions show KEY`")
        report = json.loads(turn.report or "{}")
        prompt, _ = self._tables.prompts.get(report.get("system_id", ""), ("", None))
        at = turn.at.isoformat()
        return TurnRecord(turn_id, turn.session_key, turn.state, at, report, prompt)

    async def turns(
        self, *, session: str = "", state: str = "", before: str = "", limit: int = 50
    ) -> list[TurnRow]:
        ids = list(self._tables.turns)
        ids = ids[: ids.index(before)] if before in ids else [] if before else ids
        rows = (self._row(turn_id, self._tables.turns[turn_id]) for turn_id in reversed(ids))
        wanted = (r for r in rows if session in ("", r.session_key) and state in ("", r.state))
        return list(islice(wanted, limit))

    def _row(self, turn_id: str, turn: Turn) -> TurnRow:
        told = json.loads(turn.report or "{}")
        row = TurnRow(
            *(turn_id, turn.session_key, turn.state, turn.at.isoformat(), told.get("model", "")),
            *(told.get(name, 0) for name in ("milliseconds", *_TOKENS)),
        )
        return replace(row, cost=told.get("cost"))

    async def used_by_day(self, since: date) -> list[DayUsage]:
        used = sorted(self._tables.used.items())
        return [
            DayUsage(*key, *asdict(sums).values())
            for key, sums in used
            if key[0] >= since.isoformat()
        ]

    async def times_by_day(self, since: date) -> list[DayTimes]:
        took: dict[str, list[int]] = {}
        for turn in self._tables.turns.values():
            day, ms = turn.at.date(), json.loads(turn.report or "{}").get("milliseconds", 0)
            if turn.state == "done" and day >= since and ms:
                took.setdefault(day.isoformat(), []).append(ms)
        parts = {day: (sorted(all_), len(all_)) for day, all_ in sorted(took.items())}
        return [
            DayTimes(day, n, all_[math.ceil(n * 0.5) - 1], all_[math.ceil(n * 0.95) - 1])
            for day, (all_, n) in parts.items()
        ]

    async def find_mentions(self, name: re.Pattern[str]) -> frozenset[str]:
        texts = [encode_event(r.entry.message) for r in self._tables.inbox if r.state != "done"]
        texts += [encode_event(s.item.part) for s in self._tables.outbox if s.state != "sent"]
        texts += [s.payload for turn in self._tables.turns.values() for s in turn.steps.values()]
        return frozenset(found for text in texts for found in name.findall(text))

    async def turn_counts(self, since: datetime) -> TurnCounts:
        ended = [turn.state for turn in self._tables.turns.values() if turn.at >= since]
        return TurnCounts(*map(ended.count, ("done", "failed", "stopped")))

    def add_learning_usage(self, day: date, used: UsageTotals) -> None:
        key = day.isoformat(), LEARNING
        self._tables.used[key] = _sum(self._tables.used.get(key, UsageTotals()), used)

    async def day_tokens(self, day: date, use: str = "") -> Spent:
        return self._tables.spending.get((day, use), Spent())

    def add_day_tokens(
        self, day: date, tokens: int, use: str = "", *, warned: bool = False
    ) -> None:
        known = self._tables.spending.get((day, use), Spent())
        self._tables.spending[day, use] = Spent(known.tokens + tokens, known.warned or warned)

    async def erase(self, redact: Redact) -> int:
        changed = 0
        for row in self._tables.inbox:
            content = redact(row.entry.message.content)
            if content != row.entry.message.content:
                message = replace(row.entry.message, content=content)
                row.entry, changed = replace(row.entry, message=message), changed + 1
        for sent in self._tables.outbox:
            content = redact(sent.item.part.content)
            if content != sent.item.part.content:
                part = replace(sent.item.part, content=content)
                sent.item, changed = replace(sent.item, part=part), changed + 1
        return changed

    def _in_trouble(self, row: str) -> Received | Sent:
        named = re.fullmatch(r"(in|out)-([0-9]{1,18})", row)
        if named is None:
            hint = "`nanobot queue list` shows ids such as in-12 or out-7."
            raise NanobotError(f"{row!r} is not waiting for a decision", hint=hint)
        tables: dict[str, Any] = {"in": self._tables.inbox, "out": self._tables.outbox}
        for found in tables[named[1]]:
            number = found.entry.id if isinstance(found, Received) else found.item.id
            if number == int(named[2]) and found.state in ("failed", "dead"):
                kept: Received | Sent = found
                return kept
        raise NanobotError(f"{row} is not waiting for a decision")


def _sum(one: UsageTotals, other: UsageTotals) -> UsageTotals:
    *numbers, costs = zip(asdict(one).values(), asdict(other).values(), strict=True)
    return replace(UsageTotals(*(a + b for a, b in numbers)), cost=added_cost(*costs))


def _used(report: dict[str, Any]) -> UsageTotals:
    tokens = UsageTotals(1, *(report.get(name, 0) for name in _TOKENS))
    return replace(tokens, cost=report.get("cost"))
