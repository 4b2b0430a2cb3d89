"""Speech to text from any server that speaks OpenAI's `/v1/audio/transcriptions`: optional.

One request with the sound as it came, one answer with what was said; while that fails in a way that
may pass it is asked again, all within one limit of time, because a conversation waits for it.
Errors are those of every model server, with hints that name `model.transcription`.
"""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath
from random import Random

from nanobot.clock import Clock
from nanobot.errors import ContextTooLong, ProviderRejected
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.http import HttpConnection
from nanobot.providers.retry import RetryPolicy, retried

MAX_BYTES = 25 * 1024 * 1024
"""What OpenAI takes, and those who copied it."""

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
_VOICE = "ogg"
"""What chats record in, for a sound of which nothing is known."""


class Transcriber:
    """One speech model on one server.

    `language` is a code such as `de`, empty where the model shall find out. `timeout_seconds` is
    for everything that one sound takes, tries included; more than `max_bytes` are not sent.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        *,
        language: str = "",
        timeout_seconds: float = 60.0,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._endpoint, self._clock = endpoint, clock
        self._random = Random()  # noqa: S311 - jitter, not a secret
        self._language, self._timeout, self._max_bytes = language, timeout_seconds, max_bytes
        self._retry = RetryPolicy(deadline=timeout_seconds, garbage_retries=0)
        self._connection = HttpConnection(endpoint, stall=timeout_seconds)

    async def transcribe(self, audio: bytes, mime: str = "", name: str = "") -> str:
        """What is said in `audio`, without space around it; empty where nobody speaks.

        `mime` and `name` tell the server what it gets. Raises `ProviderError`s.
        """
        too_large = ProviderRejected(
            f"the recording is too large to be transcribed ({len(audio):,} bytes)",
            status=413,
            hint=f"At most {self._max_bytes:,} bytes are transcribed.",
        )
        if len(audio) > self._max_bytes:
            raise too_large
        file = (f"voice.{sound_suffix(mime, name)}", audio, _plain_type(mime))

        async def ask() -> str:
            fields = {"model": self._endpoint.model, "response_format": "json"}
            if self._language:
                fields["language"] = self._language
            answer = await self._connection.upload("/audio/transcriptions", fields, file)
            if not isinstance(text := answer.get("text"), str):
                raise self._endpoint.garbage("no text")
            return text.strip()

        try:
            async with asyncio.timeout(self._timeout):
                return await retried(ask, "what was said", self._retry, self._clock, self._random)
        except TimeoutError as error:
            raise self._endpoint.stalled(self._timeout) from error
        except ContextTooLong as error:
            raise too_large from error

    async def close(self) -> None:
        """Release connections; a later call opens new ones."""
        await self._connection.close()


def _plain_type(mime: str) -> str:
    """A MIME type that a header can carry, without parameters."""
    plain = mime.partition(";")[0].strip().lower()
    return plain if plain in _SUFFIXES else "application/octet-stream"


def sound_suffix(mime: str, name: str) -> str:
    """What the server goes by: that of the type, else of the name if it is one of sound."""
    by_type = _SUFFIXES.get(mime.partition(";")[0].strip().lower())
    own = PurePosixPath(name).suffix.removeprefix(".").lower()
    return by_type or (own if own in _KNOWN else _VOICE)
