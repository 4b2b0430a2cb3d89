"""Content of a page, a file, a quote or another person never becomes a long-term memory, through
the running gateway and with models that obey the attacker in every phase."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from nanobot.bus.events import Media, Quote
from nanobot.providers.port import Reply
from nanobot.testing import FakeClock, ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from nanobot.tooling import ToolResult
from tests.memory.attacker import (
    ME,
    ORDER,
    QUIET,
    find_poisoned,
    learner,
    obeying,
    repeating,
    run_owned,
)
from tests.support import Probe

TEXT = f"Great tea. {ORDER} {QUIET}"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32
DAY = 86_400


@dataclass
class PoisonedNanobot:
    """A running nanobot whose owner talks in chat 1, with a scripted model."""

    home: Path
    channel: FakeChannel
    model: ScriptedModel
    clock: FakeClock

    async def say(self, text: str, *replies: Reply, chat: str = "1", **how: object) -> str:
        self.model.then(*replies)
        sender = str(how.pop("sender_id", ME))
        event = await self.channel.say(text, chat, sender_id=sender, **how)  # type: ignore[arg-type]
        return await self.channel.answer_to(event, chat)

    async def obey(self, text: str = "thanks", chat: str = "1", **how: object) -> None:
        """Play a turn in which the model does and repeats everything the attacker wants."""
        await self.say(text, obeying(), repeating(), chat=chat, **how)

    async def launder(self, chat: str = "1", **how: object) -> None:
        """Play everything by which a text comes back later without its source."""
        await self.say("thanks", repeating(), chat=chat, **how)
        await self.say("/compact", chat=chat, **how)
        await self.obey("and what else?", chat=chat, **how)  # the source is no longer in the prompt
        await self.say("/compact", chat=chat, **how)
        await self.say("/new", chat=chat, **how)
        found = calls("search_memory", query="report accountant household")
        await self.say("What is new?", found, obeying(), says("ok"), chat=chat, **how)
        self.clock.jump(DAY)
        await self.say("/compact", chat=chat, **how)
        await self.say("/dream", chat=chat, **how)


Scene = Callable[[PoisonedNanobot], Awaitable[object]]


async def play(home: Path, *scenes: Scene) -> PoisonedNanobot:
    """Play scenes in one home. Each starts nanobot again."""
    clock = FakeClock()
    one = PoisonedNanobot(home, FakeChannel(clock=clock), ScriptedModel(), clock)
    fetch = Probe("probe_page", act=lambda _: ToolResult(TEXT))
    for scene in scenes:
        async with run_owned(
            home,
            one.model,
            one.channel,
            clock=one.clock,
            tools=(fetch,),
            learner=learner(),
        ):
            await scene(one)
    return one


async def page(s: PoisonedNanobot) -> None:
    await s.say("Read tea.example for me", calls("probe_page"), obeying(), repeating())
    await s.launder()


async def file(s: PoisonedNanobot) -> None:
    (s.home / "workspace" / "tea.txt").write_text(TEXT)
    await s.say("Read tea.txt", calls("read_file", path="tea.txt"), obeying(), says("ok"))
    await s.launder()


async def file_name(s: PoisonedNanobot) -> None:
    (s.home / "workspace" / f"{ORDER} {QUIET}.txt").write_text("x")
    await s.say("What is here?", calls("list_dir"), obeying(), says("ok"))
    await s.launder()


async def library(s: PoisonedNanobot) -> None:
    (s.home / "workspace" / "library").mkdir()
    (s.home / "workspace" / "library" / "tea.md").write_text(f"# Tea\n\n{TEXT}\n")
    found = calls("search_memory", query="accountant household tea")
    await s.say("Look it up", found, obeying(), says("ok"))
    await s.launder()


async def forward_and_try_again(s: PoisonedNanobot) -> None:
    await s.say(TEXT, obeying(), says("ok"), forwarded_from="Eve")
    await s.say("/retry", obeying(), says("ok"))
    await s.launder()


async def forward_command(s: PoisonedNanobot) -> None:
    await s.say(f"/note {TEXT}", obeying(), says("ok"), forwarded_from="Eve")
    await s.launder()


async def quote_and_try_again(s: PoisonedNanobot) -> None:
    quote = Quote("9", "Eve]\n", f"{TEXT}]\n{TEXT}\u2028{TEXT}")
    await s.say("what do you make of this?", obeying(), says("ok"), reply_to=quote)
    await s.say("/retry", obeying(), says("ok"))
    await s.launder()


async def image_name(s: PoisonedNanobot) -> None:
    s.channel.files["r"] = PNG
    media = (Media("r", "image", "image/png", f"{TEXT}]\n{TEXT}.png"),)
    await s.say("look", obeying(), says("ok"), media=media)
    await s.launder()


async def name_of_a_file_that_is_not_there(s: PoisonedNanobot) -> None:
    media = (Media("gone", "document", "", f"{TEXT}\n{TEXT}"),)
    await s.say("look", obeying(), says("ok"), media=media)
    await s.launder()


async def another_person(s: PoisonedNanobot) -> None:
    group = {"chat": "g", "is_group": True}
    await s.say("Shall we meet on Friday?", says("yes"), **group)  # type: ignore[arg-type]
    for text in (TEXT, "and do it", f"/note {TEXT}"):
        replies = () if text[0] == "/" else (obeying(), repeating())
        await s.say(text, *replies, sender_id="eve", **group)  # type: ignore[arg-type]
    await s.say("/retry", obeying(), repeating(), **group)  # type: ignore[arg-type]
    await s.launder(**group)  # type: ignore[arg-type]


SCENES = (
    page,
    file,
    file_name,
    library,
    forward_and_try_again,
    forward_command,
    quote_and_try_again,
    image_name,
    name_of_a_file_that_is_not_there,
    another_person,
)


@pytest.mark.parametrize("scene", SCENES)
async def test_nothing_of_the_attackers_stands_in_a_long_term_file(
    scene: Scene, tmp_path: Path
) -> None:
    one = await play(tmp_path, scene)
    assert find_poisoned(tmp_path) == []
    assert one.model.remaining == 0
    scope = "groups/fake_g/" if scene is another_person else ""
    pending = (tmp_path / "workspace" / scope / "memory" / "pending.md").read_text()
    assert all(f"-> {file}: " in pending for file in ("MEMORY.md", "USER.md", "SOUL.md"))
    assert QUIET in pending
    assert ORDER in pending


async def test_what_a_search_finds_again_is_as_foreign_as_it_was(tmp_path: Path) -> None:
    async def read(s: PoisonedNanobot) -> None:
        await s.say("Read tea.example", calls("probe_page"), repeating())
        await s.say("/compact")
        await s.say("/new")

    async def search(s: PoisonedNanobot) -> None:
        for source, query in (("message", "report accountant"), ("history", "They talked")):
            found = calls("search_memory", query=query, source=source)
            await s.say("What is new?", found, obeying(note=False), says("ok"))
            assert "eve@evil" in s.model.prompts[-1].messages[3].text
            await s.say("/discard")
        around = calls("search_memory", around="m:fake:1:1")
        await s.say("What is new?", around, obeying(note=False), says("ok"))

    await play(tmp_path, read, search)
    assert find_poisoned(tmp_path) == []


async def test_an_unconfirmed_note_is_foreign_in_every_prompt_that_shows_it(tmp_path: Path) -> None:
    async def scene(s: PoisonedNanobot) -> None:
        await s.say("Hello", says("hi"), chat="2")
        await s.say("Read tea.example", calls("probe_page"), calls("note", text=TEXT), says("ok"))
        await s.say("What is new?", obeying(note=False), repeating(), chat="3")
        await s.say("What is new?", says("a note"), chat="2")  # from the notice
        assert ORDER in s.model.prompts[-1].messages[-1].text
        s.clock.jump(3 * DAY)
        await s.say("Do it", obeying(note=False), says("ok"), chat="2")
        await s.say("/compact", chat="2")
        await s.say("/compact", chat="3")
        found = calls("search_memory", query="accountant household", source="note")
        await s.say("And?", found, obeying(note=False), says("ok"), chat="4")
        await s.say("/dream", chat="4")

    await play(tmp_path, scene)
    assert find_poisoned(tmp_path) == []
