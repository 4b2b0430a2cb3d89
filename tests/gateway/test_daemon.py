"""The whole daemon: one owner, an orderly end, and a start that resumes everything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from nanobot.app.gateway import Gateway
from nanobot.bus.events import OutboundPart
from nanobot.cli.offline import operate_with as operate
from nanobot.config.load import load_settings
from nanobot.errors import HomeLocked, HomeMoved, SendLater, StorageError
from nanobot.providers.port import Prompt
from nanobot.testing import ScriptedModel, says
from nanobot.testing.channel import FakeChannel
from nanobot.testing.model import Line, calls
from tests.bus.support import change, rows
from tests.bus.test_database import overwrite_from
from tests.channels.telegram.whole import status_of

GRACE = {"NANOBOT_AGENT__SHUTDOWN_GRACE_SECONDS": "0.05"}


def echo(prompt: Prompt) -> Line:
    """Repeat the person's last message."""
    return says(f"re: {prompt.messages[-1].text.splitlines()[-1]}")


def build(home: Path, model: ScriptedModel, channel: FakeChannel, **environ: str) -> Gateway:
    settings = load_settings(home, GRACE | environ)
    return Gateway(settings, provider=model, channels=(channel,), admit_everyone=True)


@contextlib.asynccontextmanager
async def running(
    home: Path, model: ScriptedModel, channel: FakeChannel, **environ: str
) -> AsyncIterator[Gateway]:
    """Run a gateway from its start to its orderly end."""
    gateway = build(home, model, channel, **environ)
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        life = tasks.create_task(gateway.run(on_ready=ready.set, signals=False))
        await ready.wait()
        try:
            yield gateway
        finally:
            gateway.request_stop()
    assert life.result() == 0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def channel() -> FakeChannel:
    return FakeChannel()


async def test_a_second_gateway_on_the_same_home_is_refused_with_the_pid_of_the_first(
    home: Path, channel: FakeChannel
) -> None:
    async with running(home, ScriptedModel(author=echo), channel):
        second = build(home, ScriptedModel(), FakeChannel())
        with pytest.raises(HomeLocked, match=str(os.getpid())) as caught:
            await second.run(signals=False)
        assert caught.value.exit_code == 75
        assert await channel.ask("still there?") == "re: still there?"
    async with running(home, ScriptedModel(author=echo), channel):
        assert await channel.ask("and now?") == "re: and now?"


async def test_a_turn_that_outlasts_the_grace_is_finished_by_the_next_start(
    home: Path, channel: FakeChannel
) -> None:
    asked = asyncio.Event()

    async def hang() -> None:
        asked.set()
        await asyncio.Event().wait()

    async with running(home, ScriptedModel(author=echo, hold=hang), channel):
        event = await channel.say("take your time")
        await asked.wait()
    assert channel.sent == []
    async with running(home, ScriptedModel(author=echo), channel):
        assert await channel.answer_to(event) == "re: take your time"
    assert rows(home / "state" / "journal.db", "SELECT state, attempts FROM inbox") == [("done", 0)]


async def test_a_turn_goes_on_from_its_steps_and_no_effect_happens_twice(
    home: Path, channel: FakeChannel
) -> None:
    gate = asyncio.Event()
    asked = asyncio.Event()

    async def hold() -> None:
        if asked_before:
            asked.set()
            await gate.wait()
        asked_before.append(True)

    asked_before: list[bool] = []
    first = ScriptedModel(calls("note", text="once only"), says("never said"), hold=hold)
    async with running(home, first, channel):
        event = await channel.say("write it down")
        await asked.wait()
    second = ScriptedModel(says("written down"))
    async with running(home, second, channel):
        assert await channel.answer_to(event) == "written down"
    notes = "".join(path.read_text() for path in (home / "workspace/memory").glob("2*.md"))
    assert notes.count("once only") == 1
    assert [message.role for message in second.prompts[0].messages[-3:]] == [
        "user",
        "assistant",
        "tool",
    ]


async def test_messages_that_arrived_while_it_was_down_are_answered_in_order(
    home: Path, channel: FakeChannel
) -> None:
    asked = asyncio.Event()

    async def hang() -> None:
        asked.set()
        await asyncio.Event().wait()

    # A message must not join the turn of another one, before that has asked the model.
    queue = {"NANOBOT_AGENT__ON_BUSY": "queue"}
    async with running(home, ScriptedModel(author=echo, hold=hang), channel, **queue):
        for number in range(200):
            await channel.say(f"message {number}", str(number % 4))
        await asked.wait()
    assert channel.sent == []
    async with running(home, ScriptedModel(author=echo), channel, **queue):
        for chat in range(4):
            answers = await channel.receive(50, str(chat))
            assert answers == [f"re: message {number}" for number in range(chat, 200, 4)]
    counted = rows(home / "state" / "journal.db", "SELECT state, count(*) FROM inbox GROUP BY 1")
    assert counted == [("done", 200)]


async def test_a_reply_that_was_not_delivered_goes_out_at_the_next_start(
    home: Path, channel: FakeChannel
) -> None:
    tried = asyncio.Event()

    def refuse(_: OutboundPart) -> Exception:
        tried.set()
        return SendLater("flood", retry_after=0.01)

    channel.refuse = refuse
    async with running(home, ScriptedModel(author=echo), channel):
        event = await channel.say("hello")
        await tried.wait()
    channel.refuse = lambda _: None
    async with running(home, ScriptedModel(), channel):
        assert await channel.answer_to(event) == "re: hello"


async def test_a_damaged_row_does_not_stop_the_start(home: Path, channel: FakeChannel) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    async with running(home, ScriptedModel(author=echo, hold=hang), channel):
        damaged = await channel.say("damaged", "1")
        event = await channel.say("whole", "2")
    change(
        home / "state" / "journal.db",
        f"UPDATE inbox SET payload = '{{' WHERE event_id = '{damaged}'",
    )
    async with running(home, ScriptedModel(author=echo), channel):
        assert await channel.answer_to(event, "2") == "re: whole"
        assert "send it again" in await channel.answer_to(damaged, "1")
    queue = await asyncio.to_thread(operate, load_settings(home, {}), "queue.list", {})
    assert isinstance(queue, dict)
    assert [row["state"] for row in queue["inbox"]] == ["failed"]


async def test_a_home_that_is_not_locked_is_not_opened(home: Path, channel: FakeChannel) -> None:
    build(home, ScriptedModel(), channel)
    assert not (home / "state" / "journal.db").exists()


async def test_a_damaged_journal_is_rebuilt_and_its_owner_is_told(
    home: Path, channel: FakeChannel
) -> None:
    async with running(home, ScriptedModel(author=echo), channel):
        await channel.ask("hello")
    (home / "state" / "journal.db").write_bytes(b"garbage" * 1000)
    channel = FakeChannel()
    async with running(home, ScriptedModel(author=echo), channel):
        (notice,) = await channel.receive(1)
        assert notice.startswith("⚠️ The journal was damaged (its first page is damaged)")
        assert "Lost: messages (all)" in notice
        health = (await status_of(home))["health"]
        assert health["state"] == "degraded"
        assert health["concerns"][0]["text"] in notice
        event = await channel.say("and now?", event_id="new")
        assert await channel.answer_to(event) == "re: and now?"
    channel = FakeChannel()
    async with running(home, ScriptedModel(author=echo), channel):
        event = await channel.say("once more", event_id="newer")
        await channel.answer_to(event)
    assert [part.content for part in channel.sent] == ["re: once more"]  # notified once


async def test_a_journal_that_is_damaged_while_it_runs_is_rebuilt_by_a_restart(
    home: Path, channel: FakeChannel
) -> None:
    journal = home / "state" / "journal.db"
    async with running(home, ScriptedModel(author=echo), channel) as gateway:
        await channel.ask("hello")
        for statement in ("CREATE TABLE other (x)", "PRAGMA wal_checkpoint(TRUNCATE)"):
            change(journal, statement)  # the gateway's cache no longer counts
        overwrite_from(journal, 4096)
        with pytest.raises(StorageError, match="damaged"):
            await channel.say("not taken", event_id="new")
    assert gateway.restart_requested
    channel = FakeChannel()
    async with running(home, ScriptedModel(author=echo), channel):
        event = await channel.say("again", event_id="new")
        assert await channel.answer_to(event) == "re: again"
        assert "The journal was damaged" in "".join(await channel.receive(2))


async def test_a_message_seen_before_the_restart_is_not_answered_again(
    home: Path, channel: FakeChannel
) -> None:
    async with running(home, ScriptedModel(author=echo), channel):
        event = await channel.say("hello")
        await channel.answer_to(event)
    async with running(home, ScriptedModel(author=echo), channel):
        await channel.say("hello", event_id=event)
        await channel.ask("something new")
    assert [part.content for part in channel.sent] == ["re: hello", "re: something new"]


class Daemon:
    """A real `nanobot gateway` process whose model never answers."""

    def __init__(self, home: Path) -> None:
        self._model = socket.create_server(("127.0.0.1", 0))
        port = self._model.getsockname()[1]
        home.mkdir(mode=0o700)
        config = home / "config.yaml"
        model = {"provider": "openai", "name": "m", "api_key": "k"}
        model["base_url"] = f"http://127.0.0.1:{port}/v1"
        config.write_text(json.dumps({"model": model}))
        config.chmod(0o600)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nanobot", "gateway"],
            env={**os.environ, "NANOBOT_HOME": str(home)},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._socket = home / "state" / "gateway.sock"

    def until_logged(self, word: str) -> None:
        """Wait for a line of its log with `word`."""
        assert self.process.stderr is not None
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if word in line:
                return
        pytest.fail(f"it never said {word!r}: {seen}")

    def begin_turn(self) -> socket.socket:
        """Send a message and wait for the call of the model. Return the client, to be kept open."""
        client = socket.socket(socket.AF_UNIX)
        client.connect(os.path.relpath(self._socket))
        request = {"op": "chat", "session": "cli:direct", "text": "hello", "id": "a1"}
        client.sendall(json.dumps(request).encode() + b"\n")
        self._model.settimeout(10)
        self._asked, _ = self._model.accept()
        return client

    def end(self) -> int:
        """Wait for its end and return the exit code."""
        return self.process.wait(10)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()
        self._model.close()
        if hasattr(self, "_asked"):
            self._asked.close()


@pytest.fixture
def daemon(home: Path) -> Iterator[Daemon]:
    daemon = Daemon(home)
    yield daemon
    daemon.close()


@pytest.mark.parametrize("left", ["moved", "removed"])
def test_a_home_that_is_moved_or_removed_ends_the_gateway_and_is_not_made_again(
    daemon: Daemon, home: Path, left: str
) -> None:
    daemon.until_logged("ready")
    with daemon.begin_turn() as client:
        if left == "moved":
            home.rename(home.with_name("elsewhere"))
        else:
            shutil.rmtree(home)
        said = {"op": "chat", "session": "cli:other", "text": "hello", "id": "a2"}
        client.sendall(json.dumps(said).encode() + b"\n")
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
        daemon.until_logged("it was moved or removed while nanobot was running")
        assert daemon.end() == HomeMoved.exit_code
    assert b'"id":"a2"' not in answer.replace(b" ", b"") or b"error" in answer
    assert not home.exists()


def test_sigterm_ends_the_process_with_code_0(daemon: Daemon) -> None:
    daemon.until_logged("ready")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.end() == 0


def test_a_second_signal_ends_it_before_the_grace_of_what_runs(daemon: Daemon, home: Path) -> None:
    daemon.until_logged("ready")
    with daemon.begin_turn():
        daemon.process.send_signal(signal.SIGTERM)
        daemon.until_logged("stopping")
        assert daemon.process.poll() is None  # the turn has its grace
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.end() == 0
    states = rows(home / "state" / "journal.db", "SELECT state FROM inbox")
    assert states == [("working",)]
