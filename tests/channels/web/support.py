"""A whole nanobot with its page, a signed-in visitor, and a browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from aiohttp import ClientResponse, ClientSession, CookieJar

from nanobot.app.gateway import Gateway
from nanobot.cli.client import Client
from nanobot.clock import Clock
from nanobot.providers.port import Provider
from nanobot.tooling import Tool
from tests.ports import free_port
from tests.support import PATIENCE, start_configured, write_config

_TOKEN = re.compile(r'name="form-token" content="([0-9a-f]+)"')


@dataclass
class Visit:
    """A browser without a screen: it keeps its cookie and sends the requests of a page."""

    base: str
    session: ClientSession
    token: str = ""

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Return status and text of a page."""
        async with self.session.get(f"{self.base}{path}", headers=_html(headers)) as answer:
            return answer.status, await answer.text()

    async def post(
        self, path: str, data: Any = None, *, token: str | None = None, **headers: str
    ) -> tuple[int, str]:
        """Send a form, as a page of the site does, without following a redirect."""
        sent = {"X-Form-Token": self.token if token is None else token, "Origin": self.base}
        async with self.session.post(
            f"{self.base}{path}", data=data, headers=sent | headers, allow_redirects=False
        ) as answer:
            return answer.status, await answer.text()

    async def new_chat(self) -> str:
        """Return the key of a new chat of this visitor."""
        async with self.session.get(f"{self.base}/chat/new", allow_redirects=False) as answer:
            return parse_qs(urlsplit(answer.headers["Location"]).query)["c"][0]

    async def say(self, chat: str, text: str) -> list[dict[str, Any]]:
        """Send a message in a chat of the page. Return the page's events until the answer."""
        event, heard = uuid4().hex, list[dict[str, Any]]()
        async with self.open(f"/live?c={chat}&after=1000000") as live:
            await live.content.readline()  # how soon to come back: it listens now
            data = {"c": chat, "event": event, "text": text}
            status, error = await self.post("/chat/send", data)
            assert status == 200, error
            async for line in live.content:
                if line.startswith(b"data: "):
                    heard.append(json.loads(line[6:]))
                    if f"web:{event}" in heard[-1].get("events", ()):
                        return heard
        raise AssertionError("the page was hung up on")

    @contextlib.asynccontextmanager
    async def open(self, path: str, **headers: str) -> AsyncIterator[ClientResponse]:
        """Yield the streamed answer."""
        async with self.session.get(f"{self.base}{path}", headers=headers) as answer:
            yield answer


def _html(headers: Mapping[str, str]) -> dict[str, str]:
    return {"Accept": "text/html"} | dict(headers)


@dataclass
class Served:
    """A nanobot with its page at `base`."""

    base: str
    home: Path

    async def ask(self, operation: str, **arguments: object) -> Any:
        """Return the result of an operation of the control socket."""
        return await asyncio.to_thread(self._ask, operation, arguments)

    async def link(self, account: str = "") -> str:
        """Return a new link, as `nanobot web` prints it."""
        data = await self.ask("web.link", account=account)
        return str(data["url"])

    @contextlib.asynccontextmanager
    async def visit(self, account: str = "") -> AsyncIterator[Visit]:
        """Sign in as the owner, or as the person with that account."""
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as session:
            visit = Visit(self.base, session)
            status, _ = await visit.get((await self.link(account)).removeprefix(self.base))
            assert status == 200
            found = _TOKEN.search((await visit.get("/chat"))[1])
            visit.token = found[1] if found else ""
            yield visit

    def _ask(self, operation: str, arguments: Mapping[str, object]) -> object:
        with contextlib.closing(Client(self.home)) as client:
            return client.ask(operation, arguments)


@dataclass
class Web(Served):
    """A `Served` in the test's own process."""

    gateway: Gateway


@contextlib.asynccontextmanager
async def serving(
    home: Path,
    model: Provider | None = None,
    *,
    config: Mapping[str, object] | None = None,
    clock: Clock | None = None,
    tools: Sequence[Tool] = (),
    port: int = 0,
) -> AsyncIterator[Web]:
    """Run a nanobot with its page. Without a model the embedded one answers."""
    port = port or free_port()
    own: dict[str, Any] = {"http": {"port": port}, "channels": {"web": {"enabled": True}}}
    for section, values in (config or {}).items():
        own[section] = {**own.get(section, {}), **values} if isinstance(values, dict) else values
    async with start_configured(home, own, model, clock=clock, tools=tools) as gateway:
        web = Web(f"http://127.0.0.1:{port}", home, gateway)
        await web.ask("web.list")  # which waits for the page to be there
        yield web


@contextlib.asynccontextmanager
async def kill_at_the_end(
    home: Path, port: int, config: Mapping[str, object] | None = None
) -> AsyncIterator[Served]:
    """Run a gateway with its page in a separate process, which gets SIGKILL at the end. Without
    other `config`, the embedded model answers."""
    own = {"http": {"port": port}, "channels": {"web": {"enabled": True}}}
    write_config(home, {**own, **(config or {})})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nanobot", "gateway"),
        env={**os.environ, "NANOBOT_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE):
            async for line in process.stderr:
                if b"HTTP server listens" in line:
                    break
        yield Served(f"http://127.0.0.1:{port}", home)
    finally:
        process.kill()
        await process.communicate()
