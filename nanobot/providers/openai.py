"""Any server that speaks OpenAI's Chat Completions.

The request body is joined from bytes that were made before: the tools and the messages come first
and are the same bytes in every request that repeats them, as provider caches need; what varies
follows. The answer is read as it arrives and may be a stream or one object. Requests are streamed
whether or not anybody watches, because only a stream shows that the model is still at work.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from nanobot.errors import ProviderGarbage, ProviderRejected, ProviderUnavailable
from nanobot.providers.endpoint import Endpoint, model_names
from nanobot.providers.http import Connection, HttpConnection
from nanobot.providers.port import CallOptions, Prompt, Reply, RequestSettings, TextSink
from nanobot.providers.replies import IncomingReply
from nanobot.providers.returned import Insistence, ReturnedFields

_TAIL_SECONDS = 2.0
"""How long to wait for the end of an answer that is already complete, so that the connection can be
used again."""


Transport = Literal["http", "sdk"]
"""How requests travel: by nanobot's own HTTP client, or by the official SDK, which is heavier."""


class _Dialect(Struct, frozen=True):
    """Which of the fields that servers disagree about one takes. `usage`: `stream_options`;
    `new_limit`: `max_completion_tokens`, which OpenAI wants for its newer models, not `max_tokens`.
    `wants`: what it insists on in messages.
    """

    stream: bool
    new_limit: bool
    usage: bool = True
    wants: Insistence = Insistence()

    def suiting(self, refused: ProviderRejected) -> _Dialect:
        """The same with what a refusal names put right; unchanged where it names none of it."""
        if refused.status not in (400, 422):
            return self
        said = refused.detail
        if self.usage and self.stream and "stream_options" in said:
            return replace(self, usage=False)
        if not self.new_limit and "max_completion_tokens" in said:
            return replace(self, new_limit=True)
        if self.stream and "stream" in said.lower() and "support" in said.lower():
            return replace(self, stream=False)
        wants = self.wants
        if "thought_signature" in said:
            wants = replace(wants, signed=True)
        elif "reasoning_content" in said:
            wants = replace(wants, thinking=True)
        elif "ool call id" in said and "length of 9" in said:
            wants = replace(wants, short_ids=True)
        return replace(self, wants=wants)


def _connect(endpoint: Endpoint, transport: Transport, stall: float) -> Connection:
    if transport == "http":
        return HttpConnection(endpoint, stall=stall)
    from nanobot.providers.sdk import SdkConnection

    return SdkConnection(endpoint, stall=stall)


def _is_official(base_url: str) -> bool:
    try:
        host = urlsplit(base_url).hostname or ""
    except ValueError:  # the first call says so
        return False
    return host == "api.openai.com" or host.endswith(".api.openai.com")


class OpenAIProvider:
    """One model on one server. With an empty `model` the server is asked which it serves, and the
    first one is taken: local servers often have just one.

    `max_tokens` bounds each reply (0: the server's default). Times are in seconds: `stall_seconds`
    without a byte, or `patience_seconds` without anything but signs of life, is an outage. Without
    streaming (`stream=False`, for servers that cannot) nothing shows life, so there
    `patience_seconds` counts for both.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key: str,
        max_tokens: int,
        stall_seconds: float = 120.0,
        first_token_seconds: float = 600.0,
        settings: RequestSettings | None = None,
        patience_seconds: float = 600.0,
        stream: bool = True,
        transport: Transport = "http",
    ) -> None:
        self._endpoint = Endpoint(base_url, model, api_key.strip())
        self._max_tokens = max_tokens
        self._first_token, self._settings = first_token_seconds, settings or RequestSettings()
        self._patience = patience_seconds
        self._dialect = _Dialect(stream=stream, new_limit=_is_official(base_url))
        self._served = model
        self._returned = ReturnedFields()
        stall = stall_seconds if stream else patience_seconds
        self._connection = _connect(self._endpoint, transport, stall)

    def __repr__(self) -> str:
        return f"OpenAIProvider({self._endpoint.model!r} at {self._endpoint.place!r})"

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """Answer `prompt`. Raises `ProviderError`s; nothing is tried twice but one thing: a server
        that refuses one of the fields below is asked again without it, one that misses something
        again with it, and from then on always so.
        """
        while True:
            dialect = self._dialect
            try:
                return await self._ask(prompt, options, on_text)
            except ProviderRejected as error:
                self._dialect = dialect.suiting(error)
                if self._dialect == dialect:
                    raise

    async def close(self) -> None:
        """Release connections; a later call opens new ones."""
        await self._connection.close()

    async def _ask(self, prompt: Prompt, options: CallOptions, on_text: TextSink | None) -> Reply:
        options = replace(options, model=options.model or await self._model())
        incoming = IncomingReply(self._endpoint, prompt, on_text)
        now = asyncio.get_running_loop().time
        try:
            async with (
                asyncio.timeout(self._patience) as limit,
                self._connection.post("/chat/completions", self.body(prompt, options)) as chunks,
            ):
                async for chunk in chunks:
                    if incoming.feed(chunk):
                        more = _TAIL_SECONDS if incoming.complete else self._patience
                        limit.reschedule(now() + more)
        except TimeoutError as error:
            if not incoming.complete:
                raise self._endpoint.stalled(self._patience) from error
        except ProviderUnavailable:
            if not incoming.complete:
                raise
        reply = incoming.finish()
        self._returned.keep(reply.tool_calls, incoming.given, incoming.thinking)
        return reply if reply.model else replace(reply, model=options.model)

    async def _model(self) -> str:
        if not self._served:
            listing: Mapping[str, object] = {}
            try:
                listing = await self._connection.ask("/models")
            except ProviderRejected as error:
                if error.status != 404:  # else it has one model and no list: any name will do
                    raise
            except ProviderGarbage:
                pass  # no list either
            self._served = next(iter(model_names(listing)), "default")
        return self._served

    def body(self, prompt: Prompt, options: CallOptions) -> bytes:
        """The request as it is sent: JSON."""
        parts = [b'{"model":', _json(options.model or self._endpoint.model)]
        if prompt.tools.wire:
            parts += [b',"tools":', prompt.tools.wire]
        parts += [b',"messages":', self._returned.wire_messages(prompt, self._dialect.wants)]
        if options.tool_choice and prompt.tools.wire:
            parts += [b',"tool_choice":', _json(_tool_choice(options.tool_choice))]
        if limit := options.max_tokens or self._max_tokens:
            new = self._dialect.new_limit
            parts += [b',"max_completion_tokens":' if new else b',"max_tokens":', _json(limit)]
        if self._dialect.stream:
            parts += [b',"stream":true']
            if self._dialect.usage:
                parts += [b',"stream_options":{"include_usage":true}']
        return b"".join([*parts, b"}"])


def _tool_choice(name: str) -> object:
    return name if name == "none" else {"type": "function", "function": {"name": name}}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
