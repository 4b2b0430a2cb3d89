"""`search_memory` over real sessions, notes and documents, used by the agent and the offline
model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot.errors import ToolError
from nanobot.memory.scopes import Scopes
from nanobot.memory.search import Sources
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.search.tool import SearchArguments, SearchMemory
from nanobot.messages import Message, ToolCall
from nanobot.providers.offline.model import OfflineModel
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    Toolset,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.manager import SessionManager
from nanobot.testing import FakeClock
from nanobot.tooling import TurnContext
from nanobot.tooling.registry import ToolRegistry
from nanobot.validation import build
from tests.memory.homes import match_owners

OWNER = TurnContext("telegram", "1", "telegram:1", "t1")
GUEST = TurnContext("telegram", "7", "telegram:7", "t2", scope="people/telegram_7")


class Home:
    """Two people's conversations, the owner's library, and the tool over all of them."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.sessions = SessionManager(folder / "sessions", self.clock)
        self.library = folder / "workspace" / "library"
        self.library.mkdir(parents=True)
        self.scopes = Scopes(match_owners("telegram:1"))
        sources = Sources(
            SessionCatalogue(folder / "sessions", self.clock),
            self.scopes.of_session,
            library=self.library,
        )
        self.index = MemoryIndex(folder / "index.db", sources, self.clock)
        self.tool = SearchMemory(self.index, self.scopes.readable)
        self.registry = ToolRegistry()
        self.registry.register(self.tool)

    async def say(self, key: str, text: str, origin: str = "") -> None:
        session = await self.sessions.get_or_create(key)
        now = self.clock.now()
        session.add_message(Message("user", text, timestamp=now, origin=origin))
        session.add_message(Message("assistant", "Noted.", timestamp=now))
        await self.sessions.save(session)

    async def search(self, caller: TurnContext, **arguments: str) -> str:
        return (await self.tool(build(SearchArguments, arguments), caller)).text

    async def ask(self, question: str, caller: TurnContext = OWNER) -> tuple[str, list[str]]:
        """Return the offline model's answer in a new conversation, and the called tools."""
        messages = [system_message("You are nanobot."), user_message(question)]
        called: list[str] = []
        tools = Toolset.of(self.registry.specs())
        for _ in range(10):
            reply = await OfflineModel(self.clock).complete(
                Prompt(tuple(messages), tools), CallOptions()
            )
            if not reply.tool_calls:
                return reply.text, called
            messages.append(assistant_message(reply.text, reply.tool_calls))
            for call in reply.tool_calls:
                called.append(call.name)
                result = await self.registry.call(call, caller)
                messages.append(tool_message(call.id, result.text))
        raise AssertionError("the model never answered")


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    made = Home(tmp_path)
    yield made
    await made.index.close()
    await made.sessions.close()


async def test_nothing_of_another_scope_is_seen_by_any_argument(home: Home) -> None:
    await home.say("telegram:1", "my boat is moored in Faro")
    await home.say("telegram:7", "my boat is scarlet")
    (home.library / "boats.md").write_text("The boat needs paint.")
    mine = await home.search(OWNER, query="boat")
    assert "Faro" in mine
    assert "library/boats.md:1" in mine
    assert "scarlet" not in mine
    theirs = await home.search(GUEST, query="boat")
    assert "scarlet" in theirs
    assert "Faro" not in theirs
    assert "paint" not in theirs
    named = await home.search(GUEST, query="boat", session="telegram:1")
    assert "Nothing found" in named
    for line in mine.splitlines():
        if "id=" in line and line.startswith("["):
            with pytest.raises(ToolError):
                await home.search(GUEST, around=line.rpartition("id=")[2])


async def test_a_result_with_foreign_text_taints_and_one_without_does_not(home: Home) -> None:
    await home.say("telegram:1", "my boat is moored in Faro")
    asked = SearchArguments(query="boat")
    assert (await home.tool(asked, OWNER)).trusted
    await home.say("telegram:1", "boats must be painted", origin="forwarded")
    assert not (await home.tool(asked, OWNER)).trusted


async def test_an_id_reads_on(home: Home) -> None:
    for number in range(20):
        await home.say("telegram:1", f"thing number {number}" if number != 9 else "the zebra")
    found = await home.search(OWNER, query="zebra", limit="1")
    first = next(line for line in found.splitlines() if line.startswith("[1]"))
    around = await home.search(OWNER, around=first.rpartition("id=")[2])
    assert "the zebra" in around
    assert "thing number 8" in around
    assert "thing number 10" in around


@pytest.mark.parametrize(
    ("told", "question", "answer"),
    [
        ("my boat is moored in Faro", "where is my boat moored?", "moored in Faro”"),
        ("The vet's number is 555 0101", "what did I tell you about the vet?", "555 0101”"),
        ("I went to the dentist", "when did I go to the dentist?", "You told me on 2026-03-02"),
        ("我的船停在法鲁", "我的船停在哪里？", "你在 2026-03-02 告诉过我：“我的船停在法鲁”"),
    ],
)
async def test_the_offline_model_answers_questions_about_the_past_from_it(
    home: Home, told: str, question: str, answer: str
) -> None:
    await home.say("telegram:1", told)
    await home.say("telegram:1", question)  # asked before, and not an answer
    reply, called = await home.ask(question)
    assert answer in reply
    assert "search_memory" in called


async def test_the_offline_model_admits_what_nobody_told_it(home: Home) -> None:
    await home.say("telegram:1", "my boat is moored in Faro")
    reply, called = await home.ask("what is the name of my dog?")
    assert "I don't know that" in reply
    assert "search_memory" in called
    reply, _ = await home.ask("where is my boat moored?", GUEST)
    assert "I don't know that" in reply


async def test_calls_as_a_model_writes_them_work(home: Home) -> None:
    await home.say("telegram:1", "my boat is moored in Faro")
    arguments = json.dumps({"query": "boat", "since": "2026-03", "source": "message"})
    result = await home.registry.call(ToolCall("1", "search_memory", arguments), OWNER)
    assert not result.is_error
    assert "Faro" in result.text
