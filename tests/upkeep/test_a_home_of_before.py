"""A home that an earlier version left behind, killed in the middle of a turn, is taken over whole.

`tests/fixtures/home-3120a9f.tar.gz` was made by that version: conversations in the terminal and on
Telegram, memory with versions and a Dream, jobs, a skill that was enabled, pairings, a server's
tools that wait to be accepted, a fact that waits for the owner, a message that is being answered,
and a reply that was on its way.
"""

from __future__ import annotations

import contextlib
import json
import tarfile
from pathlib import Path

import pytest

from nanobot.bus.journal_file import SqliteState, inspect_journal
from nanobot.bus.state import DOCUMENTS
from nanobot.cron.job import JobStore
from nanobot.memory.gitstore import GitStore
from nanobot.security.access import Access, AccessRules
from nanobot.security.paths import Root
from nanobot.session.manager import SessionManager
from nanobot.skills.loader import SkillsLoader
from nanobot.testing import FakeClock, ScriptedModel, says
from nanobot.tools.mcp.values import Ledger
from tests.doubles.telegram import FakeTelegram
from tests.support import talking

HOME = Path(__file__).parents[1] / "fixtures" / "home-3120a9f.tar.gz"
FACTS = ["The user lives in Porto", "User's locker number is 12", "用户的生日是五月三日"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    with tarfile.open(HOME) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_what_was_kept_in_files_is_found_in_the_documents(home: Path) -> None:
    state, clock = home / "state", FakeClock()
    before = {path.stem: path.read_bytes() for path in state.glob("*.json")}
    assert inspect_journal(state / "journal.db").documents == before
    with contextlib.closing(SqliteState(state)) as documents:
        jobs = JobStore(documents).load()
        assert [job.message for job in jobs.values()] == [
            "Stretch",
            "Say good morning",
            "Water the plants",
        ]
        access = Access(documents, {"telegram": AccessRules()}, {}, clock)
        assert (access.load(), [one.name for one in access.approved()]) == ("", ["Anna"])
        (skill,) = [
            one
            for one in SkillsLoader(Root(home / "workspace"), documents).list()
            if one.source == "workspace"
        ]
        assert (skill.name, skill.enabled) == ("tea", True)
        listing = Ledger(documents).load()["far"]
        assert [card.name for card in listing.waiting] == ["search"]
        assert {name for name in DOCUMENTS if documents.read(name)} == set(before)
    assert {path.name.removesuffix(".json.imported") for path in state.glob("*.imported")} == set(
        before
    )
    assert len(list(state.glob("journal.db.before-*"))) == 1


async def test_what_was_said_and_learned_is_all_there(home: Path) -> None:
    raw = {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()]
        for path in (home / "sessions").glob("*.jsonl")
    }
    sessions = SessionManager.in_folder(home / "sessions", FakeClock())
    keys = [info.key for info in sessions.list_sessions()]
    for key in keys:
        said = [line["content"] for line in raw[key.replace(":", "_")] if "role" in line]
        assert [message.content for message in sessions.read_messages(key)] == said
    assert {key.replace(":", "_") for key in keys} == set(raw)
    memory = (home / "workspace" / "memory" / "MEMORY.md").read_text()
    assert all(f"- {fact}" in memory for fact in FACTS)
    versions = GitStore(home / "state", Root(home / "workspace"), FakeClock())
    assert {one.author for one in versions.log()} >= {"start", "agent", "dream"}
    await sessions.close()


async def test_what_was_under_way_is_finished(home: Path) -> None:
    model = ScriptedModel(says("Here is the answer."))
    async with FakeTelegram() as telegram:
        telegram.person(8, first_name="Anna")
        async with talking(home, telegram, model):
            await telegram.received(1, 7)
            await telegram.received(1, 8)
        assert telegram.texts(7) == ["Here is the answer."]
        assert telegram.texts(8)[0].startswith("A reply that Anna has not got.")
    assert "a question nobody has answered" in model.prompts[0].messages[-1].text
    assert not list((home / "state").glob("*.broken*"))
