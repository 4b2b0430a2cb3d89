"""The running turn: its message, its messages and calls so far, and its place in the journal.

A turn keeps the same steps as the journal. So a postponed turn continues from them, like a turn
that a crash interrupted. `Outcome` is the end of a turn, and `completion` the transaction of that
end. `TurnParts` and its subclasses are the objects that the parts of the agent share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nanobot.agent.hooks import AgentHook
from nanobot.agent.intake import Admission, Intake
from nanobot.agent.notifier import MessageSplitter
from nanobot.agent.prompt import LATE, ContextBuilder, PromptCache, ScopedSources, late_notice
from nanobot.agent.runner import (
    AgentRunner,
    EarlierWork,
    Turn,
    TurnLog,
    open_calls,
    whole_groups,
    with_stopped_calls,
)
from nanobot.agent.session_queue import Lanes, Screen, SessionQueue, turn_ended
from nanobot.agent.voice_replies import VoiceReplies
from nanobot.bus.events import NANOBOT, Address, InboundMessage, TurnEnded
from nanobot.bus.journal import Completion, InboxEntry, Outgoing, Step
from nanobot.bus.queue import MessageBus
from nanobot.bus.sql_journal import Journal
from nanobot.clock import Clock
from nanobot.commands import CommandRegistry
from nanobot.errors import TurnStopped
from nanobot.memory.consolidation import MemoryConsolidator
from nanobot.memory.scopes import Scopes
from nanobot.memory.taint import combine_marks, origins_of
from nanobot.messages import TURN_FAILED, TURN_STOPPED, Message, ToolCall
from nanobot.providers.counter import TokenCounter
from nanobot.providers.port import Prompt, Usage
from nanobot.session.manager import SessionManager
from nanobot.session.records import decode, encode_step
from nanobot.session.session import Session
from nanobot.tasks import Background, is_cancelled
from nanobot.tooling import TurnContext

ALBUM_SECONDS = 1.0
"""An album is complete after this silence. Later items join the turn."""

_NOTHING_USED = Usage()

OnBusy = Literal["steer", "queue", "interrupt"]


class TurnParts(Struct, frozen=True, kw_only=True):
    """Objects that a running turn needs."""

    journal: Journal
    bus: MessageBus
    clock: Clock
    scopes: Scopes
    commands: CommandRegistry
    queue: SessionQueue
    intake: Intake
    sources: ScopedSources
    on_busy: OnBusy = "steer"
    """Handling of a message that arrives during a turn."""


class AnswerParts(TurnParts, frozen=True, kw_only=True):
    """Objects that begin, answer, and end turns."""

    sessions: SessionManager
    admission: Admission
    context: ContextBuilder
    consolidator: MemoryConsolidator
    counter: TokenCounter
    runner: AgentRunner
    split: MessageSplitter
    hook: AgentHook
    awaited_background: Background
    """Work that a command which hosts the gateway waits for before it ends."""
    warn_of_failure: Callable[[str, Exception], None]
    """Warning to the owner that another person gets no answer."""
    voice_replies: VoiceReplies | None = None
    begin_title: Callable[[Session, str], None] = lambda _, __: None
    sees_apart: bool = False
    """Messages with pictures use a model other than the chat model."""


class AgentParts(AnswerParts, frozen=True, kw_only=True):
    """Objects that route messages to their turns, in addition."""

    lanes: Lanes
    background: Background
    screen: Screen


class RunningTurn(TurnLog):
    """A running turn: its entries, its messages so far, and the runner's `TurnLog`."""

    session: Session
    """Set, like `scope`, when the turn is admitted."""
    caller: TurnContext
    """Set when the turn joins its conversation."""
    cache: PromptCache
    """Cache of its last prompt."""

    def __init__(self, entry: InboxEntry, parts: TurnParts) -> None:
        done, started = _replay(entry.steps) if entry.steps else ([], frozenset())
        self.id = entry.turn_id or turn_name(entry, parts.clock)
        self.inbound = entry.message
        self.entries = [entry, *entry.joined]
        self.messages = [parts.intake.text_of(entry.message), *done]
        """Messages that the conversation gains if the turn ends now. The person's message is
        without its files until they are fetched."""
        self.resumed = EarlierWork(tuple(done), started)
        self.scope = ""
        self.report: dict[str, object] = {}
        self.prompt_tokens = 0
        self.approved_in: dict[Address, None] = {}
        """Chats in which the owner approved its calls."""
        self.open = True
        self.ending = asyncio.Lock()
        """Held while the end of the turn is stored. After that, `open` is True if it goes on."""
        self.task: asyncio.Task[object] | None = None
        self.has_asked = asyncio.Event()
        """Set when the model is about to be asked, or the turn is over."""
        self._written: list[str] = []
        self.tools = [call.name for message in done for call in message.tool_calls]
        self.milliseconds: dict[str, int] = {}
        self.started_at = parts.clock.monotonic()
        self._parts, self._key = parts, entry.message.session_key
        self._steps, self._newest = list(entry.steps), parts.queue.newest
        self._has_joined = False

    def join(self) -> None:
        inbound, session = self.inbound, self.session
        self._has_joined = True
        self.caller = TurnContext(
            inbound.channel,
            inbound.chat_id,
            session.key,
            self.id,
            inbound.sender_id,
            self.scope,
            inbound.thread_id,
            messages_read=self.messages_read,
            origins=self.origins,
            initiator=inbound.origin.initiator,
            job=inbound.origin.job,
            off_record=inbound.origin.off_record,
            conversation=f"{session.key} {session.epoch}",
            note_approval=lambda there: self.approved_in.update({there: None}),
        )

    @property
    def event_ids(self) -> tuple[str, ...]:
        questions = (entry.message for entry in self.entries if entry.message.expects_answer)
        return tuple(message.delivery.answers or message.event_id for message in questions)

    def messages_read(self) -> Sequence[Message]:
        """Return all messages that the model has read so far, with the conversation once the turn
        has joined it."""
        if not self._has_joined:
            return tuple(self.messages)
        unconfirmed = self._parts.sources.read_unconfirmed(self.scope)
        return (*unconfirmed, *self.session.messages, *self.messages)

    def origins(self) -> tuple[str, ...]:
        """Return the sources of untrusted content in `messages_read`."""
        if not self._has_joined:
            return origins_of(self.messages)
        unconfirmed = self._parts.sources.read_unconfirmed(self.scope)
        return origins_of((*unconfirmed, *self.session.messages_with_origin, *self.messages))

    async def load_message(self, notice: str = "") -> None:
        """Fetch the files of the person's message, and add the rest of its album and its
        corrections. `notice` goes into its header."""
        if notice:
            self.messages[0] = replace(self.messages[0], notice=notice)
        if self.inbound.delivery.group_id:  # items arrive one by one, with no mark on the last
            here = -1
            while here != (here := sum(map(self.includes, self._waiting()))):
                await self._parts.clock.sleep(ALBUM_SECONDS)
                self.refuse_if_ended()
        first = await self._fetch(self.inbound, notice)
        self.refuse_if_ended()
        self.messages[0] = first
        if not self.resumed.messages:  # otherwise they join later, behind open calls
            self.resumed = EarlierWork(tuple(await self.take_corrections()))

    async def _fetch(self, inbound: InboundMessage, notice: str = "") -> Message:
        intake, waited = self._parts.intake, self._parts.clock.now() - inbound.timestamp
        late = inbound.origin.initiator == "person" and waited >= LATE
        notice = "\n".join(filter(None, (late_notice(waited) if late else "", notice)))
        if not inbound.media:
            return replace(intake.text_of(inbound), notice=notice)
        return await intake.to_message(inbound, notice)

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Let `Turns.stop` cancel the block, which then raises `TurnStopped`."""
        lane = self.task = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError as error:
            if not is_cancelled():
                raise RuntimeError(f"a task of the turn was cancelled: {error}") from error
            if self.task is not None or lane is None or lane.uncancel() > 0:
                raise  # not only by `stop`: the lane ends
            raise TurnStopped("this turn was stopped") from None
        finally:
            self.task = None

    def refuse_if_ended(self) -> None:
        """Raise `TurnStopped` if the turn is over or is about to end."""
        if not self.open:
            raise TurnStopped("this turn was stopped")

    def build_prompt(self, context: ContextBuilder) -> Prompt:
        """Return the prompt with the person's message."""
        self.cache = context.cache_of(self.session)
        return context.prompt(self.cache, self.messages[:1])

    def note_prompt(self, tokens: int) -> None:
        """Record the parts of a prompt for `nanobot turn show`."""
        cache = self.cache
        first = cache.first if cache.rendered else cache.session.next_seq
        system, self.prompt_tokens = cache.system, tokens
        self.report = {"system_id": system.id, "first_seq": first, "memory": system.shares}
        if not system.remembered:
            self._parts.journal.remember_prompt(system.id, system.message.text)
            system.remembered = True

    def end_event(
        self,
        outcome: Literal["done", "failed", "stopped", "waiting"],
        error: str = "",
        usage: Usage = _NOTHING_USED,
    ) -> TurnEnded:
        """Return the event that the turn is over, or goes on later."""
        is_told = self.inbound.origin.by_program or self.inbound.is_temporary
        return replace(
            turn_ended(self.inbound, self.id, self.event_ids, outcome),
            tools=tuple(self.tools),
            milliseconds=self._duration(),
            error=error,
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            origin=combine_marks(self.origins()) if is_told and outcome != "waiting" else "",
        )

    def report_of(self, model: str, usage: Usage, context: int) -> str:
        """Return the report of the turn for `nanobot turn show`, as JSON."""
        report = {
            "model": model,
            **self.report,
            "tool_milliseconds": self.milliseconds,
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "cached_tokens": usage.cached,
            **({"context_tokens": context} if context else {}),
            **({} if usage.cost is None else {"cost": usage.cost}),
            "milliseconds": self._duration(),
        }
        return json.dumps(report)

    def messages_left(self, state: str) -> Sequence[Message]:
        """Return the messages that a turn without a complete answer leaves in its conversation.
        Each call in them has its result. A stopped turn leaves the text so far."""
        messages, now = self.messages, self._parts.clock.now()
        if state == "failed":
            failed = Message("user", "", now, origin=NANOBOT, notice=TURN_FAILED)
            return [*whole_groups(messages), failed]
        left = with_stopped_calls(messages, self._parts.clock)
        if written := self.text_so_far:
            left.append(Message("assistant", written, now))
        return [*left, Message("user", "", now, origin=NANOBOT, notice=TURN_STOPPED)]

    @property
    def text_so_far(self) -> str:
        """The text of the incomplete answer."""
        return "".join(self._written).rstrip()

    def stage(self, messages: Sequence[Message]) -> None:
        """Stage the turn's messages on the session. A model's message carries the marks of
        untrusted content that it read before, as it may repeat that content."""
        tools = tuple(dict.fromkeys(self.tools))
        marked = [*self._parts.sources.read_unconfirmed(self.scope)]
        marked += self.session.messages_with_origin
        for message in messages:
            marked += [message] if message.origin or message.notice else []
            used: tuple[str, ...] = ()
            origin = message.origin
            if message.role == "assistant":
                used = tools if message is messages[-1] else ()
                origin = combine_marks(origins_of(marked)) if marked else ""
            shown = replace(message, turn_id=self.id, tools_used=used, origin=origin)
            self.session.add_message(shown)
        if not self.inbound.origin.off_record:
            self.session.stage_use()

    def _duration(self) -> int:
        return round((self._parts.clock.monotonic() - self.started_at) * 1000)

    def as_entry(self) -> InboxEntry:
        """Return the turn as a pending entry, with its steps so far."""
        first, *joined = self.entries
        return replace(first, turn_id=self.id, steps=tuple(self._steps), joined=tuple(joined))

    def write(self, delta: str, *, restart: bool) -> None:
        if self.open:  # otherwise its end is being stored
            self._written[0 if restart else len(self._written) :] = [delta]

    async def record_start(self, call: ToolCall) -> None:
        await self._write(Step("start", json.dumps(call.id)))
        await self._parts.journal.may_act()

    async def record_result(self, message: Message, *, effects: bool, seconds: float) -> None:
        self.milliseconds[message.tool_call_id] = round(seconds * 1000)
        if not effects:
            await self.record(message)
            return
        self.refuse_if_ended()
        self.messages.append(message)
        await self._write(Step("message", encode_step(message)))

    async def record(self, message: Message) -> None:
        """Record a message. It may not be on disk yet: later writes are awaited if needed."""
        self.refuse_if_ended()
        self._written.clear()
        self.messages.append(message)
        self.tools.extend(call.name for call in message.tool_calls)
        step = Step("message", encode_step(message))
        if not self.inbound.is_temporary:
            self._parts.journal.add_steps(self.id, len(self._steps), (step,))
        self._steps.append(step)

    async def take_new_messages(self) -> Sequence[Message]:
        """Return the new messages before the next command, and later parts of the turn's own
        message."""
        self.refuse_if_ended()
        waiting, parts = self._waiting(), self._parts
        joining = {entry.id for entry in waiting if self.includes(entry)}
        if parts.on_busy == "steer":
            new = takewhile(self._is_new, waiting)
            joining |= {
                e.id
                for e in new
                if not e.message.delivery.edits and not e.message.delivery.unanswered
            }
        joined = await self._join_entries(lambda entry: entry.id in joining) if joining else ()
        if self.entries[0].recovered:
            mark_asked = partial(parts.journal.mark_model_asked, self.id)
            await parts.bus.until_stored(self.inbound, mark_asked)
        self.has_asked.set()
        return joined

    async def take_corrections(self) -> Sequence[Message]:
        self.refuse_if_ended()
        return await self._join_entries(self.includes) if self._waiting() else ()

    def _waiting(self) -> Sequence[InboxEntry]:
        return self._parts.queue.list_waiting(self._key)

    async def _join_entries(self, wanted: Callable[[InboxEntry], bool]) -> Sequence[Message]:
        """Make pending messages part of the turn, durably, and return them for the conversation."""
        taken = self._parts.queue.remove_waiting(self._key, wanted)
        if not taken:
            return ()
        first = len(self.messages)
        self.entries += taken
        self.messages += [self._parts.intake.text_of(entry.message) for entry in taken]
        try:
            messages = [await self._fetch(entry.message) for entry in taken]
            steps = [Step("message", encode_step(message)) for message in messages]
            await self._write(*steps, joined=[entry.id for entry in taken])
        except BaseException:
            if self.open:
                del self.entries[-len(taken) :], self.messages[first:]
                self._parts.queue.put_back(taken)
            raise
        self.messages[first:] = messages
        return messages

    def _is_new(self, entry: InboxEntry) -> bool:
        """Return True if a message came after the turn began and may join it. A command may not be
        overtaken, and a person's message needs a turn that can ask that person."""
        message = entry.message
        if message.origin.by_program or not self.is_same_scope(entry):
            return False
        if message.origin.initiator == "person" and self.inbound.origin.initiator != "person":
            return False
        is_new = entry.id > self._newest and not entry.turn_id
        return is_new and self._parts.commands.find_call(message) is None

    def includes(self, entry: InboxEntry) -> bool:
        """Return True if a message always joins the turn: an item of its album, or a correction by
        the same author."""
        album, message = self.inbound.delivery.group_id, entry.message
        in_album = bool(album) and message.delivery.group_id == album
        joined = {(each.message.event_id, each.message.sender_id) for each in self.entries}
        edits = message.delivery.edits
        corrects = bool(edits) and (edits, message.sender_id) in joined
        return (in_album or corrects) and self.is_same_scope(entry)

    def is_same_scope(self, entry: InboxEntry) -> bool:
        """Return True if a message comes from the turn's scope. Otherwise it gets its own turn, if
        it may be in this conversation at all."""
        known = {"scope": self.scope}
        return self._parts.scopes.of_message(entry.message, self._key, known) == self.scope

    async def _write(self, *steps: Step, joined: Sequence[int] = ()) -> None:
        self.refuse_if_ended()
        first = len(self._steps)
        self._steps.extend(steps)
        steps = () if self.inbound.is_temporary else steps
        add = partial(self._parts.journal.add_steps, self.id, first, steps, joined)
        await self._parts.bus.until_stored(self.inbound, add)


class Outcome(Struct, frozen=True):
    """The end of a turn: the reply's `text`, and the model's `result` if there is one."""

    state: Literal["done", "failed", "stopped"]
    text: str = ""
    result: Turn | None = None
    reason: str = ""
    """The reason of a failure, as the journal stores it."""
    error: str = ""
    """Class name of the error."""


class Postponement(Struct, frozen=True):
    """A turn that goes on in `seconds`, when `entry` is handled again."""

    entry: InboxEntry
    seconds: float


def build_completion(
    turn: RunningTurn,
    outcome: Outcome,
    outgoing: tuple[Outgoing, ...],
    notes: tuple[InboundMessage, ...],
) -> Completion:
    """Return the transaction that ends a turn: the session's new lines, the closed inbox rows, the
    replies, and the notes for other conversations."""
    session, inbound, result = turn.session, turn.inbound, outcome.result
    used = (result.model, result.usage, result.context) if result else ("", _NOTHING_USED, 0)
    return Completion(
        turn.id,
        session.key,
        tuple(entry.id for entry in turn.entries),
        outcome.state,
        lines="" if inbound.origin.off_record else session.encode_staged(),
        outgoing=outgoing,
        republish=notes,
        report=turn.report_of(*used),
        reason=outcome.reason,
        given_up=inbound.origin.by_program and outcome.state == "failed",  # programs retry
    )


def _replay(steps: Sequence[Step]) -> tuple[list[Message], frozenset[str]]:
    """Return the messages of an earlier process, and the started calls of their last group."""
    messages: list[Message] = []
    started: set[str] = set()
    for step in steps:
        if step.kind == "start":
            started.add(json.loads(step.payload))
            continue
        message = decode(step.payload.encode())
        if not isinstance(message, Message):
            continue
        open_ids = {call.id for call in open_calls(messages)}
        if message.role == "tool" and message.tool_call_id not in open_ids:
            continue
        if message.tool_calls:
            started.clear()
        messages.append(message)
    return messages, frozenset(started)


def turn_name(entry: InboxEntry, clock: Clock) -> str:
    """Return a turn's ID: the day, the message's inbox number, and the run if it is not the first.

    The day keeps IDs unique if a journal is lost and numbering starts again."""
    run = f".{entry.runs + 1}" if entry.runs else ""
    return f"{clock.now():%y%m%d}-{entry.id}{run}"
