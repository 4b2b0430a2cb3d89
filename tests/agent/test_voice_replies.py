"""Spoken replies: in chats that play voice messages, and in a terminal on request."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.agent.media import MediaStore
from nanobot.agent.notifier import MessageSplitter
from nanobot.agent.voice_replies import VoiceReplies
from nanobot.bus.events import InboundMessage, Media, Origin, OutboundPart
from nanobot.channel import Limits
from nanobot.messages import Message, ToolCall
from nanobot.security.sandbox import SandboxFinder
from nanobot.session.session import Session
from nanobot.testing import FakeClock
from nanobot.testing.channel import FakeChannel
from nanobot.voice.engines import Speech, SpeechLimits
from nanobot.voice.programs import Programs
from nanobot_cli.channel import CliChannel
from tests.voice.support import opus

RECORDING = Media("1", "voice", "audio/ogg")


class Replies:
    """Conversations that are answered "Good **morning**." """

    def __init__(self, home: Path) -> None:
        store, clock = MediaStore(home / "media"), FakeClock()
        playing = FakeChannel("playing", limits=Limits(voice=True))
        channels = {one.name: one for one in (CliChannel(), playing, FakeChannel("mute"))}
        programs = Programs(SandboxFinder("auto", home), home / "voice")
        speech = Speech(self._speak, programs, SpeechLimits())
        split = MessageSplitter(channels, store)
        self.voice_replies = VoiceReplies(speech, store, split, "always")
        self._clock = clock
        self.sessions = {name: Session(f"{name}:1", clock) for name in channels}

    async def _speak(self, words: str) -> bytes:
        return opus(content=words.encode())

    def words(
        self, channel: str, *, wish: str = "", forwarded_from: str = "", temporary: bool = False
    ) -> list[str]:
        """Return the words of the answer's voice message."""
        place, now = (channel, "1", "7", "", "e1"), self._clock.now()
        forwarded, origin = forwarded_from, Origin(off_record=temporary)
        message = InboundMessage(
            *place, now, media=(RECORDING,), forwarded_from=forwarded, origin=origin
        )
        call = ToolCall("1", "voice", f'{{"when": "{wish}"}}')
        messages = [Message("assistant", "", tool_calls=(call,))] if wish else []
        session, text = self.sessions[channel], "Good **morning**."
        found = self.voice_replies.follow_up(session, message, [message], messages, text)
        return [OutboundPart.of("k", part, (), True).words for one in found for part in one.parts]


@pytest.fixture
def replies(tmp_path: Path) -> Replies:
    return Replies(tmp_path)


def test_no_reply_in_a_temporary_chat_is_aloud_as_its_words_would_be_stored(
    replies: Replies,
) -> None:
    assert replies.words("playing", wish="once", temporary=True) == []
    assert replies.words("playing", wish="once") == ["Good morning."]


def test_every_reply_is_aloud_where_that_is_set_and_the_chat_plays_it(replies: Replies) -> None:
    assert replies.words("playing") == ["Good morning."]
    assert replies.words("mute") == []
    assert replies.words("mute", wish="once") == []


def test_in_a_terminal_only_a_wish_counts(replies: Replies) -> None:
    assert replies.words("cli") == []
    assert replies.words("cli", wish="once") == ["Good morning."]
    assert replies.words("cli", wish="on") == ["Good morning."]


def test_the_last_wish_of_a_turn_counts_and_nonsense_is_none(replies: Replies) -> None:
    assert replies.words("playing", wish="off") == []
    assert replies.words("cli", wish="nonsense") == []


def test_a_recording_that_is_passed_on_is_no_speech_of_this_person(replies: Replies) -> None:
    replies.voice_replies.when = "spoken"
    assert replies.words("playing", forwarded_from="Ada") == []
    assert replies.words("playing") == ["Good morning."]
