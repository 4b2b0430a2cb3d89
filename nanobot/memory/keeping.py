"""Marks to keep: a person says of a message that it matters, and it ranks higher in search and is
learned from first.

They say it with `/note` (of the message that they reply to, or else of their last one), with a
reaction, which a channel hands on as that command, or in words ("this is important"), for which the
model calls the tool `note`. A mark is a line of the session's file (`session.records.Mark`). It
says how much a message matters and nothing about trust: what came from elsewhere stays so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from nanobot.bus.events import Quote
from nanobot.bus.sql_journal import Journal
from nanobot.commands import CommandCall
from nanobot.errors import CallRefused
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.text import one_line
from nanobot.tooling import TurnContext

_QUOTED = 80
"""Characters of a quoted text by which its message is known again."""


class Keeping:
    """Finds the message that is meant, and marks it."""

    def __init__(self, sessions: SessionManager, journal: Journal) -> None:
        self._sessions, self._journal = sessions, journal

    async def mark(self, call: CommandCall, *, kept: bool) -> Message | None:
        """Mark the message that a command speaks of, or take its mark away; the message, None where
        it is not found or was not marked. Raises `StorageError`."""
        message, quote = call.message, call.message.reply_to
        if quote is not None:
            found = await self._quoted(call, quote)
        else:
            said = (one for one in call.session.messages if kept or one.kept)
            found = _last(one for one in said if one.from_person and not one.is_others)
        if found is None or not (kept or found.kept):
            return None
        via = "a reaction" if message.unanswered else "/note"
        await self._mark(call.session, found, kept=kept, by=message.sender_id, via=via)
        return found

    async def mark_said(self, words: str, caller: TurnContext) -> Message:
        """Mark the newest message before this turn that holds these words and that the person
        wrote, or the model where it had read nothing from elsewhere. In a group who spoke last must
        be the owner. Raises `CallRefused`."""
        wanted, is_tainted = _plain(words), bool(caller.origins())
        read = list(caller.messages_read())
        last = next((one for one in reversed(read) if one.from_person), None)
        if last is not None and last.is_others:
            raise CallRefused("what is important is the owner's to say")

        def is_meant(one: Message) -> bool:
            is_clean_answer = one.role == "assistant" and not is_tainted
            text = one.content if is_clean_answer else one.own_words
            return bool(one.seq and text) and wanted in _plain(text)

        found = _last(filter(is_meant, read))
        if found is None or not wanted:
            raise CallRefused(
                f"no earlier message in this conversation has the words {words.strip()[:80]!r}",
                hint="Give its first words exactly; what the newest message says goes into `text`.",
            )
        session = await self._sessions.get_or_create(caller.session_key)
        await self._mark(session, found, kept=True, by=caller.sender_id, via="their words")
        return found

    async def _mark(
        self, session: Session, message: Message, *, kept: bool, by: str, via: str
    ) -> None:
        if message.kept != kept:
            await self._sessions.mark(session, message.seq, kept=kept, by=by, via=via)

    async def _quoted(self, call: CommandCall, quote: Quote) -> Message | None:
        """The message that is replied to: by its id, or else by its text among the latest."""
        session, where, turn = call.session, call.message, None
        if quote.message_id:
            turn = await self._journal.find_turn(where.channel, where.chat_id, quote.message_id)
        if turn is not None and turn.session_key == session.key:
            stored = await asyncio.to_thread(self._sessions.read_window, session.key)
            left = [one for one in stored if one.turn_id == turn.turn_id]
            return _in_turn(left, turn.position)
        text = _plain(quote.text)[:_QUOTED]
        return _last(one for one in session.messages if text and text in _plain(one.content))


def _in_turn(messages: Sequence[Message], position: int) -> Message | None:
    """The message of a turn that was the one at `position` of those received, or its answer."""
    if position < 0:
        return _last(one for one in messages if one.role == "assistant" and one.content)
    received = [one for one in messages if one.from_person]
    return received[min(position, len(received) - 1)] if received else None


def _last(messages: Iterable[Message]) -> Message | None:
    return max(messages, key=lambda one: one.seq, default=None)


def _plain(text: str) -> str:
    return one_line(text, None).casefold()
