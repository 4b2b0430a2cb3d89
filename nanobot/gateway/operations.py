"""What people ask of a nanobot from outside: what waits, what a turn did.

The same operations serve the control socket of a running gateway and commands on a home where none
runs; `Operations` says what they mean and gets its parts from either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict

from nanobot.bus.journal import Committed, InboxEntry, QueueRow, TurnRecord, TurnRow, in_currency
from nanobot.bus.queue import MessageBus
from nanobot.bus.sql_journal import Journal
from nanobot.channel import Operation
from nanobot.commands import number_argument, optional_text, text_argument
from nanobot.errors import UnknownSession
from nanobot.messages import Message
from nanobot.session.manager import SessionManager

_MOST_SHOWN = 2_000
_TURNS = 50
_MOST_TURNS = 200


class TurnStep(Struct, frozen=True):
    """What a turn spent time on: `kind` is `waiting`, `model` or `tool`; `start` and `took` are in
    milliseconds, from when the message was sent."""

    kind: str
    name: str
    start: int
    took: int


class _Report(Struct, frozen=True):
    """What `RunningTurn.report_of` stored of a turn; empty while it runs."""

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
        """The turn as it stands in a list."""
        used = self.milliseconds, self.prompt_tokens, self.cached_tokens, self.completion_tokens
        known = turn.id, turn.session_key, turn.state, turn.started_at
        return TurnRow(*known, self.model, *used, cost=self.cost)


class Operations:
    """The operations of one home; `model` is the default one, `bus` is None where no gateway
    runs."""

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
        """By name, as they are called over the socket."""
        return {
            "queue.list": self.queue_list,
            "queue.retry": self.queue_retry,
            "queue.drop": self.queue_drop,
            "turn.show": self.turn_show,
            "turns.list": self.turns_list,
        }

    async def queue_list(self, _: Mapping[str, object]) -> dict[str, object]:
        """Messages that wait or failed, replies that wait or died."""
        inbox, outbox = await self._journal.queue_rows()
        return {
            "inbox": [
                {"session": row.place, "received_at": row.since, **_row(row)} for row in inbox
            ],
            "outbox": [
                {
                    "channel": row.place.partition(":")[0],
                    "chat_id": row.place.partition(":")[2],
                    **_row(row),
                }
                for row in outbox
            ],
        }

    async def queue_retry(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Try a failed message or a dead reply again."""
        row = text_argument(arguments, "id")
        again = await self._journal.retry_row(row)
        if self._bus is None:
            return {"text": f"{row} will be tried again when the gateway runs."}
        if isinstance(again, InboxEntry):
            self._bus.take_up(again)
        else:
            self._bus.forward(Committed(0, (again,), ()))
        return {"text": f"{row} is tried again now."}

    async def queue_drop(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Give a failed message or a dead reply up for good."""
        row = text_argument(arguments, "id")
        await self._journal.drop_row(row)
        return {"text": f"{row} is dropped."}

    async def turn_show(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """A turn: what it was asked with, what it did, what it cost."""
        turn_id = text_argument(arguments, "id")
        turn = await self._journal.turn_record(turn_id)
        report = _Report()
        with suppress(ValidationError):  # damaged
            report = convert(turn.report, _Report)
        try:
            messages = self._sessions.read_messages(turn.session_key, report.first_seq or 1)
            stored = await asyncio.to_thread(list, messages)
        except UnknownSession:  # its first turn still runs, or somebody removed the file
            stored = []
        own = [message for message in stored if message.turn_id == turn_id]
        before = [m for m in stored if own and m.seq < own[0].seq][-_MOST_SHOWN:]
        about = self._listed(report.row(turn))
        times = report.tool_milliseconds
        return {
            "state": about.pop("outcome"),
            **about,
            "tools": _tools(own, times),
            "steps": [asdict(step) for step in waterfall(own, turn.started_at, times)],
            "memory": [{"path": path, "characters": size} for path, size in report.memory],
            "system_prompt": turn.system_prompt,
            "messages": [_shown(message) for message in before],
            "new_messages": [_shown(message) for message in own],
        }

    async def turns_list(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Turns, the newest first: `limit` of them, of one `session`, with one `outcome` (`done`,
        `failed`, `stopped`, `running`), from before the turn with the id `before`, where these are
        given; with `more`, older ones are left. They are kept for 30 days."""
        session, outcome, before = (
            optional_text(arguments, key) for key in ("session", "outcome", "before")
        )
        limit = min(number_argument(arguments, "limit") or _TURNS, _MOST_TURNS)
        turns = await self._journal.turns(
            session=session, state=outcome, before=before, limit=limit + 1
        )
        return {"turns": [self._listed(turn) for turn in turns[:limit]], "more": len(turns) > limit}

    def _listed(self, turn: TurnRow) -> dict[str, object]:
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
    """The steps of the turn that `messages` are of, in order; empty where its start is unknown.

    They are worked out from when messages came: a reply of the model is stamped when it is whole, a
    tool's result when the tool ends, and how long each tool took is in the turn's report. The rest
    is the model's, with the little that nanobot itself does in between."""
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


def _shown(message: Message) -> dict[str, object]:
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
