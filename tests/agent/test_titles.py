"""Titles by a model: once for a conversation, after its first answer, and only if it is set."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot.agent.titles import TitleWriter
from nanobot.cli.agent import replies
from nanobot.cli.client import Client
from nanobot.errors import ProviderUnavailable
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.tasks import Background
from nanobot.testing import FakeClock, ScriptedModel, fails, says
from nanobot.testing.channel import FakeChannel
from tests.support import running, start_configured

KEY = "cli:direct"


async def answer(sessions: SessionManager, text: str, turn_id: str) -> Session:
    session = await sessions.get_or_create(KEY)
    session.add_message(Message("user", text, turn_id=turn_id))
    session.add_message(Message("assistant", "An **answer**", turn_id=turn_id))
    session.stage_use()
    await sessions.save(session)
    return session


@pytest.fixture
def sessions(tmp_path: Path) -> SessionManager:
    return SessionManager(tmp_path / "sessions", FakeClock())


def title_of(sessions: SessionManager) -> str:
    return next((one.title for one in sessions.list_sessions()), "")


async def test_the_title_is_written_once(sessions: SessionManager) -> None:
    model, background = ScriptedModel(says("“A *trip* to Rome”\n")), Background()
    writer = TitleWriter(model, sessions, background)
    for turn_id in ("t1", "t2"):
        writer.begin(await answer(sessions, "where to go?", turn_id), turn_id)
        await background.wait(10)
    assert title_of(sessions) == "A trip to Rome"
    (prompt,) = model.prompts
    assert prompt.messages[0].text.endswith("user: where to go?\n\nassistant: An **answer**")
    assert [one.use for one in model.options] == ["titles"]
    session = await sessions.get_or_create(KEY)
    session.clear("1")
    await sessions.save(session)
    await answer(sessions, "new words", "t3")
    assert title_of(sessions) == "new words"
    await sessions.close()


async def test_without_an_answer_of_the_model_the_first_words_stay(
    sessions: SessionManager,
) -> None:
    model = ScriptedModel(fails(ProviderUnavailable("down")), says(" "))
    background = Background()
    writer = TitleWriter(model, sessions, background)
    writer.begin(await answer(sessions, "where to go?", "t1"), "t1")
    await background.wait(10)
    assert title_of(sessions) == "where to go?"
    await sessions.close()


async def test_a_title_of_the_person_is_kept(sessions: SessionManager) -> None:
    model, background = ScriptedModel(), Background()
    session = await answer(sessions, "where to go?", "t1")
    await sessions.change_metadata(session, title="Mine")
    TitleWriter(model, sessions, background).begin(session, "t1")
    await background.wait(10)
    assert title_of(sessions) == "Mine"
    await sessions.close()


async def test_the_model_of_the_settings_writes_the_title(tmp_path: Path) -> None:
    config = {
        "models": {"small": {"name": "s", "base_url": "http://127.0.0.1:9"}},
        "use": {"titles": "small"},
    }
    model = ScriptedModel(says("hi"), says("A greeting"))
    async with start_configured(tmp_path, config, model):
        client = await asyncio.to_thread(Client, tmp_path)
        await asyncio.to_thread(
            lambda: list(replies(client, client.send_message("hello", KEY), KEY))
        )
        client.close()
        sessions = SessionManager(tmp_path / "sessions", FakeClock())
        while title_of(sessions) != "A greeting":  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.01)
    assert [one.use for one in model.options] == ["chat", "titles"]


async def test_no_model_is_asked_unless_it_is_set(tmp_path: Path) -> None:
    model, channel = ScriptedModel(says("hi"), says("ho")), FakeChannel()
    async with running(tmp_path, model, channel):
        assert await channel.ask("hello") == "hi"
        assert await channel.ask("again") == "ho"
    assert len(model.prompts) == 2
