"""The ends of messages: stored lines and outgoing replies, in one transaction each."""

from __future__ import annotations

import asyncio
from functools import partial

from nanobot.agent.notifier import late_head
from nanobot.agent.session_queue import turn_ended
from nanobot.agent.turn_state import AgentParts, turn_name
from nanobot.bus.events import PAGE, Button, InboundMessage, OutboundMessage
from nanobot.bus.journal import Committed, Completion, InboxEntry, Outgoing
from nanobot.commands import Answer
from nanobot.session.session import Session


class Completions:
    """Stores the ends of messages."""

    def __init__(self, parts: AgentParts) -> None:
        self._journal, self._bus, self._sessions = parts.journal, parts.bus, parts.sessions
        self._hook, self._clock, self._split = parts.hook, parts.clock, parts.split

    async def commit(
        self, message: InboundMessage, session: Session | None, completion: Completion
    ) -> Committed:
        """Make a completion durable, and what is staged on `session` visible with it."""
        commit = partial(self._bus.commit, completion)
        committed = await self._bus.until_stored(message, commit)
        if session is not None and committed.unfiled_id:
            saved = self._sessions.save(session)
            saved.add_done_callback(partial(self._clear_copy, committed.unfiled_id))
        return committed

    def _clear_copy(self, unfiled_id: int, saved: asyncio.Future[None]) -> None:
        """Once the session file has its lines; what it could not take, the next start files."""
        if not saved.cancelled() and saved.exception() is None:
            self._journal.mark_filed((unfiled_id,))

    async def drop_waiting(self, entry: InboxEntry) -> None:
        """End a message that waits as if it had never come."""
        turn_id = entry.turn_id or turn_name(entry, self._clock)
        report = "{}" if entry.turn_id else ""  # ends the turn that had begun
        key = entry.message.session_key
        done = Completion(turn_id, key, (entry.id,), "stopped", report=report)
        await self.commit(entry.message, None, done)

    async def answer_command(
        self, entry: InboxEntry, answer: Answer, session: Session | None = None
    ) -> None:
        """Commit a command's answer, and with it what the command staged on `session`."""
        inbound = entry.message
        turn_id = turn_name(entry, self._clock)
        event_ids = (inbound.answered_event,)
        reply = await self.outgoing(inbound, answer.text, event_ids, "reply", answer.buttons)
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
        committed = await self.commit(inbound, session, completion)
        if answer.text:
            self._hook(turn_ended(inbound, turn_id, event_ids, "done"))
        self._bus.forward(committed)
        if answer.afterwards is not None:
            answer.afterwards()

    async def outgoing(
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
        In a group, and after a delay (`late`), the text is a reply to its message, so that people
        see the connection. The page shows it without that."""
        reply_to = inbound.message_id if inbound.is_group or late else ""
        if late and text and inbound.expects_answer and not reply_to:
            head = "" if inbound.channel == PAGE else late_head(inbound, self._clock.now())
            text = f"{head}{text}"
        message = OutboundMessage(
            inbound.channel,
            inbound.chat_id,
            text,
            reply_to=reply_to,
            thread_id=inbound.thread_id,
            buttons=buttons,
            late=late,
        )
        return Outgoing(call, await self._split(message), event_ids)
