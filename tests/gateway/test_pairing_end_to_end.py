"""A stranger and a running nanobot, from the first message to the first answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot.app.gateway import Gateway
from nanobot.channel import ChannelHost, Chat, Sender
from nanobot.cli.main import main
from nanobot.config.load import load_settings
from nanobot.testing import ScriptedModel, says
from nanobot.testing.channel import FakeChannel
from tests.files import files_with

ME = Sender("7", "Anna")
GRACE = {"NANOBOT_AGENT__SHUTDOWN_GRACE_SECONDS": "0"}


class AskingChannel(FakeChannel):
    """A channel that checks access first, as adapters must."""

    async def run(self, host: ChannelHost) -> None:
        self.host = host
        await super().run(host)

    async def writes(self, text: str, sender: Sender = ME) -> str | None:
        """Receive a private message. Return the event id if it was accepted."""
        if self.host.admit(sender, Chat(sender.id)) == "refused":
            return None
        return await self.say(text, sender.id, sender_id=sender.id)


@contextlib.asynccontextmanager
async def living(home: Path, model: ScriptedModel, channel: FakeChannel) -> AsyncIterator[None]:
    gateway = Gateway(load_settings(home, GRACE), provider=model, channels=(channel,), chores=False)
    ready = asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(gateway.run(on_ready=ready.set, signals=False))
        await ready.wait()
        try:
            yield
        finally:
            gateway.request_stop()


async def test_a_new_user_becomes_the_owner_without_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, channel = tmp_path / "home", AskingChannel()

    async def types(*arguments: str) -> str:
        code = await asyncio.to_thread(main, ["--home", str(home), "pair", *arguments])
        assert code == 0
        return capsys.readouterr().out

    async with living(home, ScriptedModel(says("Nice to meet you.")), channel):
        assert await channel.writes("my password is hunter2") is None
        assert await channel.writes("hello?") is None
        (told,) = await channel.receive(1, "7")
        code = told.split("`")[1]
        assert f"nanobot pair approve {code}" in told
        assert "as the owner" in await types("approve", code, "--owner")
        assert "as the owner" in (await channel.receive(2, "7"))[1]
        event = await channel.writes("I am Anna")
        assert event is not None
        assert await channel.answer_to(event, "7") == "Nice to meet you."
        event = await channel.writes("/pair list")
        assert event is not None
        assert "`Anna` (`fake:7`), owner" in await channel.answer_to(event, "7")
        await types("revoke", "fake:7")
        assert await channel.writes("still there?") is None
    assert files_with(home, "hunter2") == []


async def test_a_code_given_before_a_restart_is_good_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, channel = tmp_path / "home", AskingChannel()
    async with living(home, ScriptedModel(), channel):
        await channel.writes("hello")
        (told,) = await channel.receive(1, "7")
    code = told.split("`")[1]
    command = ["--home", str(home), "pair", "approve", code, "--json"]
    assert await asyncio.to_thread(main, command) == 0  # on the files
    assert json.loads(capsys.readouterr().out)["id"] == "7"
    channel = AskingChannel()
    async with living(home, ScriptedModel(says("hello Anna")), channel):
        event = await channel.writes("hello again")
        assert event is not None
        assert await channel.answer_to(event, "7") == "hello Anna"
