"""The agent loop: takes each message from the inbox to the end of its turn.

`run` reads the inbox and `accept` routes each message. Commands that can't wait run at once. All
other messages are handled in their session's lane, in order. The turn itself is in
`nanobot.agent.turn`. The journal notes a command before an effect that must not happen twice. After
a crash or a full disk the command runs again from its start. If its effect was noted, it reports
that the effect may or may not have happened."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Literal

from loguru import logger
from msgspec.structs import replace

from nanobot.agent.intake import MessageLost
from nanobot.agent.notifier import failure_text
from nanobot.agent.session_queue import refusal_notice, turn_ended
from nanobot.agent.turn import Turns
from nanobot.agent.turn_state import AgentParts, RunningTurn
from nanobot.bus.events import TERMINAL, InboundMessage
from nanobot.bus.journal import SUSPECT_AFTER, InboxEntry
from nanobot.bus.queue import DISK_PAUSE
from nanobot.clock import with_timeout
from nanobot.commands import Answer, Command, CommandCall
from nanobot.errors import NanobotError, SessionDamaged, StorageError, TurnStopped
from nanobot.memory.scopes import OWNER, OthersConversation
from nanobot.session.records import is_internal
from nanobot.session.session import Session
from nanobot.tasks import SCOPES, TURN
from nanobot.text import clean

LONGEST_PAUSE = 3600.0
"""Longest wait at startup for an unavailable model, in seconds. A later stored time means that the
clock was set back, or comes from a server's outdated request."""

_SUSPECT_SECONDS = 10.0
"""Longest time that a suspect waits for the suspect before it."""


Route = Literal["at once", "renew", "wait", "pass"]
"""Route of a new message: past the lanes, as the `/new` that sets a damaged conversation aside,
behind a delayed message of its session, or past that message."""


def route(message: InboundMessage, command: Command | None, *, joins: bool, damaged: bool) -> Route:
    """Return the route of a message. `command` is the command it calls. `joins` is True if it
    belongs to the running turn, `damaged` if its conversation's file is damaged."""
    if message.delivery.deletes or (command is not None and command.immediate):
        return "at once"
    if command is None:
        return "wait" if _is_question(message) and not joins else "pass"
    if command.name == "new" and damaged:
        return "renew"
    return "wait" if command.ordered else "pass"


def _is_question(message: InboundMessage) -> bool:
    return message.expects_answer and not (message.delivery.edits or message.delivery.unanswered)


class AgentLoop:
    """Handler of the messages in the bus's inbox."""

    def __init__(self, parts: AgentParts) -> None:
        self._parts, self._queue, self._background = parts, parts.queue, parts.background
        self.turns = Turns(parts)
        self._commands = parts.commands
        self._begun: set[int] = set()
        """Commands that have begun an effect that must not happen twice."""
        self._suspects: dict[str, asyncio.Event] = {}
        parts.bus.on_refusal = self._notify_refusal

    async def run(self) -> None:
        """Accept the messages of the inbox, forever."""
        async for entry in self._parts.bus.inbox():
            try:
                self.accept(entry)
            except Exception as error:  # noqa: BLE001 - the boundary: the next message is read
                logger.opt(exception=error).error("could not accept message {}", entry.id)

    def accept(self, entry: InboxEntry) -> None:
        """Put a new message into its session's lane, or handle it at once."""
        message, key = entry.message, entry.message.session_key
        self._parts.hook(message)
        match = self._commands.find_call(message)
        command = match[0] if match is not None else None
        turn = self.turns.running.get(key)
        way = route(
            message,
            command,
            joins=turn is not None and turn.includes(entry),
            damaged=isinstance(self._parts.sessions.unreadable.get(key), SessionDamaged),
        )
        if way == "at once":
            self._background.start(self._handle_at_once(entry), name=f"at once {entry.id}")
            return
        if way == "renew" or message.delivery.replaces:
            # Pending messages go to the new conversation, or behind the turn that runs again.
            self._queue.put_back((entry,))
            self._resume(key)
            return
        if way == "wait":
            if command is None and self._parts.on_busy == "interrupt":
                self._interrupt_for(entry)
            if (held := self._queue.find_delayed(key)) is not None:
                entry = replace(entry, not_before=held.not_before)
                self._notify_queued(entry, held)
        self._queue.add(entry)
        self._submit(key)

    def _submit(self, key: str) -> None:
        self._parts.lanes.submit(key, partial(self._handle_next, key))

    def _resume(self, key: str) -> None:
        """End the pause of a session and handle its messages."""
        for _ in range(self._queue.unpause(key)):
            self._submit(key)

    def _resume_later(self, key: str, seconds: float) -> None:
        async def go_on() -> None:
            await self._parts.clock.sleep(seconds)
            self._resume(key)

        self._background.start(go_on(), name=f"wait {key}")

    def _delay(self, entry: InboxEntry, seconds: float) -> None:
        """Keep a message at the head of its session for `seconds`."""
        key = entry.message.session_key
        self._queue.put_back((entry,))
        self._queue.pause(key)
        self._resume_later(key, seconds)

    def bypasses_lane(self, message: InboundMessage) -> bool:
        """Return True if a message bypasses its session's lane."""
        match = self._commands.find_call(message)
        command = match[0] if match is not None else None
        return route(message, command, joins=False, damaged=False) == "at once"

    def _interrupt_for(self, entry: InboxEntry) -> None:
        """Stop the running turn if a person of the same scope sent a new message."""
        turn = self.turns.running.get(entry.message.session_key)
        if turn is not None and not entry.message.origin.by_program and turn.is_same_scope(entry):
            self._background.start(self.turns.stop(turn), name=f"interrupt {turn.id}")

    def _notify_queued(self, entry: InboxEntry, held: InboxEntry) -> None:
        notice = self.turns.notify_queued(entry, held)
        self._background.start(notice, name=f"queued {entry.id}")

    async def resume(self, entries: Sequence[InboxEntry]) -> None:
        """Handle the entries that an earlier process left. `/stop` and the like run first, so a
        stopped turn does not run again. Messages in several crashes start one after another, after
        all others, so that the next crash shows which of them caused it."""
        at_once, waiting = [], dict[str, list[InboxEntry]]()
        for entry in entries:
            if self.bypasses_lane(entry.message):
                at_once.append(entry)
            else:
                waiting.setdefault(entry.message.session_key, []).append(entry)
        for group in waiting.values():
            group.sort(key=lambda entry: not (entry.turn_id or entry.message.delivery.replaces))
            not_before = max(entry.not_before for entry in group)
            for entry in group:  # the others wait behind a delayed message
                self._queue.add(replace(entry, not_before=not_before))
                self._queue.pause(entry.message.session_key)
        for entry in sorted(at_once, key=lambda entry: bool(entry.message.delivery.deletes)):
            await self._handle_at_once(entry)
        suspects = [key for key, group in waiting.items() if not self._try_resume(key, group)]
        for key in suspects:  # wait until it asks the model, ends or takes too long
            asked = self._suspects[key] = asyncio.Event()
            self._resume(key)
            with suppress(TimeoutError):
                await with_timeout(self._parts.clock, _SUSPECT_SECONDS, asked.wait())

    def _try_resume(self, key: str, entries: Sequence[InboxEntry]) -> bool:
        """Handle the pending messages of a session, now or when they are due. Return False for a
        suspect."""
        not_before = max(entry.not_before for entry in entries)
        pause = min(not_before - self._parts.clock.now().timestamp(), LONGEST_PAUSE)
        if pause > 0:
            self._resume_later(key, pause)
            self._parts.hook(RunningTurn(entries[0], self._parts).end_event("waiting"))
            self._notify_behind(key)
            return True
        if max(entry.attempts for entry in entries) >= SUSPECT_AFTER:
            return False
        self._resume(key)
        return True

    def is_stop(self, message: InboundMessage) -> bool:
        if not message.content.lstrip().startswith("/"):  # don't interpret it as a reply
            return False
        match = self._commands.find_call(message)
        return match is not None and match[0].name == "stop"

    async def stop(self, session_key: str, before: int) -> tuple[bool, int]:
        """Stop the running turn of a session and set aside the messages behind it, before inbox
        entry `before`. Return (a turn ran, number of pending messages)."""
        running = self.turns.running
        self._queue.unpause(session_key)
        waiting = self._queue.remove_waiting(
            session_key,
            lambda e: e.id < before and self._commands.find_call(e.message) is None,
        )
        count = len(waiting)
        turn = running.get(session_key)
        try:
            ran = turn is not None and turn.entries[0].id < before and await self.turns.stop(turn)
            for other in tuple(running.values()):  # jobs that answer in this chat
                if other is not turn and other.inbound.chat_key == session_key:
                    ran = await self.turns.stop(other) or ran
            if waiting:
                set_aside = partial(self._set_aside, waiting)
                await self._parts.lanes.run(session_key, set_aside)
        finally:  # messages not set aside, and those after the /stop, still wait
            self._queue.put_back(waiting)
            self._resume(session_key)
        return ran, count

    async def _set_aside(self, entries: list[InboxEntry]) -> None:
        while entries:
            try:
                await self.turns.stop_waiting(entries[0])
            except OthersConversation:
                await self.turns.drop_waiting(entries[0])
            del entries[0]

    async def _handle_next(self, key: str) -> None:
        """Handle a session's next message in its lane, if it may run: run its
        command, store it without an answer, or start its turn. An edit of an answered message
        starts no turn, so that no tool runs again."""
        entry = self._queue.take_next(key)
        if entry is None:
            return
        message = entry.message
        SCOPES.set((entry.scope,))
        try:
            chat = (message.channel, message.chat_id)
            if message.delivery.edits and not await self._parts.journal.has_received(
                *chat, message.delivery.edits
            ):
                # The original was not for the agent.
                message = replace(message, delivery=replace(message.delivery, edits=""))
                entry = replace(entry, message=message)
            match = self._commands.find_call(message)
            if match is not None:
                await self._run_command(*match, entry)
            elif message.delivery.edits or message.delivery.unanswered:
                await self.turns.store_unanswered(entry)
            else:
                await self._run_turn(entry)
        except StorageError as error:
            self._hold(entry, error)
        except (OthersConversation, MessageLost) as error:
            await self._refuse(entry, error)

    async def _refuse(self, entry: InboxEntry, error: OthersConversation | MessageLost) -> None:
        """Reject a message for a conversation of another scope, or one without its text. Nothing of
        it is stored there."""
        logger.warning("{}: rejected a message: {}", entry.message.session_key, error)
        if entry.message.expects_answer:
            await self.turns.answer_command(entry, Answer(str(error), failed=True))
        else:
            await self.turns.drop_waiting(entry)

    def _hold(self, entry: InboxEntry, error: StorageError) -> None:
        """Delay a message whose conversation or files can't be read or stored. Notify its sender
        once."""
        was_notified = entry.reason == str(error) or self._parts.bus.hold_reason is error
        if not was_notified:
            self._notify_refusal(entry.message, error)
        self._delay(replace(entry, reason=str(error)), DISK_PAUSE)

    def _notify_refusal(self, inbound: InboundMessage, error: StorageError) -> None:
        """Notify the sender of a message, if a person, that the disk rejected it."""
        logger.error("session {}: {}", inbound.session_key, error)
        show, is_owners = self._parts.screen.show_progress, self._parts.scopes.is_owners
        if inbound.expects_answer:
            show(refusal_notice(inbound, error, is_owners))
        show(turn_ended(inbound, "", (inbound.answered_event,), "held"))

    async def _run_turn(self, entry: InboxEntry) -> None:
        """Run a turn until it ends or waits for the model or the disk. All log lines of the turn
        and of the work it starts carry its ID."""
        key = entry.message.session_key
        turn = RunningTurn(entry, self._parts)
        turn.has_asked = self._suspects.pop(key, turn.has_asked)
        self.turns.running[key] = turn  # from now on `/stop` finds it
        TURN.set(turn.id)
        try:
            turn.session, turn.scope = await self._parts.admission.admit(entry.message)
            postponed = await self.turns.respond(turn)
            if postponed is not None:
                async with turn.ending:
                    if turn.open:  # otherwise `/stop` has ended it
                        self._delay(postponed.entry, postponed.seconds)
            if is_internal(key):
                trimming = self._parts.consolidator.trim(turn.session)
                self._background.start(trimming, name=f"trim {key}")
        except (TurnStopped, StorageError) as error:
            # `stop` has stored its end. Only a question to the owner may not be stored.
            refused = error.__cause__ if isinstance(error, TurnStopped) else error
            async with turn.ending:
                if turn.open and isinstance(refused, StorageError):
                    self._hold(turn.as_entry(), refused)
        finally:
            turn.has_asked.set()
            if self.turns.running.get(key) is turn:
                del self.turns.running[key]
            self._notify_behind(key)

    async def _run_command(self, command: Command, arguments: str, entry: InboxEntry) -> None:
        message, admission = entry.message, self._parts.admission
        try:
            session, scope = await admission.admit(message)
        except SessionDamaged:
            sessions = self._parts.sessions
            if command.name != "new" or not await sessions.renew_damaged(message.session_key):
                raise
            session, scope = await admission.admit(message)
        session.begin_turn()
        admission.identify(session, message, scope)

        async def begin_once() -> None:
            if entry.runs or entry.id in self._begun:
                raise NanobotError(
                    "I was interrupted while running this command, so it may have taken effect",
                    hint="Check before you send it again.",
                )
            begin = partial(self._parts.journal.begin_command, entry.id)
            await self._parts.bus.until_stored(message, begin)
            self._begun.add(entry.id)

        call = CommandCall(arguments, message, session, scope, entry.id, begin_once)
        answer = await answer_of(command, call)
        if answer.failed:
            session.rollback()
        await self.turns.answer_command(entry, answer, session)
        if answer.republish:  # until `accept` gets it
            self._queue.pause(session.key)
        self._begun.discard(entry.id)

    def _notify_behind(self, key: str) -> None:
        """Notify the terminals whose messages arrived before the first one was delayed."""
        if (held := self._queue.find_delayed(key)) is not None:
            for entry in self._queue.list_behind(key):
                if entry.message.channel == TERMINAL:
                    self._notify_queued(entry, held)

    async def _handle_at_once(self, entry: InboxEntry) -> None:
        """Handle an entry that bypasses the lanes. Its command may read the session, which is empty
        if its file can't be read, but must not stage anything on it."""
        message = entry.message
        SCOPES.set((entry.scope,))
        match = None if message.delivery.deletes else self._commands.find_call(message)
        try:
            if match is None:
                await self._handle_deletion(entry)
                return
            key, scopes, session = message.session_key, self._parts.scopes, None
            with suppress(StorageError):
                session = await self._parts.sessions.get_or_create(key)
            known = session.metadata if session else {}
            if scopes.expect_own(message, key, known):  # the next message sets it aside
                session = None
            session = session or Session(key, self._parts.clock)
            scope = scopes.of_message(message, key, known)
            call = CommandCall(match[1], message, session, scope, entry.id, outcome=entry.outcome)
            await self.turns.answer_command(entry, await answer_of(match[0], call))
        except OthersConversation as error:
            await self._refuse(entry, error)

    async def _handle_deletion(self, entry: InboxEntry) -> None:
        """Handle the deletion of a message. A pending message is dropped without a trace. A turn
        that answers only this message is stopped."""
        key, message = entry.message.session_key, entry.message

        def is_meant(other: InboxEntry) -> bool:
            same_sender = other.message.sender_id == message.sender_id and not other.joined
            return same_sender and message.delivery.deletes in (
                other.message.event_id,
                other.message.delivery.edits,
            )

        turn = self.turns.running.get(key)
        if turn is not None and len(turn.entries) == 1 and is_meant(turn.entries[0]):
            await self.turns.stop(turn)
        dropped = self._queue.remove_waiting(key, is_meant)
        try:
            for one in (*dropped, entry):
                await self.turns.drop_waiting(one)
        finally:  # messages behind the dropped ones go on
            if dropped:
                self._resume(key)


async def answer_of(command: Command, call: CommandCall) -> Answer:
    """Run a command and return its answer, cleaned for display. A failure becomes an answer."""
    try:
        answer = await command.run(call)
        return replace(answer, text=clean(answer.text))
    except NanobotError as error:
        shown = error.redact_for(is_owner=call.scope == OWNER)
        return Answer(clean(shown.for_people()), failed=True)
    except Exception as error:  # noqa: BLE001 - the boundary: a broken command becomes an apology
        logger.opt(exception=error).error("/{} failed", command.name)
        return Answer(failure_text(error, is_owner=call.scope == OWNER), failed=True)
