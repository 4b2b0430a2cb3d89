"""A home with 2,000 facts: the prompt keeps its share and its bytes, and search finds the rest."""

from __future__ import annotations

from pathlib import Path

from nanobot.agent.prompt import SEPARATOR
from nanobot.providers.port import estimate_tokens
from nanobot.testing import FakeClock, ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from tests.support import running

SHARE = 16_000
IMPORTANT = "- Allergic to penicillin"


def fact(number: int) -> str:
    return f"- Number {number:04} of the many things that were said and are remembered for good"


async def test_a_prompt_with_many_facts_stays_as_it_is_and_the_rest_is_found(
    tmp_path: Path,
) -> None:
    home, clock = tmp_path / "home", FakeClock()
    file = home / "workspace" / "memory" / "MEMORY.md"
    file.parent.mkdir(parents=True)
    marked = f"{IMPORTANT} <!-- importance 5: health -->"
    file.write_text("\n".join(["# Memory", "", marked, *map(fact, range(2_000))]) + "\n")
    before, channel = ScriptedModel(says("Hello.")), FakeChannel()
    async with running(home, before, channel, clock=clock):
        await channel.ask("Good morning.")
    model = ScriptedModel(
        calls("search_memory", query="number 0007"),
        says("It is remembered."),
        calls("update_memory", add=["Likes figs"]),
        says("I will remember that."),
        says("You are welcome."),
    )
    async with running(home, model, channel, clock=clock):
        for text in ("What is number 0007?", "Remember that I like figs.", "Thanks."):
            await channel.ask(text)

    system = before.prompts[0].messages[0].text
    memory = next(part for part in system.split(SEPARATOR) if part.startswith("# Memory"))
    assert estimate_tokens(memory) <= SHARE
    assert IMPORTANT in memory
    assert fact(1_999) in memory
    assert fact(7) not in memory
    assert {prompt.messages[0].text for prompt in model.prompts} == {system}
    assert fact(7) in model.prompts[1].messages[-1].text
    assert "- Likes figs\n" in file.read_text()
    assert '[memory changed: added "Likes figs"]' in model.prompts[-1].messages[-1].text
