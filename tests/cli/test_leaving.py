"""A command that hosts a gateway keeps the memory that the model has consolidated."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot.cli.main import main
from tests.doubles.openai.answers import Answer, ChatRequest, Step
from tests.doubles.openai.faults import HeldStep, wants
from tests.doubles.openai.server import FakeOpenAI
from tests.support import write_config

pytestmark = pytest.mark.process

SUMMARY = "They spoke of a boat."
SAVED = {"history_entry": f"[2026-11-22 10:00] {SUMMARY}", "memory_update": ""}


class SlowMemoryAgent:
    """Answers turns at once, but as the memory agent only when it is `released`."""

    def __init__(self) -> None:
        self.asked = 0
        self.released = asyncio.Event()

    def __call__(self, request: ChatRequest) -> Step:
        if b'"save_memory"' not in request.raw:
            return Answer("Aye.")
        self.asked += 1
        return HeldStep(self.released, wants("save_memory", json.dumps(SAVED)))


@pytest.fixture
def model() -> SlowMemoryAgent:
    return SlowMemoryAgent()


@pytest.fixture
async def server(home: Path, model: SlowMemoryAgent) -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI(model) as server:
        chosen = {"name": "fake-model", "base_url": server.base_url}
        write_config(home, {"model": chosen, "memory": {"window": 4}})
        yield server
        model.released.set()


async def start_process(environment: dict[str, str], *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "nanobot", *arguments,
        stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment,
    )  # fmt: skip


async def say(home: Path, capsys: pytest.CaptureFixture[str], text: str) -> tuple[int, str]:
    """Send one message in this process. Return the exit code and standard error."""
    code = await asyncio.to_thread(main, ["--home", str(home), "agent", "-m", text])
    return code, capsys.readouterr().err


async def first_error(process: Process) -> str:
    assert process.stderr is not None
    return (await asyncio.wait_for(process.stderr.readline(), 30)).decode()


def summaries(home: Path) -> list[str]:
    path = home / "workspace" / "memory" / "history.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    # Without the stamp, which is the time of the messages.
    return [json.loads(line)["summary"].partition("] ")[2] for line in lines]


@pytest.mark.usefixtures("server")
async def test_new_is_put_away_before_a_one_shot_ends_and_who_comes_meanwhile_is_answered(
    environment: dict[str, str],
    home: Path,
    model: SlowMemoryAgent,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await say(home, capsys, "We painted the boat.") == (0, "")
    process = await start_process(environment, "agent", "-m", "/new")
    assert "Ctrl-C" in await first_error(process)
    assert await say(home, capsys, "hello") == (0, "")
    model.released.set()
    assert (await process.communicate())[0] == b"New conversation started.\n"
    assert (process.returncode, model.asked) == (0, 1)
    assert summaries(home) == [SUMMARY]


@pytest.mark.usefixtures("server")
async def test_a_full_window_is_put_away_before_piped_messages_end(
    environment: dict[str, str], home: Path, model: SlowMemoryAgent
) -> None:
    process = await start_process(environment, "agent")
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\nthree\n")
    process.stdin.close()
    assert "Ctrl-C" in await first_error(process)
    model.released.set()
    assert (await process.communicate())[0] == b"Aye.\n" * 3
    assert (process.returncode, len(summaries(home))) == (0, model.asked)
    assert summaries(home)


@pytest.mark.usefixtures("server")
async def test_who_does_not_wait_leaves_it_to_the_next_command(
    environment: dict[str, str],
    home: Path,
    model: SlowMemoryAgent,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await say(home, capsys, "We painted the boat.")
    process = await start_process(environment, "agent", "-m", "/new")
    assert "Ctrl-C" in await first_error(process)
    process.send_signal(signal.SIGINT)
    await process.communicate()
    assert (process.returncode, summaries(home)) == (130, [])
    model.released.set()
    assert (await say(home, capsys, "hello"))[0] == 0
    assert summaries(home) == [SUMMARY]
