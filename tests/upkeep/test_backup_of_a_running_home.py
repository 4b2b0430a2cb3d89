"""A backup is made while a gateway works, and its restored home continues from there."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from pathlib import Path

import pytest

from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.cli.main import main
from nanobot.clock import SystemClock
from nanobot.memory.gitstore import GitStore
from nanobot.memory.version import Change
from nanobot.providers.port import Prompt
from nanobot.security.paths import Root
from nanobot.testing import ScriptedModel, says
from nanobot.testing.channel import FakeChannel
from nanobot.testing.model import Line, calls
from nanobot.upkeep.backups import BackupOrder, make_backup
from nanobot.upkeep.restore import restore
from nanobot.upkeep.snapshot import BackupOperations
from tests.bus.support import rows
from tests.support import Gate, Probe, read_stored, running, window
from tests.upkeep.homes import build_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def echo(prompt: Prompt) -> Line:
    """Repeat the person's last message."""
    return says(f"re: {prompt.messages[-1].text.splitlines()[-1]}")


async def later(channel: FakeChannel, text: str, chat: str = "1") -> str:
    """Return the new home's answer to a message with an id that the old one never had."""
    return await channel.answer_to(await channel.say(text, chat, event_id=f"new:{text}"), chat)


async def nanobot(home: Path, *arguments: object) -> int:
    """Run a command, as in another process."""
    return await asyncio.to_thread(main, ["--home", str(home), *map(str, arguments)])


async def test_a_conversation_goes_on_in_another_home(home: Path, tmp_path: Path) -> None:
    channel = FakeChannel()
    async with running(home, ScriptedModel(author=echo), channel):
        assert await channel.ask("hello") == "re: hello"
        assert await nanobot(home, "backup", tmp_path / "one.tar.gz") == 0
        assert await channel.ask("after it") == "re: after it"
    assert await nanobot(home, "restore", tmp_path / "one.tar.gz", "--to", tmp_path / "new") == 0
    there = FakeChannel()
    async with running(tmp_path / "new", ScriptedModel(author=echo), there):
        assert await later(there, "back again") == "re: back again"
        await there.say("hello", event_id="m1")  # the platform brings it once more
        assert await later(there, "what now?") == "re: what now?"
    texts = [text for role, text in await window(tmp_path / "new") if role == "assistant"]
    assert texts == ["re: hello", "re: back again", "re: what now?"]


async def test_a_home_that_is_reached_by_another_path_is_backed_up_as_it_was_at_one_moment(
    home: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to("home")
    channel = FakeChannel()
    async with running(home, ScriptedModel(author=echo), channel):
        for count, (name, path) in enumerate([("link", link), ("dots", home / "state/..")], 1):
            assert await channel.ask(name) == f"re: {name}"
            file = tmp_path / f"{name}.tar.gz"
            assert await nanobot(path, "backup", file) == 0
            assert await nanobot(path, "restore", file, "--to", tmp_path / f"of-{name}") == 0
            journal = tmp_path / f"of-{name}" / "state/journal.db"
            assert rows(journal, "SELECT count(*) FROM inbox") == [(count,)]


async def test_what_was_under_way_waits_for_a_word_and_no_effect_happens_twice(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    channel, gate = FakeChannel(), Gate()
    script = [calls("probe", text="once"), says("sent it")]
    async with running(
        home, ScriptedModel(*script), channel, tools=(Probe(effects=True, gate=gate),)
    ):
        event = await channel.say("send it")
        await gate.reached.wait()
        assert await nanobot(home, "backup", tmp_path / "one.tar.gz") == 0
        gate.opened.set()
        assert await channel.answer_to(event) == "sent it"
    for name, more in (("quiet", ()), ("eager", ("--resume",))):
        file = tmp_path / "one.tar.gz"
        assert await nanobot(home, "restore", file, "--to", tmp_path / name, *more) == 0

    there, probe = FakeChannel(), Probe(effects=True)
    async with running(tmp_path / "quiet", ScriptedModel(author=echo), there, tools=(probe,)):
        assert await later(there, "anything?") == "re: anything?"
        capsys.readouterr()
        await nanobot(tmp_path / "quiet", "queue", "list", "--json")
        (row,) = json.loads(capsys.readouterr().out)["inbox"]
        assert (row["state"], row["text"]) == ("failed", "send it")
        assert "running during" in row["reason"]
        assert [part.content for part in there.sent] == ["re: anything?"]
        await nanobot(tmp_path / "quiet", "queue", "retry", row["id"])
        assert await there.answer_to(event) == "re: send it"

    there = FakeChannel()
    told = ScriptedModel(says("I do not know whether it was sent"))
    async with running(tmp_path / "eager", told, there, tools=(probe,)):
        assert await there.answer_to(event) == "I do not know whether it was sent"
    assert "outcome" in told.prompts[0].messages[-1].text
    assert probe.called == []


async def test_in_a_backup_made_at_any_moment_each_message_is_answered_once(
    home: Path, tmp_path: Path
) -> None:
    channel = FakeChannel()
    said = [(f"message {number}", str(number % 4)) for number in range(24)]

    async def talk() -> None:
        for text, chat in said:
            await channel.say(text, chat)

    async with running(home, ScriptedModel(author=echo), channel, NANOBOT_AGENT__ON_BUSY="queue"):
        talking = asyncio.ensure_future(talk())
        for number in range(2):
            await channel.receive(1 + 2 * number, "1")
            assert await nanobot(home, "backup", tmp_path / f"{number}.tar.gz") == 0
        await talking
        for _, chat in said[-4:]:
            await channel.receive(6, chat)
    for number in range(2):
        new = tmp_path / str(number)
        file = tmp_path / f"{number}.tar.gz"
        assert await nanobot(new, "restore", file, "--resume") == 0
        (received,) = rows(new / "state/journal.db", "SELECT count(*) FROM inbox")[0]
        assert isinstance(received, int)
        assert received >= 1
        there = FakeChannel()
        async with running(new, ScriptedModel(author=echo), there, NANOBOT_AGENT__ON_BUSY="queue"):
            for chat in "0123":
                await later(there, "the last one", chat)
        counted = Counter(
            (message.role, message.content.splitlines()[-1])
            for chat in "0123"
            for message in read_stored(new, f"fake:{chat}")
            if "the last one" not in message.content
        )
        assert set(counted.values()) == {1}
        assert sum(role == "user" for role, _ in counted) == received


async def test_memory_and_its_versions_are_of_the_same_moment(home: Path, tmp_path: Path) -> None:
    """Even during quick changes of memory, each change in a backup has its version."""
    build_home(home)
    memory = home / "workspace/memory/MEMORY.md"
    versions = GitStore(home / "state", Root(home / "workspace"), SystemClock())
    begun, ended = threading.Event(), threading.Event()

    def write_memory() -> None:
        number = 0
        while not ended.is_set():
            before = memory.read_bytes()
            after = before + b"- fact %d\n" % (number := number + 1)

            def put(content: bytes = after) -> None:
                memory.write_bytes(content)

            change = Change("agent", f"fact {number}")
            versions.write("memory/MEMORY.md", before, after, change, put)
            begun.set()

    journal = SqliteJournal(home / "state/journal.db", SystemClock())
    await journal.open()
    operations = BackupOperations(home, journal, SystemClock(), live=True)
    writing = asyncio.ensure_future(asyncio.to_thread(write_memory))
    try:
        assert await asyncio.to_thread(begun.wait, 30)
        for number in range(4):
            taken = await operations.take()
            file = tmp_path / f"{number}.tar.gz"
            await asyncio.to_thread(make_backup, home, taken, file, BackupOrder(), lambda *_: None)
    finally:  # else the thread goes on for ever
        ended.set()
        await writing
    await journal.close()
    for number in range(4):
        new = tmp_path / str(number)
        assert restore(tmp_path / f"{number}.tar.gz", new, None, SystemClock()).found.versions > 0
        there = GitStore(new / "state", Root(new / "workspace"), SystemClock())
        assert there.record_hand_edits() == 0
