"""A whole nanobot with Claude, through Anthropic's API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nanobot.testing.channel import FakeChannel
from nanobot.tooling import ToolResult
from tests.doubles.anthropic.rules import HAIKU_4_5, OPUS_5_5, SONNET, ModelRules
from tests.doubles.anthropic.server import Call, FakeAnthropic, Says, Scripted, Thinking
from tests.doubles.openai.answers import ChatRequest
from tests.support import Gate, Probe, running

ASKING = """
import asyncio, json, sys
from pathlib import Path
from nanobot.testing.channel import FakeChannel
from tests.support import running

async def main():
    channel = FakeChannel()
    async with running(Path(sys.argv[1]), None, channel, **json.loads(sys.argv[2])):
        await channel.ask("What is in the folder?")

asyncio.run(main())
"""


async def test_a_turn_that_was_killed_goes_on_with_its_signed_thinking(tmp_path: Path) -> None:
    """The model accepts a running turn with thinking only if it begins with the thinking."""
    asking: list[asyncio.subprocess.Process] = []

    def author(request: ChatRequest) -> Scripted:
        if len(request.messages) == 1:
            return Says((Thinking("Let me look."), Call("list_dir", '{"path": "."}')))
        if asking:
            asking.pop().kill()
        return "Nothing much."

    async with FakeAnthropic(author, model=HAIKU_4_5) as server:
        environ: dict[str, Any] = {
            "NANOBOT_MODEL__NAME": HAIKU_4_5.name,
            "NANOBOT_MODEL__API": "messages",
            "NANOBOT_MODEL__BASE_URL": server.base_url,
            "NANOBOT_MODEL__API_KEY": "key",
            "NANOBOT_MODEL__REASONING_EFFORT": "low",
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ASKING, str(tmp_path), json.dumps(environ)
        )
        asking.append(process)
        assert await process.wait() == -signal.SIGKILL
        before = len(server.requests)
        channel = FakeChannel()
        async with running(tmp_path, None, channel, **environ):
            assert await channel.receive(1) == ["Nothing much."]
        sent: Any = server.requests[-1].body
        assert len(server.requests) > before
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 2_048}
    assert sent["messages"][1]["content"][0]["thinking"] == "Let me look."


CALLING = """
import asyncio, json, sys
from pathlib import Path
from nanobot.testing import FakeChannel
from tests.support import Gate, Probe, running

async def main():
    channel, gate = FakeChannel(), Gate()
    tool = Probe(gate=gate, effects=True)
    async with running(Path(sys.argv[1]), None, channel, tools=[tool], **json.loads(sys.argv[2])):
        await channel.say("Well?")
        await gate.reached.wait()
        print("reached", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_turn_that_was_killed_while_its_tool_ran_goes_on_with_its_signed_thinking(
    tmp_path: Path,
) -> None:
    async with FakeAnthropic([LOOK, "Nothing much."], model=HAIKU_4_5) as server:
        environ: dict[str, Any] = {
            "NANOBOT_MODEL__NAME": HAIKU_4_5.name,
            "NANOBOT_MODEL__API": "messages",
            "NANOBOT_MODEL__BASE_URL": server.base_url,
            "NANOBOT_MODEL__API_KEY": "key",
            "NANOBOT_MODEL__REASONING_EFFORT": "low",
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CALLING, str(tmp_path), json.dumps(environ)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"reached\n"
        process.kill()
        await process.wait()
        channel = FakeChannel()
        async with running(tmp_path, None, channel, tools=[Probe(effects=True)], **environ):
            assert await channel.receive(1) == ["Nothing much."]
        sent: Any = server.requests[-1].body
    assert sent["messages"][1]["content"][0]["thinking"] == "Let me look."
    assert "interrupted" in json.dumps(sent["messages"][2]["content"])


LOOK = Says((Thinking("Let me look."), Call("probe", '{"text": "a"}')))
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJg"
    "gg=="
)


@pytest.fixture(params=[SONNET, OPUS_5_5, HAIKU_4_5], ids=lambda model: model.name)
def model(request: pytest.FixtureRequest) -> ModelRules:
    """A thinking model, one with thinking bound to the conversation, and one with a budget."""
    given: ModelRules = request.param
    return given


@contextlib.asynccontextmanager
async def talking(
    home: Path,
    server: FakeAnthropic,
    model: ModelRules,
    *tools: Probe,
    channel: FakeChannel | None = None,
    **settings: Any,
) -> AsyncIterator[FakeChannel]:
    """Run a nanobot that asks `server`. At the end, check that no request was rejected, except for
    the first form of thinking if the model lacks it."""
    channel = channel or FakeChannel()
    configured: dict[str, Any] = {
        "NANOBOT_MODEL__NAME": model.name,
        "NANOBOT_MODEL__API": "messages",
        "NANOBOT_MODEL__BASE_URL": server.base_url,
        "NANOBOT_MODEL__API_KEY": "key",
        "NANOBOT_MODEL__REASONING_EFFORT": "low",
        **settings,
    }
    async with running(home, None, channel, tools=tools, **configured):
        yield channel
    refused = [error.message for error in server.refused]
    assert refused == (
        [] if model.adaptive else ["adaptive thinking is not supported on this model"]
    )


async def test_a_message_during_a_tool_reaches_the_model_with_the_result(
    tmp_path: Path, model: ModelRules
) -> None:
    gate = Gate()
    async with (
        FakeAnthropic([LOOK, "Done both.", "Fine."], model=model) as server,
        talking(tmp_path, server, model, Probe(gate=gate)) as channel,
    ):
        await channel.say("look at it")
        await gate.reached.wait()
        second = await channel.say("and hurry up")
        gate.opened.set()
        assert await channel.answer_to(second) == "Done both."
        assert await channel.ask("and now?") == "Fine."
        content = server.requests[-2].messages[-1]["content"]
    assert isinstance(content, list)
    assert [block["type"] for block in content] == ["tool_result", "text"]
    assert "and hurry up" in content[1]["text"]


async def test_after_a_stopped_turn_the_next_one_works(tmp_path: Path, model: ModelRules) -> None:
    gate = Gate()
    async with (
        FakeAnthropic([LOOK, "Here.", "Fine."], model=model) as server,
        talking(tmp_path, server, model, Probe(gate=gate)) as channel,
    ):
        await channel.say("look at it")
        await gate.reached.wait()
        assert await channel.ask("/stop") == "Stopped."
        assert await channel.ask("something else") == "Here."
        assert await channel.ask("and now?") == "Fine."


async def test_at_the_step_limit_the_model_answers_without_tools(
    tmp_path: Path, model: ModelRules
) -> None:
    async with (
        FakeAnthropic([LOOK, LOOK, "That is all.", "Fine."], model=model) as server,
        talking(tmp_path, server, model, Probe(), NANOBOT_AGENT__MAX_ITERATIONS="2") as channel,
    ):
        assert "That is all." in await channel.ask("look everywhere")
        assert await channel.ask("and now?") == "Fine."


async def test_a_picture_from_a_tool_follows_its_result(tmp_path: Path, model: ModelRules) -> None:
    shows = Probe(act=lambda _: ToolResult("here it is", images=((PNG, "image/png"),)))
    async with (
        FakeAnthropic([LOOK, "I see.", "Fine."], model=model) as server,
        talking(tmp_path, server, model, shows) as channel,
    ):
        assert await channel.ask("look") == "I see."
        content = server.requests[-1].messages[-1]["content"]
        assert await channel.ask("and now?") == "Fine."
    assert isinstance(content, list)
    assert [block["type"] for block in content][0::2] == ["tool_result", "image"]


async def test_a_call_that_was_cut_does_not_run_and_the_conversation_goes_on(
    tmp_path: Path, model: ModelRules
) -> None:
    cut = Says((Thinking("Hm."), Call("probe", '{"text": "a')), stop="max_tokens")
    probe = Probe()
    async with (
        FakeAnthropic([cut, "Sorry.", "Fine."], model=model) as server,
        talking(tmp_path, server, model, probe) as channel,
    ):
        assert await channel.ask("look") == "Sorry."
        assert await channel.ask("and now?") == "Fine."
    assert probe.called == []


async def test_a_new_process_goes_on_after_turns_with_tools(
    tmp_path: Path, model: ModelRules
) -> None:
    script: list[Scripted] = [LOOK, "Done.", LOOK, "Done again.", "Fine."]
    channel = FakeChannel()
    async with FakeAnthropic(script, model=model) as server:
        async with talking(tmp_path, server, model, Probe(), channel=channel):
            assert await channel.ask("look") == "Done."
        server.refused.clear()
        async with talking(tmp_path, server, model, Probe(), channel=channel):
            assert await channel.ask("look again") == "Done again."
            assert await channel.ask("and now?") == "Fine."
