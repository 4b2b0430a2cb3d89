"""What is broken inside shows in the health: threads, conversations, long-term memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.agent.session_queue import DISK_PAUSE
from nanobot.testing import FakeClock, ScriptedModel, says
from nanobot.testing.channel import FakeChannel
from tests.channels.telegram.whole import status_of
from tests.support import running


async def health_of(home: Path) -> tuple[str, str]:
    """The state, and what is wrong."""
    health = (await status_of(home))["health"]
    return health["state"], "; ".join(concern["text"] for concern in health["concerns"])


@pytest.mark.parametrize("content", [b"\0" * 900, b"# Memory\n\0\0\0\n"])
async def test_a_memory_of_zero_bytes_shows(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "workspace" / "memory" / "MEMORY.md"
    async with running(tmp_path, ScriptedModel(), FakeChannel()):
        assert await health_of(tmp_path) == ("ok", "")
        path.write_bytes(content)
        state, text = await health_of(tmp_path)
        assert (state, "memory/MEMORY.md is damaged" in text) == ("degraded", True)
        path.write_text("# Memory\n")
        assert await health_of(tmp_path) == ("ok", "")


async def test_jobs_that_are_not_used_show_until_somebody_saw_to_them(tmp_path: Path) -> None:
    async with running(tmp_path, ScriptedModel(), FakeChannel()):
        aside = tmp_path / "state" / "jobs.json.broken-1"  # of this start or an earlier one
        aside.write_text('{"version": 1, "jobs": [{}]}')
        state, text = await health_of(tmp_path)
        assert (state, "jobs could not be read and is not used" in text) == ("degraded", True)
        aside.unlink()
        assert await health_of(tmp_path) == ("ok", "")


async def test_a_conversation_that_cannot_be_read_shows_until_it_can(tmp_path: Path) -> None:
    path = tmp_path / "sessions" / "fake_1.jsonl"
    path.mkdir(parents=True)
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    async with running(tmp_path, ScriptedModel(says("hi")), channel, clock=clock):
        event = await channel.say("hello")
        await clock.until_sleeping()
        state, text = await health_of(tmp_path)
        assert (state, "conversation fake:1 cannot be read" in text) == ("degraded", True)
        path.rmdir()
        await clock.advance(DISK_PAUSE)
        assert await channel.answer_to(event) == "hi"
        assert await health_of(tmp_path) == ("ok", "")
