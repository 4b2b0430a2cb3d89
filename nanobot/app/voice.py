"""Speech recognition and synthesis from the settings, loaded only if configured."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.channel import Operation
from nanobot.clock import Clock
from nanobot.commands import text_argument
from nanobot.config.model import SideModel, SpeechSettings, TranscriptionSettings
from nanobot.config.settings import Settings
from nanobot.errors import NanobotError
from nanobot.io import storage_errors

if TYPE_CHECKING:
    from nanobot.providers.endpoint import Endpoint
    from nanobot.providers.speech import SpeechModel
    from nanobot.security.sandbox import SandboxFinder
    from nanobot.voice.engines import ProgramSpeaker, ProgramTranscriber, Speech
    from nanobot.voice.programs import Program

FOLDER = "voice"
"""Working folder of programs, in a home's state folder."""


def endpoint_of(wanted: SideModel, section: str) -> Endpoint:
    """Return the model server that a `section` of the settings names."""
    from nanobot.providers.endpoint import Endpoint

    key = wanted.api_key.get_secret_value().strip()
    return Endpoint(wanted.base_url, wanted.model, key, settings=section)


class Voice:
    """The configured listener and speaker. `speech` uses the speaker. Programs work in a folder of
    the home, unless another one is given."""

    def __init__(self, settings: Settings, clock: Clock, folder: Path | None = None) -> None:
        listening, speaking = settings.model.transcription, settings.model.speech
        self.listener: ProgramTranscriber | SpeechModel | None = None
        self.speech: Speech | None = None
        self.closables: tuple[SpeechModel, ...] = ()
        """Programs have nothing to release: a running one ends with its caller."""
        speaker: ProgramSpeaker | SpeechModel
        if speaking.is_on or listening.command:
            from nanobot.voice.programs import Programs

            folder = folder or settings.home / "state" / FOLDER
            programs = Programs(sandbox_of_programs(settings), folder)
        if listening.command:
            from nanobot.voice.engines import ProgramTranscriber

            self.listener = ProgramTranscriber(programs, _program(listening))
        elif listening.model:
            from nanobot.providers.speech import SpeechModel

            server = endpoint_of(listening, "model.transcription")
            self.listener = ears = SpeechModel(server, clock, language=listening.language)
            self.closables += (ears,)
        if speaking.is_on:
            from nanobot.voice.engines import ProgramSpeaker, Speech

            if speaking.command:
                speaker = ProgramSpeaker(programs, _program(speaking))
            else:
                from nanobot.providers.speech import SpeechModel

                server = endpoint_of(speaking, "model.speech")
                speaker = SpeechModel(server, clock, voice=speaking.voice)
                self.closables += (speaker,)
            self.speech = Speech(speaker.speak, programs)

    def table(self) -> Mapping[str, Operation]:
        """Return the operations `transcribe` and `speak`, as far as they are set up."""
        table: dict[str, Operation] = {}
        if self.listener is not None:
            table["transcribe"] = partial(_transcribe, self.listener)
        if self.speech is not None:
            table["speak"] = partial(_speak, self.speech)
        return table


async def _transcribe(
    listener: ProgramTranscriber | SpeechModel, arguments: Mapping[str, object]
) -> dict[str, object]:
    """Return the words in the recording `file`, which has the type `mime`."""
    path, mime = Path(text_argument(arguments, "file")), text_argument(arguments, "mime")
    with storage_errors(path):
        sound = await asyncio.to_thread(path.read_bytes)
    return {"text": await listener.transcribe(sound, mime)}


async def _speak(speech: Speech, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the beginning of `text` as a `sound` in OGG/Opus, in base64."""
    words = speech.words(text_argument(arguments, "text"))
    if not words:
        raise NanobotError("this message has no words to read aloud")
    return {"sound": b64encode(await speech.say(words)).decode()}


def sandbox_of_programs(settings: Settings) -> SandboxFinder:
    """Return the sandbox for programs that others wrote, or that read untrusted files. It also
    applies if the owner runs the shell without one: each program's entry has its own setting."""
    from nanobot.security.sandbox import SandboxFinder

    wanted = settings.tools.exec.sandbox
    return SandboxFinder("auto" if wanted == "none" else wanted, *settings.folders)


def _program(wanted: TranscriptionSettings | SpeechSettings) -> Program:
    from nanobot.voice.programs import Program

    return Program(wanted.command, tuple(map(Path, wanted.read)), sandboxed=wanted.sandbox)
