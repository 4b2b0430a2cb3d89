"""Dream with the offline model over real files, sessions and versions: it learns, replaces, and
invents nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path

import pytest

from nanobot.memory.dream import Dream
from nanobot.memory.dream.state import DreamLimits, DreamReport
from nanobot.memory.history import HistoryEntry
from nanobot.memory.scopes import OWNER, Memories
from nanobot.messages import Message
from nanobot.providers.offline.extracts import consolidate
from nanobot.providers.offline.model import OfflineModel
from nanobot.security.paths import Root
from nanobot.session.manager import SessionManager
from nanobot.testing import FakeClock
from tests.doubles.state import MemoryState

KEY = "cli:direct"
TEMPLATE = {
    "memory/MEMORY.md": "# Long-term memory\n\n## User Information\n\n(facts)\n",
    "USER.md": "# User\n\n## Basics\n\n(name)\n\n## Preferences\n\n(likes)\n",
    "SOUL.md": "# Soul\n\n## Behaviour\n\n(manner)\n",
}


class OfflineConversation:
    """A conversation that is consolidated by the offline model and dreamt about."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.sessions = SessionManager(folder / "sessions", self.clock)
        self.workspace = folder / "workspace"
        for path, text in TEMPLATE.items():
            (self.workspace / path).parent.mkdir(parents=True, exist_ok=True)
            (self.workspace / path).write_text(text)
        root = Root(self.workspace)
        memories = Memories(root, folder / "state", self.clock, TEMPLATE)
        self.memory = memories.of(OWNER)
        self._dream = Dream(
            provider=OfflineModel(self.clock),
            memories=memories,
            clock=self.clock,
            read_messages=self.sessions.read_conversation,
            limits=DreamLimits(),
            state=MemoryState(),
        )

    async def talk(self, *texts: str) -> None:
        """Send the person's `texts`, and then consolidate the conversation."""
        session = await self.sessions.get_or_create(KEY)
        first = session.next_seq
        now = self.clock.now()
        for text in texts:
            session.add_message(Message("user", text, timestamp=now))
            session.add_message(Message("assistant", "I see.", timestamp=now))
        await self.sessions.save(session)
        said = "\n".join(f"[{now:%Y-%m-%dT%H:%M}] USER: {text}" for text in texts)
        saved = consolidate(
            f"## Current Long-term Memory\n(empty)\n\n## Conversation to Process\n{said}", now
        )
        facts = saved["key_facts"]
        assert isinstance(facts, list)
        entry = HistoryEntry(
            0, now, "consolidation", KEY, first, session.next_seq - 1, str(saved["history_entry"]),
            tuple(facts),
        )  # fmt: skip
        self.memory.history.append(entry)

    async def dream(self) -> DreamReport:
        return await self._dream.run(OWNER, asked=True)

    def read(self, path: str) -> str:
        return (self.workspace / path).read_text()


@pytest.fixture
async def conversation(tmp_path: Path) -> AsyncIterator[OfflineConversation]:
    made = OfflineConversation(tmp_path)
    yield made
    await made.sessions.close()


async def test_what_was_told_is_learned_once_where_it_belongs(
    conversation: OfflineConversation,
) -> None:
    await conversation.talk(
        "My dog is called Rex",
        "I like tea",
        "The parcel station is behind the church",
        "我住在上海",
    )
    report = await conversation.dream()
    assert report.problem == ""
    assert report.held_back == ()
    basics, _, preferences = conversation.read("USER.md").partition("## Preferences")
    assert "- User's dog is called Rex\n- 用户住在上海\n" in basics
    assert "- The user likes tea\n" in preferences
    assert "- The parcel station is behind the church" in conversation.read("memory/MEMORY.md")
    assert len(report.learned) == 4
    assert report.versions
    await conversation.talk("my dog is called Rex", "what is my dog called?")
    again = await conversation.dream()
    assert again.entries == 1
    assert again.learned == again.retired == ()


async def test_a_new_value_retires_the_old_one_and_can_be_undone(
    conversation: OfflineConversation,
) -> None:
    await conversation.talk("my favourite colour is blue")
    await conversation.dream()
    conversation.clock.jump(86_400)
    await conversation.talk("my favourite colour is green")
    report = await conversation.dream()
    assert "colour is green" in conversation.read("USER.md")
    assert "blue" not in conversation.read("USER.md")
    assert [(day, "blue" in line) for day, line in conversation.memory.store.list_retired()] == [
        (date(2026, 3, 3), True)
    ]
    undone = conversation.memory.versions.plan_undo(report.versions[-1])
    assert "blue" in undone.texts.get("USER.md", "") + undone.texts.get("memory/retired.md", "")


async def test_nothing_is_learned_from_small_talk(conversation: OfflineConversation) -> None:
    await conversation.talk("hello", "the weather is nice", "what time is it?", "thanks")
    report = await conversation.dream()
    assert report.entries == 1
    assert report.learned == ()
    assert {path: conversation.read(path) for path in TEMPLATE} == TEMPLATE
