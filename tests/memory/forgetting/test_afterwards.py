"""A conversation that continues after `/forget` does not restore the facts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nanobot.testing import FakeClock, ScriptedModel
from nanobot.testing.channel import FakeChannel
from tests.files import files_with
from tests.memory.whole.learning import assistant, learner
from tests.support import running

SECRET = "Qopuvi Zarnetka"


async def forget(channel: FakeChannel, text: str) -> str:
    """Send the command and its code. Return the report."""
    planned = await channel.ask(text)
    code = re.search(r"--yes (\w+)", planned)
    assert code is not None, planned
    return await channel.ask(f"/forget --yes {code[1]}")


def find_holding(folder: Path) -> list[Path]:
    """Return the files that contain the secret."""
    return files_with(folder, SECRET)


@pytest.mark.parametrize("command", ["/forget", "/forget --erase"])
async def test_the_next_turn_neither_tells_it_nor_writes_it_down(
    tmp_path: Path, command: str
) -> None:
    memory = tmp_path / "workspace" / "memory" / "MEMORY.md"
    memory.parent.mkdir(parents=True)
    memory.write_text(f"# Memory\n\n- The neighbour is called {SECRET}\n- Likes tea\n")
    channel, model = FakeChannel(), ScriptedModel(author=assistant)
    async with running(tmp_path, model, channel, learner=ScriptedModel(author=learner())):
        await channel.ask("hello")
        assert SECRET in str(model.prompts[-1])
        await forget(channel, f"{command} {SECRET}")
        await channel.ask("thanks")
        assert SECRET not in str(model.prompts[-1])
    if command == "/forget --erase":
        assert find_holding(tmp_path) == []


async def test_a_late_yes_is_answered_by_the_command_and_a_yes_to_a_message_is_talk(
    tmp_path: Path,
) -> None:
    memory = tmp_path / "workspace" / "memory" / "MEMORY.md"
    memory.parent.mkdir(parents=True)
    memory.write_text(f"# Memory\n\n- The neighbour is called {SECRET}\n")
    clock = FakeClock()
    channel, model = FakeChannel(clock=clock), ScriptedModel(author=assistant)
    async with running(tmp_path, model, channel, clock=clock):
        await channel.ask("hello")
        await channel.ask(f"/forget {SECRET}")
        clock.jump(11 * 60)
    channel = FakeChannel(clock=clock)

    async def ask(text: str, event_id: str, chat_id: str = "1") -> str:
        return await channel.answer_to(await channel.say(text, chat_id, event_id=event_id), chat_id)

    async with running(tmp_path, model, channel, clock=clock):
        assert "This question has expired" in await ask("y", "late")
        assert len(model.prompts) == 1
        await ask(f"/forget {SECRET}", "again")
        await ask("/send fake:1 Did you eat?", "elsewhere", chat_id="2")
        assert (await channel.receive(3))[-1] == "Did you eat?"
        clock.jump(11 * 60)
        await ask("y", "ate")
        assert len(model.prompts) == 2
    assert SECRET in memory.read_text()
