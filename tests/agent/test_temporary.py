"""Temporary chats: after the answer no file of the home has a word of them, not even after a kill.

The words are searched in the bytes of all files, as the database's log keeps deleted ones."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from nanobot.bus.events import InboundMessage, TurnEnded
from nanobot.channel.temporary import make_temporary
from nanobot.clock import SystemClock
from nanobot.errors import NanobotError, ProviderError, ProviderRejected, ProviderUnavailable
from nanobot.testing import ScriptedModel, calls, fails, says
from nanobot.testing.channel import FakeChannel
from nanobot.tooling import Arguments, Risk, TurnContext
from tests.files import files_with
from tests.support import Gate, Probe, running, without_header

WORDS = ("aardvark", "bandicoot", "capybara", "dugong")


class Client(FakeChannel):
    """A client that keeps its temporary chat itself."""

    async def send_temporary(self, text: str, *earlier: object) -> str:
        now, number = SystemClock().now(), next(self._ids)
        message = InboundMessage("fake", "t1", "me", text, f"t{number}", now)
        host = await asyncio.shield(self._future())
        await host.publish((make_temporary(message, earlier),))
        return message.event_id

    async def ask_temporary(self, text: str, *earlier: object) -> str:
        return await self.answer_to(await self.send_temporary(text, *earlier), "t1")


def find_words(home: Path) -> list[str]:
    """Return the files that contain one of the words."""
    return [str(path) for path in files_with(home, *WORDS)]


async def test_nothing_of_a_temporary_chat_is_stored(tmp_path: Path) -> None:
    client = Client()
    model = ScriptedModel(
        calls("probe", text="capybara " * 5_000), says("a dugong"), says("yes"), says("normal")
    )
    async with running(tmp_path, model, client, tools=(Probe(),)):
        assert await client.ask_temporary("an aardvark") == "a dugong"
        (ended,) = (one for one in client.shown if isinstance(one, TurnEnded))
        first = ({"role": "user", "text": "an aardvark"},
                 {"role": "assistant", "text": "a dugong", "origin": ended.origin})  # fmt: skip
        assert await client.ask_temporary("a bandicoot?", *first) == "yes"
        (result,) = (one for one in model.prompts[1].messages if one.role == "tool")
        assert "capybara" in result.text
        texts = [without_header(one.text) for one in model.prompts[-1].messages[1:]]
        assert texts == ["an aardvark", "a dugong", "a bandicoot?"]
        assert find_words(tmp_path) == []
        assert await client.ask("hello", "2") == "normal"
        assert "aardvark" not in str(model.prompts[-1].messages)
    assert find_words(tmp_path) == []
    assert [path.name for path in (tmp_path / "sessions").glob("*.jsonl")] == ["fake_2.jsonl"]


async def test_while_the_model_is_down_nothing_is_stored_either(tmp_path: Path) -> None:
    client = Client()
    model = ScriptedModel(fails(ProviderUnavailable("down", retry_after=0.01)), says("a dugong"))
    async with running(tmp_path, model, client):
        event = await client.send_temporary("an aardvark")
        await client.receive(1, "t1")
        assert find_words(tmp_path) == []
        del event
    assert find_words(tmp_path) == []


_ECHO = "invalid input: 'an aardvark'"


@pytest.mark.parametrize("error", [ProviderRejected(_ECHO, status=400), ProviderUnavailable(_ECHO)])
async def test_what_a_server_repeats_is_not_stored(tmp_path: Path, error: ProviderError) -> None:
    client = Client()
    async with running(tmp_path, ScriptedModel(fails(error)), client):
        await client.send_temporary("an aardvark")
        await client.receive(1, "t1")
    assert find_words(tmp_path) == []


async def test_commands_work_and_store_nothing(tmp_path: Path) -> None:
    client, gate = Client(), Gate()
    model = ScriptedModel(says("a dugong"), hold=gate)
    async with running(tmp_path, model, client):
        event = await client.send_temporary("an aardvark")
        await gate.reached.wait()
        assert "Stopped" in await client.ask_temporary("/stop")
        assert "title is now" in await client.ask_temporary("/title bandicoot")
        del event
    assert find_words(tmp_path) == []
    assert not list((tmp_path / "sessions").glob("*"))


class Risky(Probe):
    """A tool that needs the owner's approval."""

    async def risk(self, arguments: Arguments, caller: TurnContext) -> Risk:
        return Risk("send", "send it", "to an aardvark")


async def test_a_question_about_a_call_is_not_stored(tmp_path: Path) -> None:
    client = Client()
    model = ScriptedModel(calls("probe", text="capybara"), says("a dugong"))
    settings = {"NANOBOT_OWNER__FAKE": '["me"]', "NANOBOT_TOOLS__APPROVAL__SEND": "ask"}
    async with running(tmp_path, model, client, tools=(Risky(),), **settings):  # type: ignore[arg-type]
        event = await client.send_temporary("a bandicoot")
        asked = await client.next_with_buttons()
        assert "to an aardvark" in asked.content
        assert find_words(tmp_path) == []
        await client.ask_temporary(asked.buttons[0].value)
        assert await client.answer_to(event, "t1") == "a dugong"
    assert find_words(tmp_path) == []


def test_a_client_must_say_what_the_answers_may_repeat() -> None:
    message = InboundMessage("fake", "t1", "me", "hello", "t1", SystemClock().now())
    for earlier in (
        [{"role": "assistant", "text": "hi"}],
        [{"role": "system", "text": "hi"}],
        [{"role": "user"}],
        ["hi"],
        [{"role": "user", "text": 5}],
    ):
        with pytest.raises(NanobotError, match="invalid"):
            make_temporary(message, earlier)
    with pytest.raises(NanobotError, match="too long"):
        make_temporary(message, [{"role": "user", "text": "x" * 400_001}])


_KILLED = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.agent.test_temporary import Client
from tests.support import Gate, Probe, running
from nanobot.testing import ScriptedModel, calls, says

async def main():
    client, gate = Client(), Gate()
    async def hold():
        if len(model.prompts) == 2:
            print("ready", flush=True)
            await gate()
    model = ScriptedModel(calls("probe", text="capybara"), says("a dugong"), hold=hold)
    async with running(Path(sys.argv[1]), model, client, tools=(Probe(),)):
        await client.ask_temporary("an aardvark")

asyncio.run(main())
"""


async def test_after_a_kill_the_message_is_lost_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _KILLED, str(tmp_path), root, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    assert find_words(tmp_path) == []
    client, model = Client(), ScriptedModel()
    async with running(tmp_path, model, client):
        (told,) = await client.receive(1, "t1")
        assert "temporary" in told
    assert model.prompts == []
    assert find_words(tmp_path) == []
