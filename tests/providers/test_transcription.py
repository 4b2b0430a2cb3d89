"""Transcriptions from a real HTTP server, despite its faults."""

from __future__ import annotations

import pytest

from nanobot.errors import (
    ProviderBusy,
    ProviderGarbage,
    ProviderRejected,
    ProviderUnavailable,
)
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.speech import SpeechModel
from nanobot.testing import FakeClock
from tests.doubles.openai.answers import Raw, Step
from tests.doubles.openai.faults import Huge, Stall, busy, refusal, server_error
from tests.doubles.openai.rules import ApiError
from tests.doubles.openai.server import FakeOpenAI

NOISE = bytes(range(256)) + b"\r\n--\r\n--"


def transcriber(server: FakeOpenAI, *, language: str = "", seconds: float = 30.0) -> SpeechModel:
    return SpeechModel(
        Endpoint(server.base_url, "ears", "sk-secret", settings="model.transcription"),
        FakeClock(auto=True),
        language=language,
        timeout_seconds=seconds,
    )


async def test_sound_goes_out_byte_for_byte_and_text_comes_back() -> None:
    async with FakeOpenAI() as server:
        ears = transcriber(server, language="de")
        assert await ears.transcribe(b" guten Tag \n", "audio/ogg; codecs=opus") == "guten Tag"
        assert await ears.transcribe(NOISE) == f"({len(NOISE)} bytes)"
        await ears.close()
    first, second = server.recordings
    assert first.fields == {"model": "ears", "response_format": "json", "language": "de"}
    assert (first.name, first.mime) == ("voice.ogg", "audio/ogg")
    assert second.audio == NOISE
    assert server.requests[0].headers["authorization"] == "Bearer sk-secret"


@pytest.mark.parametrize(
    ("mime", "name", "sent"),
    [
        ("audio/mpeg", "x", "voice.mp3"),
        ("video/mp4", "note", "voice.mp4"),
        ("", "memo.M4A", "voice.m4a"),
        ("application/octet-stream", 'a"\r\nX: y.wav', "voice.wav"),
        ("text/plain\r\nX: y", "evil.exe", "voice.ogg"),
    ],
)
async def test_the_server_learns_the_format_and_nothing_that_others_wrote(
    mime: str, name: str, sent: str
) -> None:
    async with FakeOpenAI() as server:
        ears = transcriber(server)
        await ears.transcribe(b"hello", mime, name)
        await ears.close()
    assert server.recordings[0].name == sent
    assert b"X: y" not in server.requests[0].raw


@pytest.mark.parametrize("fault", [busy(2), server_error(503)])
async def test_trouble_that_passes_is_waited_out(fault: Step) -> None:
    async with FakeOpenAI(transcription_faults=[fault]) as server:
        ears = transcriber(server)
        assert await ears.transcribe(b"hello") == "hello"
        await ears.close()


async def test_trouble_that_stays_is_raised_within_the_time() -> None:
    async with FakeOpenAI(transcription_faults=[busy(7)] * 50) as server:
        ears = transcriber(server)
        with pytest.raises(ProviderBusy):
            await ears.transcribe(b"hello")
        await ears.close()
    assert 1 < len(server.requests) < 6


async def test_a_server_that_says_nothing_is_given_up_on_in_time() -> None:
    async with FakeOpenAI(transcription_faults=[Stall()]) as server:
        ears = transcriber(server, seconds=0.1)
        with pytest.raises(ProviderUnavailable, match=r"nothing for 0\.1 seconds"):
            await ears.transcribe(b"hello")
        await ears.close()


async def test_a_recording_that_the_server_finds_too_large_is_refused_with_its_size() -> None:
    there = refusal(ApiError(413, "Maximum content size limit exceeded."))
    async with FakeOpenAI(transcription_faults=[there]) as server:
        ears = transcriber(server)
        with pytest.raises(ProviderRejected, match=r"too large.*5 bytes"):
            await ears.transcribe(b"hello")
        await ears.close()


@pytest.mark.parametrize(
    "fault",
    [
        Raw(b"<html>Sign in</html>", content_type="text/html"),
        Raw(b'{"words": []}'),
        Raw(b'{"text": null}'),
        Raw(b'"hello"'),
        Huge(size=8_000_000, start=b'{"text":"'),
    ],
)
async def test_an_answer_that_is_none_is_never_taken_for_words(fault: Step) -> None:
    async with FakeOpenAI(transcription_faults=[fault]) as server:
        ears = transcriber(server)
        with pytest.raises(ProviderGarbage):
            await ears.transcribe(b"hello")
        await ears.close()


async def test_a_wrong_key_is_said_once_and_not_repeated() -> None:
    async with FakeOpenAI(api_key="sk-right") as server:
        ears = transcriber(server)
        with pytest.raises(ProviderRejected) as refused:
            await ears.transcribe(b"hello")
        await ears.close()
    assert "model.transcription.api_key" in refused.value.hint
    assert "sk-secret" not in refused.value.for_people()
    assert len(server.requests) == 1
