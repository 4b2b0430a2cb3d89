"""Who listens and who speaks, as the settings say: loaded only where they say so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nanobot.clock import Clock
from nanobot.config.model import SpeechSettings, TranscriptionSettings, VoiceProgram
from nanobot.config.settings import Settings

if TYPE_CHECKING:
    from nanobot.voice.engines import Speech
    from nanobot.voice.programs import Program, Programs

FOLDER = "voice"
"""In the state folder of a home: where programs work."""

_MEBIBYTE = 1024 * 1024


class Listener(Protocol):
    """What turns sound into text."""

    async def transcribe(self, audio: bytes, mime: str = "", name: str = "") -> str:
        """What is said; empty where nobody speaks. Raises `NanobotError`."""
        ...

    async def close(self) -> None:
        """Release what it holds."""
        ...


class Speaker(Protocol):
    """What turns text into sound."""

    async def speak(self, text: str) -> bytes:
        """Sound in whatever format. Raises `NanobotError`."""
        ...

    async def close(self) -> None:
        """Release what it holds."""
        ...


class Voice:
    """Both, as far as they are set up. `speech` uses the speaker. Programs work in a folder of the
    home, unless another one is given."""

    def __init__(self, settings: Settings, clock: Clock, folder: Path | None = None) -> None:
        listening, speaking = settings.model.transcription, settings.model.speech
        programs = None
        if speaking.is_on or listening.command:
            programs = _programs(settings, folder or settings.home / "state" / FOLDER)
        self.listener = _listener(listening, clock, programs)
        speaker = _speaker(speaking, clock, programs)
        self.speech: Speech | None = None
        if speaker is not None and programs is not None:
            from nanobot.voice.engines import Speech, SpeechLimits

            limits = SpeechLimits(
                speaking.max_characters,
                float(speaking.max_seconds),
                speaking.max_megabytes * _MEBIBYTE,
            )
            self.speech = Speech(speaker.speak, programs, limits)
        found = (self.listener, speaker)
        self.closables: tuple[Listener | Speaker, ...] = tuple(one for one in found if one)


def _programs(settings: Settings, folder: Path) -> Programs:
    from nanobot.security.sandbox.finding import SandboxFinder
    from nanobot.voice.programs import Programs

    # That the shell runs without a sandbox says nothing of programs that read what others sent.
    wanted = settings.tools.exec.sandbox
    finder = SandboxFinder("auto" if wanted == "none" else wanted, *settings.folders)
    return Programs(finder, folder)


def _program(wanted: VoiceProgram, seconds: float) -> Program:
    from nanobot.voice.programs import Program

    read = tuple(map(Path, wanted.read))
    return Program(wanted.command, read, seconds, wanted.memory_megabytes, wanted.sandbox)


def _listener(
    wanted: TranscriptionSettings, clock: Clock, programs: Programs | None
) -> Listener | None:
    most = wanted.max_megabytes * _MEBIBYTE
    if wanted.command and programs is not None:
        from nanobot.voice.engines import ProgramTranscriber

        program = _program(wanted, wanted.timeout_seconds)
        return ProgramTranscriber(programs, program, max_bytes=most)
    if not wanted.model:
        return None
    from nanobot.providers.endpoint import Endpoint
    from nanobot.providers.transcription import Transcriber

    key = wanted.api_key.get_secret_value().strip()
    return Transcriber(
        Endpoint(wanted.base_url, wanted.model, key, settings="model.transcription"),
        clock,
        language=wanted.language,
        timeout_seconds=wanted.timeout_seconds,
        max_bytes=most,
    )


def _speaker(wanted: SpeechSettings, clock: Clock, programs: Programs | None) -> Speaker | None:
    if wanted.command and programs is not None:
        from nanobot.voice.engines import ProgramSpeaker

        return ProgramSpeaker(programs, _program(wanted, wanted.timeout_seconds))
    if not wanted.model:
        return None
    from nanobot.providers.endpoint import Endpoint
    from nanobot.providers.speech import SpeechServer

    key = wanted.api_key.get_secret_value().strip()
    return SpeechServer(
        Endpoint(wanted.base_url, wanted.model, key, settings="model.speech"),
        clock,
        voice=wanted.voice,
        timeout_seconds=wanted.timeout_seconds,
        max_bytes=wanted.max_megabytes * _MEBIBYTE,
    )
