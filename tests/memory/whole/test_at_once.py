"""Two chats, consolidation, Dream and the person's editor change MEMORY.md at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from nanobot.clock import SystemClock
from nanobot.memory.gitstore import GitStore
from nanobot.security.paths import Root
from nanobot.testing import ScriptedModel
from nanobot.testing.channel import FakeChannel
from tests.memory.whole.editor import Editor
from tests.memory.whole.learning import assistant, learner
from tests.support import running

FILE = "memory/MEMORY.md"
WORDS = [
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heron",
    "inlet",
    "juniper",
    "kestrel",
    "lagoon",
]


class Facts:
    """Lines with hardly a common word, and their authors."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.author: dict[str, str] = {}

    def by(self, author: str) -> str:
        number = len(self.author)
        words = self.rng.sample(WORDS, 3)
        line = f"{author}{number} " + " ".join(f"{word}{number}" for word in words)
        self.author[line] = author
        return line


def add(line: str, at: float) -> str | object:
    def edit(text: str) -> str:
        lines = text.splitlines()
        lines.insert(round(at * len(lines)), f"- {line}")
        return "\n".join(lines) + "\n"

    return edit


def authors(home: Path) -> dict[str, str]:
    """Return the author of the version that brought each current line."""
    store = GitStore(home / "state", Root(home / "workspace"), SystemClock())
    store.record_hand_edits()
    found: dict[str, str] = {}
    for snapshot in store.lineage(FILE):
        before = snapshot.before.splitlines()
        new = [line for line in snapshot.after.splitlines() if line not in before]
        for line in new:
            found.setdefault(line.removeprefix("- "), snapshot.version.author)
    return found


@pytest.mark.parametrize("seed", range(2))
async def test_nobodys_line_is_lost_and_each_is_known_as_its_authors(
    tmp_path: Path, seed: int
) -> None:
    channel, facts = FakeChannel(), Facts(seed)
    edits = [add(facts.by("you"), facts.rng.random()) for _ in range(12)]
    editor = Editor(tmp_path / "workspace" / FILE, *edits)  # type: ignore[arg-type]
    model = ScriptedModel(author=assistant)
    async with running(tmp_path, model, channel, learner=ScriptedModel(author=learner())):
        with editor:
            for _ in range(4):
                rounds = [
                    channel.ask(f"remember: {facts.by('agent')}", "1"),
                    channel.ask(f"remember: {facts.by('agent')}", "2"),
                    _consolidate(channel, f"consolidate: {facts.by('consolidate')}", "3"),
                    _consolidate(channel, f"dream: {facts.by('dream')}", "4"),
                    channel.ask("/dream", "5"),
                ]
                facts.rng.shuffle(rounds)
                await asyncio.gather(*rounds)
            await channel.ask("/dream", "5")
            while editor.left:
                editor.save()
        await channel.ask("/memory", "1")
    text = (tmp_path / "workspace" / FILE).read_text()
    assert [line for line in facts.author if text.count(line) != 1] == []
    known = authors(tmp_path)
    assert {line: known.get(line) for line in facts.author} == facts.author


async def _consolidate(channel: FakeChannel, text: str, chat: str) -> None:
    await channel.ask(text, chat)
    await channel.ask("/compact", chat)
