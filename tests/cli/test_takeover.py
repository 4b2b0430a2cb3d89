"""A command with a pending message in another command's gateway takes over when that ends."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.doubles.openai.answers import Answer, ChatRequest, Step
from tests.doubles.openai.faults import HeldStep
from tests.doubles.openai.server import FakeOpenAI
from tests.ports import free_port
from tests.support import write_config

pytestmark = pytest.mark.process


class SlowModel:
    """Answers a message that contains `slow` only when it is `released`."""

    def __init__(self) -> None:
        self.released, self.asked = asyncio.Event(), asyncio.Event()

    def __call__(self, request: ChatRequest) -> Step:
        said = request.last_user_text.splitlines()[-1]
        if "slow" not in said:
            return Answer(f"re: {said}")
        self.asked.set()
        return HeldStep(self.released, Answer(f"re: {said}"))


@pytest.fixture
def model() -> SlowModel:
    return SlowModel()


@pytest.fixture
async def server(home: Path, model: SlowModel) -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI(model) as server:
        chosen = {"name": "fake-model", "base_url": server.base_url}
        write_config(home, {"model": chosen, "agent": {"shutdown_grace_seconds": 0.1}})
        yield server
        model.released.set()


@asynccontextmanager
async def start_process(environment: dict[str, str], *arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "nanobot", *arguments,
        stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line_of(process: Process, text: str) -> str:
    """Return the answer to a line of standard input."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{text}\n".encode())
    return (await asyncio.wait_for(process.stdout.readline(), 30)).decode()


@pytest.mark.parametrize("end", ["terminated", "killed", "at the end of its input"])
@pytest.mark.usefixtures("server")
async def test_a_message_in_a_gateway_that_ends_is_answered_by_the_command_that_sent_it(
    environment: dict[str, str], home: Path, model: SlowModel, end: str
) -> None:
    async with (
        start_process(environment, "agent") as host,
        start_process(environment, "agent", "-s", "cli:other") as other,
    ):
        assert "hello" in await line_of(host, "hello")
        assert "again" in await line_of(other, "again")
        assert other.stdin is not None
        other.stdin.write(b"a slow one\n")
        await model.asked.wait()
        if end == "at the end of its input":
            assert host.stdin is not None
            host.stdin.close()
        else:
            host.send_signal(signal.SIGTERM if end == "terminated" else signal.SIGKILL)
        await host.wait()
        model.released.set()
        out, err = await asyncio.wait_for(other.communicate(b"and a last one\n"), 60)
    assert (other.returncode, err) == (0, b"")
    assert out.decode().split() == ["re:", "a", "slow", "one", "re:", "and", "a", "last", "one"]
    lines = (home / "sessions" / "cli_other.jsonl").read_text().splitlines()
    said = [message for line in lines if (message := json.loads(line)).get("role") == "user"]
    assert [message["content"] for message in said] == ["again", "a slow one", "and a last one"]


@pytest.mark.usefixtures("server")
async def test_an_idle_chat_goes_on_when_the_gateway_that_it_used_has_ended(
    environment: dict[str, str],
) -> None:
    async with (
        start_process(environment, "agent") as host,
        start_process(environment, "agent") as other,
    ):
        assert "hello" in await line_of(host, "hello")
        assert "one" in await line_of(other, "one")
        await host.communicate(b"")
        assert "two" in await line_of(other, "two")


@pytest.mark.usefixtures("server")
async def test_commands_behind_one_another_are_all_answered(
    environment: dict[str, str],
) -> None:
    commands = [["-m", f"message {number}"] for number in range(5)] + [["-m", "/new"]]
    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(start_process(environment, "agent", *command))
            for command in commands
        ]
        for process in processes:
            out, err = await asyncio.wait_for(process.communicate(b""), 90)
            others = [line for line in err.splitlines() if not line.startswith(b"waiting for")]
            assert (process.returncode, others) == (0, [])
            assert out.strip()


async def test_commands_behind_a_message_that_waits_for_the_model_all_hear_that_they_wait(
    environment: dict[str, str], home: Path
) -> None:
    away = f"http://127.0.0.1:{free_port()}/v1"
    model = {"name": "fake-model", "base_url": away, "retry_seconds": 0.5}
    write_config(home, {"model": model, "agent": {"shutdown_grace_seconds": 0.5}})
    commands = ["one", "two", "/new", "three", "/new"]
    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(start_process(environment, "agent", "-m", command))
            for command in commands
        ]
        for process in processes:
            out, err = await asyncio.wait_for(process.communicate(b""), 90)
            assert b"went away" not in err
            told = b"cannot be reached", b"be answered once", b"still pending", b"New conversation"
            assert any(words in out for words in told)


async def test_messages_given_again_to_the_next_gateway_hear_that_they_wait(
    environment: dict[str, str], home: Path
) -> None:
    away = f"http://127.0.0.1:{free_port()}/v1"
    model = {"name": "fake-model", "base_url": away, "retry_seconds": 0.0}
    write_config(home, {"model": model})
    for _ in range(3):
        async with start_process(environment, "gateway") as gateway:
            assert gateway.stderr is not None
            while b"ready" not in await asyncio.wait_for(gateway.stderr.readline(), 60):
                pass
            for message in ("the one that waits", "the one behind it"):
                assert await repeat_message(home, message) == "waiting"
            gateway.kill()


async def repeat_message(home: Path, message: str) -> str:
    """Send a message with the same id each time. Return the outcome of its turn."""
    request = {"op": "chat", "session": "cli:direct", "text": message, "id": str(len(message))}
    reader, writer = await asyncio.open_unix_connection(home / "state" / "gateway.sock")
    writer.write(json.dumps(request).encode() + b"\n")
    event: dict[str, str] = {}
    while event.get("event") != "reply":
        event = json.loads(await asyncio.wait_for(reader.readline(), 30))
    writer.close()
    assert event["text"]
    return event["outcome"]
