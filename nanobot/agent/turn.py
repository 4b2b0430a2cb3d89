"""One turn, from its beginning in the journal to its commit.

`Turns._answer` is the turn, top to bottom; `respond` is the one place where a broken turn becomes a
text that a person can read. Each turn ends exactly once, in one transaction. Answered, failed or
stopped, it ends in `_end`, which holds the turn's `ending` lock until the end is on disk. A second
caller sees how the first went: the turn is over or, if the disk refused, still open. The session's
staged changes belong to the holder of that lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

from loguru import logger
from msgspec.structs import replace

from nanobot.agent.admission import messages_before
from nanobot.agent.completion import Completions
from nanobot.agent.messaging import is_repetition
from nanobot.agent.notifier import (
    BEHIND_ANOTHER,
    ENDED_EARLY,
    ENDS,
    GAVE_UP,
    WAIT_HOURS,
    background_turn_note,
    failed_text,
    failure_text,
    is_silent,
    job_waiting_text,
    program_answer_text,
    waiting_text,
)
from nanobot.agent.prompt import NO_PICTURES
from nanobot.agent.runner import Resumed, Turn
from nanobot.agent.turn_state import (
    AgentParts,
    RunningTurn,
)
from nanobot.bus.events import (
    TERMINAL,
    InboundMessage,
    OutboundMessage,
    TurnStarted,
)
from nanobot.bus.journal import GIVE_UP_AFTER, Completion, InboxEntry, Outgoing
from nanobot.clock import pause_after
from nanobot.errors import (
    ContextTooLong,
    NanobotError,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderStalled,
    ProviderUnavailable,
    RequestBlamed,
    StorageError,
    TurnStopped,
)
from nanobot.memory.taint import combined_mark, origins_of
from nanobot.messages import Message
from nanobot.providers.port import CallOptions, ModelUse, Usage
from nanobot.session.session import Session
from nanobot.tooling import OWNER

_MAY_BE_AN_IMAGE = frozenset({400, 404, 415, 422, 500})
"""How servers answer to an image that is broken, or that their model cannot see."""

_USES: Mapping[str, ModelUse] = {"job": "jobs", "heartbeat": "heartbeat"}
"""The use of a turn by who began it; `chat` for all others."""

_MOST_STALLS = 2
"""A server that is silent twice for the same message needs a longer timeout, not a day of tries."""


class Turns:
    """Begins, answers and ends turns."""

    def __init__(self, parts: AgentParts, completions: Completions) -> None:
        self._completions = completions
        self._parts, self._journal, self._bus = parts, parts.journal, parts.bus
        self._hook, self._clock, self._scopes = parts.hook, parts.clock, parts.scopes
        self._context = parts.context
        self.running: dict[str, RunningTurn] = {}
        """The turns that run, by session."""

    async def respond(self, session: Session, turn: RunningTurn) -> None:
        """A turn, and the places where its end is not the model's own words. Raises `TurnStopped`,
        and `StorageError` where the journal does not take its end."""
        try:
            await self._begin(session, turn)
            if turn.entries[0].attempts >= GIVE_UP_AFTER:
                text = GAVE_UP.format(GIVE_UP_AFTER)
                await self._end(
                    session, turn, "failed", text, reason="crashed repeatedly", error="Crashed"
                )
            else:
                await self._answer(session, turn)
        except (TurnStopped, StorageError):
            raise
        except ProviderError as error:
            await self._model_failed(session, turn, error)
        except Exception as error:  # noqa: BLE001 - the boundary: a broken turn becomes an apology
            logger.opt(exception=error).error("turn {} broke", turn.id)
            kind = type(error).__name__
            text = self._failure_of(turn, error)
            await self._end(session, turn, "failed", text, reason=kind, error=kind)
        finally:
            if not turn.open:
                self._context.commit_news(session)
            if turn.inbound.off_record:
                self._context.forget(session)

    async def _begin(self, session: Session, turn: RunningTurn) -> None:
        """Enter a turn into the journal, and work out whom it is for. What an earlier, failed run
        of the same message left in the conversation leaves it first, so that nothing stands there
        twice. A conversation that no person holds is empty at each beginning."""
        async with turn.ending:
            turn.refuse_if_ended()
            session.begin_turn()
            if earlier := turn.entries[0].previous_turn:
                async with session.removal_lock:
                    session.retract(earlier)
            inbound, scope = turn.inbound, turn.scope
            self._parts.admission.identify(session, inbound, scope)
            if inbound.is_background and session.messages:
                session.discard(turn.entries[0].id)
            is_first = session.next_seq == 1
            for message in messages_before(inbound, session.messages, is_first=is_first):
                session.add_message(message)
            if session.has_staged:
                lines = session.staged_lines()
                await self._completions.commit(
                    inbound, session, Completion(turn.id, session.key, (), "done", lines)
                )
            turn.entries[0] = replace(turn.entries[0], previous_turn="")
            turn.join(session, self._parts.sources)
            ids = [entry.id for entry in turn.entries]
            self._journal.claim(turn.id, session.key, ids, at_once=turn.entries[0].recovered)

    async def _answer(self, session: Session, turn: RunningTurn) -> None:
        """The turn: make room, build the prompt, run the ReAct loop, commit, make room again.
        `stop` cancels what happens before the commit."""
        inbound = turn.inbound
        place = (inbound.channel, inbound.chat_id, turn.id)
        self._hook(TurnStarted(*place, turn.event_ids, thread_id=inbound.thread_id), turn.caller)
        turn.refuse_if_ended()
        with turn.stoppable():
            first = turn.messages[0]
            said = first.own_words if first.origin else first.content
            skills = self._parts.sources.skills_mentioned(turn.caller.scope, said)
            await turn.load_message("\n".join(filter(None, (self._context.news(session), skills))))
            if self._needs_room(session, turn, turn.messages):
                await self._make_room(session, turn.messages)
            result = await self._run(session, turn)
        text = self._text_of(session, turn, result)
        await self._end(session, turn, "done", text, result)
        if self._needs_room(session, turn, ()):
            self._parts.awaited_background.start(self._make_room(session, ()))

    def _text_of(self, session: Session, turn: RunningTurn, result: Turn) -> str:
        """The answer as it is sent; empty if the turn has sent the same already."""
        cache = self._context.cache_of(session)
        has_media = cache.has_images or any(m.media for m in turn.messages)
        if result.steps == 1 and not (has_media or turn.resumed.messages):  # one prompt of text
            self._parts.counter.calibrate(turn.prompt_tokens, result.usage.prompt)
        if turn.inbound.schema:
            return result.text  # JSON
        text = result.text + ENDS.get(result.finish, ENDED_EARLY.format(result.finish))
        if cache.blind and self._context.has_images(turn.messages):
            text += NO_PICTURES
        return "" if is_repetition(turn.messages, text) else text

    def _needs_room(self, session: Session, turn: RunningTurn, coming: Sequence[Message]) -> bool:
        """Whether something should move to memory; nothing ever does that is off the record."""
        off_record = turn.inbound.off_record
        return not off_record and not self._parts.consolidator.has_room(session, coming)

    async def _make_room(self, session: Session, coming: Sequence[Message]) -> None:
        """Take the oldest into memory where the prompt needs room; a memory that fails keeps nobody
        from an answer: the runner then shortens the prompt."""
        try:
            await self._parts.consolidator.maybe_consolidate_by_tokens(session, coming)
        except NanobotError as error:
            logger.warning("{}: nothing was consolidated: {} {}", session.key, error, error.hint)

    async def _run(self, session: Session, turn: RunningTurn) -> Turn:
        """Run the ReAct loop, again where the prompt was too long and could be made shorter, and
        without images where one of them may be what the model refused."""
        blinded, options = False, self._options(session, turn)
        refused: ContextTooLong | None = None
        while True:
            turn.refuse_if_ended()
            cache = self._context.cache_of(session)
            prompt = self._context.prompt(cache, turn.messages[:1])
            turn.note_prompt(cache, prompt.tokens)
            try:
                return await self._parts.runner.run(
                    prompt,
                    turn.caller,
                    options=options,
                    resumed=turn.resumed,
                    log=turn,
                    hook=self._hook,
                    render=self._context.renderer(cache, turn.messages[:1]),
                    refused=refused,
                    schema=turn.inbound.schema,
                )
            except ContextTooLong as error:
                if turn.inbound.off_record or error is refused:
                    raise
                if not blinded and self._may_do_without_images(session, turn, error):
                    blinded = True
                elif not await self._parts.consolidator.consolidate_half(session):
                    refused = error
            except (ProviderRejected, RequestBlamed) as error:
                if blinded:
                    self._context.show_images(session)  # they were not what it refused
                    raise
                if not self._may_do_without_images(session, turn, error):
                    raise
                blinded = True
            turn.resumed = Resumed(tuple(turn.messages[1:]))  # every call has its result by now

    def _may_do_without_images(
        self, session: Session, turn: RunningTurn, error: ProviderRejected | RequestBlamed
    ) -> bool:
        """Leave out the images if one of them may be what a server refused; False if there are
        none or it can't be that."""
        may_be = error.status in _MAY_BE_AN_IMAGE
        if isinstance(error, ContextTooLong):
            may_be = error.status == 413 and not error.tokens  # it counts bytes
        return may_be and self._context.leave_out_images(session, turn.messages)

    def _options(self, session: Session, turn: RunningTurn) -> CallOptions:
        """Which model the turn asks, and how: the job's own wish, else the conversation's."""
        inbound, known = turn.inbound, session.metadata
        use: ModelUse = _USES.get(inbound.initiator, "chat")
        if use == "chat" and self._parts.sees_apart and self._context.has_images(turn.messages):
            use = "pictures"
            self._context.show_images(session)  # another model may have refused them
        model = inbound.model or str(known.get("model", ""))
        return CallOptions(model=model, effort=str(known.get("effort", "")), use=use)

    async def _model_failed(
        self, session: Session, turn: RunningTurn, error: ProviderError
    ) -> None:
        """Wait for a model that is out; end the turn on an error that will not pass."""
        now = self._clock.now()
        since = turn.entries[0].received_at or now.timestamp()
        waited = now.timestamp() - since  # not since it was sent: we may have been off then
        gone_by = turn.inbound.initiator == "heartbeat"  # another one comes by itself
        stalls = turn.entries[0].stalls + 1 if isinstance(error, ProviderStalled) else 0
        is_passing = isinstance(error, ProviderBusy | ProviderUnavailable) and stalls < _MOST_STALLS
        if not is_passing or waited > WAIT_HOURS * 3600 or gone_by:
            text, kind = self._failure_of(turn, error), type(error).__name__
            await self._end(session, turn, "failed", text, reason=str(error), error=kind)
            return
        outages = turn.entries[0].outages
        # 15 s doubling to 5 min, and never earlier than the provider asked.
        pause = max(error.retry_after, pause_after(outages + 1, 15.0, 300.0))
        not_before = now.timestamp() + pause
        ids = [entry.id for entry in turn.entries]
        postpone = partial(self._journal.postpone, ids, not_before, str(error))
        await self._bus.until_stored(turn.inbound, postpone)
        is_owner = turn.scope == OWNER
        text = waiting_text(error, is_owner=is_owner)
        if not is_owner:
            self._parts.warn_of_failure(session.key, error)
        await self._notify_waiting(turn, turn.id, text, error)
        async with turn.ending:
            if turn.open:
                entry = replace(turn.as_entry(), reason=str(error), outages=outages + 1)
                entry = replace(entry, stalls=stalls, not_before=not_before, received_at=since)
                self._parts.queue.delay(entry, pause)

    def _failure_of(self, turn: RunningTurn, error: Exception) -> str:
        """What the people in a turn's chat read of an error, which the owner is told about."""
        is_owner = turn.scope == OWNER
        if not is_owner:
            self._parts.warn_of_failure(turn.inbound.session_key, error)
        return failure_text(error, is_owner=is_owner)

    async def stop(self, session: Session, turn: RunningTurn) -> bool:
        """End a turn because its person said so; False where it had ended already. Committed before
        anything is killed."""
        try:
            await self._end(session, turn, "stopped", "")
        except TurnStopped:
            return False
        task, turn.task = turn.task, None
        if task is not None:
            task.cancel()
        return True

    async def stop_waiting(self, entry: InboxEntry) -> None:
        """End a message that waits, unanswered: it is kept in the session, without its files."""
        turn = RunningTurn(entry, self._parts)
        session, turn.scope = await self._parts.admission.admit(entry.message)
        await self._begin(session, turn)
        await self.stop(session, turn)

    async def store_unanswered(self, entry: InboxEntry) -> None:
        """Keep a message that begins no turn in the conversation."""
        turn = RunningTurn(entry, self._parts)
        session, turn.scope = await self._parts.admission.admit(entry.message)
        session.begin_turn()
        self._parts.admission.identify(session, entry.message, turn.scope)
        self._stage(session, turn, turn.messages)
        done = Completion(turn.id, session.key, (entry.id,), "done", session.staged_lines())
        self._bus.forward(await self._completions.commit(entry.message, session, done))

    async def notify_queued(self, entry: InboxEntry, held: InboxEntry) -> None:
        """Notify the watchers that a message waits behind `held`, and its sender once. In a
        terminal, notify the sender for each message, because each command there waits for its
        answer."""
        name = f"behind-{held.id}"
        if entry.message.channel == TERMINAL:
            name += f"-{entry.id}"
        await self._notify_waiting(RunningTurn(entry, self._parts), name, BEHIND_ANOTHER)

    async def _notify_waiting(
        self, turn: RunningTurn, name: str, text: str, error: ProviderError | None = None
    ) -> None:
        """The turn goes on later: notify those who watch, and once the person; for a job the
        readers of its chat."""
        self._hook(turn.ended("waiting", type(error).__name__ if error else ""))
        inbound = turn.inbound
        if text := text if inbound.expects_answer else job_waiting_text(inbound):
            outgoing = await self._completions.outgoing(inbound, text, turn.event_ids, "waiting")
            send = partial(self._bus.send_outgoing, name, outgoing)
            await self._bus.until_stored(inbound, send)

    async def _end(
        self,
        session: Session,
        turn: RunningTurn,
        state: Literal["done", "failed", "stopped"],
        text: str,
        result: Turn | None = None,
        reason: str = "",
        error: str = "",
    ) -> None:
        """The commit point: new messages, closed inbox rows and the reply, durable together. Where
        a turn failed, the person's message stays in the session; `text`, which the model did not
        say, does not."""
        usage, inbound = result.usage if result else Usage(), turn.inbound
        async with turn.ending:
            turn.refuse_if_ended()
            turn.open = False
            ended = turn.ended(state, error, usage)
            try:
                outgoing, notes = await self._replies(turn, state, text)
                if result:
                    outgoing += self._voice_of(session, turn, result.text)
                    final = Message("assistant", result.text, self._clock.now())
                    self._stage(session, turn, [*turn.messages, final])
                else:
                    self._stage(session, turn, turn.messages_left(state))
                completion = Completion(
                    turn.id,
                    session.key,
                    tuple(entry.id for entry in turn.entries),
                    state,
                    lines="" if inbound.off_record else session.staged_lines(),
                    outgoing=outgoing,
                    republish=notes,
                    report=turn.report_of(result.model if result else "", usage),
                    reason=reason,
                    # A program was told, and asks again or not.
                    given_up=inbound.by_program and state == "failed",
                )
                committed = await self._completions.commit(inbound, session, completion)
            except BaseException:
                turn.open = True  # nothing was committed: the turn goes on when the disk allows
                session.rollback()
                raise
        self._hook(ended)
        self._bus.forward(committed)

    async def _replies(
        self, turn: RunningTurn, state: str, text: str
    ) -> tuple[tuple[Outgoing, ...], tuple[InboundMessage, ...]]:
        """What goes out at the end of a turn, and what the conversation of its chat gets to know of
        it if nobody there asked for it."""
        inbound = turn.inbound
        if inbound.is_background:  # it may say that there is nothing to say
            text = "" if is_silent(text) else text
            text = failed_text(inbound, text) if state == "failed" else text
        outgoing = await self._where_approved(turn, text)
        notes: tuple[InboundMessage, ...] = ()
        if not text and (state != "done" or inbound.is_background):
            return outgoing, notes
        late = bool(turn.entries[0].not_before) and not inbound.by_program
        reply = await self._completions.outgoing(inbound, text, turn.event_ids, "reply", late=late)
        if inbound.is_background:
            origins = origins_of(turn.messages_read())
            notes = (background_turn_note(inbound, text, origins, self._clock.now()),)
        return ((reply, *outgoing) if reply.parts else outgoing), notes

    async def _where_approved(self, turn: RunningTurn, text: str) -> tuple[Outgoing, ...]:
        """Return the answer to a program for the chats in which its calls were approved: by then
        the program may not wait for it any more."""
        if not (turn.inbound.by_program and text):
            return ()
        messages = (
            OutboundMessage(
                *(there.channel, there.chat_id, program_answer_text(turn.inbound, text)),
                thread_id=there.thread_id,
            )
            for there in turn.approved_in
            if there != turn.inbound.address
        )
        parts = [await self._parts.split(message) for message in messages]
        return tuple(Outgoing(f"approved-{n}", part) for n, part in enumerate(parts))

    def _voice_of(self, session: Session, turn: RunningTurn, text: str) -> tuple[Outgoing, ...]:
        """What follows the text of an answer, where it is to be heard as well."""
        speaking, inbound = self._parts.speaking, turn.inbound
        if speaking is None or inbound.by_program or (inbound.is_background and is_silent(text)):
            return ()
        answered = [entry.message for entry in turn.entries]
        return speaking.follow_up(session, inbound, answered, turn.messages, text)

    def _stage(self, session: Session, turn: RunningTurn, messages: Sequence[Message]) -> None:
        """Stage a turn's messages. What the model said after it read foreign text carries the mark
        of that: it may repeat it."""
        tools = tuple(dict.fromkeys(turn.tools))
        marked = [*self._parts.sources.unconfirmed(turn.scope), *session.marked]
        for message in messages:
            marked += [message] if message.origin or message.notice else []
            used: tuple[str, ...] = ()
            origin = message.origin
            if message.role == "assistant":
                used = tools if message is messages[-1] else ()
                origin = combined_mark(origins_of(marked)) if marked else ""
            session.add_message(replace(message, turn_id=turn.id, tools_used=used, origin=origin))
