"""Measure how long one request can block the event loop.

Each entry point is sent "many small", "one large" and "deep", and a process that only runs a
gateway reports how long its event loop was blocked.

    python -m bench.multipliers [NAME …]      # all, or names with one of these words

The exit code is 1 if the loop was blocked for more than `MOST_MILLISECONDS`, which never happens on
a quiet machine."""

from __future__ import annotations

import asyncio
import hmac
import io
import json
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench.multipliers_answers import SAID, SCENES, PageMessage, Scene
from bench.multipliers_requests import REQUESTS, Request, Way
from bench.reporting import report
from nanobot.channel.keys import ApiKeys
from nanobot.clock import SystemClock
from nanobot_whatsapp.cloud.inbound import HEADER as SIGNATURE
from nanobot_whatsapp.cloud.inbound import signature_of
from tests.channels.api.support import chat
from tests.channels.web.support import Served
from tests.doubles.graph import FakeGraphAPI
from tests.doubles.openai.answers import Answer, ChatRequest, Step
from tests.doubles.openai.server import FakeOpenAI
from tests.doubles.telegram import FakeTelegram
from tests.doubles.web import FakeWeb
from tests.ports import free_port
from tests.support import write_config

MOST_MILLISECONDS = 200.0
_SECONDS = 60.0


@dataclass
class MeteredGateway:
    """A running gateway, and the client for each of its entry points."""

    home: Path
    port: int
    process: subprocess.Popen[str]
    graph: FakeGraphAPI
    telegram: FakeTelegram
    site: FakeWeb
    steps: deque[Step]
    key: str = ""

    async def take(self) -> dict[str, object]:
        """Return the longest pause since the last call."""
        return await asyncio.to_thread(self._take)

    def _take(self) -> dict[str, object]:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\n")
        stdin.flush()
        taken: dict[str, object] = json.loads(stdout.readline())
        return taken

    async def send(self, request: Request) -> str:
        """Send a request and return the outcome."""
        if request.way is Way.CONTROL:
            return await asyncio.to_thread(self._control, request.body)
        if request.way is Way.PAGE:
            served = Served(f"http://127.0.0.1:{self.port}", self.home)
            async with served.visit() as visit:
                if request.method == "GET":
                    return str((await visit.get(request.path))[0])
                kind = {"Content-Type": request.kind}
                data = io.BytesIO(request.body)
                return str((await visit.post(request.path, data, **kind))[0])
        headers = {"Content-Type": request.kind}
        if request.way is Way.API:
            headers["Authorization"] = f"Bearer {self.key}"
        elif request.way is Way.TELEGRAM:
            headers["X-Telegram-Bot-Api-Secret-Token"] = self._telegram_secret()
        elif request.way is Way.WHATSAPP:
            headers[SIGNATURE] = signature_of(request.body, self.graph.app_secret)
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                request.method,
                f"http://127.0.0.1:{self.port}{request.path}",
                data=io.BytesIO(request.body),
                headers=headers,
            ) as answer,
        ):
            await answer.read()
            return str(answer.status)

    async def accept_tools(self) -> None:
        """Accept the tools of the MCP server."""
        served = Served("", self.home)
        await served.ask("mcp.check", server="bench")
        waiting = await served.ask("mcp.waiting", server="bench")
        await served.ask("mcp.approve", server="bench", digest=waiting["digest"])

    async def say(self, said: PageMessage) -> str:
        """Send a message on the page and return the outcome."""
        served = Served(f"http://127.0.0.1:{self.port}", self.home)
        text = said.make()
        async with served.visit() as visit:
            chat = await visit.new_chat()
            async with visit.open(f"/live?c={chat}&after=1000000") as live:
                sent = {"c": chat, "event": secrets.token_hex(16), "text": text}
                status, _ = await visit.post("/chat/send", sent)
                held = b""
                while status == 200 and b'"end"' not in held and b'"refresh"' not in held:
                    held = held[-20:] + await live.content.readany()
        return str(status)

    async def play(self, scene: Scene) -> str:
        """Play a scene and return the outcome."""
        for name, make in scene.files.items():
            await asyncio.to_thread((self.home / "workspace" / name).write_bytes, make())
        for path, make in scene.pages.items():
            self.site.put(path, make().decode(), "text/html")
        await asyncio.to_thread((self.home / "said.json").write_text, scene.said())
        self.steps.clear()
        self.steps.extend(scene.steps(self.site.url("").rstrip("/")))
        body = json.dumps(chat(f"go {self.site.url('/p')}")).encode()
        return await self.send(Request("", Way.API, "/v1/chat/completions", bytes, body=body))

    def _telegram_secret(self) -> str:
        return hmac.new(self.telegram.token.encode(), b"webhook", "sha256").hexdigest()

    def _control(self, body: bytes) -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(self.home / "state" / "gateway.sock"))
            try:
                client.sendall(body + b"\n")
                return client.recv(200).decode(errors="replace")[:60]
            except OSError as error:
                return type(error).__name__


@asynccontextmanager
async def start_gateway(home: Path) -> AsyncIterator[MeteredGateway]:
    """Run a gateway with every entry point open."""
    port = free_port()
    key = ApiKeys(home / "state" / "channels" / "api").add("bench", "", SystemClock().now())
    steps: deque[Step] = deque()

    def answer(_: ChatRequest) -> Step:
        return steps.popleft() if steps else Answer("ok")

    async with (
        FakeOpenAI(answer, validate=False) as model,
        FakeGraphAPI() as graph,
        FakeTelegram() as telegram,
        FakeWeb() as site,
    ):
        graph.webhook.deliver_to(f"http://127.0.0.1:{port}/whatsapp")
        telegram.webhook.route = f"http://127.0.0.1:{port}/telegram"
        write_config(home, _config(home, port, model, graph, telegram))
        process = await asyncio.to_thread(_start, home)
        try:
            await _wait_until_served(port)
            yield MeteredGateway(home, port, process, graph, telegram, site, steps, key)
        finally:
            process.terminate()
            process.communicate()


async def _wait_until_served(port: int) -> None:
    """Return when every entry point is open. Channels start in the background."""
    async with aiohttp.ClientSession() as session:
        for path in ("/v1/models", "/mcp", "/telegram", "/whatsapp", "/login"):
            status = 404
            while status == 404:
                await asyncio.sleep(0.02)
                with suppress(aiohttp.ClientConnectionError):
                    async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                        status = answer.status


def _start(home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.multipliers_gateway", str(home)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "ready" not in (line := process.stdout.readline()):
        if not line:
            raise RuntimeError("the gateway did not start")
    return process


def _config(
    home: Path, port: int, model: FakeOpenAI, graph: FakeGraphAPI, telegram: FakeTelegram
) -> dict[str, object]:
    return {
        "model": {"name": "fake-model", "base_url": model.base_url, "api_key": "x"},
        "owner": {"telegram": ["7"], "whatsapp": ["15550002222"]},
        "http": {"port": port},
        "channels": {
            "api": {"enabled": True},
            "web": {"enabled": True},
            "telegram": {
                "enabled": True,
                "token": telegram.token,
                "base_url": telegram.base_url,
                "webhook_url": "https://bot.example.org/telegram",
            },
            "whatsapp": {
                "enabled": True,
                **graph.settings(),
                "webhook_url": "https://bot.example.org/whatsapp",
            },
        },
        "limits": {"messages_per_minute": 0},
        "tools": {
            "approval": dict.fromkeys(("fetch", "mcp"), "allow"),
            "web": {"allow_hosts": ["127.0.0.1"]},
        },
        "mcp": {
            "servers": {
                "bench": {
                    "command": sys.executable,
                    "sandbox": False,
                    "args": ["-m", "bench.multipliers_server", str(home / "said.json")],
                    "env": {"PYTHONPATH": str(Path.cwd())},
                }
            }
        },
    }


async def measure(words: list[str]) -> float:
    """Print a line for each request and scene, and return the longest pause in milliseconds."""
    longest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        async with start_gateway(Path(folder) / "home") as gateway:
            await gateway.accept_tools()
            await gateway.take()
            everything: tuple[Request | Scene | PageMessage, ...] = (*REQUESTS, *SCENES, *SAID)
            for one in everything:
                if words and not any(word in one.name for word in words):
                    continue
                if isinstance(one, Request):
                    longest = max(
                        longest, await _measure(gateway, one.name, gateway.send(one.with_body()))
                    )
                elif isinstance(one, PageMessage):
                    longest = max(longest, await _measure(gateway, one.name, gateway.say(one)))
                else:
                    longest = max(longest, await _measure(gateway, one.name, gateway.play(one)))
    return longest


async def _measure(gateway: MeteredGateway, name: str, work: Awaitable[str]) -> float:
    begun = time.monotonic()
    try:
        async with asyncio.timeout(_SECONDS):
            outcome = await work
    except (TimeoutError, aiohttp.ClientError) as error:
        outcome = type(error).__name__
    await asyncio.sleep(0.3)
    taken = await gateway.take()
    blocked = float(str(taken["milliseconds"]))
    where = f"  TOO LONG {taken['where']}" if blocked > MOST_MILLISECONDS else ""
    seconds = time.monotonic() - begun
    print(
        f"{name:50} {outcome[:30]:>10} {seconds:6.1f} s {blocked:8.1f} ms{where}",
        flush=True,
        file=sys.stderr,
    )
    return blocked


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    longest = asyncio.run(measure(words))
    report("multipliers", {"the longest pause of the event loop [ms] (at most 200)": longest})
    sys.exit(longest > MOST_MILLISECONDS)


if __name__ == "__main__":
    main()
