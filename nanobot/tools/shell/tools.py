"""`exec`, `exec_read` and `exec_kill`: a shell in the workspace.

Without a verified sandbox nothing runs, unless the owner disabled the sandbox. A cancelled command
and all its children are dead when the call returns. A background command lives until it ends, is
killed, or nanobot stops."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from functools import partial
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from nanobot.clock import Clock, with_timeout
from nanobot.errors import ToolError, ToolUnavailable
from nanobot.programs import Launch
from nanobot.security.egress import Egress
from nanobot.security.paths import Root
from nanobot.security.sandbox import Confinement, FindSandbox, Sandbox
from nanobot.security.sandbox.relay import network_relay
from nanobot.text import printable
from nanobot.tooling import Arguments, Risk, Tool, ToolResult, TurnContext
from nanobot.tools.shell.processes import Processes, ShellCommand, fingerprint

_BETWEEN_COMMANDS = r"[;&|\n(){}`]"
_DISK = r"/dev/(?:[shv]d[a-z]|xvd[a-z]|nvme\d|mmcblk\d|disk\d|mapper/)"
_SLIP = (
    r"(?:sudo )?(?:\S*/)?(?:"
    r"(?:rm|chmod|chown)(?=.* (?:--recursive|-(?!-)\S*[rR]))(?=.* (?:/|/\*|~|~/|~/\*)(?: |$))"
    rf"|mkfs|dd(?=.* of={_DISK}))|.*> ?{_DISK}"
)
"""Removes or changes everything, or overwrites a disk."""


def is_slip(command: str) -> bool:
    """Check whether `command` would destroy the system. Without a sandbox this is a courtesy and
    not a boundary, because other spellings pass. Linear in the command."""
    home_named = command.replace("${HOME}", "~").replace("$HOME", "~")
    parts = re.split(_BETWEEN_COMMANDS, home_named.replace('"', "").replace("'", ""))
    return any(re.match(_SLIP, " ".join(part.split())) for part in parts)


CHANGED_MEANWHILE = "files in its folder changed while the owner was being asked"
"""Why an approved command was not run."""

LONGEST_COMMAND = 100_000
"""Bytes. The system accepts slightly more in one argument."""

LONGEST_IN_BACKGROUND = 86_400
"""Maximum timeout of a background command in seconds."""

_AT_ONCE = 0.5
"""Seconds in which most failing background commands report it."""

_LONGEST_WAIT = 300

AfterUnconfined = Callable[[TurnContext], Awaitable[None]]
"""Called after each command without a sandbox, because it may have changed anything."""


class ExecArguments(Arguments, frozen=True):
    command: str
    cwd: str = ""
    timeout: Annotated[int | None, Meta(description="Seconds.")] = None
    background: Annotated[bool, Meta(description="Returns an id at once.")] = False
    network: Annotated[bool, Meta(description="May need the owner's approval.")] = False


class ExecReadArguments(Arguments, frozen=True):
    id: str
    wait: Annotated[int, Meta(description="Seconds to wait for its end.")] = 0


class ExecKillArguments(Arguments, frozen=True):
    id: str


class ExecLimits(Struct, frozen=True):
    """`seconds` is the default timeout, `most_seconds` the longest. `network`: the owner allows
    network access."""

    seconds: int = 60
    most_seconds: int = 600
    network: bool = True


class Exec(Tool, Struct, frozen=True):
    """Runs a command. `find` finds the sandbox. `confined_of` returns the permissions of a caller's
    command, and `egress` is its network access."""

    find: FindSandbox
    confined_of: Callable[[TurnContext], Confinement]
    processes: Processes
    clock: Clock
    egress: Egress
    limits: ExecLimits = field(default_factory=ExecLimits)
    after_unconfined: AfterUnconfined | None = None
    name = "exec"
    description = (
        "Run a bash command in a sandbox, which can change the workspace only (not memory and "
        "skills) and has no network unless asked for."
    )
    arguments = ExecArguments
    effects = True

    async def risk(self, arguments: ExecArguments, caller: TurnContext) -> Risk | None:
        """Return None for a sandboxed command without network, which harms no one."""
        sandbox = await self._check(arguments, caller)
        if sandbox.kind != "none" and not arguments.network:
            return None
        where = f"in {printable(arguments.cwd.strip()) or 'the workspace'}"
        when = ", in the background" if arguments.background else ""
        how = "without a sandbox" if sandbox.kind == "none" else "with network access"
        return Risk("exec", f"run a command {how}", f"({where}{when})\n{arguments.command}")

    async def pin(
        self, arguments: ExecArguments, caller: TurnContext
    ) -> Callable[[], AbstractAsyncContextManager[None]]:
        """Pin the whole folder, because the files that a command reads are unknown (see `Tool`)."""
        self.processes.refuse_if_running(caller)
        folder = str(self.confined_of(caller).workspace)
        before = await asyncio.to_thread(fingerprint, folder)
        return partial(self._hold_folder, caller, folder, before)

    @asynccontextmanager
    async def _hold_folder(
        self, caller: TurnContext, folder: str, before: bytes
    ) -> AsyncIterator[None]:
        async with self.processes.reserve(caller):
            if await asyncio.to_thread(fingerprint, folder) != before:
                raise ToolError(
                    f"not run: {CHANGED_MEANWHILE}, so the command might do something else now",
                    hint="Ask again when no files are changing there, including by the owner.",
                )
            yield

    async def __call__(self, arguments: ExecArguments, caller: TurnContext) -> ToolResult:
        sandbox = await self._check(arguments, caller)
        running = self.processes.start(
            arguments.command,
            caller,
            partial(self._prepare, arguments, sandbox),
            self._choose_timeout(arguments),
            background=arguments.background,
            mounted=sandbox.kind == "bubblewrap",
        )
        if arguments.background and not await ends_within(running, _AT_ONCE, self.clock):
            text = f"Running in the background as {running.id}. Use exec_read to see its output."
            return ToolResult(text, trusted=True)
        try:
            return await wait_for_result(running)
        except asyncio.CancelledError:
            running.process.kill()
            await running.over.wait()
            raise
        finally:
            self.processes.remove(running)

    async def _check(self, wanted: ExecArguments, caller: TurnContext) -> Sandbox:
        """Return the sandbox for a valid command. Raise `ToolError` if it cannot run."""
        found = await self.find()
        if (sandbox := found.sandbox) is None:
            raise ToolUnavailable(
                f"commands are off because no sandbox works on this machine ({found.problem})",
                hint=(
                    "Ask the owner to run `nanobot doctor`, which suggests a fix. They can also "
                    "accept the risk with `tools.exec.sandbox: none` in the configuration."
                ),
            )
        if wanted.background and not caller.is_attended:
            raise ToolError(
                "no command can run in the background here, because this conversation is "
                "unattended",
                hint="Run it without background, with a longer timeout.",
            )
        refuse_unusable(wanted.command)
        if wanted.network:
            if sandbox.kind == "landlock":
                raise ToolError(
                    "commands have no network access in this sandbox (Landlock). Use web_fetch",
                    hint="The owner can install bubblewrap to allow network access.",
                )
            if sandbox.kind != "none" and not self.limits.network:
                raise ToolError(
                    "the owner has turned off network access for commands (tools.exec.network)"
                )
        self._choose_timeout(wanted)
        if sandbox.kind == "none" and is_slip(wanted.command):
            raise ToolError(
                "rejected: this command would destroy the system, and there is no sandbox"
            )
        await asyncio.to_thread(self._confine, wanted, caller)
        return sandbox

    def _choose_timeout(self, wanted: ExecArguments) -> int | None:
        """Return the timeout, or None for no limit. Raise `ToolError` if it is too long."""
        most = LONGEST_IN_BACKGROUND if wanted.background else self.limits.most_seconds
        if wanted.timeout is not None and not 1 <= wanted.timeout <= most:
            raise ToolError(
                f"timeout must be between 1 and {most} seconds",
                hint="" if wanted.background else "For longer commands, use background=true.",
            )
        return wanted.timeout or (None if wanted.background else self.limits.seconds)

    @asynccontextmanager
    async def _prepare(
        self, wanted: ExecArguments, sandbox: Sandbox, running: ShellCommand
    ) -> AsyncIterator[Launch]:
        """Yield the launch of a checked command. Its network relay lives as long as the context."""
        confined = await asyncio.to_thread(self._confine, wanted, running.caller)
        async with AsyncExitStack() as stack:
            relay = None
            if wanted.network and sandbox.kind != "none":
                relay = await stack.enter_async_context(network_relay(self.egress))
            if sandbox.kind == "none" and self.after_unconfined:
                stack.push_async_callback(self.after_unconfined, running.caller)
            shell = "/bin/bash" if await asyncio.to_thread(Path("/bin/bash").exists) else "/bin/sh"
            yield sandbox.launch((shell, "-c", wanted.command), confined, relay)
        if running.ending is not None and running.ending.code != 0 and sandbox.notes:
            running.notes.append(f"About this sandbox: {sandbox.notes}")

    def _confine(self, wanted: ExecArguments, caller: TurnContext) -> Confinement:
        """Return the command's permissions. Blocks. Raise `ToolError` if its folder is missing."""
        confined = self.confined_of(caller)
        whole, folder = str(confined.workspace), wanted.cwd.strip()
        if folder == whole or folder.startswith(f"{whole}/"):  # models often write the whole path
            folder = folder[len(whole) :].lstrip("/")
        place = Root(confined.workspace).place(folder or ".")
        found = place.stat()
        if found is None or found.kind != "folder":
            raise ToolError(f"the workspace has no folder {printable(folder)}")
        return replace(confined, cwd=confined.workspace / place.relative)


def refuse_unusable(command: str) -> None:
    if not command.strip():
        raise ToolError("the command is empty")
    with suppress(UnicodeEncodeError):
        encoded = command.encode("utf-8", "surrogateescape")
        if len(encoded) <= LONGEST_COMMAND and b"\0" not in encoded:
            return
    raise ToolError(
        f"the command is too long or not valid text (limit: {LONGEST_COMMAND:,} bytes)",
        hint="Write a script with write_file, and run it.",
    )


class ExecRead(Tool, Struct, frozen=True):
    processes: Processes
    clock: Clock
    name = "exec_read"
    description = "New output of a background command, and whether it still runs."
    arguments = ExecReadArguments

    async def __call__(self, arguments: ExecReadArguments, caller: TurnContext) -> ToolResult:
        running = self.processes.find(arguments.id.strip(), caller)
        if await ends_within(running, min(arguments.wait, _LONGEST_WAIT), self.clock):
            self.processes.remove(running)
            return await wait_for_result(running)
        output = running.process.output.take_unread()
        return ToolResult(append_state(output, "still running"), trusted=not output)


class ExecKill(Tool, Struct, frozen=True):
    processes: Processes
    name = "exec_kill"
    description = "End a background command."
    arguments = ExecKillArguments
    effects = True

    async def __call__(self, arguments: ExecKillArguments, caller: TurnContext) -> ToolResult:
        running = self.processes.find(arguments.id.strip(), caller)
        running.process.kill()
        try:
            return await wait_for_result(running)
        finally:
            self.processes.remove(running)


async def wait_for_result(running: ShellCommand) -> ToolResult:
    """Return the end of a command and its unread output."""
    ending = await running.wait()
    output = running.process.output.take_unread()
    state = str(ending)
    if ending.how == "timed out" and not running.background:
        state += ". Use a longer timeout, or background=true"
    state = "\n".join((state, *running.notes))
    return ToolResult(
        append_state(output, state), is_error=ending.how == "timed out", trusted=not output
    )


def append_state(output: str, state: str) -> str:
    shown = output if output.strip() else "(no output)"
    return f"{shown}{'' if shown.endswith(chr(10)) else chr(10)}[{state}]"


async def ends_within(running: ShellCommand, seconds: float, clock: Clock) -> bool:
    if seconds > 0 and not running.over.is_set():
        with suppress(TimeoutError):
            await with_timeout(clock, seconds, running.over.wait())
    return running.over.is_set()
