"""One turn, from its beginning in the journal to its commit.

`Responder._answer` is the turn, top to bottom; `respond` is the one place where a broken turn
becomes a text that a person can read. `Turns` begins and ends turns: each ends exactly once, in one
transaction. `complete`, `fail` and `stop` all go through `_end`, which holds the turn's `ending`
lock until the end is on disk. The second to come sees how the first went: the turn is over or, if
the disk refused, still open. The session's staged changes belong to the holder of that lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from loguru import logger

from nanobot.agent.hooks import AgentHook
from nanobot.agent.intake import Intake
from nanobot.agent.messaging import said_already
from nanobot.agent.notifier import MessageSplitter
from nanobot.agent.outcomes import (
    GAVE_UP,
    NO_PICTURES,
    TOO_LONG,
    ended_early,
    failure_text,
    is_passing,
    outage_pause,
    waiting_text,
)
from nanobot.agent.prompt import ContextBuilder
from nanobot.agent.runner import AgentRunner, Turn, whole_groups, with_stopped_calls
from nanobot.agent.session_queue import Lobby, Mailbox
from nanobot.agent.system_prompt import PromptSources
from nanobot.agent.turn_state import (
    PromptRecord,
    Replies,
    RunningTurn,
    TurnContext,
    identify,
    report,
    stage,
    turn_name,
)
from nanobot.bus.events import InboundMessage, TurnEnded
from nanobot.bus.journal import GIVE_UP_AFTER, Committed, Completion, InboxEntry, Journal
from nanobot.bus.queue import MessageBus
from nanobot.clock import Clock
from nanobot.commands import Answer
from nanobot.errors import (
    ContextTooLong,
    NanobotError,
    ProviderError,
    ProviderRejected,
    StorageError,
    TurnStopped,
)
from nanobot.memory.scopes import Scopes
from nanobot.messages import TURN_FAILED, TURN_STOPPED, Message
from nanobot.providers.port import CallOptions, Usage
from nanobot.providers.retry import asked_wait
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.tasks import Background, is_cancelled

Outcome = Literal["done", "failed", "stopped"]
Shape = Callable[[Sequence[Message]], list[Message]]
"""What a turn's messages become in the session."""

_NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What the parts of the agent share. `unhurried` owns background work that is finished before a
    command that hosts the gateway ends."""

    journal: Journal
    bus: MessageBus
    sessions: SessionManager
    mailbox: Mailbox
    clock: Clock
    background: Background
    unhurried: Background
    hook: AgentHook


class Turns:
    """Begins and ends turns. `scopes` tell whose memory a message is answered with, `sources` what
    the system prompt of a scope holds that came from elsewhere."""

    def __init__(
        self,
        parts: AgentParts,
        intake: Intake,
        split: MessageSplitter,
        scopes: Scopes,
        sources: PromptSources,
    ) -> None:
        self._journal, self._bus, self._sessions = parts.journal, parts.bus, parts.sessions
        self._mailbox, self._intake, self._clock = parts.mailbox, intake, parts.clock
        self._hook, self._replies, self._scopes = parts.hook, Replies(split, parts.clock), scopes
        self._sources = sources
        self._running: dict[str, RunningTurn] = {}

    def running(self, session_key: str) -> RunningTurn | None:
        """The turn that runs in a session, if any."""
        return self._running.get(session_key)

    def speaking_in(self, session_key: str) -> list[RunningTurn]:
        """The turns of other conversations that answer in this one's chat: jobs."""
        return [
            turn
            for key, turn in self._running.items()
            if key != session_key and turn.inbound.chat_key == session_key
        ]

    @property
    def count(self) -> int:
        """How many turns run."""
        return len(self._running)

    def claim(self, entry: InboxEntry, *, steer: bool = True) -> RunningTurn:
        """A message gets its turn, new or taken up where it was left; `/stop` finds it from now."""
        turn = self._turn_of(entry, steer=steer)
        self._running[turn.inbound.session_key] = turn
        return turn

    def leave(self, turn: RunningTurn) -> None:
        """The lane is done with a turn, however it ended."""
        turn.has_asked.set()
        if self._running.get(turn.inbound.session_key) is turn:
            del self._running[turn.inbound.session_key]

    async def begin(self, session: Session, turn: RunningTurn) -> None:
        """Enter a turn into the journal. What an earlier, failed run of the same message left in
        the conversation leaves it first, so that nothing stands there twice."""
        async with turn.ending:
            turn.refuse_if_ended()
            session.begin_turn()
            if earlier := turn.entries[0].previous_turn:
                await self._retract(session, turn, earlier)
            turn.context = context = await self._make_its_own(session, turn)
            turn.before = lambda: (
                *self._sources.unconfirmed(context.scope),
                *session.messages,
            )
            turn.epoch = session.epoch
            ids = [entry.id for entry in turn.entries]
            self._journal.claim(turn.id, session.key, ids, at_once=turn.entries[0].recovered)

    async def complete(self, session: Session, turn: RunningTurn, result: Turn, text: str) -> None:
        """The commit point: new messages, closed inbox rows and the reply, durable together. What
        the turn has said word for word with the message tool is not said again."""
        final = result.new_messages[-1]
        turn.model = result.model
        if said_already(turn.messages, text):
            text = ""
        await self._end(session, turn, "done", lambda said: [*said, final], text, result.usage)

    async def fail(self, session: Session, turn: RunningTurn, text: str, reason: str) -> None:
        """End a turn that cannot succeed. The person's message stays in the session; `text`, which
        the model did not say, does not."""

        def shape(said: Sequence[Message]) -> list[Message]:
            return [*whole_groups(said), self._note(TURN_FAILED)]

        await self._end(session, turn, "failed", shape, text, reason=reason)

    async def stop(self, session: Session, turn: RunningTurn) -> bool:
        """End a turn because its person said so; False where it had ended already. Committed before
        anything is killed."""

        def shape(said: Sequence[Message]) -> list[Message]:
            return [*with_stopped_calls(said, self._clock), self._note(TURN_STOPPED)]

        try:
            await self._end(session, turn, "stopped", shape, "")
        except TurnStopped:
            return False
        if turn.task is not None:
            turn.task.cancel()
        return True

    async def set_aside(self, session: Session, entry: InboxEntry) -> None:
        """End a message that waits, unanswered: it is kept in the session, without its files."""
        turn = self._turn_of(entry)
        await self.begin(session, turn)
        await self.stop(session, turn)

    def identify(self, session: Session, inbound: InboundMessage) -> None:
        """Stage what a conversation's key does not tell about who it is with, beside a command's
        changes."""
        identify(session, "", inbound, self._scopes)

    async def note(self, session: Session, entry: InboxEntry) -> None:
        """Keep a message that begins no turn in the conversation."""
        turn = self._turn_of(entry)
        session.begin_turn()
        identify(session, turn.id, turn.inbound, self._scopes)
        stage(session, turn, turn.messages)
        done = Completion(turn.id, session.key, (entry.id,), "done", session.staged_lines())
        self._bus.forward(await self._commit(session, done))

    async def forget(self, entry: InboxEntry) -> None:
        """End a message that waits as if it had never come."""
        turn_id = entry.turn_id or turn_name(entry, self._clock)
        report = "{}" if entry.turn_id else ""  # ends the turn that had begun
        key = entry.message.session_key
        await self._commit(None, Completion(turn_id, key, (entry.id,), "stopped", report=report))

    async def wait(self, turn: RunningTurn, text: str) -> None:
        """The turn goes on later: tell whoever watches, and once the person."""
        await self._hook.turn_ended(self._ended(turn, "waiting"))
        if outgoing := self._replies.waiting(turn, text):
            await self._bus.send(turn.id, outgoing)

    async def wait_in_line(self, entry: InboxEntry, name: str, text: str) -> None:
        """The same for a message behind another one: the person is told once under this `name`."""
        turn = self._turn_of(entry)
        await self._hook.turn_ended(self._ended(turn, "waiting"))
        if outgoing := self._replies.waiting(turn, text):
            await self._bus.send(name, outgoing)

    async def answer_command(
        self, entry: InboxEntry, answer: Answer, session: Session | None = None
    ) -> None:
        """Commit a command's answer, and with it what the command staged on `session`."""
        inbound = entry.message
        turn_id = turn_name(entry, self._clock)
        event_ids = (inbound.answered_event,)
        reply = self._replies.to(inbound, answer.text, event_ids, "reply")
        completion = Completion(
            turn_id,
            inbound.session_key,
            (entry.id,),
            "done",
            lines=session.staged_lines() if session else "",
            outgoing=(reply,) if answer.text else (),
            republish=answer.republish,
            replaces_turn=answer.replaces_turn,
        )
        committed = await self._commit(session, completion)
        if answer.text:
            place = (inbound.channel, inbound.chat_id, turn_id)
            ended = TurnEnded(*place, event_ids, "done", thread_id=inbound.thread_id)
            await self._hook.turn_ended(ended)
        self._bus.forward(committed)
        if answer.afterwards is not None:
            answer.afterwards()

    async def _make_its_own(self, session: Session, turn: RunningTurn) -> TurnContext:
        """Keep with the conversation what its key does not tell about who it is with. One that no
        person holds is empty at each beginning."""
        context = identify(session, turn.id, turn.inbound, self._scopes)
        if turn.inbound.apart and session.messages:
            session.discard(turn.entries[0].id)
        if lines := session.staged_lines():
            await self._commit(session, Completion(turn.id, session.key, (), "done", lines))
        return context

    async def _retract(self, session: Session, turn: RunningTurn, earlier: str) -> None:
        async with session.parting:
            gone = session.retract(earlier)
        if gone:
            lines = session.staged_lines()
            await self._commit(session, Completion(turn.id, session.key, (), "done", lines))
        turn.earlier_run_retracted()

    async def _end(
        self,
        session: Session,
        turn: RunningTurn,
        state: Outcome,
        shape: Shape,
        text: str,
        usage: Usage = _NO_USAGE,
        reason: str = "",
    ) -> None:
        async with turn.ending:
            turn.refuse_if_ended()
            turn.open = False
            ended = self._ended(turn, state, usage)
            try:
                reply = self._replies.of(turn, text, state) if text or state == "done" else ()
                stage(session, turn, shape(turn.messages))
                completion = Completion(
                    turn.id,
                    session.key,
                    tuple(entry.id for entry in turn.entries),
                    state,
                    lines=session.staged_lines(),
                    outgoing=reply,
                    republish=self._replies.notes(turn, text, reply),
                    report=report(turn, ended, usage),
                    reason=reason,
                )
                committed = await self._commit(session, completion)
            except BaseException:
                turn.open = True  # nothing was committed: the turn goes on when the disk allows
                session.rollback()
                raise
        await self._hook.turn_ended(ended)
        self._bus.forward(committed)

    async def _commit(self, session: Session | None, completion: Completion) -> Committed:
        """Make a completion durable, and what is staged on `session` visible with it."""
        try:
            committed = await self._bus.commit(completion)
        except BaseException:
            if session is not None:
                session.rollback()
            raise
        if session is not None and committed.unfiled_id:
            saved = self._sessions.save(session)
            saved.add_done_callback(partial(self._clear_copy, committed.unfiled_id))
        return committed

    def _clear_copy(self, unfiled_id: int, saved: asyncio.Future[None]) -> None:
        """Once the session file has its lines; what it could not take, the next start files."""
        if not saved.cancelled() and saved.exception() is None:
            self._journal.filed((unfiled_id,))

    def _note(self, text: str) -> Message:
        return Message("user", text, self._clock.now(), origin="nanobot")

    def _turn_of(self, entry: InboxEntry, *, steer: bool = False) -> RunningTurn:
        turn_id = entry.turn_id or turn_name(entry, self._clock)
        return RunningTurn(
            turn_id,
            entry,
            self._journal,
            self._mailbox,
            self._intake,
            self._clock,
            steer=steer,
        )

    def _ended(
        self,
        turn: RunningTurn,
        outcome: Literal["done", "failed", "stopped", "waiting"],
        usage: Usage = _NO_USAGE,
    ) -> TurnEnded:
        inbound = turn.inbound
        return TurnEnded(
            inbound.channel,
            inbound.chat_id,
            turn.id,
            turn.event_ids,
            outcome,
            tuple(turn.tools),
            usage.prompt,
            usage.completion,
            round((self._clock.monotonic() - turn.started_at) * 1000),
            inbound.thread_id,
            inbound.begun_by,
        )


T = TypeVar("T")

_MAY_BE_AN_IMAGE = frozenset({400, 404, 415, 422})
"""How servers answer to an image that is broken, or that their model cannot see."""


class Consolidator(Protocol):
    """Keeps a session's prompt within the window by taking its oldest part into memory."""

    async def maybe_consolidate_by_tokens(
        self, session: Session, coming: Sequence[Message] = ()
    ) -> None:
        """Make room if the prompt is about to exceed its budget with the `coming` messages."""
        ...

    async def shrink(self, session: Session) -> bool:
        """Make room whatever the estimate says; False when there is none to make."""
        ...


class Calibration(Protocol):
    """Learns how far token estimates are off."""

    def calibrate(self, estimated: int, reported: int) -> None:
        """A prompt of text was estimated at so many tokens, and the provider counted so many."""
        ...


@dataclass(frozen=True, slots=True)
class _Failed:
    """What a part of a turn ended in."""

    error: Exception


class Responder:
    """Answers messages, one turn each. A message waits for a model that is out for up to
    `wait_for_model_hours`."""

    def __init__(
        self,
        parts: AgentParts,
        turns: Turns,
        lobby: Lobby,
        *,
        context: ContextBuilder,
        consolidator: Consolidator,
        counter: Calibration,
        runner: AgentRunner,
        sources: PromptSources,
        wait_for_model_hours: float = 24.0,
    ) -> None:
        self._turns, self._lobby, self._context = turns, lobby, context
        self._consolidator, self._counter, self._runner = consolidator, counter, runner
        self._journal, self._hook, self._clock = parts.journal, parts.hook, parts.clock
        self._background, self._unhurried = parts.background, parts.unhurried
        self._patience_hours, self._sources = wait_for_model_hours, sources

    async def respond(self, session: Session, turn: RunningTurn) -> None:
        """A turn, and the places where its end is not the model's own words. Raises `TurnStopped`,
        and `StorageError` where the journal does not take its end."""
        try:
            await self._turns.begin(session, turn)
            if turn.entries[0].attempts >= GIVE_UP_AFTER:
                text = GAVE_UP.format(GIVE_UP_AFTER)
                await self._turns.fail(session, turn, text, "crashed repeatedly")
            else:
                await self._answer(session, turn)
        except (TurnStopped, StorageError):
            raise
        except ProviderError as error:
            await self._model_failed(session, turn, error)
        except Exception as error:  # noqa: BLE001 - the boundary: a broken turn becomes an apology
            logger.opt(exception=error).error("turn {} broke", turn.id)
            await self._turns.fail(session, turn, failure_text(error), type(error).__name__)
        finally:
            if not turn.open:
                self._context.told(session)

    async def _answer(self, session: Session, turn: RunningTurn) -> None:
        """The turn: make room, build the prompt, run the ReAct loop, commit, make room again."""
        await self._hook.turn_started(turn.caller, turn.event_ids)
        assert turn.context is not None
        own_words = turn.messages[0].own_words
        skills = self._sources.skills_mentioned(turn.context.scope, own_words)
        notice = "\n".join(filter(None, (self._context.news(session), skills)))
        await self._stoppable(turn, partial(turn.begin, notice))
        await self._stoppable(turn, partial(self._make_room, session, turn.messages))
        result = await self._run(session, turn)
        text = result.text + ended_early(result.finish)
        if left_out := self._context.left_out(turn.messages[0]):
            text += TOO_LONG.format(len(turn.messages[0].content), left_out)
        if self._context.hides_images(session, turn.messages):
            text += NO_PICTURES
        self._calibrate(session, turn, result)
        await self._turns.complete(session, turn, result, text)
        self._unhurried.start(self._make_room(session))

    async def _make_room(self, session: Session, coming: Sequence[Message] = ()) -> None:
        """Take the oldest into memory where the prompt needs room; a memory in trouble keeps nobody
        from an answer: the runner then shortens the prompt."""
        try:
            await self._consolidator.maybe_consolidate_by_tokens(session, coming)
        except NanobotError as error:
            logger.warning("{}: nothing was put away: {} {}", session.key, error, error.hint)

    async def _run(self, session: Session, turn: RunningTurn) -> Turn:
        """Run the ReAct loop, again where the prompt was too long and could be made shorter, and
        without images where one of them may be what the model refused."""
        shrink = partial(self._consolidator.shrink, session)
        blinded = False
        while True:
            try:
                return await self._stoppable(turn, partial(self._react, session, turn))
            except ContextTooLong:
                if not await self._stoppable(turn, shrink):
                    raise
                turn.take_up()
            except ProviderRejected as error:
                if blinded:
                    self._context.show_images(session)  # they were not what it refused
                blinded = (
                    not blinded
                    and error.status in _MAY_BE_AN_IMAGE
                    and self._context.leave_out_images(session, turn.messages)
                )
                if not blinded:
                    raise
                turn.take_up()

    async def _stoppable(self, turn: RunningTurn, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do a part of a turn as a task of its own, which `/stop` can cancel without the lane. What
        is done for others as well, such as a consolidation, goes on without the turn."""
        turn.refuse_if_ended()
        turn.task = self._background.start(_outcome(work), name=f"turn {turn.id}")
        try:
            outcome = await turn.task
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise TurnStopped("this turn was stopped") from None
        if isinstance(outcome, _Failed):
            raise outcome.error
        return outcome

    async def _react(self, session: Session, turn: RunningTurn) -> Turn:
        epoch = self._context.epoch(session)
        prompt = self._context.build(session, turn.messages[:1])
        turn.prompt = PromptRecord(
            epoch.system_id,
            self._context.first_seq(session),
            epoch.shares,
            prompt.tokens,
        )
        if not epoch.remembered:
            self._journal.remember_prompt(epoch.system_id, epoch.system.text)
            epoch.remembered = True
        return await self._runner.run(
            prompt,
            turn.caller,
            options=CallOptions(model=str(session.metadata.get("model", ""))),
            begun=turn.begun,
            log=turn,
            hook=self._hook,
            render=partial(self._context.render, epoch),
        )

    def _calibrate(self, session: Session, turn: RunningTurn, result: Turn) -> None:
        """Compare what was estimated with what the provider counted, where both mean one prompt of
        text."""
        images = self._context.has_images(session) or any(m.media for m in turn.messages)
        if result.steps == 1 and not images and not turn.begun.messages:
            self._counter.calibrate(turn.prompt.tokens, result.usage.prompt)

    async def _model_failed(
        self, session: Session, turn: RunningTurn, error: ProviderError
    ) -> None:
        """Wait for a model that is out; end the turn on an error that will not pass."""
        hours = self._patience_hours
        now = self._clock.now()
        since = turn.entries[0].received_at or now.timestamp()
        waited = now.timestamp() - since  # not since it was sent: we may have been off then
        gone_by = turn.inbound.begun_by == "heartbeat"  # another one comes by itself
        if not is_passing(error) or waited > hours * 3600 or gone_by:
            await self._turns.fail(session, turn, failure_text(error), str(error))
            return
        outages = turn.entries[0].outages
        pause = outage_pause(outages, asked_wait(error))
        not_before = now.timestamp() + pause
        await self._journal.postpone([e.id for e in turn.entries], not_before, str(error))
        await self._turns.wait(turn, waiting_text(error, hours))
        async with turn.ending:
            if turn.open:
                entry = replace(turn.as_entry(), reason=str(error), outages=outages + 1)
                entry = replace(entry, not_before=not_before, received_at=since)
                self._lobby.hold(entry, pause)


async def _outcome(work: Callable[[], Coroutine[Any, Any, T]]) -> T | _Failed:
    """What comes of a part of a turn, as a value: the lane decides what its failure means."""
    try:
        return await work()
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        return _Failed(RuntimeError(f"something inside was cancelled: {error}"))
    except Exception as error:  # noqa: BLE001 - raised again in the lane
        return _Failed(error)
