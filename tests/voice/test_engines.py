"""Transcribing and speaking with programs: their input, and rejected output."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nanobot.errors import ProviderGarbage, ProviderRejected
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.speech import SpeechModel
from nanobot.testing import FakeClock
from nanobot.voice import VoiceFailed
from nanobot.voice.engines import (
    ProgramSpeaker,
    ProgramTranscriber,
    Speech,
    SpeechLimits,
)
from nanobot.voice.programs import Program, Programs
from tests.doubles.openai.faults import refusal, server_error
from tests.doubles.openai.rules import ApiError
from tests.doubles.openai.server import FakeOpenAI
from tests.voice.support import LISTENER, opus, speaker, text_of_speech, wav


def listening(
    programs: Programs,
    *command: str,
    most: int = 1_000_000,
    find: Callable[[str], str] = lambda _: "",
) -> ProgramTranscriber:
    return ProgramTranscriber(programs, Program(command), max_bytes=most, find=find)


def speaking(programs: Programs, *command: str, limits: SpeechLimits | None = None) -> Speech:
    speak = ProgramSpeaker(programs, Program(command)).speak
    return Speech(speak, programs, limits or SpeechLimits(), lambda _: "")


async def test_what_a_program_prints_or_writes_is_what_was_said(programs: Programs) -> None:
    assert await listening(programs, *LISTENER).transcribe(b" buy milk\n") == "buy milk"
    assert await listening(programs, "cp", "{input}", "{output}").transcribe(b"hello") == "hello"
    assert await listening(programs, "true", "{input}").transcribe(b"hello") == ""


@pytest.mark.parametrize(
    ("mime", "name", "suffix"),
    [
        ("audio/mpeg", "", "mp3"),
        ("audio/ogg; codecs=opus", "", "ogg"),
        ("", "../../../etc/cron.d/evil; rm -rf ~ $(id) `id`\n\0.m4a", "m4a"),
        ("text/x-sh\r\n", "--output=/etc/passwd", "ogg"),
        ("", "\u202e \x1b[2J.exe", "ogg"),
    ],
)
async def test_a_program_learns_the_format_and_nothing_that_others_wrote(
    programs: Programs, mime: str, name: str, suffix: str
) -> None:
    telling = listening(programs, "sh", "-c", 'basename "$1"; ls', "sh", "{input}")
    assert await telling.transcribe(b"x", mime, name) == "\n".join([f"recording.{suffix}"] * 2)


async def test_what_is_too_large_is_not_given_to_it(programs: Programs) -> None:
    with pytest.raises(VoiceFailed, match=r"too large.*5 bytes") as failed:
        await listening(programs, *LISTENER, most=4).transcribe(b"hello")
    assert "limit is" in failed.value.hint


@pytest.mark.parametrize("garbage", ["head -c 100 /dev/urandom; printf '\\377'", "printf 'a\\0b'"])
async def test_garbage_is_never_taken_for_words(programs: Programs, garbage: str) -> None:
    with pytest.raises(VoiceFailed, match="not text"):
        await listening(programs, "sh", "-c", f"{garbage}; : {{input}}").transcribe(b"x")


async def test_without_a_converter_it_says_what_to_install(programs: Programs) -> None:
    with pytest.raises(VoiceFailed, match="converts a voice message to WAV") as failed:
        await listening(programs, "cat", "{wav}").transcribe(opus())
    assert "opus-tools" in failed.value.hint
    with pytest.raises(VoiceFailed, match="converts this recording to WAV") as failed:
        await listening(programs, "cat", "{wav}").transcribe(b"ID3")
    assert failed.value.hint == "Install ffmpeg."
    with pytest.raises(VoiceFailed, match="converts WAV to OGG/Opus"):
        await Speech(_gives(wav()), programs, SpeechLimits(), lambda _: "").say("hello")


def _gives(sound: bytes) -> Callable[[str], Awaitable[bytes]]:
    async def speak(text: str) -> bytes:
        return sound

    return speak


async def test_wav_is_passed_on_as_it_is_where_nothing_converts_it(programs: Programs) -> None:
    heard = await listening(programs, "sh", "-c", "head -c 4 {wav}").transcribe(wav(), "audio/wav")
    assert heard == "RIFF"


async def test_a_reply_becomes_a_voice_message(programs: Programs, disk_path: Path) -> None:
    speech = speaking(programs, *speaker(disk_path))
    words = speech.words("**Good** morning 🌞")
    assert text_of_speech(await speech.say(words)) == "Good morning"


@pytest.mark.parametrize(
    ("sound", "reason"),
    [
        (b"", "neither"),
        (b"<html>", "neither"),
        (b"ID3 music", "neither"),
        (opus()[:-2], "truncated"),
        (opus(61.0), "is too long \\(61 seconds\\)"),
        (opus(content=b"x" * 3_000), "too large"),
    ],
)
async def test_what_is_no_voice_message_is_not_sent(
    programs: Programs, sound: bytes, reason: str
) -> None:
    speech = Speech(_gives(sound), programs, SpeechLimits(seconds=60.0, bytes=2_000))
    with pytest.raises(VoiceFailed, match=reason):
        await speech.say("hello")


@pytest.mark.skipif(not shutil.which("opusenc"), reason="opus-tools is not installed")
@pytest.mark.parametrize("written", [wav(), b"RIFF\xff\xff\xff\x7f" + wav()[8:]])
async def test_opus_tools_make_a_voice_message_of_wav_and_wav_of_one(
    programs: Programs, written: bytes
) -> None:
    sound = await Speech(_gives(written), programs, SpeechLimits()).say("hello")
    reading = ProgramTranscriber(
        programs,
        Program(("sh", "-c", "head -c 4 {wav}; od -An -tu4 -j24 -N4 {wav}")),
        max_bytes=9**9,
    )
    assert (await reading.transcribe(sound, "audio/ogg")).split() == ["RIFF", "16000"]


@pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg is not installed")
async def test_ffmpeg_does_both_where_there_are_no_opus_tools(programs: Programs) -> None:
    def only_ffmpeg(name: str) -> str:
        return "/usr/bin/ffmpeg" if name == "ffmpeg" else ""

    sound = await Speech(_gives(wav(4_000)), programs, SpeechLimits(), only_ffmpeg).say("hello")
    reading = listening(programs, "sh", "-c", "head -c 4 {wav}", find=only_ffmpeg)
    assert await reading.transcribe(sound, "audio/ogg") == "RIFF"


def server(fake: FakeOpenAI, *, voice: str = "alloy", most: int = 1_000_000) -> SpeechModel:
    endpoint = Endpoint(fake.base_url, "mouth", "sk-secret", settings="model.speech")
    return SpeechModel(
        endpoint, FakeClock(auto=True), voice=voice, timeout_seconds=30.0, max_bytes=most
    )


async def test_a_server_is_asked_for_a_voice_message(programs: Programs) -> None:
    async with FakeOpenAI(speech=opus(2.0)) as fake:
        mouth = server(fake)
        assert await Speech(mouth.speak, programs, SpeechLimits()).say("Grüße") == opus(2.0)
        await mouth.close()
        nameless = server(fake, voice="")
        await nameless.speak("hello")
        await nameless.close()
    first, second = (request.body for request in fake.requests)
    assert first == {
        "model": "mouth", "input": "Grüße", "response_format": "opus", "voice": "alloy",
    }  # fmt: skip
    assert "voice" not in second
    assert fake.requests[0].headers["authorization"] == "Bearer sk-secret"


async def test_a_server_that_fails_for_a_while_is_asked_again(programs: Programs) -> None:
    async with FakeOpenAI(speech=opus(), speech_faults=[server_error(503)]) as fake:
        mouth = server(fake)
        assert await mouth.speak("hello") == opus()
        await mouth.close()


async def test_a_server_that_refuses_or_floods_is_given_up_on() -> None:
    refused = refusal(ApiError(401, "Incorrect API key."))
    async with FakeOpenAI(speech=b"x" * 2_000, speech_faults=[refused]) as fake:
        mouth = server(fake, most=1_000)
        with pytest.raises(ProviderRejected) as failed:
            await mouth.speak("hello")
        assert "model.speech.api_key" in failed.value.hint
        with pytest.raises(ProviderGarbage, match="more than 1,000 bytes"):
            await mouth.speak("hello")
        await mouth.close()
