"""The exact contents of the files and of the prompt, over a real HTTP server."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

from nanobot.messages import ToolCall
from nanobot.testing import FakeClock, ScriptedModel, says
from nanobot.testing.channel import FakeChannel
from tests.doubles.openai.answers import Answer, ChatRequest
from tests.doubles.openai.server import FakeOpenAI
from tests.memory.consolidation_home import saves
from tests.memory.whole.learning import learner
from tests.support import running

DAY = 86_400
KEYS = [
    "cursor",
    "timestamp",
    "type",
    "session",
    "range",
    "summary",
    "key_facts",
    "operations",
    "origin",
]
MEMORY = "# Memory\n\n## Facts\n\n- Likes tea\n"


async def test_the_files_read_as_designed(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    model, folder = ScriptedModel(author=lambda _: says("yes")), tmp_path / "workspace" / "memory"
    mind = ScriptedModel(
        saves("[2026-03-02 09:00] They spoke of tea.", "# Memory\n\n- Likes tea\n", "Likes tea"),
        saves("They spoke\n\nof coffee."),
    )
    async with running(tmp_path, model, channel, clock=clock, learner=mind):
        for text in ("I like tea", "and coffee"):
            await channel.ask(text)
            await channel.ask("/compact")
        await channel.ask("/note water the plants\nand the tree")
        clock.jump(60)
        await channel.ask("/note call the mill")
    lines = (folder / "history.jsonl").read_text().splitlines()
    first, second = map(json.loads, lines)
    assert [list(first), list(second)] == [KEYS, KEYS]
    assert lines[0].startswith(
        '{"cursor": 1, "timestamp": "2026-03-02T09:00:00+00:00", "type": "consolidation", '
        '"session": "fake:1", "range": [1, 2], "summary": "[2026-03-02 09:00] They spoke of tea.", '
        '"key_facts": ["Likes tea"], "operations": ['
    )
    assert lines[0].endswith('"origin": []}')
    assert [operation["new"] for operation in first["operations"]] == ["- Likes tea"]
    assert (second["cursor"], second["range"], second["operations"]) == (2, [3, 4], [])
    assert (
        (folder / "HISTORY.md")
        .read_text()
        .endswith(
            "[2026-03-02 09:00] They spoke of tea.\n\n[2026-03-02 09:00] They spoke of coffee.\n\n"
        )
    )
    assert (folder / "2026-03-02.md").read_text() == (
        "# 2026-03-02\n\n- 09:00 water the plants\n  and the tree\n- 09:01 call the mill\n"
    )


def messages_of(request: ChatRequest) -> str:
    """Return the exact bytes of the conversation in a request."""
    start = request.raw.index(b'"messages":') + len(b'"messages":')
    text = request.raw[start:].decode().lstrip()
    return text[: json.JSONDecoder().raw_decode(text)[1]]


class Listener:
    """Answers turns, and now and then writes a note or a fact first. Records each conversation."""

    def __init__(self) -> None:
        self.turns = 0
        self.requests: list[list[object]] = []
        self.raw: list[str] = []

    def __call__(self, request: ChatRequest) -> Answer:
        self.requests.append(list(request.messages))
        self.raw.append(messages_of(request))
        asked = request.last_user_text.splitlines()[-1]
        if request.messages[-1]["role"] == "user" and asked.startswith(("note", "fact")):
            tool = "note" if asked.startswith("note") else "update_memory"
            arguments: dict[str, object] = {"text": asked} if tool == "note" else {"add": [asked]}
            return Answer("", (ToolCall(f"c{len(self.requests)}", tool, json.dumps(arguments)),))
        return Answer(f"answer to {asked}")

    def system(self) -> str:
        message = self.requests[-1][0]
        assert isinstance(message, dict)
        return str(message["content"])

    def texts(self) -> list[str]:
        return [str(m["content"]) for m in self.requests[-1] if isinstance(m, dict)]


async def test_a_prompt_extends_the_one_before_until_its_epoch_ends(tmp_path: Path) -> None:
    clock, listener = FakeClock(), Listener()
    channel = FakeChannel(clock=clock)
    file = tmp_path / "workspace" / "memory" / "MEMORY.md"
    file.parent.mkdir(parents=True)
    file.write_text(MEMORY)
    mind = ScriptedModel(author=learner())
    async with (
        FakeOpenAI(listener) as server,
        running(
            tmp_path,
            None,
            channel,
            clock=clock,
            learner=mind,
            NANOBOT_MODEL__BASE_URL=server.base_url,
            NANOBOT_MODEL__NAME="m",
        ),
    ):
        for turn in range(18):
            await channel.ask(f"{('note', 'say', 'fact')[turn % 3]} number{turn}")
            if turn % 5 == 1:  # by hand
                file.write_text(f"{file.read_text()}- by hand {turn}\n")
            if turn % 10 == 2:  # by Dream, from another conversation
                await channel.ask(f"dream: dreamt{turn} of it", "2")
                await channel.ask("/compact", "2")
                await channel.ask("/dream", "2")
        mine = [raw for raw in listener.raw if "fake:1]" in raw]
        for before, after in pairwise(mine):
            assert after.startswith(before[:-1])
        assert len(mine) == 30
        told = " ".join(listener.texts())
        assert "[memory changed: added " in told
        for what in ("fact number2", "by hand 16", "dreamt12", "note number15"):
            assert what in told, what

        started = listener.system()
        assert "\n\n---\n\n# Memory\n\n## Long-term Memory\n\n# Memory\n\n## Facts" in started
        assert "## Today's Notes" not in started
        await channel.ask("/compact")
        await channel.ask("say it")
        compacted = listener.system()
        assert "- by hand 16" in compacted
        assert "\n\n## Today's Notes\n\n# 2026-03-02\n\n- 09:00 note number0\n" in compacted
        await channel.ask("say more")
        assert listener.system() == compacted
        await channel.ask("/new")
        file.write_text(f"{file.read_text()}- by hand at last\n")
        await channel.ask("say anew")
        fresh = listener.system()
        assert "by hand at last" in fresh
        assert len(listener.requests[-1]) == 2
        assert "[today, Mon 2026-03-02 09:00 +00:00, fake:1]\n" in listener.texts()[1]
        for passed, label in ((DAY, "yesterday"), (2 * DAY, "3 days ago")):
            clock.jump(passed)
            await channel.ask("say and now?")
            assert f"[{label}, Mon 2026-03-02 09:00 +00:00, fake:1]\n" in listener.texts()[1]
        assert "## Today's Notes" not in listener.system()
