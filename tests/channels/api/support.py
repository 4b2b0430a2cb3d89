"""A whole gateway with the API on a free port, and a plain HTTP client."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import aiohttp

from nanobot.agent.hooks import AgentHook
from nanobot.app.gateway import Gateway
from nanobot.channel.keys import ApiKeys
from nanobot.clock import Clock, SystemClock
from nanobot.providers.port import Prompt, Provider, Reply
from nanobot.testing import says
from nanobot.tooling import Risk, Tool, ToolResult, TurnContext
from tests.ports import free_port
from tests.support import TextArguments, start_configured, without_header

if TYPE_CHECKING:
    from openai import AsyncOpenAI

PERSON = "telegram:5"


def newest_text(prompt: Prompt) -> str:
    """Return the newest message, without its header."""
    return without_header(prompt.messages[-1].text)


def repeat(prompt: Prompt) -> Reply:
    """Answer `re: ` and the message."""
    return says(f"re: {newest_text(prompt)}")


@dataclass
class Api:
    """A home. `key` is the owner's, `persons` the key of `PERSON`, who has access on Telegram."""

    home: Path
    port: int = field(default_factory=free_port)
    settings: dict[str, object] = field(default_factory=dict)
    more: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = ApiKeys(self.home / "state" / "channels" / "api")
        self.key = self.add_key("laptop")

    def add_key(self, name: str, person: str = "", **kind: bool) -> str:
        """Create a key."""
        return self.keys.add(name, person, SystemClock().now(), **kind)

    @property
    def config(self) -> Mapping[str, object]:
        """The `config.yaml`."""
        return {
            "http": {"port": self.port},
            "channels": {
                "api": {"enabled": True, **self.settings},
                "telegram": {"enabled": False, "token": "1:abcdef", "allow_from": ["5"]},
            },
            **self.more,
        }

    @property
    def base_url(self) -> str:
        """The address of the API."""
        return f"http://127.0.0.1:{self.port}/v1"

    @contextlib.asynccontextmanager
    async def running(
        self,
        model: Provider | None,
        *,
        clock: Clock | None = None,
        tools: Sequence[Tool] = (),
        hooks: Sequence[AgentHook] = (),
        **environ: str,
    ) -> AsyncIterator[Gateway]:
        """Yield a reachable gateway."""
        async with start_configured(
            self.home, self.config, model, clock=clock, tools=tools, hooks=hooks, **environ
        ) as gateway:
            await self.until_reached()
            yield gateway

    async def until_reached(self) -> None:
        """Return when the server answers."""
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(f"{self.base_url}/models"):
                        return
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.02)  # leave the processor to the starting gateway

    def client(self, key: str = "") -> AsyncOpenAI:
        """Return OpenAI's client, without its retries."""
        from openai import AsyncOpenAI

        return AsyncOpenAI(base_url=self.base_url, api_key=key or self.key, max_retries=0)

    async def post(
        self, path: str, body: object, *, key: str | None = None, **headers: str
    ) -> Answer:
        """Send a plain HTTP request. `headers` have underscores for hyphens."""
        return await self.ask("POST", path, body, key=key, **headers)

    async def ask(
        self, method: str, path: str, body: object = None, *, key: str | None = None, **headers: str
    ) -> Answer:
        """Send a plain HTTP request with any method."""
        sent = {"Content-Type": "application/json"}
        if key != "":
            sent["Authorization"] = f"Bearer {key or self.key}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, f"{self.base_url}/{path}", data=None if body is None else data, headers=sent
            ) as answer,
        ):
            return Answer(answer.status, dict(answer.headers), await answer.read())

    async def chat(self, text: str, **more: Any) -> str:
        """Return the answer to a text."""
        answer = await self.post("chat/completions", chat(text, **more))
        assert answer.status == 200, answer.body
        return cast("str", answer.data["choices"][0]["message"]["content"])


class Away(Tool):
    """Sends content away, which needs approval after untrusted content."""

    name = "away"
    description = "For tests."
    arguments = TextArguments
    effects = True

    def __init__(self) -> None:
        self.called: list[str] = []

    async def risk(self, arguments: TextArguments, caller: TurnContext) -> Risk | None:
        """See `Tool`."""
        return Risk("send", "send it away", arguments.text)

    async def __call__(self, arguments: TextArguments, caller: TurnContext) -> ToolResult:
        self.called.append(arguments.text)
        return ToolResult("It is away.", trusted=True)


@dataclass
class Answer:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of its error, in OpenAI's shape."""
        error = self.data["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return str(error["code"])

    @property
    def events(self) -> list[Any]:
        """The JSON of a stream, without its end."""
        lines = self.body.decode().splitlines()
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return [json.loads(text) for text in data if text != "[DONE]"]


def chat(text: str, **more: Any) -> dict[str, Any]:
    """Return a request of Chat Completions."""
    return {"model": "nanobot", "messages": [{"role": "user", "content": text}], **more}
