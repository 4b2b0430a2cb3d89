"""Pending requests, and their events: text, progress, and an answer or an error.

Several may wait for the same event (a repetition while the first is pending): all get the same. If
the request has a record, the answer is stored in it before any client gets it and before the core
marks it as delivered."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain

from msgspec import Struct

from nanobot.bus.events import (
    Address,
    InboundMessage,
    Notice,
    OutboundPart,
    Progress,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Waiting,
)
from nanobot.clock import Clock
from nanobot_api.problems import Problem, waits
from nanobot_api.records import Answer, Records, is_kept, record_id

_REMEMBERED = 10_000
"""Number of turns to remember. Turns without an answer are dropped in time."""


WAITING = "waiting"
"""Kind of the progress while the model has not answered. It does not begin a stream."""

TICK_SECONDS = 0.25
_UNKNOWN = "others"
"""The origin of an answer whose turn ended in an earlier process: it may repeat any content."""


class TextEvent(Struct, frozen=True):
    """More text. `fresh`: it does not continue the text so far."""

    text: str
    fresh: bool = False


class ProgressEvent(Struct, frozen=True):
    """Progress for people: `tool` (a call starts), `output` (of a tool, or its reason to wait),
    `WAITING` (for the model), `notice`."""

    kind: str
    text: str


class AnswerEvent(Struct, frozen=True):
    """The end. `reply` is its last text: the missing rest of a stream ends with it."""

    answer: Answer
    reply: str


class FailureEvent(Struct, frozen=True):
    """The end, without an answer. `waits`: the message is still pending."""

    problem: Problem
    waits: bool = False


class OwnerQuestion(Struct, frozen=True):
    """A pending question to the owner about a call of this conversation: about `what`, in the chat
    `place`, with the code `code`. `at` is its time on the monotonic clock."""

    code: str
    what: str
    place: Address
    at: float


Event = TextEvent | ProgressEvent | AnswerEvent | FailureEvent


class Exchange:
    """A pending request. `asked` are the open questions of its conversation, by code. An event
    `None` wakes it when they change, and every `TICK_SECONDS`. Only a stream gets text and
    progress."""

    def __init__(
        self,
        asked: Mapping[str, OwnerQuestion] | None = None,
        *,
        is_stream: bool = False,
        has_files: bool = False,
    ) -> None:
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()
        self.asked = dict(asked or {})
        self.is_stream, self.has_files = is_stream, has_files
        if self.asked:
            self.events.put_nowait(None)


class _Turn(Struct):
    """A turn that may have pending requests."""

    chat: str
    event_ids: tuple[str, ...] = ()
    ended: TurnEnded | None = None
    said: list[str] = []
    parts: list[str] = []
    fresh: bool = False


class Exchanges:
    """All pending requests."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], list[Exchange]] = {}
        self._asked: dict[str, dict[str, OwnerQuestion]] = {}
        """The open questions, by chat and code."""
        self._turns: OrderedDict[str, _Turn] = OrderedDict()
        self._is_used = asyncio.Event()

    async def tick(self, clock: Clock) -> None:
        """Wake the pending requests every `TICK_SECONDS`, because a disconnect or a timeout has no
        event."""
        while True:
            await self._is_used.wait()
            await clock.sleep(TICK_SECONDS)
            for exchange in chain.from_iterable(self._waiting.values()):
                exchange.events.put_nowait(None)
            if not self._waiting:
                self._is_used.clear()

    @contextmanager
    def listen(self, message: InboundMessage, *, is_stream: bool) -> Iterator[Exchange]:
        """Yield an exchange with the events of a message while inside."""
        chat, key = message.chat_id, (message.chat_id, message.event_id)
        has_files = bool(message.media)
        exchange = Exchange(self._asked.get(chat), is_stream=is_stream, has_files=has_files)
        self._waiting.setdefault(key, []).append(exchange)
        self._is_used.set()
        try:
            yield exchange
        finally:
            self._waiting[key].remove(exchange)
            if not self._waiting[key]:
                del self._waiting[key]

    def waits_alone(self, chat: str, event_id: str) -> bool:
        """Return True if at most one request waits for this event."""
        return len(self._waiting.get((chat, event_id), ())) <= 1

    def ask(self, chat: str, asked: OwnerQuestion) -> None:
        """Record that the turn of a chat, with each request behind it, waits for the owner."""
        self._asked.setdefault(chat, {})[asked.code] = asked
        for exchange in self._in(chat):
            exchange.asked[asked.code] = asked
            exchange.events.put_nowait(None)

    def close_question(self, chat: str, code: str) -> None:
        """Remove a question."""
        codes = self._asked.get(chat, {})
        codes.pop(code, None)
        if not codes:
            self._asked.pop(chat, None)
        for exchange in self._in(chat):
            exchange.asked.pop(code, None)
            exchange.events.put_nowait(None)

    def _in(self, chat: str) -> list[Exchange]:
        """Return all exchanges of a chat."""
        found = (waiting for key, waiting in self._waiting.items() if key[0] == chat)
        return [exchange for waiting in found for exchange in waiting]

    def show(self, event: Progress) -> None:
        """Pass progress to the requests behind it."""
        if isinstance(event, Notice):
            chat = [key for key in self._waiting if key[0] == event.chat_id]
            self._tell(event.chat_id, [id for _, id in chat], ProgressEvent("notice", event.text))
            return
        turn = self._turn(event.turn_id, event.chat_id)
        match event:
            case TurnStarted():
                turn.event_ids = event.event_ids
            case TextDelta():
                turn.fresh = turn.fresh or event.restart
                if event.text:
                    self._tell(turn.chat, turn.event_ids, TextEvent(event.text, turn.fresh))
                    turn.fresh = False
            case Waiting():
                if line := str(event):
                    self._tell(turn.chat, turn.event_ids, ProgressEvent(WAITING, line))
            case ToolStarted():
                turn.fresh = True
                self._tell(turn.chat, turn.event_ids, ProgressEvent("tool", event.hint))
            case ToolOutput():
                self._tell(turn.chat, turn.event_ids, ProgressEvent("output", event.text))
            case TurnEnded():
                self._end(event, turn)

    async def deliver(self, part: OutboundPart, records: Records) -> str:
        """Receive a part of a message. Return the turn of an answer whose request was deleted, else
        an empty text. Raises `StorageError` if an answer cannot be stored."""
        name, call, _ = part.key.rsplit("/", 2)
        if not name[:1].isdigit():  # not from a turn
            limit = Problem(429, part.content, "rate_limit_exceeded", retry_after=60, again=False)
            problem = limit if name.startswith("rate-") else Problem(500, part.content)
            self._tell(part.chat_id, part.event_ids, FailureEvent(problem))
            return ""
        if call == "waiting":  # the end of the turn reports this
            return ""
        # A turn without a request (the report of a subagent) is only in the conversation.
        if not part.event_ids and call == "reply":
            self._turns.pop(name, None)
            return ""
        turn = self._turn(name, part.chat_id)
        if not part.event_ids:
            turn.said.append(part.content)
            turn.fresh = True
            self._tell(turn.chat, turn.event_ids, TextEvent(part.content, fresh=True))
            return ""
        turn.parts.append(part.content)
        if not part.last:
            return ""
        is_deleted = await self._answer(part, turn, records, name)
        self._turns.pop(name, None)
        return name if is_deleted else ""

    async def _answer(self, part: OutboundPart, turn: _Turn, records: Records, name: str) -> bool:
        """Store the answer of the turn `name` and pass it on. Return True if its request was
        deleted."""
        end, reply = turn.ended, "".join(turn.parts)
        answer = Answer(reply, before="\n\n".join(turn.said), origin=_UNKNOWN, turn=name)
        if end is not None:
            error = (end.error or "Failed") if end.outcome == "failed" else ""
            used = end.prompt_tokens, end.completion_tokens
            answer = Answer(reply, error, *used, answer.before, end.origin, name)
        is_deleted = False
        files = [one for one in part.event_ids if self._may_have_files(part.chat_id, one)]
        if files or any(map(is_kept, part.event_ids)):
            try:
                is_deleted = await asyncio.to_thread(_keep, records, part, answer, files)
            except BaseException:
                turn.parts.pop()  # the part will be delivered again
                raise
        self._tell(part.chat_id, part.event_ids, AnswerEvent(answer, reply))
        return is_deleted

    def _may_have_files(self, chat: str, event_id: str) -> bool:
        """Return False if a request certainly has no files."""
        waiting = self._waiting.get((chat, event_id))
        return not waiting or any(one.has_files for one in waiting)

    def _end(self, event: TurnEnded, turn: _Turn) -> None:
        turn.ended = event
        if event.outcome in ("waiting", "held"):
            problem = waits("held" if event.outcome == "held" else event.error)
            self._tell(event.chat_id, event.event_ids, FailureEvent(problem, waits=True))
        elif event.outcome == "stopped":
            problem = Problem(500, "The answer was stopped.", "turn_stopped", again=False)
            self._tell(event.chat_id, event.event_ids, FailureEvent(problem))

    def _tell(self, chat: str, event_ids: tuple[str, ...] | list[str], event: Event) -> None:
        is_end = isinstance(event, AnswerEvent | FailureEvent)
        for event_id in event_ids:
            for exchange in self._waiting.get((chat, event_id), ()):
                if is_end or exchange.is_stream:
                    exchange.events.put_nowait(event)

    def _turn(self, id: str, chat: str) -> _Turn:
        if id not in self._turns:
            self._turns[id] = _Turn(chat)
            if len(self._turns) > _REMEMBERED:
                self._turns.popitem(last=False)
        return self._turns[id]


def _keep(
    records: Records, part: OutboundPart, answer: Answer, with_files: Collection[str]
) -> bool:
    is_deleted = False
    for event_id in part.event_ids:
        id = record_id(part.chat_id, event_id)
        if is_kept(event_id):
            is_deleted = records.answer(id, answer) or is_deleted
        if event_id in with_files:
            records.drop_files(id)
    return is_deleted
