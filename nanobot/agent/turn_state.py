"""A turn under way: whom it answers, what it has said and done, and its place in the journal.

`messages` are at every moment what the conversation gains if the turn ends now: the person's
message is there before its files are fetched, without them. Steps are kept here as in the journal,
so that a turn which has to wait goes on from them like one that a crash interrupted. Below: what a
turn becomes in its session (`stage`), in the journal (`report`), and in its chat (`Replies`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from nanobot.agent.intake import Intake
from nanobot.agent.notifier import (
    MessageSplitter,
    failed_text,
    is_silent,
    job_waiting_text,
    note_for_chat,
)
from nanobot.agent.runner import Begun, open_calls
from nanobot.agent.session_queue import Mailbox
from nanobot.agent.system_prompt import late_notice
from nanobot.bus.events import InboundMessage, OutboundMessage, TurnEnded
from nanobot.bus.journal import InboxEntry, Journal, Outgoing, Step
from nanobot.clock import Clock
from nanobot.errors import (
    TurnStopped,
)
from nanobot.memory.scopes import Scopes
from nanobot.memory.taint import carried, origins_of
from nanobot.messages import Message, ToolCall
from nanobot.providers.port import Usage
from nanobot.session.records import JsonValue, decode, encode
from nanobot.session.session import Session
from nanobot.tooling import Caller

ALBUM_SECONDS = 1.0
"""An album is complete when nothing has come for that long; what comes later joins the turn."""


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """What a turn's prompt was made of, for `nanobot turn show`: `system_id` names the stored
    system prompt, `memory` gives its files with their size in characters, `first_seq` the oldest
    message; `tokens` is an estimate."""

    system_id: str = ""
    first_seq: int = 0
    memory: tuple[tuple[str, int], ...] = ()
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class TurnContext:
    """Who a turn is for, worked out once when it begins and the session is loaded.

    `scope` is whose memory it has, `is_owner` whether the owner wrote. What may change while it
    runs is not here: taint and permission are asked for at each call.
    """

    turn_id: str
    inbound: InboundMessage
    session_key: str
    scope: str
    is_owner: bool


class RunningTurn:
    """The runner's `TurnLog`. `ending` is held by whoever ends the turn, until that is on disk:
    behind it, `open` says whether the turn goes on. `before` gives the conversation that the turn
    goes on with. `context` is set when it begins. `steer`: messages that arrive meanwhile join.
    `has_asked` is set when the model is about to be asked, or the turn is over.
    """

    def __init__(
        self,
        turn_id: str,
        entry: InboxEntry,
        journal: Journal,
        mailbox: Mailbox,
        intake: Intake,
        clock: Clock,
        *,
        steer: bool = True,
    ) -> None:
        done, started = _replay(entry.steps)
        self.id = turn_id
        self.entries = [entry, *entry.joined]
        self.messages = [intake.text_of(entry.message), *done]
        self.begun = Begun(tuple(done), started)
        self.prompt = PromptRecord()
        self.before: Callable[[], Sequence[Message]] = tuple
        self.epoch = ""
        self.open = True
        self.ending = asyncio.Lock()
        self.task: asyncio.Task[object] | None = None
        self.has_asked = asyncio.Event()
        self.tools = [call.name for message in done for call in message.tool_calls]
        self.milliseconds: dict[str, int] = {}
        self.model = ""
        self.started_at = clock.monotonic()
        self._journal, self._mailbox, self._intake = journal, mailbox, intake
        self._clock = clock
        self._steps = list(entry.steps)
        self.context: TurnContext | None = None
        self._steer, self._newest = steer, mailbox.newest

    @property
    def inbound(self) -> InboundMessage:
        """The message that began it."""
        return self.entries[0].message

    @property
    def event_ids(self) -> tuple[str, ...]:
        """The events it answers, for which somebody waits."""
        said = (entry.message for entry in self.entries if entry.message.awaited)
        return tuple(message.answered_event for message in said)

    @property
    def caller(self) -> Caller:
        """On whose behalf its tools run."""
        inbound, context = self.inbound, self.context
        assert context is not None, "the turn has not begun"
        return Caller(
            inbound.channel,
            inbound.chat_id,
            context.session_key,
            context.turn_id,
            inbound.sender_id,
            context.scope,
            inbound.thread_id,
            heard=self._heard,
            origins=lambda: origins_of(self._heard()),
            begun_by=inbound.begun_by,
            job=inbound.job,
            conversation=f"{inbound.session_key} {self.epoch}",
        )

    def _heard(self) -> Sequence[Message]:
        return (*self.before(), *self.messages)

    async def begin(self, notice: str = "") -> None:
        """Fetch the files of the person's message, and take in what belongs to it: the rest of its
        album, corrections of its text. `notice` goes into its header."""
        if notice:
            self.messages[0] = replace(self.messages[0], notice=notice)
        if self.inbound.group_id:
            await self._until_the_album_is_here()
        first = await self._taken_in(self.inbound, notice)
        self.refuse_if_ended()
        self.messages[0] = first
        if not self.begun.messages:  # else it joins as the turn goes on, behind open calls
            taken = self._mailbox.take_those(self._key, self.includes)
            self.begun = Begun(tuple(await self._join(taken)))

    async def _taken_in(self, inbound: InboundMessage, notice: str = "") -> Message:
        late = ""
        if inbound.begun_by == "person":
            late = late_notice(inbound.timestamp, self._clock.now())
        return await self._intake.to_message(inbound, "\n".join(filter(None, (late, notice))))

    async def _until_the_album_is_here(self) -> None:
        """Items of an album come one by one, and nothing says which is the last."""
        here = -1
        while here != (here := sum(map(self.includes, self._mailbox.waiting(self._key)))):
            await self._clock.sleep(ALBUM_SECONDS)
            self.refuse_if_ended()

    def refuse_if_ended(self) -> None:
        """Raise `TurnStopped` where the turn is over, or about to be."""
        if not self.open:
            raise TurnStopped("this turn was stopped")

    def take_up(self) -> None:
        """Let the next run go on from what is done; every call has its result by now."""
        self.begun = Begun(tuple(self.messages[1:]))

    def earlier_run_retracted(self) -> None:
        """What an earlier run left in the conversation has left it."""
        self.entries[0] = replace(self.entries[0], previous_turn="")

    def as_entry(self) -> InboxEntry:
        """The turn as a message that waits, with what it has done so far."""
        first, *joined = self.entries
        return replace(first, turn_id=self.id, steps=tuple(self._steps), joined=tuple(joined))

    async def replied(self, message: Message) -> None:
        """See `TurnLog`. Not awaited: `starting` is, where it matters, and comes after it."""
        self._add(message)
        self.tools.extend(call.name for call in message.tool_calls)
        self._post(Step("message", encode(message)))

    async def starting(self, call: ToolCall) -> None:
        """See `TurnLog`."""
        await self._write(Step("start", json.dumps(call.id)))

    async def finished(self, message: Message, *, effects: bool, seconds: float) -> None:
        """See `TurnLog`."""
        self._add(message)
        self.milliseconds[message.tool_call_id] = round(seconds * 1000)
        step = Step("message", encode(message))
        if effects:
            await self._write(step)
        else:
            self._post(step)

    async def told(self, message: Message) -> None:
        """See `TurnLog`."""
        self._add(message)
        self._post(Step("message", encode(message)))

    async def steered(self) -> Sequence[Message]:
        """See `TurnLog`. Only what arrived after the turn began, and nothing past a command."""
        self.refuse_if_ended()
        joined = await self._join(self._take_waiting())
        if self.entries[0].recovered:
            await self._journal.asking(self.id)
        self.has_asked.set()
        return joined

    async def corrections(self) -> Sequence[Message]:
        """See `TurnLog`."""
        self.refuse_if_ended()
        return await self._join(self._mailbox.take_those(self._key, self.includes))

    async def _join(self, taken: list[InboxEntry]) -> Sequence[Message]:
        """Make waiting messages part of the turn, durably; what they are in the conversation."""
        if not taken:
            return ()
        first = len(self.messages)
        self.entries += taken
        self.messages += [self._intake.text_of(entry.message) for entry in taken]
        try:
            messages = [await self._taken_in(entry.message) for entry in taken]
            steps = [Step("message", encode(message)) for message in messages]
            await self._write(*steps, joined=[entry.id for entry in taken])
        except BaseException:
            if self.open:
                del self.entries[-len(taken) :], self.messages[first:]
                self._mailbox.give_back(taken)
            raise
        self.messages[first:] = messages
        return messages

    def _take_waiting(self) -> list[InboxEntry]:
        """What joins: what is part of this anyway, and where we steer, what is new."""
        joining = {entry.id for entry in self._mailbox.waiting(self._key) if self.includes(entry)}
        if self._steer:
            for entry in takewhile(self._is_new, self._mailbox.waiting(self._key)):
                if not entry.message.edits and not entry.message.unanswered:
                    joining.add(entry.id)
        return self._mailbox.take_those(self._key, lambda entry: entry.id in joining)

    def _is_new(self, entry: InboxEntry) -> bool:
        """Whether a message came after the turn began; a command is passed by nothing, and what a
        person says gets a turn in which they can be asked."""
        is_new = entry.id > self._newest and not entry.turn_id
        if entry.message.begun_by == "person" and self.inbound.begun_by != "person":
            return False
        return is_new and not self._mailbox.is_command(entry.message)

    def includes(self, entry: InboxEntry) -> bool:
        """Whether a message is part of what is being answered, however busy we are: of its album,
        or a correction of it by whoever wrote it."""
        album, message = self.inbound.group_id, entry.message
        in_album = bool(album) and message.group_id == album
        told = {(each.message.event_id, each.message.sender_id) for each in self.entries}
        return in_album or (bool(message.edits) and (message.edits, message.sender_id) in told)

    @property
    def _key(self) -> str:
        return self.inbound.session_key

    def _add(self, message: Message) -> None:
        self.refuse_if_ended()
        self.messages.append(message)

    def _post(self, step: Step) -> None:
        self._journal.post_steps(self.id, len(self._steps), (step,))
        self._steps.append(step)

    async def _write(self, *steps: Step, joined: Sequence[int] = ()) -> None:
        self.refuse_if_ended()
        first = len(self._steps)
        self._steps.extend(steps)
        try:
            await self._journal.add_steps(self.id, first, steps, joined)
        except BaseException:
            del self._steps[first:]
            raise


def _replay(steps: Sequence[Step]) -> tuple[list[Message], frozenset[str]]:
    """The messages of an earlier process, and which calls of their last group had started."""
    messages: list[Message] = []
    started: set[str] = set()
    for step in steps:
        if step.kind == "start":
            started.add(json.loads(step.payload))
            continue
        message = decode(step.payload.encode())
        if not isinstance(message, Message):
            continue
        if message.role == "tool" and not _awaited(message, messages):
            continue
        if message.tool_calls:
            started.clear()
        messages.append(message)
    return messages, frozenset(started)


def _awaited(result: Message, messages: Sequence[Message]) -> bool:
    return any(call.id == result.tool_call_id for call in open_calls(messages))


def identify(
    session: Session, turn_id: str, inbound: InboundMessage, scopes: Scopes
) -> TurnContext:
    """Who a message of a conversation is answered as. What the conversation's key does not tell
    about who it is with is staged as its metadata."""
    scope = scopes.serving(inbound, session.key, session.metadata)
    changes: dict[str, JsonValue] = {}
    if inbound.scope:
        changes = {"scope": inbound.scope}
    elif not inbound.session_override:
        if scopes.of_session(session.key, session.metadata) != scope:
            changes = {
                "sender": None if inbound.is_group else inbound.sender_id,
                "group": True if inbound.is_group else None,
                "chat": inbound.chat_id if inbound.thread_id else None,
            }
        if inbound.sender_name and not inbound.is_group:
            changes["name"] = inbound.sender_name
    changes = {
        name: value for name, value in changes.items() if session.metadata.get(name) != value
    }
    if changes:
        session.set_metadata(**changes)
    is_owner = scopes.is_owner(inbound.channel, inbound.sender_id)
    return TurnContext(turn_id, inbound, session.key, scope, is_owner)


def turn_name(entry: InboxEntry, clock: Clock) -> str:
    """A turn's id: the day, the message's number in the inbox, and the run if it is not the first.

    The day keeps ids apart when a journal is lost and numbering begins again.
    """
    run = f".{entry.runs + 1}" if entry.runs else ""
    return f"{clock.now():%y%m%d}-{entry.id}{run}"


def stage(session: Session, turn: RunningTurn, messages: Sequence[Message]) -> None:
    """Stage a turn's messages. What the model said after it read foreign text carries the mark of
    that: it may repeat it."""
    tools = tuple(dict.fromkeys(turn.tools))
    foreign = set(origins_of(turn.before()))
    for message in messages:
        is_final = message is messages[-1] and message.role == "assistant"
        used = tools if is_final else ()
        foreign.update(origins_of([message]))
        origin = carried(foreign) if message.role == "assistant" else message.origin
        session.add_message(replace(message, turn_id=turn.id, tools_used=used, origin=origin))


def report(turn: RunningTurn, ended: TurnEnded, usage: Usage) -> str:
    """What `nanobot turn show` tells of a turn, as JSON."""
    return json.dumps(
        {
            "model": turn.model,
            "system_id": turn.prompt.system_id,
            "first_seq": turn.prompt.first_seq,
            "memory": turn.prompt.memory,
            "tool_milliseconds": turn.milliseconds,
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "cached_tokens": usage.cached,
            "milliseconds": ended.milliseconds,
        }
    )


class Replies:
    """Makes them."""

    def __init__(self, split: MessageSplitter, clock: Clock) -> None:
        self._split, self._clock = split, clock

    def of(
        self, turn: RunningTurn, text: str, state: Literal["done", "failed", "stopped"]
    ) -> tuple[Outgoing, ...]:
        """The reply that ends a turn; none where there is nothing to say."""
        if turn.inbound.apart:
            text = "" if is_silent(text) else text
            text = failed_text(turn.inbound, text) if state == "failed" else text
            if not text:
                return ()
        outgoing = self.to(turn.inbound, text, turn.event_ids, "reply")
        return (outgoing,) if outgoing.parts else ()

    def waiting(self, turn: RunningTurn, text: str) -> Outgoing | None:
        """That a turn has to wait, in these words where somebody waits for it."""
        if not turn.inbound.awaited:
            text = job_waiting_text(turn.inbound)
        return self.to(turn.inbound, text, turn.event_ids, "waiting") if text else None

    def notes(
        self, turn: RunningTurn, text: str, reply: Sequence[Outgoing]
    ) -> tuple[InboundMessage, ...]:
        """What the chat's conversation gets to know of a reply that nobody there asked for."""
        if not turn.inbound.apart or not reply:
            return ()
        return (note_for_chat(turn.inbound, text, turn.caller.origins(), self._clock.now()),)

    def to(
        self, inbound: InboundMessage, text: str, event_ids: tuple[str, ...], call: str
    ) -> Outgoing:
        """A text for the chat of `inbound`, in a group as a reply, so that all see to what; `call`
        tells the messages of a turn apart."""
        message = OutboundMessage(
            inbound.channel,
            inbound.chat_id,
            text,
            reply_to=inbound.message_id if inbound.is_group else "",
            thread_id=inbound.thread_id,
        )
        return Outgoing(call, self._split(message), event_ids)
