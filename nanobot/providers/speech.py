"""Speech to text and text to speech, by any server with OpenAI's `/v1/audio`: optional.

Temporary failures are retried, all within one timeout, because a conversation waits. Errors
are as for every model server, with hints that name `model.transcription` or `model.speech`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath
from random import Random
from typing import TypeVar

from nanobot.clock import Clock
from nanobot.errors import ContextTooLong, ProviderRejected
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.http import UploadConnection
from nanobot.providers.retry import RetryPolicy, retry

_SUFFIXES = {
    "audio/ogg": "ogg",
    "audio/opus": "ogg",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/mp4": "m4a",
    "audio/x-m4a": "m4a",
    "audio/aac": "m4a",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/flac": "flac",
    "audio/webm": "webm",
    "video/mp4": "mp4",
    "video/webm": "webm",
}
_KNOWN = frozenset((*_SUFFIXES.values(), "oga", "mpeg", "mpga"))
_VOICE = "ogg"  # the format in which chats record, for a sound of unknown format
T = TypeVar("T")


class SpeechModel:
    """One model on one server, which transcribes or speaks. `timeout_seconds` is for one request
    with its retries. `language` of a recording is a code such as `de`, empty for detection. Spoken
    sound of more than `max_bytes` is rejected."""

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        *,
        language: str = "",
        voice: str = "",
        timeout_seconds: float = 60.0,
        max_bytes: int = 10_000_000,
    ) -> None:
        self._endpoint, self._clock, self._timeout = endpoint, clock, timeout_seconds
        self._language, self._voice, self._max_bytes = language, voice, max_bytes
        self._random = Random()  # noqa: S311 - jitter, not a secret
        self._connection = UploadConnection(endpoint, stall=timeout_seconds)

    async def close(self) -> None:
        await self._connection.close()

    async def transcribe(self, audio: bytes, mime: str = "", name: str = "") -> str:
        """Return the words in `audio`, stripped, or an empty text. `mime` and `name` show the
        format. Raise `ProviderError`s."""
        plain = mime.partition(";")[0].strip().lower()
        kind = plain if plain in _SUFFIXES else "application/octet-stream"
        file = (f"voice.{sound_suffix(mime, name)}", audio, kind)

        async def ask() -> str:
            fields = {"model": self._endpoint.model, "response_format": "json"}
            if self._language:
                fields["language"] = self._language
            answer = await self._connection.upload("/audio/transcriptions", fields, file)
            if not isinstance(text := answer.get("text"), str):
                raise self._endpoint.garbage_error("no text")
            return text.strip()

        try:
            return await self._ask(ask, "a transcription")
        except ContextTooLong as error:
            raise ProviderRejected(
                f"the recording is too large to transcribe ({len(audio):,} bytes)",
                status=413,
            ) from error

    async def speak(self, text: str) -> bytes:
        """Return the sound of `text`, in OGG/Opus if the server supports it. Raise
        `ProviderError`s."""
        wish = {"model": self._endpoint.model, "input": text, "response_format": "opus"}
        body = json.dumps(wish | ({"voice": self._voice} if self._voice else {})).encode()

        async def ask() -> bytes:
            sound = bytearray()
            async with self._connection.post("/audio/speech", body) as chunks:
                async for chunk in chunks:
                    sound += chunk
                    if len(sound) > self._max_bytes:
                        raise self._endpoint.garbage_error(f"more than {self._max_bytes:,} bytes")
            return bytes(sound)

        return await self._ask(ask, "speech")

    async def _ask(self, ask: Callable[[], Awaitable[T]], what: str) -> T:
        policy = RetryPolicy(deadline=self._timeout, garbage_retries=0)
        try:
            async with asyncio.timeout(self._timeout):
                return await retry(ask, what, policy, self._clock, self._random)
        except TimeoutError as error:
            raise self._endpoint.stall_error(self._timeout) from error


def sound_suffix(mime: str, name: str) -> str:
    """Return the suffix of a sound's file: by its type, else by its name if that is a sound's."""
    by_type = _SUFFIXES.get(mime.partition(";")[0].strip().lower())
    own = PurePosixPath(name).suffix.removeprefix(".").lower()
    return by_type or (own if own in _KNOWN else _VOICE)
