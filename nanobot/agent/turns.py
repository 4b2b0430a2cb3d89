"""Beginning and ending turns: each ends exactly once, in one transaction.

`complete`, `fail` and `stop` all go through `_end`, which holds the turn's `ending` lock until the
end is on disk. Whoever comes second sees how the first went: the turn is over, or, where the disk
refused, still open. The session's staged changes belong to the holder of that lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal

from nanobot.agent.calls import whole_groups, with_stopped_calls
from nanobot.agent.hooks import AgentHook
from nanobot.agent.intake import Intake
from nanobot.agent.mailbox import Mailbox
from nanobot.agent.messaging import said_already
from nanobot.agent.replying import Replies, Split
from nanobot.agent.runner import Turn
from nanobot.agent.running import RunningTurn, answered_event
from nanobot.agent.staging import report, stage, stage_whose_it_is, turn_name
from nanobot.bus.events import InboundMessage, TurnEnded
from nanobot.bus.journal import Committed, Completion, InboxEntry, Journal
from nanobot.bus.queue import MessageBus
from nanobot.clock import Clock
from nanobot.commands import Answer
from nanobot.errors import TurnStopped
from nanobot.memory.scopes import Scopes
from nanobot.messages import TURN_FAILED, TURN_STOPPED, Message
from nanobot.providers.port import Usage
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.tasks import Background

Outcome = Literal["done", "failed", "stopped"]
Shape = Callable[[Sequence[Message]], list[Message]]
"""What a turn's messages become in the session."""

_NO_USAGE = Usage()


class Turns:
    """Begins and ends turns. `split` cuts a message into parts that its channel can send; `scopes`
    says whose memory a message is answered with, `doubtful` what a session's system prompt holds
    that came from elsewhere."""

    def __init__(
        self,
        journal: Journal,
        bus: MessageBus,
        sessions: SessionManager,
        mailbox: Mailbox,
        intake: Intake,
        clock: Clock,
        background: Background,
        hook: AgentHook,
        split: Split,
        scopes: Scopes,
        *,
        doubtful: Callable[[Session], Iterable[Message]] = lambda _: (),
    ) -> None:
        self._journal, self._bus, self._sessions = journal, bus, sessions
        self._mailbox, self._intake = mailbox, intake
        self._clock, self._background = clock, background
        self._hook, self._replies, self._scopes = hook, Replies(split, clock), scopes
        self._doubtful = doubtful
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
            await self._make_its_own(session, turn)
            turn.scope = self._scopes.serving(turn.inbound, session.key, session.metadata)
            turn.before = lambda: (*self._doubtful(session), *session.messages)
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

    def stage_whose_it_is(self, session: Session, inbound: InboundMessage) -> None:
        """Stage what a conversation's key does not tell about who it is with, beside a command's
        changes."""
        stage_whose_it_is(session, inbound, self._scopes)

    async def note(self, session: Session, entry: InboxEntry) -> None:
        """Keep a message that begins no turn in the conversation."""
        turn = self._turn_of(entry)
        session.begin_turn()
        stage_whose_it_is(session, turn.inbound, self._scopes)
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
        event_ids = (answered_event(inbound),)
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

    async def _make_its_own(self, session: Session, turn: RunningTurn) -> None:
        """Keep with the conversation what its key does not tell about who it is with. One that no
        person holds is empty at each beginning."""
        staged = stage_whose_it_is(session, turn.inbound, self._scopes)
        if turn.inbound.apart and session.messages:
            session.discard(turn.entries[0].id)
            staged = True
        if staged:
            lines = session.staged_lines()
            await self._commit(session, Completion(turn.id, session.key, (), "done", lines))

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
            scope=self._scopes.of_message(entry.message),
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
