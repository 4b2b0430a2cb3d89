"""Only the owner sees the operator's details: files, addresses, accounts, models, settings."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nanobot.bus.events import Media, Notice
from nanobot.errors import (
    BudgetSpent,
    ConfigError,
    ContextTooLong,
    ExtraMissing,
    NanobotError,
    ProviderBusy,
    ProviderRejected,
    ProviderUnavailable,
    StorageError,
    ToolUnavailable,
)
from nanobot.providers.port import Prompt, Reply
from nanobot.security.sandbox import SandboxRefused
from nanobot.testing import FakeClock, ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from nanobot.tooling import ToolResult
from nanobot.tools.mcp.values import McpError, McpLost
from tests.memory.attacker import ME, run_owned
from tests.scratch import scratch
from tests.support import Probe

HOST, ACCOUNT, MODEL = "db.internal.example:5432", "account acct-4711", "chaos-9b"
DETAILS = (HOST, ACCOUNT, MODEL, "config.yaml", "tokens_per_day", "pip install", "sudo")
FAULTS: tuple[Exception, ...] = (
    ProviderRejected(f"{MODEL} refused it: {ACCOUNT} has no credit", status=401, hint="sudo pay"),
    ProviderUnavailable(f"{HOST} refused the connection"),
    ProviderBusy(f"{ACCOUNT} sends too much to {MODEL}"),
    ContextTooLong(f"{MODEL} takes less", status=400, hint="Set it in config.yaml."),
    BudgetSpent(5_000),
    ExtraMissing(HOST, "team"),
    ConfigError(f"{HOST} is wrong", file="config.yaml"),
    ToolUnavailable(f"{HOST} takes no searches", hint="sudo"),
    McpError(f"the MCP server {HOST} cannot be started", hint="pip install mcp"),
    McpLost(f"{HOST} ended the connection"),
    SandboxRefused(f"there is no folder {HOST}"),
    NanobotError("it was not possible"),
    RuntimeError(f"{HOST} broke"),
    sqlite3.OperationalError(f"no such table in {HOST}"),
)
OTHERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a person": ("5", "bob", {}),
    "a group": ("g", "bob", {"is_group": True}),
    "the owner in a group": ("g", ME, {"is_group": True}),
}


def choose_error(home: Path, error: Exception | None) -> Exception:
    """Return the error, or a disk error of a file in this home."""
    return error or StorageError.of(home / "state" / "journal.db", OSError(28, "disk chaos-9b"))


def details(home: Path, *texts: str) -> list[str]:
    """Return the operator's details in texts."""
    return [one for one in (*DETAILS, str(home)) for text in texts if one in text]


class SharedNanobot:
    """A nanobot with an owner and other people, and a scripted model."""

    def __init__(self, home: Path) -> None:
        self.home, self.clock = home, FakeClock()
        self.channel = FakeChannel(clock=self.clock)
        self.model = ScriptedModel(author=lambda _: says("fine"))

    @contextlib.asynccontextmanager
    async def running(self, *tools: Probe, **settings: str) -> AsyncIterator[None]:
        learner = ScriptedModel(author=lambda _: says("{}"))
        async with run_owned(
            self.home,
            self.model,
            self.channel,
            clock=self.clock,
            learner=learner,
            tools=tools,
            **settings,
        ):
            await self.ask("hello", "1", ME)  # the owner's chat for notices
            yield

    async def ask(self, text: str, chat: str, sender: str, **how: Any) -> str:
        event = await self.channel.say(text, chat, sender_id=sender, **how)
        return await self.channel.answer_to(event, chat)

    def texts_in(self, chat: str) -> list[str]:
        """Return all messages and notices in a chat."""
        shown = (
            one.text
            for one in self.channel.shown
            if isinstance(one, Notice) and one.chat_id == chat
        )
        return [*(part.content for part in self.channel.sent if part.chat_id == chat), *shown]


def refusing(fault: Exception) -> ScriptedModel:
    """Return a model that fails when a message has "please"."""

    def author(prompt: Prompt) -> Reply:
        if "please" in prompt.messages[-1].text:
            raise fault
        return says("fine")

    return ScriptedModel(author=author)


@pytest.mark.parametrize("who", OTHERS)
async def test_a_disk_that_refuses_is_told_to_others_without_its_path(
    tmp_path: Path, who: str
) -> None:
    chat, sender, how = OTHERS[who]
    nanobot = SharedNanobot(tmp_path)
    nanobot.model = refusing(choose_error(tmp_path, None))
    async with nanobot.running():
        await nanobot.channel.say("please", chat, sender_id=sender, **how)
        while not nanobot.texts_in(chat):  # noqa: ASYNC110 - a notice tells nobody that it came
            await asyncio.sleep(0.01)
    assert details(tmp_path, *nanobot.texts_in(chat)) == []


@pytest.mark.parametrize("who", OTHERS)
@pytest.mark.parametrize("error", FAULTS, ids=lambda one: type(one).__name__)
async def test_a_turn_that_fails_says_why_to_the_owner_alone(
    tmp_path: Path, who: str, error: Exception
) -> None:
    chat, sender, how = OTHERS[who]
    nanobot = SharedNanobot(tmp_path)
    nanobot.model = refusing(error)
    async with nanobot.running():
        await nanobot.channel.say("please", chat, sender_id=sender, **how)
        first = (await nanobot.channel.receive(1, chat))[0]
        assert first
        told = (await nanobot.channel.receive(2, "1"))[1]
        assert f"fake:{chat}" in told
    assert details(tmp_path, *nanobot.texts_in(chat)) == []


@pytest.mark.parametrize("error", [*FAULTS, None], ids=lambda one: type(one).__name__)
async def test_a_model_that_answers_others_does_not_hear_of_it_either(
    tmp_path: Path, error: Exception | None
) -> None:
    nanobot, fault = SharedNanobot(tmp_path), choose_error(tmp_path, error)

    def act(_: str) -> ToolResult:
        raise fault

    async with nanobot.running(Probe(act=act)):
        nanobot.model.then(calls("probe", text="x"), says("it failed"))
        await nanobot.ask("use it", "5", "bob")
        prompt = "\n".join(message.text for message in nanobot.model.prompts[-1].messages)
    assert details(tmp_path, prompt) == []


async def test_paths_of_the_home_are_in_no_result_for_others() -> None:
    with scratch(on_disk=True) as home:
        nanobot = SharedNanobot(home)
        async with nanobot.running():
            nanobot.model.then(calls("exec", command="pwd; ls -d $PWD/.. 2>&1"), says("done"))
            await nanobot.ask("where are you?", "5", "bob")
            prompt = "\n".join(message.text for message in nanobot.model.prompts[-1].messages)
        assert "[exit code" in prompt, "the command ran"
        assert details(home, prompt) == []


@pytest.mark.parametrize("text", ["/status", "/usage", "/memory", "/dream", "/compact", "/help"])
async def test_commands_of_others_name_no_model_and_no_place(tmp_path: Path, text: str) -> None:
    nanobot = SharedNanobot(tmp_path)
    settings = {"NANOBOT_MODEL__NAME": MODEL, "NANOBOT_MODEL__API_KEY": "sk-" + "x" * 20}
    async with nanobot.running(**settings):
        await nanobot.ask("hello", "5", "bob")
        assert details(tmp_path, await nanobot.ask(text, "5", "bob")) == []


async def test_a_file_that_cannot_be_fetched_is_told_without_why(tmp_path: Path) -> None:
    nanobot = SharedNanobot(tmp_path)

    async def failing(media: Media, limit: int) -> bytes:
        raise RuntimeError(f"{HOST} refused it")

    nanobot.channel.fetch = failing  # type: ignore[method-assign]
    async with nanobot.running():
        await nanobot.ask("look", "5", "bob", media=(Media("x", "image", "image/png", "a.png"),))
        prompt = nanobot.model.prompts[-1].messages[-1].text
        assert "a.png" in prompt
    assert details(tmp_path, prompt) == []
