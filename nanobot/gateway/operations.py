"""Operations for the queue, turns, the audit log, the log and usage figures.

- The operations of the queue and of turns serve the control socket of a running gateway and
  commands on a home without one. Both pass their parts to `Operations`.
- Audit and log are read, a page at a time, from files that were redacted when they were written.
- Figures contain days without a turn as zeros, so that charts have a true time axis. Beyond
  `_MOST_BARS` days, they are by week, from Monday."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from pathlib import Path

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict

from nanobot.bus.journal import (
    KEEP_DAYS,
    LEARNING,
    Committed,
    DayUsage,
    InboxEntry,
    QueueRow,
    TurnRecord,
    TurnRow,
    UsageTotals,
    in_currency,
    sum_usage,
)
from nanobot.bus.queue import MessageBus
from nanobot.bus.sql_journal import Journal
from nanobot.channel import Operation
from nanobot.clock import Clock
from nanobot.commands import number_argument, optional_text, text_argument
from nanobot.errors import NanobotError, UnknownSession
from nanobot.io import storage_errors
from nanobot.logs import LEVELS, LOG_FILE, LogLine, LogReader
from nanobot.messages import Message
from nanobot.security.audit import FILE, Record, newest_records
from nanobot.session.manager import SessionManager

_MOST_SHOWN = 2_000
_TURNS = 50
_MOST_TURNS = 200
_RECORDS, _MOST_RECORDS = 50, 500

SPANS = (30, 90, 365)
"""Spans of the figures, in days."""
_MOST_BARS = 92
_MOST_CHATS = 20
_KINDS = ("turns", "prompt", "cached", "completion")


class TurnStep(Struct, frozen=True):
    """A step of a turn. `kind` is `waiting`, `model` or `tool`. `start` and `took` are in
    milliseconds since the message was sent."""

    kind: str
    name: str
    start: int
    took: int


class _Report(Struct, frozen=True):
    """A turn's report as `RunningTurn.report_of` stored it. Empty while the turn runs."""

    model: str = ""
    first_seq: int = 0
    memory: tuple[tuple[str, int], ...] = ()
    tool_milliseconds: dict[str, int] = {}
    milliseconds: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: int | None = None

    def row(self, turn: TurnRecord) -> TurnRow:
        """Return the turn as a row of a list."""
        used = self.milliseconds, self.prompt_tokens, self.cached_tokens, self.completion_tokens
        known = turn.id, turn.session_key, turn.state, turn.started_at
        return TurnRow(*known, self.model, *used, cost=self.cost)


class Operations:
    """The operations of one home. `model` is the default one. `bus` is None without a gateway."""

    def __init__(
        self,
        model: str,
        journal: Journal,
        sessions: SessionManager,
        bus: MessageBus | None,
    ) -> None:
        self._model, self._journal = model, journal
        self._sessions, self._bus = sessions, bus

    def table(self) -> Mapping[str, Operation]:
        return {
            "queue.list": self.queue_list,
            "queue.retry": self.queue_retry,
            "queue.drop": self.queue_drop,
            "turn.show": self.turn_show,
            "turns.list": self.turns_list,
        }

    async def queue_list(self, _: Mapping[str, object]) -> dict[str, object]:
        """List pending and failed messages, and pending and dead replies."""
        inbox, outbox = await self._journal.queue_rows()
        waiting = [{"session": r.place, "received_at": r.since, **_row(r)} for r in inbox]
        replies = []
        for row in outbox:
            channel, _sep, chat_id = row.place.partition(":")
            replies.append({"channel": channel, "chat_id": chat_id, **_row(row)})
        return {"inbox": waiting, "outbox": replies}

    async def queue_retry(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Retry a failed message or a dead reply."""
        row = text_argument(arguments, "id")
        again = await self._journal.retry_row(row)
        if self._bus is None:
            return {"text": f"{row} will be retried once the gateway is running."}
        if isinstance(again, InboxEntry):
            self._bus.take_up(again)
        else:
            self._bus.forward(Committed(0, (again,), ()))
        return {"text": f"{row} is being retried."}

    async def queue_drop(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Drop a failed message or a dead reply for good."""
        row = text_argument(arguments, "id")
        await self._journal.drop_row(row)
        return {"text": f"{row} was dropped."}

    async def turn_show(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Show a turn: its prompt, its steps and its cost."""
        turn_id = text_argument(arguments, "id")
        turn = await self._journal.turn_record(turn_id)
        report = _Report()
        with suppress(ValidationError):  # a damaged report
            report = convert(turn.report, _Report)
        stored = list[Message]()
        with suppress(UnknownSession):  # its first turn still runs, or the file was removed
            messages = self._sessions.read_messages(turn.session_key, report.first_seq or 1)
            stored = await asyncio.to_thread(list, messages)
        own = [message for message in stored if message.turn_id == turn_id]
        before = [m for m in stored if own and m.seq < own[0].seq][-_MOST_SHOWN:]
        about = self._render_turn(report.row(turn))
        times = report.tool_milliseconds
        return {
            "state": about.pop("outcome"),
            **about,
            "tools": _tools(own, times),
            "steps": list(map(asdict, waterfall(own, turn.started_at, times))),
            "memory": [{"path": path, "characters": size} for path, size in report.memory],
            "system_prompt": turn.system_prompt,
            "messages": list(map(_render_message, before)),
            "new_messages": list(map(_render_message, own)),
        }

    async def turns_list(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """List `limit` turns, the newest first, optionally of one `session`, with one `outcome`
        (`done`, `failed`, `stopped`, `running`), or from before the turn with the id `before`.
        `more` means that older ones are left. Turns are kept for 30 days."""
        session, outcome, before = (
            optional_text(arguments, key) for key in ("session", "outcome", "before")
        )
        limit = min(number_argument(arguments, "limit") or _TURNS, _MOST_TURNS)
        turns = await self._journal.turns(
            session=session, state=outcome, before=before, limit=limit + 1
        )
        return {
            "turns": [self._render_turn(turn) for turn in turns[:limit]],
            "more": len(turns) > limit,
        }

    def _render_turn(self, turn: TurnRow) -> dict[str, object]:
        used = {"prompt": turn.prompt, "cached": turn.cached, "completion": turn.completion}
        return {
            "id": turn.id,
            "session": turn.session_key,
            "outcome": turn.state,
            "started_at": turn.started_at,
            "model": turn.model or self._model,
            "milliseconds": turn.milliseconds,
            **{f"{name}_tokens": number for name, number in used.items()},
            "cost": in_currency(turn.cost),
        }


def waterfall(
    messages: Sequence[Message], started_at: str, tool_milliseconds: Mapping[str, int]
) -> list[TurnStep]:
    """Return the steps of the turn with these `messages`, in order, or nothing if its start is
    unknown.

    They are computed from the timestamps: a model's reply has the time of its end, a tool's result
    that of the tool's end, and the turn's report has the tools' durations. The rest counts for the
    model, including the little that nanobot itself does in between."""
    try:
        started = datetime.fromisoformat(started_at)
    except ValueError:
        return []
    stamps = [(message, message.timestamp) for message in messages if message.timestamp]
    sent = next((at for message, at in stamps if message.role == "user"), started)
    begin = min(sent, started)
    steps = [TurnStep("waiting", "", 0, _ms(started - begin))] if begin < started else []
    reached = started
    for message, at in stamps:
        if message.role == "tool":
            took = tool_milliseconds.get(message.tool_call_id, 0)
            start = max(0, _ms(at - begin) - took)
            steps.append(TurnStep("tool", message.name, start, took))
        elif message.role == "assistant":
            start = _ms(reached - begin)
            steps.append(TurnStep("model", "", start, max(0, _ms(at - begin) - start)))
        else:
            continue
        reached = max(reached, at)
    return steps


def _ms(span: timedelta) -> int:
    return round(span.total_seconds() * 1000)


def _row(row: QueueRow) -> dict[str, object]:
    names = ("id", "state", "attempts", "text", "reason")
    return {name: getattr(row, name) for name in names}


def _render_message(message: Message) -> dict[str, object]:
    shown: dict[str, object] = {
        "role": message.role,
        "content": message.content,
        "seq": message.seq,
    }
    if message.tool_calls:
        shown["tool_calls"] = [
            {"name": call.name, "arguments": call.arguments} for call in message.tool_calls
        ]
    return shown


def _tools(messages: Sequence[Message], times: Mapping[str, int]) -> list[dict[str, object]]:
    results = {m.tool_call_id: m.content for m in messages if m.role == "tool"}
    return [
        {
            "name": call.name,
            "arguments": call.arguments,
            "result": results.get(call.id, ""),
            "milliseconds": times.get(call.id, 0),
        }
        for message in messages
        for call in message.tool_calls
    ]


def audit_records(logs: Path, arguments: Mapping[str, object]) -> dict[str, object]:
    """Operation `audit.list`: return `limit` records after the newest `offset`, the newest first,
    optionally of one `tool` and one `session`. `more` means that older ones are left."""
    tool, session = optional_text(arguments, "tool"), optional_text(arguments, "session")
    offset, limit = number_argument(arguments, "offset"), _limit(arguments)

    def holds(record: Record) -> bool:
        return tool in ("", record.get("tool")) and session in ("", record.get("session"))

    path = logs / FILE
    with storage_errors(path):
        found = newest_records(path, holds, offset + limit + 1)
    newest = found[::-1][offset:]
    return {
        "records": [dict(record) for record in newest[:limit]],
        "more": len(newest) > limit,
    }


def log_lines(logs: Path, arguments: Mapping[str, object]) -> dict[str, object]:
    """Operation `logs.tail`: return the newest `limit` lines of the log, the oldest first, from
    `level` up, optionally of one `turn`. With `after`, the `position` of an earlier answer, return
    the lines since then."""
    level, turn = optional_text(arguments, "level"), optional_text(arguments, "turn")
    least = LEVELS.index(level) if level in LEVELS else 0
    after, limit = optional_text(arguments, "after"), _limit(arguments)

    def is_wanted(line: LogLine) -> bool:
        return LEVELS.index(line.level) >= least and turn in ("", line.turn)

    path = logs / LOG_FILE
    reader = LogReader(path, after)
    with storage_errors(path):
        if after:
            lines = list(filter(is_wanted, reader.new_lines()))[-limit:]
        else:
            lines = reader.newest_lines(is_wanted, limit)
    return {"lines": [asdict(line) for line in lines], "position": reader.position}


def _limit(arguments: Mapping[str, object]) -> int:
    return min(max(1, number_argument(arguments, "limit", _RECORDS)), _MOST_RECORDS)


async def figures(
    journal: Journal, clock: Clock, arguments: Mapping[str, object]
) -> dict[str, object]:
    """Operation `figures`: return usage and response times of the last `days` (30, 90 or 365).
    `periods` and `chats` have turns, tokens and cost (None without prices), with the most used
    chats first and the rest in `others`. `memory` is the additional usage of memory's own calls.
    `times` are milliseconds by day, as far back as turns are kept. `queue` is its current state."""
    days = arguments.get("days", SPANS[0])
    if days not in SPANS or not isinstance(days, int):
        raise NanobotError(f"figures are over {', '.join(map(str, SPANS))} days")
    today = clock.now().date()
    since = today - timedelta(days=days - 1)
    everything = await journal.usage_by_day(since)
    used = [one for one in everything if one.session_key != LEARNING]
    by_chat = _sums(used, lambda one: one.session_key)
    chats = sorted(
        by_chat.items(), key=lambda one: (-one[1]["prompt"] - one[1]["completion"], one[0])
    )
    learned = _counts(sum_usage(everything, LEARNING))
    times = await journal.times_by_day(max(since, today - timedelta(days=KEEP_DAYS - 1)))
    return {
        "days": days,
        "by": "day" if days <= _MOST_BARS else "week",
        "periods": _periods(used, since, today, days),
        "chats": [{"session": key, **_render_usage(sums)} for key, sums in chats[:_MOST_CHATS]],
        "others": _render_usage(_total(chats[_MOST_CHATS:])),
        "more_chats": max(0, len(chats) - _MOST_CHATS),
        "total": _render_usage(_total(chats)),
        "memory": _render_usage(learned) | {"turns": 0},
        "times": [asdict(one) for one in times],
        "queue": asdict(await journal.counts()),
    }


def _periods(
    used: Sequence[DayUsage], since: date, today: date, days: int
) -> list[dict[str, object]]:
    def begins(day: str) -> str:
        if days <= _MOST_BARS:
            return day
        at = date.fromisoformat(day)
        return (at - timedelta(days=at.weekday())).isoformat()

    sums = _sums(used, lambda one: begins(one.day))
    span = ((since + timedelta(days=at)).isoformat() for at in range((today - since).days + 1))
    starts = dict.fromkeys(map(begins, span))
    return [{"day": day, **_render_usage(sums[day])} for day in starts]


def _render_usage(sums: Counter[str]) -> dict[str, object]:
    tokens = {kind: sums[kind] for kind in _KINDS[1:]}
    cost = in_currency(sums["cost"]) if sums["priced"] else None
    return {"turns": sums["turns"], **tokens, "cost": cost}


def _sums(used: Iterable[DayUsage], key: Callable[[DayUsage], str]) -> dict[str, Counter[str]]:
    found = defaultdict[str, Counter[str]](Counter)
    for one in used:
        found[key(one)].update(_counts(one))
    return found


def _counts(one: DayUsage | UsageTotals) -> Counter[str]:
    """Return all its numbers. `priced` is 0 if no price was known."""
    known = {"cost": one.cost or 0, "priced": int(one.cost is not None)}
    return Counter({**{kind: getattr(one, kind) for kind in _KINDS}, **known})


def _total(chats: Iterable[tuple[str, Counter[str]]]) -> Counter[str]:
    return sum((sums for _, sums in chats), Counter[str]())
