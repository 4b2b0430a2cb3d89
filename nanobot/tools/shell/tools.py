"""`exec`, `exec_read` and `exec_kill`: a shell in the workspace.

A command that was cancelled with its turn is dead when the call is over, and so is all that it
started; one in the background lives until it ends, is killed, or nanobot stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from pydantic import Field

from nanobot.channel.health import within
from nanobot.clock import Clock
from nanobot.errors import ToolError
from nanobot.text import printable
from nanobot.tooling import Arguments, Risk, Tool, ToolResult, TurnContext
from nanobot.tools.shell.processes import Processes, Running, begin, changed_since
from nanobot.tools.shell.shell import ExecArguments, Shell

_AT_ONCE = 0.5
"""Seconds in which a background command that cannot work mostly says so."""

_LONGEST_WAIT = 300


class ExecReadArguments(Arguments):
    id: str
    wait: int = Field(default=0, description="Seconds to wait for its end.")


class ExecKillArguments(Arguments):
    id: str


@dataclass(frozen=True, slots=True)
class Exec(Tool):
    """Runs a command."""

    shell: Shell
    processes: Processes
    clock: Clock
    name = "exec"
    description = (
        "Run a bash command in the workspace, the only place it can change. Sandboxed: no network "
        "unless asked for, nothing to type into, long-term memory and skills read-only."
    )
    arguments = ExecArguments
    effects = True

    async def risk(self, arguments: ExecArguments, caller: TurnContext) -> Risk | None:
        """See `Risky`: what is shut in without network harms nobody."""
        _refuse_unwatched(arguments, caller)
        sandbox = await self.shell.check(arguments, caller)
        if sandbox.kind != "none" and not arguments.network:
            return None
        where = f"in {printable(arguments.cwd.strip()) or 'the workspace'}"
        when = ", in the background" if arguments.background else ""
        how = "without a sandbox" if sandbox.kind == "none" else "with network access"
        return Risk("exec", f"run a command {how}", f"({where}{when})\n{arguments.command}")

    @asynccontextmanager
    async def undisturbed(
        self, arguments: ExecArguments, caller: TurnContext
    ) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """See `Undisturbed`."""
        async with self.processes.alone(caller):
            folder = str(self.shell.workspace(caller))
            begun = await asyncio.to_thread(begin)

            async def unchanged() -> None:
                if path := await asyncio.to_thread(changed_since, folder, begun):
                    raise ToolError(
                        f"not run: {printable(path)} changed while the owner was asked, and what "
                        "they allowed may be something else now",
                        hint="Ask again once nobody changes files there, the owner included.",
                    )

            yield unchanged

    async def __call__(self, arguments: ExecArguments, caller: TurnContext) -> ToolResult:
        _refuse_unwatched(arguments, caller)
        sandbox = await self.shell.check(arguments, caller)
        running = self.processes.start(
            arguments.command,
            caller,
            partial(self.shell.prepared, arguments),
            self.shell.seconds(arguments),
            background=arguments.background,
            mounted=sandbox.kind == "bubblewrap",
        )
        if not arguments.background:
            return await self._result(running)
        if await _ends_within(running, _AT_ONCE, self.clock):
            self.processes.forget(running)
            return await _told(running)
        text = f"Runs in the background as {running.id}; exec_read shows its output."
        return ToolResult(text, trusted=True)

    async def _result(self, running: Running) -> ToolResult:
        try:
            return await _told(running)
        except asyncio.CancelledError:
            running.process.kill()
            await running.over.wait()
            raise
        finally:
            self.processes.forget(running)


@dataclass(frozen=True, slots=True)
class ExecRead(Tool):
    """Reads what a background command printed."""

    processes: Processes
    clock: Clock
    name = "exec_read"
    description = "New output of a background command, and whether it still runs."
    arguments = ExecReadArguments

    async def __call__(self, arguments: ExecReadArguments, caller: TurnContext) -> ToolResult:
        running = self.processes.find(arguments.id.strip(), caller)
        if await _ends_within(running, min(arguments.wait, _LONGEST_WAIT), self.clock):
            self.processes.forget(running)
            return await _told(running)
        output = running.process.output.take()
        return ToolResult(_with_state(output, "still running"), trusted=not output)


@dataclass(frozen=True, slots=True)
class ExecKill(Tool):
    """Ends a background command."""

    processes: Processes
    name = "exec_kill"
    description = "End a background command."
    arguments = ExecKillArguments
    effects = True

    async def __call__(self, arguments: ExecKillArguments, caller: TurnContext) -> ToolResult:
        running = self.processes.find(arguments.id.strip(), caller)
        running.process.kill()
        try:
            return await _told(running)
        finally:
            self.processes.forget(running)


async def _told(running: Running) -> ToolResult:
    """How a command ended and what it printed since it was last read."""
    ending = await running.ended()
    output = running.process.output.take()
    state = str(ending)
    if ending.how == "timed out" and not running.background:
        state += ". Give it more time with timeout, or run it with background=true"
    state = "\n".join((state, *running.notes))
    return ToolResult(
        _with_state(output, state),
        is_error=ending.how == "timed out",
        trusted=not output,
    )


def _with_state(output: str, state: str) -> str:
    shown = output if output.strip() else "(no output)"
    return f"{shown}{'' if shown.endswith(chr(10)) else chr(10)}[{state}]"


async def _ends_within(running: Running, seconds: float, clock: Clock) -> bool:
    if seconds > 0 and not running.over.is_set():
        with suppress(TimeoutError):
            await within(clock, seconds, running.over.wait())
    return running.over.is_set()


def _refuse_unwatched(arguments: ExecArguments, caller: TurnContext) -> None:
    if arguments.background and not caller.attended:
        raise ToolError(
            "nothing can run in the background here: nobody would read or end it",
            hint="Run it without background, with a timeout that is long enough.",
        )
