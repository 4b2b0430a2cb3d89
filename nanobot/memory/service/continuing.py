"""`/continue`: carries a conversation over from another one with the same person.

What is copied is the other conversation's tail that memory does not hold yet; the other one stays
as it is. The copy is one turn of this conversation, so that `/undo` takes it back. Only
conversations of the same scope are reached, and never from a group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from nanobot.commands import Answer, CommandCall
from nanobot.memory.scopes import Scopes, is_group
from nanobot.memory.service.views import count, minute, one_line
from nanobot.messages import Message
from nanobot.session.catalogue import SessionInfo
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session

_SHOWN = 10
_PREVIEW = 60


class ContinueCommand:
    """The command's work; it reads other sessions and writes only to the one it is called in."""

    def __init__(self, sessions: SessionManager, scopes: Scopes) -> None:
        self._sessions, self._scopes = sessions, scopes

    async def run(self, call: CommandCall) -> Answer:
        """Copy the conversation that the argument names, or list those that there are."""
        scope = self._scopes.serving(call.message, call.session.key, call.session.metadata)
        if is_group(scope):
            return Answer("/continue works in a private chat only.")
        others = await asyncio.to_thread(self._linked, scope, call.session.key)
        if not others:
            return Answer("There is no other conversation of yours to continue.")
        if not call.arguments:
            return Answer(await self._listed(others))
        wanted = next((info for info in others if info.key == call.arguments.strip()), None)
        if wanted is None:
            listed = await self._listed(others)
            return Answer(f"You have no other conversation of that name.\n\n{listed}")
        tail = await self._tail(wanted.key)
        return Answer(_copied(call.session, call.entry_id, wanted.key, tail))

    def _linked(self, scope: str, own: str) -> list[SessionInfo]:
        """Conversations with the same person, the latest first. Blocks."""
        infos = {info.key: info for info in self._sessions.list_sessions() if info.key != own}
        # Whose it is stands in the session itself: a key may look like a person and be a group.
        known = ((key, self._sessions.metadata_of(key)) for key in infos)
        return [infos[key] for key in self._scopes.linked(scope, known)]

    async def _tail(self, key: str) -> tuple[Message, ...]:
        messages = (await self._sessions.get_or_create(key)).messages
        first = next((at for at, m in enumerate(messages) if m.role == "user"), len(messages))
        return messages[first:]

    async def _listed(self, infos: Sequence[SessionInfo]) -> str:
        lines = [
            f"- `/continue {info.key}`: {minute(info.updated_at)}, "
            f"{count(len(await self._tail(info.key)), 'message')}, "
            f"“{one_line(info.preview, _PREVIEW)}”"
            for info in infos[:_SHOWN]
        ]
        return "\n".join(["Your other conversations, the latest first:", "", *lines])


def _copied(session: Session, entry_id: int, key: str, tail: Sequence[Message]) -> str:
    """Stage what is new here of the conversation `key`; what was done, in words."""
    here = {(m.timestamp, m.role, m.content, m.tool_call_id) for m in session.messages}
    new = [m for m in tail if (m.timestamp, m.role, m.content, m.tool_call_id) not in here]
    if not new:
        return f"Nothing of {key} is missing here; what is older is in memory."
    for message in new:
        session.add_message(replace(message, seq=0, turn_id=f"continue-{entry_id}"))
    are = "is" if len(new) == 1 else "are"
    return (
        f"{count(len(new), 'message')} of {key} {are} here now; go on where you were. "
        "/undo takes them back."
    )
