"""One turn, from its start in the journal to its commit, and the other ends of messages.

`Turns.respond` is the whole turn, and only it turns errors into messages to people. Each turn ends
exactly once, in one transaction. Whether answered, failed or stopped, it ends in `_complete`, which
holds the turn's `ending` lock until the end is on disk. The next holder of the lock sees if the
turn has ended or is still open, because the disk rejected the end. The holder also owns the
session's staged changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeGuard

from loguru import logger
from msgspec.structs import replace

from nanobot.agent.hooks import WaitReports
from nanobot.agent.intake import messages_before
from nanobot.agent.message_tool import is_repetition
from nanobot.agent.notifier import (
    BEHIND_ANOTHER,
    ENDED_EARLY,
    ENDS,
    GAVE_UP,
    WAIT_HOURS,
    background_turn_note,
    failure_text,
    is_silent,
    job_failure_text,
    job_waiting_text,
    late_head,
    program_answer_text,
    stored_reason,
    waiting_text,
)
from nanobot.agent.prompt import NO_PICTURES
from nanobot.agent.runner import EarlierWork, Turn
from nanobot.agent.session_queue import turn_ended
from nanobot.agent.turn_state import (
    AnswerParts,
    Outcome,
    Postponement,
    RunningTurn,
    build_completion,
    turn_name,
)
from nanobot.bus.events import PAGE, TERMINAL, Button, InboundMessage, OutboundMessage, TurnStarted
from nanobot.bus.journal import GIVE_UP_AFTER, Committed, Completion, InboxEntry, Outgoing
from nanobot.clock import pause_after
from nanobot.commands import Answer
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
from nanobot.messages import Message
from nanobot.providers.port import CallOptions, ModelUse, Prompt, Usage
from nanobot.session.session import Session
from nanobot.tooling import OWNER

_MAY_BE_AN_IMAGE = frozenset({400, 404, 415, 422, 500})
"""Status codes that servers return for a broken or unsupported image."""

_USES: Mapping[str, ModelUse] = {"job": "jobs", "heartbeat": "heartbeat"}
"""Model use of a turn by its initiator. All others use `chat`."""

_MOST_STALLS = 2
"""After two stalls for the same message a longer timeout is needed, not a day of retries."""


class Turns:
    """The running turns: their start, answer and end, and the commit of all messages' ends."""

    def __init__(self, parts: AnswerParts) -> None:
        self._parts = parts
        self.running: dict[str, RunningTurn] = {}
        """Running turns by session key."""

    async def respond(self, turn: RunningTurn) -> Postponement | None:
        """Run an admitted turn until it ends, or has to wait for the model.

        Raises `TurnStopped`, and `StorageError` if the journal rejects the end."""
        try:
            await self._begin(turn)
            outcome = await self._answer(turn)
            await self._complete(turn, outcome)
            if outcome.state == "done" and not turn.inbound.origin.off_record:
                self._make_room_later(turn.session)
                self._parts.begin_title(turn.session, turn.id)
        except (TurnStopped, StorageError):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: a broken turn becomes an apology
            if self._is_temporary(error, turn):
                return await self._postpone(turn, error)
            await self._complete(turn, self._report_failure(turn, error))
        finally:
            if not turn.open:
                self._parts.context.commit_news(turn.session)
            if turn.inbound.origin.off_record:
                self._parts.context.forget(turn.session)
        return None

    async def _begin(self, turn: RunningTurn) -> None:
        """Enter a turn into the journal and identify its conversation. Remove the messages of an
        earlier, failed run first, so that they are not there twice. A background conversation is
        emptied at each start."""
        session, inbound = turn.session, turn.inbound
        async with turn.ending:
            turn.refuse_if_ended()
            session.begin_turn()
            if earlier := turn.entries[0].previous_turn:
                async with session.removal_lock:
                    session.retract(earlier)
            self._parts.admission.identify(session, inbound, turn.scope)
            if inbound.is_background and session.messages:
                session.discard(turn.entries[0].id)
            begins = session.next_seq == 1
            for message in messages_before(inbound, session.messages, is_first=begins):
                session.add_message(message)
            session.stage_use(turn.messages[0])
            if session.stages_messages:
                begun = Completion(turn.id, session.key, (), "done", session.encode_staged())
                await self._commit(inbound, session, begun)
            elif session.has_staged:  # an interrupted turn stages them again
                self._parts.sessions.save_early(session)
            turn.entries[0] = replace(turn.entries[0], previous_turn="")
            turn.join()
            ids = [entry.id for entry in turn.entries]
            self._parts.journal.claim(turn.id, session.key, ids, at_once=turn.entries[0].recovered)

    async def _answer(self, turn: RunningTurn) -> Outcome:
        """Make room, build the prompt, and run the ReAct loop. `stop` cancels all of it."""
        if turn.entries[0].attempts >= GIVE_UP_AFTER:
            text = GAVE_UP.format(GIVE_UP_AFTER)
            return Outcome("failed", text, reason="crashed repeatedly", error="Crashed")
        inbound, parts = turn.inbound, self._parts
        place = (inbound.channel, inbound.chat_id, turn.id)
        parts.hook(TurnStarted(*place, turn.event_ids, thread_id=inbound.thread_id), turn.caller)
        turn.refuse_if_ended()
        with turn.stoppable():
            first = turn.messages[0]
            words = first.own_words if first.origin else first.content
            skills = parts.sources.skills_mentioned(turn.scope, words)
            notices = filter(None, (parts.context.news(turn.session), skills))
            await turn.load_message("\n".join(notices))
            result = await self._run(turn)
        return Outcome("done", self._build_text(turn, result), result)

    def _build_text(self, turn: RunningTurn, result: Turn) -> str:
        """Return the answer as it is sent, or "" if the turn has already sent the same text."""
        has_media = turn.cache.has_images or any(m.media for m in turn.messages)
        if result.steps == 1 and not (has_media or turn.resumed.messages):  # one prompt of text
            self._parts.counter.calibrate(turn.prompt_tokens, result.usage.prompt)
        if turn.inbound.origin.schema:
            return result.text  # JSON
        text = result.text + ENDS.get(result.finish, ENDED_EARLY.format(result.finish))
        if turn.cache.blind and self._parts.context.has_images(turn.messages):
            text += NO_PICTURES
        return "" if is_repetition(turn.messages, text) else text

    async def _build_with_room(self, turn: RunningTurn) -> Prompt:
        """Return the prompt that a turn begins with. Make room for it first if necessary."""
        prompt, has_room = turn.build_prompt(self._parts.context), self._parts.consolidator.has_room
        # A resumed turn adds messages to its prompt.
        fits = not turn.resumed.messages and has_room(turn.session, prompt.tokens)
        if fits or turn.inbound.origin.off_record:  # such messages never move to memory
            return prompt
        await self._make_room(turn.session, turn.messages)
        return turn.build_prompt(self._parts.context)

    def _make_room_later(self, session: Session) -> None:
        tokens = self._parts.context.tokens(session)
        if not self._parts.consolidator.has_room(session, tokens, at_rest=True):
            self._parts.awaited_background.start(self._make_room(session, ()))

    async def _make_room(self, session: Session, coming: Sequence[Message]) -> None:
        """Move the oldest messages into memory if the prompt needs room. If that fails, the turn
        goes on, and the runner shortens the prompt."""
        try:
            await self._parts.consolidator.maybe_consolidate_by_tokens(session, coming)
        except NanobotError as error:
            logger.warning("{}: could not consolidate: {} {}", session.key, error, error.hint)

    async def _run(self, turn: RunningTurn) -> Turn:
        """Run the ReAct loop. Retry with a shorter prompt if it was too long, and without images if
        the model may have rejected one of them."""
        context, session = self._parts.context, turn.session
        blinded, options = False, self._choose_options(turn)
        refused: ContextTooLong | None = None
        prompt = await self._build_with_room(turn)
        while True:
            turn.refuse_if_ended()
            turn.note_prompt(prompt.tokens)
            try:
                return await self._parts.runner.run(
                    prompt,
                    turn.caller,
                    options=options,
                    resumed=turn.resumed,
                    log=turn,
                    hook=self._parts.hook,
                    render=context.renderer(turn.cache, turn.messages[:1]),
                    refused=refused,
                    schema=turn.inbound.origin.schema,
                )
            except (ProviderRejected, RequestBlamed) as error:
                is_too_long = isinstance(error, ContextTooLong)
                if is_too_long and (turn.inbound.origin.off_record or error is refused):
                    raise
                if self._try_without_images(turn, error):
                    blinded = True
                elif not isinstance(error, ContextTooLong):
                    if blinded:
                        context.show_images(session)  # the images were not the cause
                    raise
                elif not await self._parts.consolidator.consolidate_half(session):
                    refused = error
            turn.resumed = EarlierWork(tuple(turn.messages[1:]))  # every call has its result by now
            prompt = turn.build_prompt(self._parts.context)

    def _try_without_images(
        self, turn: RunningTurn, error: ProviderRejected | RequestBlamed
    ) -> bool:
        """Leave out the images if the server may have rejected one of them. Return False if there
        are none, or if the error can't come from an image."""
        may_be = error.status in _MAY_BE_AN_IMAGE
        if isinstance(error, ContextTooLong):
            may_be = error.status == 413 and not error.tokens  # a limit in bytes
        return may_be and self._parts.context.leave_out_images(turn.session, turn.messages)

    def _choose_options(self, turn: RunningTurn) -> CallOptions:
        """Return the model and options of the turn, set by its job or its conversation."""
        context, known = self._parts.context, turn.session.metadata
        use: ModelUse = _USES.get(turn.inbound.origin.initiator, "chat")
        if use == "chat" and self._parts.sees_apart and context.has_images(turn.messages):
            use = "pictures"
            context.show_images(turn.session)  # another model may have refused them
        model = turn.inbound.origin.model or str(known.get("model", ""))
        return CallOptions(model=model, effort=str(known.get("effort", "")), use=use)

    def _is_temporary(self, error: Exception, turn: RunningTurn) -> TypeGuard[ProviderError]:
        """Return True if the model is temporarily unavailable and the turn should be retried."""
        if not isinstance(error, ProviderBusy | ProviderUnavailable):
            return False
        now = self._parts.clock.now().timestamp()
        # Counted from receipt, as nanobot may have been off when it was sent.
        since = turn.entries[0].received_at or now
        is_late = now - since > WAIT_HOURS * 3600
        is_heartbeat = turn.inbound.origin.initiator == "heartbeat"  # a new one follows soon
        return not (is_late or is_heartbeat) and _count_stalls(turn, error) < _MOST_STALLS

    async def _postpone(self, turn: RunningTurn, error: ProviderError) -> Postponement:
        """Store that a turn waits for the model, and notify its sender and watchers."""
        parts, first, now = self._parts, turn.entries[0], self._parts.clock.now().timestamp()
        # 15 s doubling to 5 min, and never earlier than the provider asked.
        pause = max(error.retry_after, pause_after(first.outages + 1, 15.0, 300.0))
        ids = [entry.id for entry in turn.entries]
        reason = stored_reason(turn.inbound, error)
        postpone = partial(parts.journal.postpone, ids, now + pause, reason)
        await parts.bus.until_stored(turn.inbound, postpone)
        if not (is_owner := turn.scope == OWNER):
            parts.warn_of_failure(turn.session.key, error)
        await self._notify_waiting(turn, turn.id, waiting_text(error, is_owner=is_owner), error)
        if turn.open:
            waits = WaitReports(parts.hook, turn.caller, parts.clock)
            waits.show_outage(error.reason, first.outages + 1, pause, later=True)
        entry = replace(
            turn.as_entry(),
            reason=reason,
            outages=first.outages + 1,
            stalls=_count_stalls(turn, error),
            not_before=now + pause,
            received_at=first.received_at or now,
        )
        return Postponement(entry, pause)

    def _report_failure(self, turn: RunningTurn, error: Exception) -> Outcome:
        """Return the outcome for an error, and report the error to the owner."""
        name, reason = type(error).__name__, stored_reason(turn.inbound, error)
        if not isinstance(error, ProviderError):
            shown = None if turn.inbound.is_temporary else error
            logger.opt(exception=shown).error("turn {} failed: {}", turn.id, name)
        if not (is_owner := turn.scope == OWNER):
            self._parts.warn_of_failure(turn.session.key, error)
        return Outcome("failed", failure_text(error, is_owner=is_owner), reason=reason, error=name)

    async def stop(self, turn: RunningTurn) -> bool:
        """End a turn at its sender's request. Return False if it had already ended. The end is
        committed before anything is killed."""
        if not turn.scope:  # not admitted yet
            session = await self._parts.admission.session_of(turn.inbound)
            turn.session = turn.session if turn.scope else session
        try:
            kept = self._parts.split.keep_draft(turn.inbound, turn.text_so_far)
            await self._complete(turn, Outcome("stopped", kept))
        except TurnStopped:
            return False
        task, turn.task = turn.task, None
        if task is not None:
            task.cancel()
        return True

    async def stop_waiting(self, entry: InboxEntry) -> None:
        """End a pending message without an answer. It stays in the session, without its files."""
        turn = await self._admit(entry)
        await self._begin(turn)
        await self.stop(turn)

    async def store_unanswered(self, entry: InboxEntry) -> None:
        """Store a message that starts no turn in the conversation."""
        turn = await self._admit(entry)
        session = turn.session
        session.begin_turn()
        self._parts.admission.identify(session, entry.message, turn.scope)
        turn.stage(turn.messages)
        done = Completion(turn.id, session.key, (entry.id,), "done", session.encode_staged())
        self._parts.bus.forward(await self._commit(entry.message, session, done))

    async def _admit(self, entry: InboxEntry) -> RunningTurn:
        turn = RunningTurn(entry, self._parts)
        turn.session, turn.scope = await self._parts.admission.admit(entry.message)
        return turn

    async def drop_waiting(self, entry: InboxEntry) -> None:
        """End a pending message as if it had never arrived."""
        turn_id = entry.turn_id or turn_name(entry, self._parts.clock)
        report = "{}" if entry.turn_id else ""  # ends the started turn
        key = entry.message.session_key
        done = Completion(turn_id, key, (entry.id,), "stopped", report=report)
        await self._commit(entry.message, None, done)

    async def answer_command(
        self, entry: InboxEntry, answer: Answer, session: Session | None = None
    ) -> None:
        """Commit a command's answer together with the changes that it staged on `session`."""
        inbound, turn_id = entry.message, turn_name(entry, self._parts.clock)
        event_ids = (inbound.answered_event,)
        reply = await self._build_outgoing(inbound, answer.text, event_ids, "reply", answer.buttons)
        completion = Completion(
            turn_id,
            inbound.session_key,
            (entry.id,),
            "done",
            lines=session.encode_staged() if session and not inbound.origin.off_record else "",
            outgoing=(reply,) if answer.text else (),
            republish=answer.republish,
            replaces_turn=answer.replaces_turn,
        )
        committed = await self._commit(inbound, session, completion)
        if answer.text:
            self._parts.hook(turn_ended(inbound, turn_id, event_ids, "done"))
        self._parts.bus.forward(committed)
        if answer.afterwards is not None:
            answer.afterwards()

    async def notify_queued(self, entry: InboxEntry, held: InboxEntry) -> None:
        """Notify the watchers that a message waits behind `held`, and its sender once. In a
        terminal, each message gets a notice, because each command there waits for an answer."""
        name = f"behind-{held.id}" + (f"-{entry.id}" if entry.message.channel == TERMINAL else "")
        await self._notify_waiting(RunningTurn(entry, self._parts), name, BEHIND_ANOTHER)

    async def _notify_waiting(
        self, turn: RunningTurn, name: str, text: str, error: ProviderError | None = None
    ) -> None:
        """Notify the watchers and, once, the sender that the turn goes on later. For a job, notify
        the readers of its chat."""
        self._parts.hook(turn.end_event("waiting", type(error).__name__ if error else ""))
        inbound, bus = turn.inbound, self._parts.bus
        if text := text if inbound.expects_answer else job_waiting_text(inbound):
            outgoing = await self._build_outgoing(inbound, text, turn.event_ids, "waiting")
            await bus.until_stored(inbound, partial(bus.send_outgoing, name, outgoing))

    async def _complete(self, turn: RunningTurn, outcome: Outcome) -> None:
        """Commit the new messages, the closed inbox rows and the reply in one transaction. If the
        turn failed, the person's message stays in the session, and the reply does not enter it."""
        session, result = turn.session, outcome.result
        async with turn.ending:
            turn.refuse_if_ended()
            turn.open = False
            usage = result.usage if result else Usage()
            event = turn.end_event(outcome.state, outcome.error, usage)
            try:
                outgoing, notes = await self._build_replies(turn, outcome.state, outcome.text)
                if result:
                    outgoing += self._build_voice_reply(turn, result.text)
                    final = Message("assistant", result.text, self._parts.clock.now())
                    turn.stage([*turn.messages, final])
                else:
                    turn.stage(turn.messages_left(outcome.state))
                end = build_completion(turn, outcome, outgoing, notes)
                committed = await self._commit(turn.inbound, session, end)
            except BaseException:
                turn.open = True  # nothing was committed, so the turn can go on
                session.rollback()
                raise
        self._parts.hook(event)
        self._parts.bus.forward(committed)

    async def _commit(
        self, message: InboundMessage, session: Session | None, completion: Completion
    ) -> Committed:
        """Make a completion durable, and the changes staged on `session` visible with it."""
        parts = self._parts
        committed = await parts.bus.until_stored(message, partial(parts.bus.commit, completion))
        if session is not None and committed.unfiled_id:

            def clear_copy(saved: asyncio.Future[None]) -> None:
                # Otherwise the next start writes the lines to the session file.
                if not saved.cancelled() and saved.exception() is None:
                    parts.journal.mark_filed((committed.unfiled_id,))

            parts.sessions.save(session).add_done_callback(clear_copy)
        return committed

    async def _build_replies(
        self, turn: RunningTurn, state: str, text: str
    ) -> tuple[tuple[Outgoing, ...], tuple[InboundMessage, ...]]:
        """Return the messages sent at the end of a turn, and the note for the chat's conversation
        if no person in it started the turn."""
        inbound = turn.inbound
        if inbound.is_background:  # it may have nothing to report
            text = "" if is_silent(text) else text
            text = job_failure_text(inbound, text) if state == "failed" else text
        outgoing = await self._build_copies(turn, text)
        if not text and (state != "done" or inbound.is_background):
            return outgoing, ()
        late = bool(turn.entries[0].not_before) and not inbound.origin.by_program
        reply = await self._build_outgoing(inbound, text, turn.event_ids, "reply", late=late)
        outgoing = (reply, *outgoing) if reply.parts else outgoing
        if not inbound.is_background:
            return outgoing, ()
        note = background_turn_note(inbound, text, turn.origins(), self._parts.clock.now())
        return outgoing, (note,)

    async def _build_outgoing(
        self,
        inbound: InboundMessage,
        text: str,
        event_ids: tuple[str, ...],
        call: str,
        buttons: tuple[Button, ...] = (),
        *,
        late: bool = False,
    ) -> Outgoing:
        """Return a text for the chat of `inbound`. `call` is unique among the messages of a turn.
        In a group, and after a delay (`late`), the text replies to its message, so that people see
        the connection. The page shows the connection without that."""
        reply_to = inbound.message_id if inbound.is_group or late else ""
        if late and text and inbound.expects_answer and not reply_to and inbound.channel != PAGE:
            text = late_head(inbound, self._parts.clock.now()) + text
        message = OutboundMessage(
            inbound.channel,
            inbound.chat_id,
            text,
            reply_to=reply_to,
            thread_id=inbound.thread_id,
            buttons=buttons,
            late=late,
            is_temporary=inbound.is_temporary,
        )
        return Outgoing(call, await self._parts.split(message), event_ids)

    async def _build_copies(self, turn: RunningTurn, text: str) -> tuple[Outgoing, ...]:
        """Return the answer to a program for the chats in which its calls were approved. The
        program may no longer be waiting for it."""
        if not (turn.inbound.origin.by_program and text):
            return ()
        text = program_answer_text(turn.inbound, text)
        places = [chat for chat in turn.approved_in if chat != turn.inbound.address]
        found = []
        for number, chat in enumerate(places):
            message = OutboundMessage(chat.channel, chat.chat_id, text, thread_id=chat.thread_id)
            found.append(Outgoing(f"approved-{number}", await self._parts.split(message)))
        return tuple(found)

    def _build_voice_reply(self, turn: RunningTurn, text: str) -> tuple[Outgoing, ...]:
        """Return the voice reply that follows the text of an answer, if there should be one."""
        voice, inbound = self._parts.voice_replies, turn.inbound
        if (
            voice is None
            or inbound.origin.by_program
            or (inbound.is_background and is_silent(text))
        ):
            return ()
        answered = [entry.message for entry in turn.entries]
        return voice.follow_up(turn.session, inbound, answered, turn.messages, text)


def _count_stalls(turn: RunningTurn, error: ProviderError) -> int:
    """Return how often in a row the server stalled on a turn's message."""
    return turn.entries[0].stalls + 1 if isinstance(error, ProviderStalled) else 0
