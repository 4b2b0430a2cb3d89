"""A whole nanobot with Claude, killed in the middle of a turn."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from nanobot.testing.channel import FakeChannel
from tests.doubles.anthropic.rules import HAIKU_4_5
from tests.doubles.anthropic.server import Call, FakeAnthropic, Says, Scripted, Thinking
from tests.doubles.openai.answers import ChatRequest
from tests.support import running

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
    """The model takes a running turn with thinking only if it begins with the thinking."""
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
            assert await channel.received(1) == ["Nothing much."]
        sent: Any = server.requests[-1].body
        assert len(server.requests) > before
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 2_048}
    assert sent["messages"][1]["content"][0]["thinking"] == "Let me look."
