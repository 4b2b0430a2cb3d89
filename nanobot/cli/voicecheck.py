"""The check of `nanobot doctor` that tries voices: what one program says, the other has to hear.

Nothing of it is in the home, and servers are asked only where that is wanted, as models are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import nanobot
from nanobot.app.voice import Voice
from nanobot.channel import CheckFinding as Finding
from nanobot.cli.command import size
from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.errors import NanobotError
from nanobot.text import shortened

_WORDS = "One, two, three."
_SAMPLE = Path(nanobot.__file__).parent / "voice" / "sample.ogg"
"""Somebody who says "one two three four"."""
_SHOWN = 60


def try_voice(settings: Settings, clock: Clock, *, ask_servers: bool) -> Sequence[Finding]:
    """What became of it. Blocks."""
    with TemporaryDirectory(prefix="nanobot-voice-") as folder:
        voice = Voice(settings, clock, Path(folder) / "voice")
        return asyncio.run(_tried(voice, settings, ask_servers=ask_servers))


async def _tried(voice: Voice, settings: Settings, *, ask_servers: bool) -> Sequence[Finding]:
    sound, found = _SAMPLE.read_bytes(), list[Finding]()
    try:
        if voice.speech is not None and (settings.model.speech.command or ask_servers):
            try:
                sound = await voice.speech.say(_WORDS)
                said = f"“{_WORDS}” is a voice message of {size(len(sound))}"
                found.append(Finding("ok", said))
            except NanobotError as error:
                found.append(Finding("fail", f"speech: {error}", error.hint))
        if voice.listener is not None and (settings.model.transcription.command or ask_servers):
            try:
                found.append(_heard(await voice.listener.transcribe(sound, "audio/ogg")))
            except NanobotError as error:
                found.append(Finding("fail", f"transcription: {error}", error.hint))
    finally:
        for part in voice.closables:
            await part.close()
    return found or [Finding("ok", "servers, which --ask-model tries")]


def _heard(text: str) -> Finding:
    if not text:
        return Finding("warn", "in a recording nothing is heard", "Try another model.")
    return Finding("ok", f"in a recording it hears “{shortened(text, _SHOWN)}”")
