"""Health shows inner damage: in threads, conversations and long-term memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.bus.events import Notice
from nanobot.bus.queue import DISK_PAUSE
from nanobot.errors import ProviderRejected, ProviderUnavailable
from nanobot.providers.port import Reply
from nanobot.testing import FakeClock, ScriptedModel, calls, fails, says
from nanobot.testing.channel import FakeChannel
from nanobot.testing.model import Line
from tests.channels.telegram.whole import status_of
from tests.support import running


async def health_of(home: Path) -> tuple[str, str]:
    """Return the state and the problem."""
    health = (await status_of(home))["health"]
    return health["state"], "; ".join(concern["text"] for concern in health["concerns"])


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


PROMPT_FILES = ["AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "HEARTBEAT.md"]
MEMORY_FILES = ["MEMORY.md", "pending.md", "retired.md", "2026-03-02.md", "2026-03-01.md"]


async def test_files_for_prompts_that_cannot_be_read_show(tmp_path: Path) -> None:
    names = [*PROMPT_FILES, *(f"memory/{name}" for name in MEMORY_FILES)]
    paths = [tmp_path / "workspace" / name for name in names]
    async with running(tmp_path, ScriptedModel(), FakeChannel(), clock=FakeClock()):
        assert await health_of(tmp_path) == ("ok", "")
        for path in paths:
            path.unlink(missing_ok=True)
            path.mkdir()
        state, text = await health_of(tmp_path)
        assert state == "degraded"
        assert [name for name in names if f"{name} cannot be read" not in text] == []
        for path in paths:
            path.rmdir()
            path.write_bytes(b"- a line\n" + b"\0" * 900)
        text = (await health_of(tmp_path))[1]
        assert [name for name in names if f"{name} is damaged" not in text] == []
        for path in paths:
            path.write_text("- a line\n")
        assert await health_of(tmp_path) == ("ok", "")


async def test_a_file_of_another_person_that_cannot_be_read_shows_once_it_is_needed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "workspace/people/fake_guest/USER.md"
    path.mkdir(parents=True)
    channel, owner = FakeChannel(), '["somebody"]'
    async with running(tmp_path, ScriptedModel(says("hi")), channel, NANOBOT_OWNER__FAKE=owner):
        await channel.answer_to(await channel.say("hello", sender_id="guest"))
        assert "people/fake_guest/USER.md cannot be read" in (await health_of(tmp_path))[1]
        path.rmdir()
        assert await health_of(tmp_path) == ("ok", "")


NOTHING = '{"memory_updates": [], "processed_entries": [0]}'
REFUSED = ProviderRejected("the model server rejected the request (401)", status=401)


@pytest.mark.parametrize(
    ("failing", "times", "said"),
    [
        (fails(REFUSED), 1, "consolidation failed: the model server rejected the request (401)"),
        (fails(ProviderUnavailable("it is out")), 3, "failed 3 times in a row: it is out"),
        (says("no call at all"), 3, "failed 3 times in a row: there was text instead of a call"),
        (says("", finish="content_filter"), 3, "the provider's filter withheld the answer"),
    ],
)
async def test_consolidation_that_fails_shows_until_it_works(
    tmp_path: Path, failing: Line, times: int, said: str
) -> None:
    asked_each_time = 2 if isinstance(failing, Reply) else 1
    saved = calls("save_memory", history_entry="We talked.", memory_update="# Memory\n")
    learner = ScriptedModel(*[failing] * (asked_each_time * times), author=lambda _: saved)
    model = ScriptedModel(author=lambda _: says("fine"))
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    async with running(tmp_path, model, channel, clock=clock, learner=learner):
        for number in range(times):
            assert await health_of(tmp_path) == ("ok", "")
            await channel.ask(f"message {number}")
            await channel.ask("/compact")
        state, text = await health_of(tmp_path)
        assert (state, said in text) == ("degraded", True), text
        await clock.advance(360)
        await channel.ask("one more")
        await channel.ask("/compact")
        assert await health_of(tmp_path) == ("ok", "")


async def test_consolidation_that_the_disk_refuses_shows_until_it_works(tmp_path: Path) -> None:
    path = tmp_path / "workspace/memory/history.jsonl"
    model = ScriptedModel(author=lambda _: says("fine"))
    channel = FakeChannel()
    async with running(tmp_path, model, channel):
        path.mkdir(parents=True)
        await channel.ask("hello")
        await channel.ask("/compact")
        state, text = await health_of(tmp_path)
        assert (state, "conversation fake:1 cannot be consolidated" in text) == ("degraded", True)
        path.rmdir()
        await channel.ask("/compact")
        assert await health_of(tmp_path) == ("ok", "")


async def test_a_dream_that_fails_shows_until_it_works(tmp_path: Path) -> None:
    model = ScriptedModel(author=lambda _: says("fine"))
    entry = calls("save_memory", history_entry="We talked.", memory_update="# Memory\n")
    learner = ScriptedModel(entry, *[fails(REFUSED)] * 3, author=lambda _: says(NOTHING))
    channel = FakeChannel()
    async with running(tmp_path, model, channel, learner=learner):
        await channel.ask("hello")
        await channel.ask("/compact")
        for _ in range(3):
            assert await health_of(tmp_path) == ("ok", "")
            await channel.ask("/dream")
        state, text = await health_of(tmp_path)
        assert (state, "Dream failed 3 times in a row" in text) == ("degraded", True), text
        await channel.ask("/dream")
        assert await health_of(tmp_path) == ("ok", "")


async def test_jobs_that_are_not_used_show_until_somebody_saw_to_them(tmp_path: Path) -> None:
    async with running(tmp_path, ScriptedModel(), FakeChannel()):
        aside = tmp_path / "state" / "jobs.json.broken-1"  # of this start or an earlier one
        aside.write_text('{"version": 1, "jobs": [{}]}')
        state, text = await health_of(tmp_path)
        assert (state, "jobs could not be read, so it is not used" in text) == ("degraded", True)
        aside.unlink()
        assert await health_of(tmp_path) == ("ok", "")


async def test_lines_that_cannot_be_read_show(tmp_path: Path) -> None:
    sessions, memory = tmp_path / "sessions", tmp_path / "workspace" / "memory"
    async with running(tmp_path, ScriptedModel(says("hi")), FakeChannel()) as _:
        pass
    write(sessions / "fake_1.jsonl", b'{"role":"user","content":"one"}\n{"role":\n{}\n')
    write(memory / "history.jsonl", b"\xff\xfe\n")
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(says("hi")), channel):
        await channel.ask("hello")
        state, text = await health_of(tmp_path)
        assert state == "degraded"
        assert "unreadable lines in conversation fake:1: 1" in text
        assert "unreadable lines in memory/history.jsonl: 1" in text


@pytest.mark.parametrize(
    "aside", ["memory.git.damaged-1", "versions/people/a.git.damaged-1", "channels/cli/a.damaged"]
)
async def test_what_was_set_aside_shows_until_it_is_removed(tmp_path: Path, aside: str) -> None:
    async with running(tmp_path, ScriptedModel(), FakeChannel()):
        path = tmp_path / "state" / aside
        path.mkdir(parents=True)
        state, text = await health_of(tmp_path)
        assert (state, "was damaged and replaced with a new one" in text) == ("degraded", True)
        path.rmdir()
        assert await health_of(tmp_path) == ("ok", "")


@pytest.mark.parametrize("content", [b"\0" * 9_000, b"garbage\n" * 50])
async def test_new_sets_a_damaged_conversation_aside_and_answers_what_waited(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "sessions" / "fake_1.jsonl"
    write(path, content)
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    async with running(tmp_path, ScriptedModel(says("hi")), channel, clock=clock):
        event = await channel.say("hello")
        await clock.until_sleeping()
        (notice,) = [one.text for one in channel.shown if isinstance(one, Notice)]
        assert "Send /new to set the file aside" in notice
        await channel.ask("/new")
        assert await channel.answer_to(event) == "hi"
        assert await health_of(tmp_path) == ("ok", "")
    (aside,) = path.parent.glob("fake_1.jsonl.corrupt-*")
    assert aside.read_bytes() == content


async def test_new_alone_sets_a_damaged_conversation_aside(tmp_path: Path) -> None:
    path = tmp_path / "sessions" / "fake_1.jsonl"
    write(path, b"\0" * 9_000)
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(says("hi")), channel):
        assert "New conversation" in await channel.ask("/new")
        assert await channel.ask("hello") == "hi"


async def test_a_conversation_that_cannot_be_read_shows_until_it_can(tmp_path: Path) -> None:
    path = tmp_path / "sessions" / "fake_1.jsonl"
    path.mkdir(parents=True)
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    async with running(tmp_path, ScriptedModel(says("hi")), channel, clock=clock):
        event = await channel.say("hello")
        await clock.until_sleeping()
        state, text = await health_of(tmp_path)
        assert (state, "conversation fake:1 cannot be read" in text) == ("degraded", True)
        path.rmdir()
        await clock.advance(DISK_PAUSE)
        assert await channel.answer_to(event) == "hi"
        assert await health_of(tmp_path) == ("ok", "")
