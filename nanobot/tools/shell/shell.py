"""What stands between a command and its process: the sandbox, the caller's folder, the network.

Without a sandbox that was proven to hold, nothing runs, unless the owner chose to do without one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import dropwhile
from pathlib import Path

from pydantic import Field

from nanobot.errors import ToolError
from nanobot.security.egress import Egress
from nanobot.security.paths import Root
from nanobot.security.sandbox import Confined, Launch, Sandbox
from nanobot.security.sandbox.finding import FindSandbox
from nanobot.security.sandbox.relay import network_relay
from nanobot.text import printable
from nanobot.tooling import Arguments, TurnContext
from nanobot.tools.shell.processes import Running

_FORK_BOMB = re.compile(r"([\w:.]{1,30})\(\)\{\1\|\1&\}")
_BETWEEN_COMMANDS = re.compile(r"[;&|\n(){}`]")
_BEFORE_A_COMMAND = frozenset({"sudo", "exec", "nohup", "time", "then", "do", "else", "!"})
_DISK = r"/dev/(?:[shv]d[a-z]|xvd[a-z]|nvme\d|mmcblk\d|disk\d|mapper/)"
_ALL_OF_IT = (
    r"(?=.* (?:--recursive|-(?!-)\S*[rR]\S*)(?: |$))"  # in whatever order
    r"(?=.* (?:/|/\*|~|~/|~/\*)(?: |$))"
)
_DANGEROUS = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (rf"(?:\S*/)?rm{_ALL_OF_IT}", "deletes everything"),
        (rf"(?:\S*/)?ch(?:mod|own){_ALL_OF_IT}", "changes every file"),
        (rf".*> ?{_DISK}|(?:\S*/)?dd(?=.* of={_DISK})", "overwrites a disk"),
        (
            r"(?:\S*/)?(?:mkfs(?:\.\S*)?|wipefs|blkdiscard|sgdisk|sfdisk|fdisk|parted)(?: |$)",
            "changes a disk",
        ),
        (
            r"(?:\S*/)?(?:systemctl(?: .*)? )?(?:shutdown|reboot|poweroff|halt|init [06])(?: |$)",
            "stops the computer",
        ),
    )
)


def dangerous_command(command: str) -> str:
    """What `command` would do that nobody can mean (`deletes everything`), or nothing. A courtesy
    where there is no sandbox, and no boundary: the same can be said in words that no pattern knows.
    Linear in the command."""
    if _FORK_BOMB.search("".join(command.split())):
        return "starts processes without end"
    home_named = command.replace("${HOME}", "~").replace("$HOME", "~")
    for part in _BETWEEN_COMMANDS.split(home_named.replace('"', "").replace("'", "")):
        line = " ".join(dropwhile(_BEFORE_A_COMMAND.__contains__, part.split()))
        for pattern, what in _DANGEROUS:
            if pattern.match(line):
                return what
    return ""


LONGEST_COMMAND = 100_000
"""Bytes; the system takes a little more as one argument of a program."""

LONGEST_IN_BACKGROUND = 86_400
"""Seconds that may be asked for as the limit of a background command."""


AfterUnconfined = Callable[[TurnContext], Awaitable[None]]
"""Told after each command that ran without a sandbox: anything may have changed."""


class ExecArguments(Arguments):
    command: str
    cwd: str = Field(default="", description="Folder in the workspace.")
    timeout: int | None = Field(default=None, description="Seconds.")
    background: bool = Field(default=False, description="Returns an id for exec_read, exec_kill.")
    network: bool = Field(default=False, description="May need the owner's approval.")


@dataclass(frozen=True, slots=True)
class Limits:
    """`seconds` for a command unless more is asked for, which may be at most `most_seconds`;
    `network` is whether the owner lets any command have it."""

    seconds: int = 60
    most_seconds: int = 600
    network: bool = True


class Shell:
    """Turns what is wanted into something that can be launched.

    `find` finds the sandbox. `confined_of` says what a caller's command may touch, with or without
    network; `egress` is its way there, None where there is none.
    """

    def __init__(
        self,
        find: FindSandbox,
        confined_of: Callable[[TurnContext, bool], Confined],
        *,
        limits: Limits | None = None,
        egress: Egress | None = None,
        after_unconfined: AfterUnconfined | None = None,
    ) -> None:
        self._find, self._confined_of = find, confined_of
        self._limits = limits or Limits()
        self._egress = egress
        self._after_unconfined = after_unconfined

    async def sandbox(self) -> Sandbox:
        """What commands run in. Raises `ToolError` where nothing can run."""
        found = await self._find()
        if found.sandbox is None:
            raise ToolError(
                f"commands are off: no sandbox works here ({found.problem})",
                hint="Tell the owner: they fix that (`nanobot doctor` says how), or accept the risk"
                " with `tools.exec.sandbox: none` in the configuration.",
            )
        return found.sandbox

    async def check(self, wanted: ExecArguments, caller: TurnContext) -> Sandbox:
        """The sandbox for a command that can be run. Raises `ToolError` where it cannot."""
        sandbox = await self.sandbox()
        if not wanted.command.strip():
            raise ToolError("there is no command")
        if not _usable(wanted.command):
            raise ToolError(
                f"a command is valid text of at most {LONGEST_COMMAND:,} bytes",
                hint="Write a script with write_file and run that.",
            )
        if wanted.network and sandbox.kind != "none":
            self._refuse_without_network(sandbox)
        self.seconds(wanted)
        if sandbox.kind == "none" and (danger := dangerous_command(wanted.command)):
            raise ToolError(f"refused: this {danger}, and there is no sandbox to stop it")
        await asyncio.to_thread(self._confined, wanted, sandbox, caller)
        return sandbox

    def seconds(self, wanted: ExecArguments) -> int | None:
        """How long it may run, None for ever. Raises `ToolError` for more than is allowed."""
        most = LONGEST_IN_BACKGROUND if wanted.background else self._limits.most_seconds
        if wanted.timeout is not None and not 1 <= wanted.timeout <= most:
            raise ToolError(
                f"timeout is between 1 and {most} seconds",
                hint="" if wanted.background else "Use background=true for what takes longer.",
            )
        return wanted.timeout or (None if wanted.background else self._limits.seconds)

    def workspace(self, caller: TurnContext) -> Path:
        """The folder that the caller's commands run in."""
        return self._confined_of(caller, False).workspace

    @asynccontextmanager
    async def prepared(self, wanted: ExecArguments, running: Running) -> AsyncIterator[Launch]:
        """What a checked command needs, for as long as it runs."""
        sandbox = await self.sandbox()
        confined = await asyncio.to_thread(self._confined, wanted, sandbox, running.caller)
        async with AsyncExitStack() as stack:
            relay = None
            if confined.network == "relay" and self._egress is not None:
                relay = await stack.enter_async_context(network_relay(self._egress))
            if sandbox.kind == "none" and self._after_unconfined:
                stack.push_async_callback(self._after_unconfined, running.caller)
            yield sandbox.launch((_shell(), "-c", wanted.command), confined, relay)
        if running.ending is not None and running.ending.code != 0 and sandbox.notes:
            running.notes.append(f"In this sandbox: {sandbox.notes}")

    def _confined(self, wanted: ExecArguments, sandbox: Sandbox, caller: TurnContext) -> Confined:
        """What it may touch. Blocks; raises `ToolError` for a folder that is not there."""
        confined = self._confined_of(caller, wanted.network and sandbox.kind != "none")
        folder = _relative(wanted.cwd.strip(), confined.workspace)
        if folder in ("", "."):
            return replace(confined, cwd=confined.workspace)
        place = Root(confined.workspace).place(folder)
        found = place.stat()
        if found is None or found.kind != "folder":
            raise ToolError(f"there is no folder {printable(folder)} in the workspace")
        return replace(confined, cwd=confined.workspace / place.relative)

    def _refuse_without_network(self, sandbox: Sandbox) -> None:
        if sandbox.kind == "landlock":
            raise ToolError(
                "commands have no network in this sandbox (Landlock); web_fetch has",
                hint="The owner can install bubblewrap.",
            )
        if not self._limits.network:
            raise ToolError("the owner turned the network of commands off (tools.exec.network)")
        if self._egress is None:
            raise ToolError("commands have no network here", hint="web_fetch and web_search do.")


def _usable(command: str) -> bool:
    try:
        encoded = command.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return len(encoded) <= LONGEST_COMMAND and b"\0" not in encoded


def _relative(cwd: str, workspace: Path) -> str:
    """Models often name the workspace by its full path."""
    whole = str(workspace)
    if cwd == whole or cwd.startswith(f"{whole}/"):
        return cwd[len(whole) :].lstrip("/")
    return cwd


def _shell() -> str:
    bash = Path("/bin/bash")
    return str(bash) if bash.exists() else "/bin/sh"
