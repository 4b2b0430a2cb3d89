"""A whole nanobot in a test's own loop, and helpers to inspect it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import sysconfig
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from nanobot.agent.hooks import AgentHook
from nanobot.app.gateway import Gateway
from nanobot.clock import Clock, SystemClock
from nanobot.config.load import load_settings
from nanobot.messages import Message
from nanobot.providers.offline.model import OfflineModel
from nanobot.providers.port import Provider
from nanobot.session.manager import SessionManager
from nanobot.testing.channel import FakeChannel
from nanobot.tooling import Arguments, Tool, ToolResult, TurnContext
from tests.doubles.telegram import FakeTelegram
from tests.files import copy_file

sysconfig.get_path = cache(sysconfig.get_path)  # type: ignore[assignment]
"""For each sink of the log loguru asks for 36 folders, which was a quarter of a gateway's start."""

PICTURES = os.environ.pop("NANOBOT_PICTURES", "")
"""A folder for pictures of journeys. The variable is no setting, so no nanobot may see it."""
PATIENCE = 180.0
"""Real seconds after which a hanging test fails."""


_QUICK = {
    "NANOBOT_AGENT__SHUTDOWN_GRACE_SECONDS": "0",
    "NANOBOT_LIMITS__MESSAGES_PER_MINUTE": "0",  # people in tests write faster
}


@contextlib.asynccontextmanager
async def running(
    home: Path,
    model: Provider | None,
    channel: FakeChannel,
    *,
    clock: Clock | None = None,
    tools: Sequence[Tool] = (),
    hooks: Sequence[AgentHook] = (),
    learner: Provider | None = None,
    configured_learner: bool = False,
    chores: bool = False,
    **environ: str,
) -> AsyncIterator[Gateway]:
    """Run a gateway on `home`.

    `environ` are settings as variables, such as `NANOBOT_AGENT__ON_BUSY="queue"`. Without a model
    the configured one answers. Conversations are condensed by the `learner`, the configured model
    (`configured_learner`), otherwise offline."""

    settings = load_settings(home, _QUICK | environ)
    gateway = Gateway(
        settings,
        clock=clock,
        provider=model,
        learner=None if configured_learner else learner or OfflineModel(),
        chores=chores,
        channels=(channel,),
        hooks=hooks,
        extra_tools=tools,
        admit_everyone=True,
    )
    async with _living(gateway):
        yield gateway


@contextlib.asynccontextmanager
async def talking(
    home: Path,
    telegram: FakeTelegram,
    model: Provider | None,
    *,
    clock: Clock | None = None,
    tools: Sequence[Tool] = (),
    hooks: Sequence[AgentHook] = (),
    settings: Mapping[str, object] | None = None,
    **environ: str,
) -> AsyncIterator[Gateway]:
    """Run a gateway with a `config.yaml` that leads to `telegram`, where the person 7 is the owner.
    `settings` are further keys of `channels.telegram`, with priority."""
    written = _leading_to(telegram, settings or {})
    async with start_configured(
        home, written, model, clock=clock, tools=tools, hooks=hooks, **environ
    ) as gateway:
        yield gateway


@contextlib.asynccontextmanager
async def start_configured(
    home: Path,
    config: Mapping[str, object],
    model: Provider | None,
    *,
    clock: Clock | None = None,
    tools: Sequence[Tool] = (),
    hooks: Sequence[AgentHook] = (),
    **environ: str,
) -> AsyncIterator[Gateway]:
    """Run a gateway with any `config.yaml`."""
    write_config(home, config)
    gateway = Gateway(
        load_settings(home, _QUICK | environ),
        clock=clock,
        provider=model,
        learner=OfflineModel(),
        chores=False,
        hooks=hooks,
        extra_tools=tools,
    )
    async with _living(gateway):
        yield gateway


@contextlib.asynccontextmanager
async def start_with_one_model(home: Path, model: Provider, clock: Clock) -> AsyncIterator[Gateway]:
    """Run a gateway on a home with a `config.yaml`. The model also consolidates and dreams."""
    gateway = Gateway(load_settings(home, _QUICK), clock=clock, provider=model, chores=False)
    async with _living(gateway):
        yield gateway


def configure(home: Path, telegram: FakeTelegram, settings: Mapping[str, object]) -> None:
    """Write the `config.yaml` of `talking`."""
    write_config(home, _leading_to(telegram, settings))


def _leading_to(telegram: FakeTelegram, settings: Mapping[str, object]) -> Mapping[str, object]:
    section = {"enabled": True, "token": telegram.token, "base_url": telegram.base_url}
    return {"owner": {"telegram": ["7"]}, "channels": {"telegram": {**section, **settings}}}


def write_config(home: Path, config: Mapping[str, object]) -> None:
    """Write a `config.yaml` that only its owner can read."""
    home.mkdir(exist_ok=True)
    path = home / "config.yaml"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))  # which YAML reads as well


@contextlib.asynccontextmanager
async def _living(gateway: Gateway) -> AsyncIterator[None]:
    ready = asyncio.Event()
    async with asyncio.timeout(PATIENCE):
        life = asyncio.create_task(gateway.run(on_ready=ready.set, signals=False))
        life.add_done_callback(lambda _: ready.set())
        await ready.wait()
        try:
            yield
        finally:
            gateway.request_stop()
            await life


def without_header(text: str) -> str:
    """Return a message of the prompt without its header line, if it has one."""
    return re.sub(r"\A\[(today, .*|\d\d:\d\d)\]\n", "", text)


def copy_running(home: Path, target: Path) -> Path:
    """Copy the home of a running gateway, as a crash leaves it. Its temporary files may vanish."""

    def copy(source: str, copied: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            copy_file(source, copied)

    ignored = shutil.ignore_patterns("*.sock")
    return shutil.copytree(home, target, ignore=ignored, copy_function=copy)


def read_stored(home: Path, key: str = "fake:1") -> list[Message]:
    """Return all messages in a session's file, retracted ones as well, without nanobot's own notes,
    for a home that is not in use."""
    messages = SessionManager(home / "sessions", SystemClock()).read_messages(key)
    return [m for m in messages if m.content or m.media or m.role != "user"]


async def window(home: Path, key: str = "fake:1") -> list[tuple[str, str]]:
    """Return role and text of the messages in a session's next prompt, without notes on turns that
    ended without an answer, for a home that is not in use."""
    manager = SessionManager(home / "sessions", SystemClock())
    session = await manager.get_or_create(key)
    await manager.close()
    return [
        (message.role, message.content)
        for message in session.messages
        if message.content or message.media or message.role != "user"
    ]


class Gate:
    """Holds calls until the test releases them. Give it to a model as `hold` or to a `Probe`
    tool."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.opened.wait()


class TextArguments(Arguments, frozen=True):
    text: Annotated[str, Meta(description="Anything.")] = ""


@dataclass(frozen=True)
class Probe(Tool):
    """A tool that records its calls, and answers with `act`."""

    name: str = "probe"
    effects: bool = False
    act: Callable[[str], ToolResult] = ToolResult
    gate: Gate | None = None
    called: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    description = "For tests."
    arguments = TextArguments

    async def __call__(self, arguments: TextArguments, caller: TurnContext) -> ToolResult:
        self.called.append(arguments.text)
        if self.gate is not None:
            try:
                await self.gate()
            except asyncio.CancelledError:
                self.killed.append(arguments.text)
                raise
        return self.act(arguments.text or "done")
