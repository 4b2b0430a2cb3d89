"""A real llama.cpp server in its own process, and a recording proxy in front of it.

The proxy records every request and every byte of its answer. It forwards at once, and disconnects
when its client does."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from tests.ports import free_port

PATIENCE = 1200.0
"""Timeout of an answer in seconds, even on a slow machine."""
_STARTS = 300.0
_ENOUGH = 1024
"""Token limit of a direct answer. A longer one never ends."""
_FUNCTION = re.compile(
    r"<function=([\w.-]+)>|\[TOOL_CALLS\]\s*(\w+)\s*(?=\{)|\bto=functions\.(\w+)"
)
_PARAMETER = re.compile(r"<parameter=(\w+)>(.*?)</parameter>", re.DOTALL)
_NAMES = ("name", "function", "tool")
_VALUES = ("arguments", "parameters", "args", "input")


class LlamaServer:
    """llama-server with these weights on a free port, greedy, with one slot, as a context
    manager."""

    def __init__(self, program: Path, weights: Path, window: int, threads: int, log: Path) -> None:
        self.model, self.port = weights.stem, free_port()
        self._log = log
        self._environ = {**os.environ, "LD_LIBRARY_PATH": str(program.resolve().parent)}
        self._command = [str(program), "-m", str(weights), "-c", str(window), "-np", "1"]
        self._command += ["-t", str(threads), "--jinja", "--temp", "0", "--seed", "1"]
        self._command += ["--host", "127.0.0.1", "--port", str(self.port), "--alias", self.model]

    def __enter__(self) -> LlamaServer:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environ, stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + _STARTS
        while not self.is_well():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"the server did not start; see {self._log}")
            time.sleep(0.5)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def is_well(self) -> bool:
        """Check whether it runs and has loaded the model."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return _request(self.port, "GET", "/health", None, 5)[0] == 200
        return False

    def complete(self, request: Mapping[str, Any]) -> Raw:
        """Return its whole answer to a Chat Completions request, without nanobot and the proxy."""
        streaming = ("stream", "stream_options", "return_progress")
        body = {key: value for key, value in request.items() if key not in streaming}
        body["max_tokens"] = min(body.get("max_tokens", _ENOUGH), _ENOUGH)
        _, answer = _request(self.port, "POST", "/v1/chat/completions", body, PATIENCE)
        content = json.loads(answer)
        choices = content.get("choices") or [{"message": {"content": json.dumps(content)}}]
        return Raw.of(choices[0]["message"])


@dataclass(frozen=True)
class Raw:
    """The raw answer of a model: its text, and its calls in any form."""

    text: str
    calls: Sequence[tuple[str, Mapping[str, Any]]]
    form: str

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Raw:
        """Return the answer in a message of the server."""
        text = str(message.get("content") or "")
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        native = [(one["name"], _object(one["arguments"])) for one in functions]
        written = list(calls_in(text))
        form = "native" if native else "as text" if written else "no call"
        return cls(text, native or written, form)

    def is_call(self, names: Sequence[str], *needed: str) -> bool:
        """Check whether it calls one of these tools with all of these texts in the arguments."""
        return any(
            name in names and all(one.lower() in _words(arguments) for one in needed)
            for name, arguments in self.calls
        )


def calls_in(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the calls in a text, more leniently than an agent may: any object with a name and
    arguments."""
    for match in _FUNCTION.finditer(text):
        rest = text[match.end() :].partition("</function>")[0]
        yield (
            match[1] or match[2] or match[3],
            next(objects_in(rest), dict(_PARAMETER.findall(rest))),
        )
    for found in objects_in(text):
        name = next((found[key] for key in _NAMES if isinstance(found.get(key), str)), "")
        arguments = next((_object(found[key]) for key in _VALUES if key in found), None)
        if name and arguments is not None:
            yield name, arguments


def objects_in(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the outermost JSON objects in a text."""
    at, decoder = 0, json.JSONDecoder(strict=False)
    while (at := text.find("{", at)) >= 0:
        try:
            found, at = decoder.raw_decode(text, at)
            yield found
        except ValueError:
            at += 1


def _object(value: object) -> Mapping[str, Any]:
    if isinstance(value, str):
        value = next(objects_in(value), {})
    return value if isinstance(value, dict) else {}


def _words(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False).lower()


@dataclass
class Exchange:
    """A request and its answer, `status` 0 before it arrives. `ended`: finished or disconnected."""

    path: str
    request: Mapping[str, Any]
    began: float
    status: int = 0
    body: bytearray = field(default_factory=bytearray)
    first: float = 0.0
    ended: float = 0.0
    whole: bool = False

    @property
    def usage(self) -> tuple[int, int]:
        """Tokens of prompt and answer, if the server reported them."""
        text = self.body.decode("utf-8", "replace")
        last = next(objects_in(text[text.rfind('"usage"') :]), {}) if '"usage"' in text else {}
        return int(last.get("prompt_tokens", 0)), int(last.get("completion_tokens", 0))

    def begins(self, words: str) -> bool:
        """Check whether the instructions of the request begin with these words."""
        messages = self.request.get("messages") or [{}]
        return str(messages[0].get("content", "")).lstrip().startswith(words)

    def asks(self, words: str) -> bool:
        """Check whether these words are in the newest message, and it is a person's."""
        messages = self.request.get("messages") or [{}]
        return messages[-1].get("role") == "user" and words in json.dumps(
            messages[-1].get("content"), ensure_ascii=False
        )


class Recorder:
    """The proxy in front of the server at `port`, in a thread. `exchanges` are its requests for
    answers, in order."""

    def __init__(self, port: int) -> None:
        self.port, self._upstream = free_port(), f"http://127.0.0.1:{port}"
        self.exchanges: list[Exchange] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Recorder:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def settle(self, seconds: float = 2.0, limit: float = PATIENCE) -> None:
        """Wait until there was no request for some seconds, for example of background work."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            now = time.monotonic()
            if all(one.ended and now - one.ended > seconds for one in self.exchanges[-8:]):
                return
            time.sleep(0.2)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        application = web.Application(client_max_size=1 << 26)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        # The server closes idle connections, perhaps just as one is used again.
        connector, timeout = TCPConnector(force_close=True), ClientTimeout(total=None)
        async with ClientSession(connector=connector, timeout=timeout) as self._session:
            self._ready.set()
            await self._over.wait()
            await runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        exchange = Exchange(request.path, _object(body.decode()), time.monotonic())
        if request.path.endswith("/chat/completions"):
            self.exchanges.append(exchange)
        kept = {key: value for key, value in request.headers.items() if key != "Host"}
        try:
            url = f"{self._upstream}{request.path_qs}"
            async with self._session.request(
                request.method, url, data=body, headers=kept
            ) as answer:
                exchange.status = answer.status
                response = web.StreamResponse(status=answer.status)
                response.content_type = answer.content_type
                await response.prepare(request)
                async for part in answer.content.iter_any():
                    exchange.first = exchange.first or time.monotonic()
                    exchange.body += part
                    await response.write(part)
                exchange.whole = True
                return response
        except ClientError as error:
            return web.Response(status=502, text=str(error))
        finally:
            exchange.ended = time.monotonic()


def _request(port: int, method: str, path: str, body: object, seconds: float) -> tuple[int, bytes]:
    """Return status and body of an answer."""
    sent = None if body is None else json.dumps(body)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    with contextlib.closing(connection):
        connection.request(method, path, sent, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
