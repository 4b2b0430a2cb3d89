"""Text to speech from any server that speaks OpenAI's `/v1/audio/speech`: optional.

One request with the text, one answer with the sound, which is OGG/Opus where the server does as it
is asked. Errors are those of every model server, with hints that name `model.speech`.
"""

from __future__ import annotations

import asyncio
import json
from random import Random

from nanobot.clock import Clock
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.http import HttpConnection
from nanobot.providers.retry import RetryPolicy, retried


class SpeechServer:
    """One voice on one server. `timeout_seconds` is for everything that one text takes, tries
    included; an answer of more than `max_bytes` is refused."""

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        *,
        voice: str,
        timeout_seconds: float = 60.0,
        max_bytes: int = 10_000_000,
    ) -> None:
        self._endpoint, self._clock, self._voice = endpoint, clock, voice
        self._random = Random()  # noqa: S311 - jitter, not a secret
        self._timeout, self._max_bytes = timeout_seconds, max_bytes
        self._retry = RetryPolicy(deadline=timeout_seconds, garbage_retries=0)
        self._connection = HttpConnection(endpoint, stall=timeout_seconds)

    async def speak(self, text: str) -> bytes:
        """The sound of `text`. Raises `ProviderError`s."""
        wish = {"model": self._endpoint.model, "input": text, "response_format": "opus"}
        body = json.dumps(wish | ({"voice": self._voice} if self._voice else {})).encode()

        async def ask() -> bytes:
            sound = bytearray()
            async with self._connection.post("/audio/speech", body) as chunks:
                async for chunk in chunks:
                    sound += chunk
                    if len(sound) > self._max_bytes:
                        raise self._endpoint.garbage(f"more than {self._max_bytes:,} bytes")
            return bytes(sound)

        try:
            async with asyncio.timeout(self._timeout):
                return await retried(ask, "speech", self._retry, self._clock, self._random)
        except TimeoutError as error:
            raise self._endpoint.stalled(self._timeout) from error

    async def close(self) -> None:
        """Release connections; a later call opens new ones."""
        await self._connection.close()
