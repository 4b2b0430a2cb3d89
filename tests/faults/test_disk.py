"""A failing disk, an unreadable file, a second process: nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from nanobot.bus.events import NANOBOT, Notice, TurnEnded
from nanobot.clock import SystemClock
from nanobot.errors import StorageError
from nanobot.messages import Message
from nanobot.providers.port import Prompt, Reply
from nanobot.session.manager import SessionManager
from nanobot.testing import FakeClock, ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from tests.support import Gate, Probe, read_stored, running, window


@contextlib.contextmanager
def no_file_grows_beyond(size: int) -> Iterator[None]:
    """Let the kernel reject every write past this size, like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.asynccontextmanager
async def chatting(
    home: Path, model: ScriptedModel, *tools: Probe, auto: bool = False
) -> AsyncIterator[tuple[FakeChannel, FakeClock]]:
    clock = FakeClock(auto=auto)
    channel = FakeChannel(clock=clock)
    async with running(home, model, channel, clock=clock, tools=tools):
        yield channel, clock


def notices(channel: FakeChannel) -> list[str]:
    return [event.text for event in channel.shown if isinstance(event, Notice)]


def journal_size(home: Path) -> int:
    return (home / "state" / "journal.db-wal").stat().st_size


async def test_a_journal_that_refuses_takes_no_message_and_says_so_to_the_channel(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(says("one"), says("two"))
    async with chatting(tmp_path, model, auto=True) as (channel, _):
        await channel.ask("hello")
        with no_file_grows_beyond(journal_size(tmp_path)), pytest.raises(StorageError):
            await channel.say("not taken")
        assert await channel.ask("and now?") == "two"
    assert [m.content for m in read_stored(tmp_path)] == ["hello", "one", "and now?", "two"]


async def test_a_turn_whose_end_the_journal_refuses_is_answered_when_it_has_room(
    tmp_path: Path,
) -> None:
    gate = Gate()
    model = ScriptedModel(author=lambda _: says("here I am"), hold=gate)
    async with chatting(tmp_path, model) as (channel, clock):
        event = await channel.say("hello")
        await gate.reached.wait()
        with no_file_grows_beyond(journal_size(tmp_path)):
            gate.opened.set()
            await clock.until_sleeping()
            await clock.advance(10)
            await clock.until_sleeping()
        await clock.advance(10)
        assert await channel.answer_to(event) == "here I am"
        assert await channel.ask("and now?") == "here I am"
    (notice,) = notices(channel)
    assert notice.startswith("Your message is pending: cannot use ")
    assert notice.endswith("make a copy of nanobot's home. It will be answered once this is fixed.")
    assert [text for _, text in await window(tmp_path)] == [
        "hello", "here I am", "and now?", "here I am",
    ]  # fmt: skip


async def test_nobody_is_told_of_the_disk_who_said_nothing(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel(author=lambda _: says("42, it says"), hold=gate)
    async with chatting(tmp_path, model) as (channel, clock):
        await channel.say("[nanobot: the helper has finished]", sender_id=NANOBOT)
        await gate.reached.wait()
        with no_file_grows_beyond(journal_size(tmp_path)):
            gate.opened.set()
            await clock.until_sleeping()
        await clock.advance(10)
        assert await channel.receive(1) == ["42, it says"]
    assert notices(channel) == []


async def test_an_effect_whose_start_the_journal_refuses_does_not_happen_until_it_can_be_noted(
    tmp_path: Path,
) -> None:
    gate, tool = Gate(), Probe(effects=True)
    model = ScriptedModel(calls("probe", text="x"), says("done"), hold=gate)
    async with chatting(tmp_path, model, tool) as (channel, clock):
        event = await channel.say("do it")
        await gate.reached.wait()
        with no_file_grows_beyond(journal_size(tmp_path)):
            gate.opened.set()
            await clock.until_sleeping()
            assert tool.called == []
        await clock.advance(10)
        assert await channel.answer_to(event) == "done"
    assert tool.called == ["x"]
    assert len(notices(channel)) == 1


async def test_a_session_file_that_cannot_grow_costs_no_answer_and_catches_up(
    tmp_path: Path,
) -> None:
    manager = SessionManager(tmp_path / "sessions", SystemClock())
    session = await manager.get_or_create("fake:1")
    session.add_message(Message("user", "x" * 3_000_000))
    await manager.save(session)
    await manager.close()
    file = tmp_path / "sessions" / "fake_1.jsonl"
    model = ScriptedModel(says("one"), says("two"), says("three"))
    async with chatting(tmp_path, model) as (channel, clock):
        with no_file_grows_beyond(size := file.stat().st_size):
            assert await channel.ask("hello") == "one"
            assert await channel.ask("are you there?") == "two"
            await clock.until_sleeping()
            assert file.stat().st_size == size
        await clock.advance(60)
        assert await channel.ask("and now?") == "three"
    assert [m.content for m in read_stored(tmp_path)[1:]] == [
        "hello", "one", "are you there?", "two", "and now?", "three",
    ]  # fmt: skip


async def test_a_session_file_that_cannot_be_read_lets_its_messages_wait(tmp_path: Path) -> None:
    obstacle = tmp_path / "sessions" / "fake_1.jsonl"
    obstacle.mkdir(parents=True)
    model = ScriptedModel(author=lambda _: says("here I am"))
    async with chatting(tmp_path, model) as (channel, clock):
        event = await channel.say("hello")
        await clock.until_sleeping()
        assert await channel.ask("hello", "2") == "here I am", "other conversations go on"
        obstacle.rmdir()
        await clock.advance(10)
        assert await channel.answer_to(event) == "here I am"
        assert await channel.ask("and now?") == "here I am"
    (notice,) = notices(channel)
    assert "fake_1.jsonl" in notice
    held = [e for e in channel.shown if isinstance(e, TurnEnded) and e.outcome == "held"]
    assert [e.event_ids for e in held] == [(event,)], "whoever waits for the answer is told"


async def test_a_message_of_ten_megabytes_is_stored_whole_and_answered(tmp_path: Path) -> None:
    text = "begin " + "long " * 2_000_000 + "end"

    def measure(prompt: Prompt) -> Reply:
        return says(f"{len(prompt.messages[-1].text)} characters reached me")

    async with chatting(tmp_path, ScriptedModel(measure, says("fine"))) as (channel, _):
        answer = await channel.ask(text)
        assert await channel.ask("and now?") == "fine"
    assert int(answer.split()[0]) < 100_000
    assert read_stored(tmp_path)[0].content == text


async def test_a_second_process_on_the_same_home_ends_with_75_and_names_the_first(
    tmp_path: Path,
) -> None:
    async with chatting(tmp_path, ScriptedModel(says("fine"))) as (channel, _):
        second = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "nanobot", "gateway"],
            env={**os.environ, "NANOBOT_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=15,
            check=False,
        )
        assert second.returncode == 75
        assert f"another nanobot (pid {os.getpid()}) is using {tmp_path}" in second.stderr
        assert await channel.ask("and now?") == "fine"
