"""A stopped turn closes its request to the model server, which may serve only one request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot.clock import SystemClock
from nanobot.messages import TURN_STOPPED
from nanobot.session.manager import SessionManager
from nanobot.testing import FakeChannel
from tests.doubles.slow import SlowServer
from tests.support import running, window

pytestmark = pytest.mark.parametrize("begins", [False, True], ids=["reading", "writing"])
"""Stopped while the prompt is read, and while the reply is written."""


async def test_stop_closes_the_request(tmp_path: Path, begins: bool) -> None:
    server, channel = SlowServer(begins=begins), FakeChannel()
    async with server.serving() as model, running(tmp_path, model, channel):
        await channel.say("one")
        await server.until_asked()
        assert await channel.ask("/stop") == "Stopped."
        await server.until_abandoned()
        assert await channel.ask("two") == "Done."


async def test_stop_keeps_the_text_so_far_and_the_model_sees_where_it_was_stopped(
    tmp_path: Path, begins: bool
) -> None:
    server, channel = SlowServer(begins=begins), FakeChannel()
    async with server.serving() as model, running(tmp_path, model, channel):
        await channel.say("one")
        await server.until_asked()
        await channel.ask("/stop")
    written = [("assistant", "Let me see", "")] if begins else []
    stored = SessionManager(tmp_path / "sessions", SystemClock()).read_messages("fake:1")
    assert [(message.role, message.content, message.notice) for message in stored] == [
        ("user", "one", ""),
        *written,
        ("user", "", TURN_STOPPED),
    ]


async def test_a_message_that_interrupts_closes_the_request(tmp_path: Path, begins: bool) -> None:
    server, channel = SlowServer(begins=begins), FakeChannel()
    async with (
        server.serving() as model,
        running(tmp_path, model, channel, NANOBOT_AGENT__ON_BUSY="interrupt"),
    ):
        await channel.say("one")
        await server.until_asked()
        assert await channel.ask("two") == "Done."
        assert server.left == 1


async def test_deleting_the_message_closes_the_request(tmp_path: Path, begins: bool) -> None:
    server, channel = SlowServer(begins=begins), FakeChannel()
    async with server.serving() as model, running(tmp_path, model, channel):
        message = await channel.say("one")
        await server.until_asked()
        await channel.say("", deletes=message)
        await server.until_abandoned()
        assert await channel.ask("two") == "Done."
    assert [part.content for part in channel.sent] == ["Done."]
    written = ["Let me see"] if begins else []
    assert [text for _, text in await window(tmp_path)] == ["one", *written, "two", "Done."]


async def test_deleting_it_from_another_account_closes_nothing(
    tmp_path: Path, begins: bool
) -> None:
    server, channel = SlowServer(begins=begins), FakeChannel()
    async with server.serving() as model, running(tmp_path, model, channel):
        message = await channel.say("one")
        await server.until_asked()
        await channel.say("", deletes=message, sender_id="another")
        await channel.ask("/status")
        assert server.left == 0
        await channel.ask("/stop")


async def test_stop_closes_the_request_that_makes_room_for_the_turn(
    tmp_path: Path, begins: bool
) -> None:
    memory, chat, channel = (
        SlowServer(begins=begins),
        SlowServer(begins=True, hanging=0),
        FakeChannel(),
    )
    long = "We spoke of the garden and of what to cook this evening. " * 80
    async with (
        memory.serving() as learner,
        chat.serving() as model,
        running(
            tmp_path,
            model,
            channel,
            learner=learner,
            NANOBOT_MODEL__CONTEXT_WINDOW="16000",
            NANOBOT_MODEL__MAX_COMPLETION_TOKENS="2000",
        ),
    ):
        asked = asyncio.ensure_future(memory.until_asked())
        while not asked.done():
            answer = asyncio.ensure_future(channel.ask(long))
            await asyncio.wait({answer, asked}, return_when=asyncio.FIRST_COMPLETED)
        before = len(chat.requests)
        assert not answer.done()
        assert await channel.ask("/stop") == "Stopped."
        await memory.until_abandoned()
        answer.cancel()
        assert len(chat.requests) == before
