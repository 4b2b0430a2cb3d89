"""A workspace with a shell. Most tests are about processes and not about confinement, so their
commands run unconfined, with any kind of sandbox."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from msgspec import field
from msgspec.structs import replace

from nanobot.clock import Clock, SystemClock
from nanobot.messages import ToolCall
from nanobot.programs import Launch
from nanobot.security.egress import Egress
from nanobot.security.sandbox import Confinement, FoundSandbox, Kind, Sandbox
from nanobot.tasks import Background
from nanobot.testing import FakeClock
from nanobot.tooling import ToolResult, TurnContext
from nanobot.tooling.registry import ToolRegistry
from nanobot.tools.shell.processes import Processes
from nanobot.tools.shell.tools import Exec, ExecKill, ExecLimits, ExecRead


class Open(Sandbox, frozen=True):
    """A sandbox without confinement. It records its arguments in `seen`."""

    seen: list[tuple[Confinement, Path | None]] = field(default_factory=list)
    lacks: str = ""

    @property
    def notes(self) -> str:
        return self.lacks

    def launch(
        self, command: Sequence[str], confined: Confinement, relay: Path | None = None
    ) -> Launch:
        self.seen.append((confined, relay))
        environment = {"PATH": "/usr/bin:/bin", **confined.environment}
        return Launch(tuple(command), environment, str(confined.cwd))


class ShownOutput:
    """The shown output of a command."""

    def __init__(self) -> None:
        self.text = ""
        self._changed = asyncio.Event()

    def show(self, text: str) -> None:
        self.text += text
        self._changed.set()

    async def until(self, text: str) -> None:
        """Wait until this text was shown."""
        while text not in self.text:
            self._changed.clear()
            await self._changed.wait()


class ProcessWatch:
    """Detects the end of all processes of a command, which hold a pipe open."""

    holding = "exec 9>alive; echo ready; "

    def __init__(self, workspace: Path) -> None:
        path = workspace / "alive"
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    async def over(self) -> None:
        """Wait for the last one to end."""
        os.set_blocking(self._end, True)
        assert await asyncio.to_thread(os.read, self._end, 1) == b""
        os.close(self._end)


class CommandKit:
    """The environment of commands, in a folder."""

    def __init__(self, home: Path, clock: Clock | None = None) -> None:
        self.workspace = home / "workspace"
        self.workspace.mkdir(parents=True)
        self.clock = clock or SystemClock()
        self.open = Open("bubblewrap")
        self.sandbox: Sandbox | None = self.open
        self.ran_free: list[str] = []
        self.watched = ShownOutput()
        self.me = TurnContext(
            "cli", "direct", "cli:direct", "turn-1", show_output=self.watched.show
        )
        self.asked = Background()
        self.processes = Processes(self.clock, per_session=2, in_all=3)
        self.exec = self.make_exec()
        self.tools = ToolRegistry()
        self.tools.register_all(
            [self.exec, ExecRead(self.processes, self.clock), ExecKill(self.processes)]
        )

    def change_sandbox(self, *, kind: Kind = "bubblewrap", lacks: str = "") -> None:
        """Replace the sandbox and keep its records."""
        self.sandbox = self.open = Open(kind, seen=self.open.seen, lacks=lacks)

    def make_exec(self, *, network: bool = True) -> Exec:
        return Exec(
            self._find,
            lambda _: Confinement(self.workspace),
            self.processes,
            self.clock,
            Egress(),
            ExecLimits(60, 600, network=network),
            self._ran_free,
        )

    async def call(
        self, name: str, caller: TurnContext | None = None, **arguments: object
    ) -> ToolResult:
        """Run a tool as a model does."""
        return await self.tools.call(ToolCall("1", name, json.dumps(arguments)), caller or self.me)

    async def says(self, name: str, **arguments: object) -> str:
        """Return the text of a successful call."""
        result = await self.call(name, None, **arguments)
        assert not result.is_error, result.text
        return result.text

    async def complains(self, name: str, **arguments: object) -> str:
        """Return the text of a failed call."""
        result = await self.call(name, None, **arguments)
        assert result.is_error, result.text
        return result.text

    def begin(self, **arguments: object) -> asyncio.Task[ToolResult]:
        """Start a command without waiting for it."""
        return self.asked.start(self.call("exec", None, **arguments))

    async def in_background(self, command: str, caller: TurnContext | None = None) -> str:
        """Start a long background command and return its id. The clock must be a fake one."""
        assert isinstance(self.clock, FakeClock)
        asleep = self.clock.sleeping
        call = self.asked.start(self.call("exec", caller, command=command, background=True))
        await self.clock.until_sleeping(asleep + 1)
        await self.clock.advance(1)
        result = await call
        assert result.trusted
        return result.text.split(" as ")[1].split(".")[0]

    def other(self, **changes: str) -> TurnContext:
        """Return another caller."""
        return replace(self.me, **changes)

    async def _find(self) -> FoundSandbox:
        return FoundSandbox(self.sandbox, "" if self.sandbox else "install bubblewrap")

    async def _ran_free(self, caller: TurnContext) -> None:
        self.ran_free.append(caller.turn_id)


NewDesk = Callable[[Clock], CommandKit]


@pytest.fixture
async def new_desk(disk_path: Path) -> AsyncIterator[NewDesk]:
    desks: list[CommandKit] = []

    def make(clock: Clock) -> CommandKit:
        desks.append(CommandKit(disk_path / f"home{len(desks)}", clock))
        return desks[-1]

    yield make
    closing: list[Awaitable[None]] = [kit.processes.close() for kit in desks]
    await asyncio.gather(*closing)
    for kit in desks:
        await kit.asked.drain(5)


@pytest.fixture
def kit(new_desk: NewDesk) -> CommandKit:
    return new_desk(SystemClock())
