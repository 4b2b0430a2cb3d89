"""Transcribers and speakers: programs with placeholders in their commands, and the conversions
between the formats of chats and programs.

Chats use OGG/Opus, but most programs read and write WAV. So `{wav}` in a command is the recording
as WAV (16 kHz, one channel), and spoken WAV becomes OGG/Opus. opus-tools or ffmpeg convert in the
same sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from nanobot.providers.speech import sound_suffix
from nanobot.voice import VoiceFailed
from nanobot.voice.programs import (
    MEGABYTE,
    Desk,
    Program,
    Programs,
    fill_placeholders,
    find_installed,
)
from nanobot.voice.sound import (
    clean_transcript,
    extract_speakable,
    is_ogg_opus,
    is_wav,
    opus_seconds,
)

_MOST_TEXT = 400_000
_HEARD_CHARACTERS = 100_000
_MOST_WAV = 250 * MEGABYTE
MOST_RECORDED = 20 * MEGABYTE
"""Bytes of a recording: Telegram gives bots no larger file."""
_NO_CONVERTER = "Install opus-tools or ffmpeg (`apt-get install opus-tools`)."

FindProgram = Callable[[str], str]
"""Returns the path of a program, or an empty text if it is not installed."""


class ProgramTranscriber:
    """Transcribes with a program. Recordings of more than `max_bytes` are rejected."""

    def __init__(
        self,
        programs: Programs,
        program: Program,
        *,
        max_bytes: int = MOST_RECORDED,
        find: FindProgram = find_installed,
    ) -> None:
        self._programs, self._program, self._find = programs, program, find
        self._max_bytes = max_bytes

    async def transcribe(self, audio: bytes, mime: str = "", name: str = "") -> str:
        """Return the words in `audio`, empty for silence. The sender's `name` and `mime` only
        select the suffix of a known format. Raise `VoiceFailed` and `StorageError`."""
        if len(audio) > self._max_bytes:
            raise VoiceFailed(
                f"the recording is too large to transcribe ({len(audio):,} bytes)",
                hint=f"The limit is {self._max_bytes:,} bytes.",
            )
        command = self._program.command
        async with self._programs.desk(self._program) as desk:
            recorded = f"recording.{sound_suffix(mime, name)}"
            await desk.put(recorded, audio)
            if any("{wav}" in argument for argument in command):
                await self._convert_to_wav(desk, recorded, audio)
            places = {"input": recorded, "wav": "input.wav", "output": "output.txt"}
            argv = fill_placeholders(
                command, {key: desk.path(file) for key, file in places.items()}
            )
            said = await desk.run(argv, most=_MOST_TEXT)
            if any("{output}" in argument for argument in command):
                said = await desk.take("output.txt", _MOST_TEXT)  # stdout was only progress
        return clean_transcript(said, _HEARD_CHARACTERS)

    async def _convert_to_wav(self, desk: Desk, recorded: str, audio: bytes) -> None:
        source, result = desk.path(recorded), desk.path("input.wav")
        if is_ogg_opus(audio) and (opusdec := self._find("opusdec")):  # smaller than ffmpeg
            argv = [opusdec, "--quiet", "--rate", "16000", source, result]
        elif ffmpeg := self._find("ffmpeg"):
            argv = [ffmpeg, "-nostdin", "-v", "error", "-y", "-i", source]
            argv += ["-vn", "-ac", "1", "-ar", "16000", "-f", "wav", result]
        elif is_wav(audio):
            await desk.put("input.wav", audio)
            return
        else:
            what = "a voice message" if is_ogg_opus(audio) else "this recording"
            # opusdec reads only Opus
            hint = _NO_CONVERTER if is_ogg_opus(audio) else "Install ffmpeg."
            raise VoiceFailed(f"no program that converts {what} to WAV is installed", hint=hint)
        await desk.run(argv, most=_MOST_TEXT)


class ProgramSpeaker:
    def __init__(self, programs: Programs, program: Program) -> None:
        self._programs, self._program = programs, program

    async def speak(self, text: str) -> bytes:
        """Return the sound of `text` in any format. Raise `VoiceFailed` and `StorageError`."""
        command, stdin = self._program.command, text.encode("utf-8", "replace")
        async with self._programs.desk(self._program) as desk:
            if any("{input}" in argument for argument in command):
                await desk.put("input.txt", stdin)
                stdin = b""
            places = {"input": desk.path("input.txt"), "output": desk.path("output.wav")}
            sound = await desk.run(fill_placeholders(command, places), stdin, most=_MOST_WAV)
            if any("{output}" in argument for argument in command):
                sound = await desk.take("output.wav", _MOST_WAV)
        return sound


class SpeechLimits(Struct, frozen=True):
    """The first `characters` of a reply are spoken. The sound has at most `seconds` and `bytes`."""

    characters: int = 1_500
    seconds: float = 300.0
    bytes: int = 10 * MEGABYTE


class Speech:
    """Makes a voice message from a reply. `speak` returns the sound, and `programs` convert WAV."""

    def __init__(
        self,
        speak: Callable[[str], Awaitable[bytes]],
        programs: Programs,
        limits: SpeechLimits | None = None,
        find: FindProgram = find_installed,
    ) -> None:
        self._speak, self._programs, self._find = speak, programs, find
        self._limits = limits or SpeechLimits()

    def words(self, reply: str) -> str:
        """Return the speakable words of a reply, or an empty text."""
        return extract_speakable(reply, self._limits.characters)

    async def say(self, words: str) -> bytes:
        """Return a complete voice message within the limits. Raise `NanobotError`."""
        sound = await self._speak(words)
        if is_wav(sound):
            sound = await self._convert_to_opus(sound)
        elif not is_ogg_opus(sound):
            raise VoiceFailed("the speech is neither OGG/Opus nor WAV")
        if len(sound) > self._limits.bytes:
            raise VoiceFailed(f"the speech is too large ({len(sound):,} bytes)")
        if (seconds := opus_seconds(sound)) > self._limits.seconds:
            raise VoiceFailed(f"the speech is too long ({seconds:.0f} seconds)")
        return sound

    async def _convert_to_opus(self, sound: bytes) -> bytes:
        if opusenc := self._find("opusenc"):
            program = Program((opusenc, "--quiet", "--bitrate", "32", "--downmix-mono"))
            files = ["{input}", "{output}"]
            if int.from_bytes(sound[4:8], "little") + 8 > len(sound):  # written to a pipe
                files = ["--ignorelength", *files]
        elif ffmpeg := self._find("ffmpeg"):
            program = Program((ffmpeg, "-nostdin", "-v", "error", "-y"))
            files = ["-i", "{input}", "-ac", "1", "-c:a", "libopus", "-b:a", "32k", "{output}"]
        else:
            raise VoiceFailed(
                "no program that converts WAV to OGG/Opus is installed", hint=_NO_CONVERTER
            )
        async with self._programs.desk(program) as desk:
            await desk.put("speech.wav", sound)
            places = {"input": desk.path("speech.wav"), "output": desk.path("speech.ogg")}
            await desk.run(fill_placeholders([*program.command, *files], places), most=_MOST_TEXT)
            return await desk.take("speech.ogg", self._limits.bytes)
