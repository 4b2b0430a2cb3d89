"""Voice replies: when they are sent, and how they are made.

The text is sent first and is kept in the conversation. The voice message follows as a separate
message with its own outbox row. The row holds the words, and the sound is made just before it is
sent. So a slow or broken voice neither delays nor loses a text, and a sound interrupted by a crash
is made again. If it can't be made, it is left out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.agent.media import MediaStore
from nanobot.agent.notifier import MessageSplitter
from nanobot.bus.events import TERMINAL, InboundMessage, Media, OutboundMessage, OutboundPart
from nanobot.bus.journal import Outgoing
from nanobot.commands import Answer, Command, CommandCall, CommandRegistry
from nanobot.errors import NanobotError, ToolError
from nanobot.memory.scopes import OWNER
from nanobot.messages import Message
from nanobot.session.records import JsonValue
from nanobot.session.session import Session
from nanobot.tooling import Arguments, Tool, ToolResult, TurnContext
from nanobot.tooling.registry import parse_arguments

if TYPE_CHECKING:
    from nanobot.voice.engines import Speech

VOICE = "voice"
"""Name of the tool, the command and the session metadata."""

When = Literal["off", "spoken", "always"]
Wish = Literal["once", "on", "off", "auto"]

_FILE = "reply.ogg"
_ANSWERS: dict[str, str] = {
    "on": "Replies here are also sent as voice messages. To stop this, send /voice off.",
    "off": "Replies here are text only. To restore the default, send /voice auto.",
}
_AUTO: dict[When, str] = {
    "off": "Replies here are text only unless you ask for a voice message.",
    "spoken": "Voice messages get a voice reply in addition to the text.",
    "always": "Replies here are also sent as voice messages.",
}


class VoiceReplies:
    """Choice of the spoken replies, and their voice messages. `when` is the default of
    conversations that have no setting. In a terminal the default is off, as each reply would leave
    a file."""

    def __init__(
        self, speech: Speech, store: MediaStore, split: MessageSplitter, when: When
    ) -> None:
        self._speech, self._store, self._split, self.when = speech, store, split, when
        self._problem = ""

    def _setting(self, channel: str) -> When:
        return "off" if channel == TERMINAL else self.when

    def reaches(self, channel: str) -> bool:
        """Return True if people can hear voice messages on a channel."""
        return self._split.limits_of(channel).voice

    def follow_up(
        self,
        session: Session,
        inbound: InboundMessage,
        answered: Iterable[InboundMessage],
        messages: Sequence[Message],
        text: str,
    ) -> tuple[Outgoing, ...]:
        """Return the voice message of a turn that answers `text`, if there is to be one. `messages`
        are the turn's: a lasting request to the model about its voice is staged on `session`."""
        if inbound.is_temporary:  # the row and the sound would be stored
            return ()
        wish, kept = _wish_in(messages), session.metadata.get(VOICE)
        if wish in ("on", "off", "auto"):
            kept = None if wish == "auto" else wish
            session.set_metadata(voice=kept)
        if wish != "once" and kept != "on" and not self._is_on_by_default(kept, inbound, answered):
            return ()
        words = self._words(text) if self.reaches(inbound.channel) else ""
        if not words:
            return ()
        place = (inbound.channel, inbound.chat_id)
        voice = Media.to_speak(words)
        message = OutboundMessage(*place, "", (voice,), thread_id=inbound.thread_id)
        return (Outgoing(VOICE, (message,)),)

    def _is_on_by_default(
        self, kept: JsonValue, inbound: InboundMessage, answered: Iterable[InboundMessage]
    ) -> bool:
        """Return True if an answer is spoken without a request."""
        when = self._setting(inbound.channel)
        spoken = when == "always" or (when == "spoken" and any(map(_is_spoken, answered)))
        return kept != "off" and spoken

    def _words(self, text: str) -> str:
        try:
            return self._speech.words(text)
        except Exception as error:  # noqa: BLE001 - the boundary: what cannot be read is still sent
            logger.opt(exception=error).error("could not prepare an answer for speech")
            return ""

    async def add_sound(self, part: OutboundPart) -> OutboundPart | None:
        """Make the sound of a part that has words, so that it can be sent. Return None on
        failure."""
        if not part.words:
            return part
        try:
            sound = await self._speech.say(part.words)
            file = await asyncio.to_thread(self._store.put_outgoing, sound, _FILE)
        except Exception as error:  # noqa: BLE001 - the boundary: the text has been sent
            hint = error.hint if isinstance(error, NanobotError) else ""
            self._problem = f"{error or type(error).__name__} {hint}".strip()
            logger.warning("{}: could not make a voice message: {}", part.key, self._problem)
            return None
        self._problem = ""
        return replace(part, media=(file,))

    def register(self, registry: CommandRegistry) -> None:
        summary = "Turn voice replies on or off in this chat"
        registry.register(Command(VOICE, summary, self._command, "[on|off|auto]"))

    async def _command(self, call: CommandCall) -> Answer:
        wanted = call.arguments.strip().lower()
        if wanted not in ("", "on", "off", "auto"):
            return Answer("Usage: /voice on, /voice off, or /voice auto")
        if not self.reaches(call.message.channel):
            return Answer("This chat does not support voice messages.")
        if wanted:
            call.session.set_metadata(voice=None if wanted == "auto" else wanted)
        kept = wanted or str(call.session.metadata.get(VOICE) or "auto")
        text = _ANSWERS.get(kept, _AUTO[self._setting(call.message.channel)])
        if self._problem and call.scope == OWNER:  # it may contain paths
            text += f"\nThe last voice message failed: {self._problem}"
        return Answer(text)


def _is_spoken(message: InboundMessage) -> bool:
    """Return True if the sender spoke the message. A forwarded recording does not count."""
    spoken = any(file.kind == "voice" for file in message.media)
    return spoken and not message.forwarded_from


def _wish_in(messages: Sequence[Message]) -> str:
    """Return the model's last voice request in a turn, or ""."""
    calls = [call for message in messages for call in message.tool_calls if call.name == VOICE]
    for call in reversed(calls):
        try:
            return parse_arguments(VoiceArguments, call.arguments).when
        except ToolError:  # the model has seen the error
            continue
    return ""


class VoiceArguments(Arguments, frozen=True):
    when: Wish


class VoiceTool(Tool, Struct, frozen=True):
    """Tool that changes nothing itself. Its arguments are read when the turn ends, so that a crash
    in between loses nothing."""

    voice_replies: VoiceReplies
    name = VOICE
    description = (
        "Have your answer read aloud as a voice message too, when the person asks for that: once, "
        "or from now on (on, off; auto: as set up)."
    )
    arguments = VoiceArguments

    async def __call__(self, arguments: VoiceArguments, caller: TurnContext) -> ToolResult:
        if caller.is_temporary or not self.voice_replies.reaches(caller.channel):
            raise ToolError(
                "this chat does not support voice messages", hint="Write the answer as text."
            )
        if arguments.when in ("once", "on"):
            text = "Your answer is read aloud as well: just write it, as one would say it."
        else:
            text = "Done, from this answer on."
        return ToolResult(text, trusted=True)
