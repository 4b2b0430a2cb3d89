"""A real HTTP server on a loopback port that speaks Chat Completions, for tests and benches.

It records every request byte for byte, rejects the same requests as the real API, counts tokens and
cached prompt tokens, and answers from a script that may misbehave (see `faults`). On the
command line

    python -m tests.doubles.openai.server --port 8080 --latency 0.2 --reply "Hello."

prints the base URL and serves until it is interrupted. Without `--reply` it repeats the user's
message."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Self

from aiohttp import web

from nanobot.providers.fields import mapping, parse_json
from tests.doubles.openai.answers import Answer, ChatRequest, Exchange, Raw, Step
from tests.doubles.openai.embeddings import EMBEDDINGS, embeddings
from tests.doubles.openai.faults import context_length_exceeded, refusal, wrong_key
from tests.doubles.openai.rules import ApiError, first_error
from tests.doubles.openai.transcriptions import TRANSCRIPTIONS, Recording, recording, transcript
from tests.doubles.server import Served

Scripted = Step | str
"""An answer. A string is a sentence."""
Author = Callable[[ChatRequest], Scripted]

MODEL = "fake-model"
"""The listed model. The server answers for any name."""

SPEECH = "/audio/speech"
_LONGEST_SPEECH = 4_096

_PATHS = ("/chat/completions", EMBEDDINGS, TRANSCRIPTIONS, SPEECH)
_CACHE_BLOCK = 128
_REMEMBERED = 8
_LARGEST_REQUEST = 256 * 1024 * 1024


def echo(request: ChatRequest) -> Answer:
    """Repeat the last user message."""
    return Answer(request.last_user_text)


class FakeOpenAI:
    """An async context manager. `base_url` is its address, and `requests` has the received
    requests.

    `script` is a list that is played in order (after its end, the server answers 400), or a
    function of the request. With `api_key` other keys get 401. With `context_tokens` longer prompts
    are rejected. `latency` is in seconds before each answer, `pace` between the pieces of a stream,
    of `characters` characters each, or of `wire_bytes` bytes regardless of character boundaries.
    Requests for embeddings get vectors (see `embeddings`), after the steps of
    `embedding_faults`. Requests with sound get a transcript (see `transcriptions`), after
    the steps of `transcription_faults`, and `recordings` has the received sound. Requests for
    speech get the sound `speech`, after the steps of `speech_faults`. `models` are the listed
    names, and `pages` are other answers by path."""

    def __init__(
        self,
        script: Sequence[Scripted] | Author = echo,
        *,
        port: int = 0,
        validate: bool = True,
        api_key: str = "",
        context_tokens: int = 0,
        latency: float = 0.0,
        pace: float = 0.0,
        characters: int = 12,
        wire_bytes: int = 0,
        embedding_faults: Sequence[Step] = (),
        transcription_faults: Sequence[Step] = (),
        speech: bytes = b"",
        speech_faults: Sequence[Step] = (),
        models: Sequence[str] = (MODEL,),
        pages: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self._author = script if callable(script) else None
        self._script = deque(() if callable(script) else script)
        self._port = port
        self._validate = validate
        self._api_key = api_key
        self._context_tokens = context_tokens
        self._latency = latency
        self._pace = pace
        self._characters = characters
        self._wire_bytes = wire_bytes
        self._embedding_faults = deque(embedding_faults)
        self._transcription_faults = deque(transcription_faults)
        self._speech, self._speech_faults = speech, deque(speech_faults)
        self._models = tuple(models)
        self._pages = pages
        self._closing = asyncio.Event()
        self._recent: deque[bytes] = deque(maxlen=_REMEMBERED)
        self._served: Served | None = None
        self.requests: list[ChatRequest] = []
        self.recordings: list[Recording] = []

    @property
    def base_url(self) -> str:
        """The address for clients, including `/v1`."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def port(self) -> int:
        """The port of its address."""
        return self._port

    def then(self, *steps: Scripted) -> None:
        """Add to the end of the script."""
        self._script += steps

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=_LARGEST_REQUEST)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._served = await Served.start(app, self._port, shutdown_timeout=1.0)
        self._port = self._served.port
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop serving."""
        self._closing.set()
        served, self._served = self._served, None
        if served is not None:
            await served.stop()

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        if http.path in self._pages:
            return web.json_response(self._pages[http.path])
        if http.path == "/props":  # only llama.cpp has it: no question to a model
            page = self._pages.get(http.path)
            return web.json_response(page or {"error": "not found"}, status=200 if page else 404)
        if self._latency:
            await asyncio.sleep(self._latency)
        headers = {name.lower(): value for name, value in http.headers.items()}
        try:
            body = mapping(parse_json(raw))
        except ValueError:
            body = {}
        request = ChatRequest(http.path, headers, raw, body)
        self.requests.append(request)
        if http.method == "GET" and request.path.endswith("/models"):
            return web.json_response(
                {"object": "list", "data": [{"id": name} for name in self._models]}
            )
        step = self._refusal(request, http.method) or self._embedding(request)
        step = step or self._transcription(request) or self._speak(request)
        step = step or self._next(request)
        exchange = Exchange(
            request=request,
            http=http,
            number=len(self.requests),
            cached_tokens=self._count_cached_tokens(raw),
            closing=self._closing,
            characters=self._characters,
            wire_bytes=self._wire_bytes,
            pace=self._pace,
        )
        return await step.play(exchange)

    def _refusal(self, request: ChatRequest, method: str) -> Step | None:
        """Return the rejection of an invalid request, whatever the script."""
        if method != "POST" or not request.path.endswith(_PATHS):
            return refusal(ApiError(404, f"Unknown URL: {method} {request.path}"))
        if not request.body and not self._has_sound(request):
            return refusal(ApiError(400, "We could not parse the JSON body of your request."))
        sent = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._api_key and sent != self._api_key:
            return wrong_key(sent)
        if not request.path.endswith("/chat/completions"):
            return None
        return self._reject_chat(request)

    def _reject_chat(self, request: ChatRequest) -> Step | None:
        if self._validate and (wrong := first_error(request.body)):
            return refusal(wrong)
        if 0 < self._context_tokens < len(request.raw) // 4:
            return context_length_exceeded(self._context_tokens)
        return None

    @staticmethod
    def _embeds(request: ChatRequest) -> bool:
        return request.path.endswith(EMBEDDINGS)

    def _embedding(self, request: ChatRequest) -> Step | None:
        """Return vectors or the next fault, or None for a conversation."""
        if not self._embeds(request):
            return None
        if self._embedding_faults:
            return self._embedding_faults.popleft()
        answer = embeddings(request.body, self._context_tokens)
        return refusal(answer) if isinstance(answer, ApiError) else Raw(answer)

    @staticmethod
    def _has_sound(request: ChatRequest) -> bool:
        return request.path.endswith(TRANSCRIPTIONS)

    def _transcription(self, request: ChatRequest) -> Step | None:
        """Return the transcript or the next fault, or None for anything else."""
        if not self._has_sound(request):
            return None
        heard = recording(request.headers.get("content-type", ""), request.raw)
        if isinstance(heard, ApiError):
            return refusal(heard)
        self.recordings.append(heard)
        if self._transcription_faults:
            return self._transcription_faults.popleft()
        return Raw(transcript(heard))

    def _speak(self, request: ChatRequest) -> Step | None:
        """Return the sound or the next fault, or None for anything else."""
        if not request.path.endswith(SPEECH):
            return None
        text, model = request.body.get("input"), request.body.get("model")
        if not isinstance(text, str) or not 0 < len(text) <= _LONGEST_SPEECH:
            return refusal(ApiError(400, "'input' must be a text of 1 to 4,096 characters"))
        if not isinstance(model, str):
            return refusal(ApiError(400, "you must provide a model parameter"))
        if self._speech_faults:
            return self._speech_faults.popleft()
        return Raw(self._speech, content_type="audio/ogg")

    def _next(self, request: ChatRequest) -> Step:
        if self._author is not None:
            scripted = self._author(request)
        elif self._script:
            scripted = self._script.popleft()
        else:
            return refusal(ApiError(400, "The script of this server is at its end."))
        return Answer(scripted) if isinstance(scripted, str) else scripted

    def _count_cached_tokens(self, raw: bytes) -> int:
        """Return the tokens of the common prefix with a recent request, in whole blocks."""
        longest = max((common_prefix(raw, other) for other in self._recent), default=0)
        self._recent.append(raw)
        return longest // 4 // _CACHE_BLOCK * _CACHE_BLOCK


def common_prefix(one: bytes, other: bytes) -> int:
    """Return the number of bytes in the common prefix."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until a signal."""
    script: Author = (lambda _: arguments.reply) if arguments.reply else echo
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = FakeOpenAI(
        script,
        port=arguments.port,
        latency=arguments.latency,
        pace=arguments.pace,
        validate=not arguments.lenient,
    )
    async with server:
        print(server.base_url, flush=True)
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.doubles.openai.server",
        description="Serve Chat Completions on a loopback port, without a model behind it.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--reply", default="", help="what to say; nothing: repeat the user")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds between stream pieces")
    parser.add_argument("--lenient", action="store_true", help="do not check requests")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
