"""Titles by a model, only if `use.titles` names one.

After the first answer in a conversation, the model is asked once, in the background. If that fails,
the first words stay the title."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loguru import logger
from msgspec import Struct

from nanobot.errors import NanobotError
from nanobot.messages import Message
from nanobot.providers.port import CallOptions, Prompt, Provider, Toolset, user_message
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.session.titles import OPENING, TITLE, plain_line, read_opening
from nanobot.tasks import Background

_REQUEST = (
    "Write a title for the conversation below: two to six words, in its language, without quotes. "
    "Answer only with the title.\n\n"
)
_MOST = 1_000
"""Characters of the first message and of its answer."""


class TitleWriter(Struct, frozen=True):
    """Asks `provider` for titles."""

    provider: Provider
    sessions: SessionManager
    background: Background

    def begin(self, session: Session, turn_id: str) -> None:
        """Write the title of a conversation that began with this answered turn."""
        opening = read_opening(session.metadata, session.epoch_seq)
        if opening is None or session.metadata.get(TITLE):
            return
        messages = [one for one in session.messages if one.turn_id == turn_id]
        if any(one.seq == opening["seq"] for one in messages):
            writing = self._write(session, opening, messages)
            self.background.start(writing, name=f"title {session.key}")

    async def _write(
        self, session: Session, opening: Mapping[str, Any], messages: Sequence[Message]
    ) -> None:
        spoken = [one for one in messages if one.role != "tool" and one.content]
        said = "\n\n".join(f"{one.role}: {one.content[:_MOST]}" for one in spoken)
        prompt = Prompt((user_message(f"{_REQUEST}{said[: 4 * _MOST]}"),), Toolset.of([]))
        try:
            reply = await self.provider.complete(prompt, CallOptions(use="titles"))
            title = plain_line(reply.text.strip().strip("\"'“”«»"))
            if title and session.metadata.get(OPENING) == opening:
                await self.sessions.change_metadata(session, opening={**opening, TITLE: title})
        except NanobotError as error:
            logger.info("{}: no title: {}", session.key, error)
