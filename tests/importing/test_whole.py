"""Homes of the real other program are imported whole, and their conversations continue."""

from __future__ import annotations

import shutil
from pathlib import Path

from nanobot.config.load import load_settings
from nanobot.config.values import plain_values
from nanobot.cron.job import decode_jobs
from nanobot.memory.history import HistoryLog
from nanobot.security.paths import Root
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.jsonl_store import JsonlStore
from nanobot.skills.loader import SkillsLoader
from nanobot.testing import FakeClock, ScriptedModel, says
from nanobot.testing.channel import FakeChannel
from tests.doubles.state import MemoryState
from tests.importing.conftest import NOW, ImportResult, contents, copy_home, do
from tests.support import running


async def test_the_conversation_goes_on(imported: ImportResult, tmp_path: Path) -> None:
    home = shutil.copytree(imported.new, tmp_path / "home")
    model, telegram = ScriptedModel(says("It is BLUEBIRD.")), FakeChannel("telegram")
    async with running(
        home,
        model,
        telegram,
        clock=FakeClock(NOW),
        NANOBOT_CHANNELS__TELEGRAM__ENABLED="false",
        NANOBOT_MCP__SERVERS="{}",
    ):
        asked = await telegram.say("The code word?", "15551234", sender_id="15551234")
        assert await telegram.answer_to(asked, "15551234") == "It is BLUEBIRD."
    system, *said = [message.text for message in model.prompts[0].messages]
    assert any("The garden gate code word is BLUEBIRD" in text for text in said)
    assert any("Please list the folder" in text for text in said)  # the first after memory
    assert not any("Hello, I grow tomatoes" in text for text in said)  # memory has it
    assert "Favourite colour: teal" in system


def test_the_other_home_is_untouched_and_the_report_names_every_file_of_it(
    imported: ImportResult,
) -> None:
    assert contents(imported.source) == imported.before
    assert {item.source for item in imported.report.items} == set(imported.before)
    text = (imported.new / imported.report.file).read_text()
    assert all(path in text for path in imported.before)
    for item in imported.report.items:
        if item.outcome == "taken":
            taken = (imported.new / item.target).read_bytes()
            assert taken == (imported.source / item.source).read_bytes()


def test_nothing_but_the_owner_of_the_home_can_read_it(imported: ImportResult) -> None:
    new = imported.new
    open_to_others = [path for path in (new, *new.rglob("*")) if path.stat().st_mode & 0o077]
    assert open_to_others == []


def test_every_message_keeps_its_place_its_time_and_its_tools(imported: ImportResult) -> None:
    folder = JsonlStore(SessionCatalogue(imported.new / "sessions", FakeClock()), FakeClock())
    assert {info.key for info in folder.list_sessions()} == {
        "cli:direct",
        "telegram:15551234",
        "discord:888",
    }
    direct = list(folder.read_messages("cli:direct"))
    assert [message.role for message in direct] == [
        "user", "assistant", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert [message.seq for message in direct] == [1, 2, 3, 4, 5, 6]
    assert direct[3].tool_calls[0].name == "write_file"
    assert direct[4].tool_call_id == direct[3].tool_calls[0].id
    assert [message.origin for message in direct[3:]] == ["", "tool:write_file", "tool:write_file"]
    assert all(m.timestamp is not None and m.timestamp.year == 2026 for m in direct)
    told = list(folder.read_messages("telegram:15551234"))
    pictures = [message.media for message in told if message.media]
    (stored,) = (imported.new / "media").iterdir()
    assert [one.file for files in pictures for one in files] == [stored.name]
    assert folder.metadata_of("discord:888") == {"scope": "owner"}


def test_settings_and_secrets_are_usable_and_apart(imported: ImportResult) -> None:
    new = imported.new
    settings = load_settings(new, {})
    assert settings.model.name == "test-model"
    assert settings.model.api_key.get_secret_value() == "sk-test-0123456789abcdef"
    assert settings.model.max_completion_tokens == 4_096
    assert settings.owner == {"telegram": ("15551234",), "whatsapp": ("15559876",)}
    assert settings.channels["telegram"].enabled
    assert plain_values(settings.mcp.servers["notes"].env) == {"NOTES_TOKEN": "notes-test-token"}
    assert settings.tools.web.search.provider == "brave"
    text = (new / "config.yaml").read_text()
    assert "test-token" not in text
    assert "0123456789" not in text


def test_jobs_come_when_they_would_have_come(imported: ImportResult) -> None:
    jobs = decode_jobs((imported.new / "state" / "jobs.json").read_bytes())
    by_message = {job.message: job for job in jobs.values()}
    morning, stretch = by_message["Say good morning"], by_message["Remind me to stretch"]
    assert (morning.schedule.text, morning.zone) == ("0 8 * * *", "Europe/Berlin")
    assert (morning.address.key, morning.scope) == ("telegram:15551234", "owner")
    due = stretch.schedule.next_after(stretch.after)
    assert due is not None
    assert f"{due:%H:%M}" == ("14:09" if imported.version == "014" else "14:08")
    assert by_message["Happy new decade"].schedule.text == "at 2030-01-01T00:00:00+00:00"
    assert not by_message["Weekly review"].enabled


def test_memory_and_skills_are_there_and_dream_does_not_read_twice(imported: ImportResult) -> None:
    workspace = Root(imported.new / "workspace")
    history = HistoryLog(workspace, FakeClock(NOW))
    history.recover()
    assert [entry.summary.rpartition("] ")[2] for entry in history.entries()] == [
        "The person keeps a garden and asked about tomatoes."
    ]
    assert history.dream_cursor() == history.last_cursor() == 1
    assert (workspace.path / "memory" / "2026-03-01.md").is_file()
    skills = SkillsLoader(workspace, MemoryState()).list()
    assert [(s.name, s.is_enabled) for s in skills if s.source == "workspace"] == [
        ("watering", False)
    ]


async def test_what_was_said_to_this_nanobot_before_the_import_stays_there_and_is_told(
    tmp_path: Path,
) -> None:
    source = copy_home("035", tmp_path / "old")
    telegram, model = FakeChannel("telegram"), ScriptedModel(says("first"))
    async with running(source, model, telegram, clock=FakeClock(NOW)):
        asked = await telegram.say("one", "15551234", sender_id="15551234")
        await telegram.answer_to(asked, "15551234")
    report = do(source, tmp_path / "new")
    folder = JsonlStore(SessionCatalogue(tmp_path / "new" / "sessions", FakeClock()), FakeClock())
    said = [m.content for m in folder.read_messages("telegram:15551234")]
    assert any("BLUEBIRD" in text for text in said)
    assert "first" not in said
    history = tmp_path / "new" / "workspace" / "memory" / "history.jsonl"
    assert "The person keeps a garden" in history.read_text()
    (item,) = (i for i in report.items if i.source == "sessions/telegram_15551234.jsonl")
    assert (item.outcome, item.note) == (
        "left",
        "a conversation with this nanobot before the import",
    )
