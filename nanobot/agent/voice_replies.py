"""Replies that are said aloud as well: when, at whose wish, and how they come about.

The text goes out first and is what the conversation keeps; the voice message follows it as a
message of its own, with a row of its own in the outbox. That row holds the words: the sound is made
when it is about to be sent. So a voice that is slow or broken neither delays nor loses a text, and
one that a crash interrupted is made again. Where it cannot be made, it is left out.
"""

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
"""The name of the tool, of the command, and of what a conversation keeps of them."""

When = Literal["off", "spoken", "always"]
Wish = Literal["once", "on", "off", "auto"]

_FILE = "reply.ogg"
_ANSWERS: dict[str, str] = {
    "on": "Replies here are also sent as voice messages. To stop this, send /voice off.",
    "off": "Replies here are text only. To restore the default, send /voice auto.",
}
_AUTO: dict[When, str] = {
    "off": "Replies here are text only, unless you ask for a voice message.",
    "spoken": "Voice messages get a voice reply in addition to the text.",
    "always": "Replies here are also sent as voice messages.",
}


class VoiceReplies:
    """Decides for each reply, and makes its voice message. `when` holds where a conversation has no
    wish of its own; in a terminal, where a file would lie about for each reply, only wishes do."""

    def __init__(
        self, speech: Speech, store: MediaStore, split: MessageSplitter, when: When
    ) -> None:
        self._speech, self._store, self._split, self.when = speech, store, split, when
        self._problem = ""

    def _setting(self, channel: str) -> When:
        return "off" if channel == TERMINAL else self.when

    def reaches(self, channel: str) -> bool:
        """Whether people hear voice messages there."""
        return self._split.limits_of(channel).voice

    def follow_up(
        self,
        session: Session,
        inbound: InboundMessage,
        answered: Iterable[InboundMessage],
        messages: Sequence[Message],
        text: str,
    ) -> tuple[Outgoing, ...]:
        """The voice message of a turn that answers `text`, if there is to be one. `messages` are
        those of the turn: what the model was asked to do with its voice from now on is staged on
        `session`."""
        wish, kept = _wish_in(messages), session.metadata.get(VOICE)
        if wish in ("on", "off", "auto"):
            kept = None if wish == "auto" else wish
            session.set_metadata(voice=kept)
        if wish != "once" and kept != "on" and not self._by_setting(kept, inbound, answered):
            return ()
        words = self._words(text) if self.reaches(inbound.channel) else ""
        if not words:
            return ()
        place = (inbound.channel, inbound.chat_id)
        voice = Media.to_speak(words)
        message = OutboundMessage(*place, "", (voice,), thread_id=inbound.thread_id)
        return (Outgoing(VOICE, (message,)),)

    def _by_setting(
        self, kept: JsonValue, inbound: InboundMessage, answered: Iterable[InboundMessage]
    ) -> bool:
        """Whether an answer is spoken although nobody wished so."""
        when = self._setting(inbound.channel)
        spoken = when == "always" or (when == "spoken" and any(map(_is_spoken, answered)))
        return kept != "off" and spoken

    def _words(self, text: str) -> str:
        try:
            return self._speech.words(text)
        except Exception as error:  # noqa: BLE001 - the boundary: what cannot be read is still sent
            logger.opt(exception=error).error("could not prepare an answer for speech")
            return ""

    async def voiced(self, part: OutboundPart) -> OutboundPart | None:
        """A part whose words are spoken, so that it can be sent; None where that fails."""
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
        said = _ANSWERS.get(kept, _AUTO[self._setting(call.message.channel)])
        if self._problem and call.scope == OWNER:  # it may hold paths
            said += f"\nThe last voice message failed: {self._problem}"
        return Answer(said)


def _is_spoken(message: InboundMessage) -> bool:
    """Whether a person said it: a recording of somebody else's is passed on."""
    spoken = any(file.kind == "voice" for file in message.media)
    return spoken and not message.forwarded_from


def _wish_in(messages: Sequence[Message]) -> str:
    """What the model asked for last in a turn; empty where nothing."""
    calls = [call for message in messages for call in message.tool_calls if call.name == VOICE]
    for call in reversed(calls):
        try:
            return parse_arguments(VoiceArguments, call.arguments).when
        except ToolError:  # it was told so
            continue
    return ""


class VoiceArguments(Arguments, frozen=True):
    when: Wish


class VoiceTool(Tool, Struct, frozen=True):
    """Changes nothing by itself: what it was called with is read when the turn ends, so that a
    crash in between loses nothing."""

    voice_replies: VoiceReplies
    name = VOICE
    description = (
        "Have your answer read aloud as a voice message too, when the person asks for that: once, "
        "or from now on (on, off; auto: as set up)."
    )
    arguments = VoiceArguments

    async def __call__(self, arguments: VoiceArguments, caller: TurnContext) -> ToolResult:
        if not self.voice_replies.reaches(caller.channel):
            raise ToolError(
                "this chat does not support voice messages", hint="Write the answer as text."
            )
        if arguments.when in ("once", "on"):
            said = "Your answer is read aloud as well: just write it, as one would say it."
        else:
            said = "Done, from this answer on."
        return ToolResult(said, trusted=True)
