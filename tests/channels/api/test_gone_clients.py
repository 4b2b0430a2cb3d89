"""A client that disconnects ends its request, unless its answer can still be delivered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nanobot.agent.hooks import TurnEvent
from nanobot.bus.events import InboundMessage, TurnEnded
from nanobot.testing import FakeClock, ScriptedModel, calls, says
from nanobot.tooling import TurnContext
from tests.channels.api.support import Api, chat, newest_text, repeat
from tests.doubles.slow import SlowServer
from tests.support import Gate, Probe

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}


class Ended:
    """A hook that counts the outcomes of turns and the stored messages."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.event = asyncio.Event()
        self._stored, self._changed = 0, asyncio.Event()

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None:
        if isinstance(event, TurnEnded):
            self.outcomes.append(event.outcome)
            self.event.set()
        elif isinstance(event, InboundMessage):
            self._stored += 1
            self._changed.set()

    async def until_stored(self, count: int) -> None:
        """Wait until so many messages were stored."""
        while self._stored < count:
            self._changed.clear()
            await self._changed.wait()


def responses(text: str, **more: Any) -> dict[str, Any]:
    """Return a request of the Responses API."""
    return {"model": "nanobot", "input": text, **more}


@asynccontextmanager
async def send_and_close(api: Api, path: str, body: object, **headers: str) -> AsyncIterator[None]:
    """Send a request, and close the connection at the end."""
    sent = {
        "Host": f"127.0.0.1:{api.port}",
        "Authorization": f"Bearer {api.key}",
        "Content-Type": "application/json",
        **headers,
    }
    data = json.dumps(body).encode()
    lines = [f"POST /v1/{path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    _, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write("\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""]).encode() + data)
    try:
        yield
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("begins", [False, True], ids=["reading", "writing"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("path", "body"),
    [("chat/completions", chat("one")), ("responses", responses("one", store=False))],
)
async def test_a_request_for_itself_ends_with_its_connection(
    api: Api, path: str, body: dict[str, Any], stream: bool, begins: bool
) -> None:
    server = SlowServer(begins=begins)
    async with server.serving() as model, api.running(model):
        async with send_and_close(api, path, {**body, "stream": stream}):
            await server.until_asked()
        await server.until_abandoned()
        assert await api.chat("two") == "Done."
    assert len(server.requests) == 2
    assert not list((api.home / "sessions").glob("*once*"))


async def test_stop_in_a_chat_client_ends_the_turn_of_a_conversation(api: Api) -> None:
    server = SlowServer(begins=True)
    async with server.serving() as model, api.running(model):
        body, headers = {**chat("one"), "stream": True}, {"X-OpenWebUI-Chat-Id": "c-1"}
        async with send_and_close(api, "chat/completions", body, **headers):
            await server.until_asked()
        await server.until_abandoned()
        answer = await api.post("chat/completions", chat("two"), X_OpenWebUI_Chat_Id="c-1")
    assert answer.data["choices"][0]["message"]["content"] == "Done."
    assert "one" in json.dumps(server.requests[-1]), "what was asked stays in the conversation"


async def test_a_whole_answer_for_a_conversation_is_made_without_its_client(api: Api) -> None:
    gate, ended = Gate(), Ended()
    model = ScriptedModel(author=repeat, hold=gate)
    async with api.running(model, clock=(clock := FakeClock()), hooks=(ended,)):
        async with send_and_close(api, "chat/completions", chat("one", conversation="me")):
            await gate.reached.wait()
        await clock.advance(5)
        gate.opened.set()
        await ended.event.wait()
    assert ended.outcomes == ["done"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("chat/completions", chat("one"), {"Idempotency-Key": "order-1"}),
        ("responses", responses("one", store=False), {"Idempotency-Key": "order-1"}),
        ("responses", responses("one", store=False, conversation="me"), {}),
        ("responses", responses("one"), {}),
    ],
)
async def test_one_that_can_be_come_back_to_goes_on(
    api: Api, path: str, body: dict[str, Any], headers: dict[str, str], stream: bool
) -> None:
    gate, ended = Gate(), Ended()
    model = ScriptedModel(author=repeat, hold=gate)
    async with api.running(model, clock=(clock := FakeClock()), hooks=(ended,)):
        async with send_and_close(api, path, {**body, "stream": stream}, **headers):
            await gate.reached.wait()
        await clock.advance(5)
        gate.opened.set()
        await ended.event.wait()
    assert ended.outcomes == ["done"]


async def test_of_a_request_that_ended_with_its_connection_no_file_stays(api: Api) -> None:
    server = SlowServer(begins=False)
    content = [{"type": "input_text", "text": "look"}, IMAGE]
    body = responses("", store=False) | {"input": [{"role": "user", "content": content}]}
    async with server.serving() as model, api.running(model):
        async with send_and_close(api, "responses", body):
            await server.until_asked()
        await server.until_abandoned()
    assert list((api.home / "state" / "channels" / "api" / "files").iterdir()) == []


async def test_a_tool_of_such_a_request_ends_with_it(api: Api) -> None:
    gate, ended = Gate(), Ended()
    tool = Probe(gate=gate, effects=True)
    model = ScriptedModel(calls("probe", text="slow"))
    async with api.running(model, tools=(tool,), hooks=(ended,)):
        async with send_and_close(api, "chat/completions", chat("one")):
            await gate.reached.wait()
        await ended.event.wait()
    assert ended.outcomes == ["stopped"]
    assert tool.killed == ["slow"]


async def test_one_that_waits_for_its_turn_never_begins(api: Api) -> None:
    gate, ended = Gate(), Ended()
    model = ScriptedModel(author=repeat, hold=gate)
    async with (
        api.running(model, hooks=(ended,), NANOBOT_AGENT__MAX_CONCURRENT_TURNS="1"),
        send_and_close(api, "chat/completions", chat("one", conversation="me")),
    ):
        await gate.reached.wait()
        async with send_and_close(api, "chat/completions", chat("two")):
            await ended.until_stored(2)
        await ended.until_stored(3)  # the message that retracts it
        gate.opened.set()
        assert await api.chat("three") == "re: three"
    assert [newest_text(prompt) for prompt in model.prompts] == ["one", "three"]


async def test_one_that_takes_too_long_is_stopped(api: Api) -> None:
    clock, server = FakeClock(), SlowServer(begins=False)
    async with server.serving() as model, api.running(model, clock=clock):
        asking = asyncio.create_task(api.post("chat/completions", chat("one")))
        await server.until_asked()
        while not asking.done():
            await clock.advance(15.0)
            await asyncio.wait([asking], timeout=0.01)
        answer = await asking
        assert (answer.status, answer.code) == (504, "timeout")
        await server.until_abandoned()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_key_that_is_revoked_gets_nothing_more_of_an_answer_under_way(
    api: Api, stream: bool
) -> None:
    asked, free = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        asked.set()
        await free.wait()

    async with api.running(ScriptedModel(author=lambda _: says("the vault is open"), hold=hold)):
        post = api.post("chat/completions", {**chat("one"), "stream": stream})
        waiting = asyncio.ensure_future(post)
        await asked.wait()
        api.keys.revoke("laptop")
        free.set()
        answer = await waiting
    assert b"vault" not in answer.body
    assert b"Incorrect API key" in answer.body
