"""Speech to text from any server that speaks OpenAI's `/v1/audio/transcriptions`: optional.

One request with the sound as it came, one answer with what was said; while that fails in a way that
may pass it is asked again, all within one limit of time, because a conversation waits for it.
Errors are those of every model server, with hints that name `model.transcription`.
"""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath
from random import Random

from nanobot.clock import Clock, SystemClock
from nanobot.errors import ContextTooLong, ProviderRejected
from nanobot.providers.endpoint import Endpoint, LazyConnection, whole
from nanobot.providers.retry import RetryPolicy, retried

MAX_BYTES = 25 * 1024 * 1024
"""What OpenAI takes, and those who copied it."""

_ANSWER_LIMIT = 4 * 1024 * 1024
_MOST_TRIES = 4
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
        *,
        base_url: str,
        api_key: str,
        model: str,
        language: str = "",
        timeout_seconds: float = 60.0,
        max_bytes: int = MAX_BYTES,
        connect_seconds: float = 15.0,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._endpoint = Endpoint(
            base_url, model, self._clock, api_key.strip(), settings="model.transcription"
        )
        self._language = language
        self._timeout = timeout_seconds
        self._max_bytes = max_bytes
        self._retry = RetryPolicy(
            deadline=timeout_seconds, longest_wait=5.0, garbage_retries=0, most_tries=_MOST_TRIES
        )
        self._random = random or Random()  # noqa: S311 - jitter, not a secret
        self._connection = LazyConnection(
            self._endpoint, connect=connect_seconds, stall=timeout_seconds
        )

    async def transcribe(self, audio: bytes, mime: str = "", name: str = "") -> str:
        """What is said in `audio`, without space around it; empty where nobody speaks.

        `mime` and `name` tell the server what it gets. Raises `ProviderError`s.
        """
        if len(audio) > self._max_bytes:
            raise self._too_large(len(audio))
        file = (f"voice.{_suffix(mime, name)}", audio, _plain_type(mime))
        try:
            async with asyncio.timeout(self._timeout):
                return await retried(
                    lambda: self._ask(file), "what was said", self._retry, self._clock, self._random
                )
        except TimeoutError as error:
            raise self._endpoint.stalled(self._timeout) from error
        except ContextTooLong as error:
            raise self._too_large(len(audio)) from error

    async def close(self) -> None:
        """Release connections; a later call opens new ones."""
        await self._connection.close()

    async def _ask(self, file: tuple[str, bytes, str]) -> str:
        fields = {"model": self._endpoint.model, "response_format": "json"}
        if self._language:
            fields["language"] = self._language
        connection = await self._connection.open()
        async with connection.upload("/audio/transcriptions", fields, file) as chunks:
            answer = await whole(chunks, _ANSWER_LIMIT, self._endpoint)
        return self._parsed(answer)

    def _parsed(self, answer: bytes) -> str:
        text = self._endpoint.object_in(answer).get("text")
        if not isinstance(text, str):
            raise self._endpoint.garbage("no text", answer)
        return text.strip()

    def _too_large(self, size: int) -> ProviderRejected:
        return ProviderRejected(
            f"the recording is too large to be transcribed ({size:,} bytes)",
            status=413,
            hint=f"model.transcription.max_megabytes allows {self._max_bytes:,} bytes.",
        )


def _plain_type(mime: str) -> str:
    """A MIME type that a header can carry, without parameters."""
    plain = mime.partition(";")[0].strip().lower()
    return plain if plain in _SUFFIXES else "application/octet-stream"


def _suffix(mime: str, name: str) -> str:
    """What the server goes by: that of the type, else of the name if it is one of sound."""
    told = _SUFFIXES.get(mime.partition(";")[0].strip().lower())
    own = PurePosixPath(name).suffix.removeprefix(".").lower()
    return told or (own if own in _KNOWN else _VOICE)
