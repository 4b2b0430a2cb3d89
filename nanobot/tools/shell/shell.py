"""Slips that would ruin the computer, refused where a command runs without a sandbox.

A courtesy and not a boundary: whoever wants to can say the same in words that no pattern knows.
Pure, and linear in the command.

What stands between a command and its process: the sandbox, the caller's folder, the network.

Without a sandbox that was proven to hold, nothing runs, unless the owner chose to do without one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import dropwhile
from pathlib import Path

from nanobot.errors import ToolError
from nanobot.security.names import printable
from nanobot.security.paths import Root
from nanobot.security.sandbox import Confined, Found, Launch, Sandbox
from nanobot.tooling import Caller
from nanobot.tools.shell.processes import Running

_DISK = r"/dev/(?:[shv]d[a-z]|xvd[a-z]|nvme\d|mmcblk\d|disk\d|mapper/)"
_OF_A_DISK = re.compile(f"of={_DISK}")
_INTO_A_DISK = re.compile(f">[ \t]{{0,9}}{_DISK}")
_FORK_BOMB = re.compile(r"([\w:.]{1,30})\(\)\{\1\|\1&\}")
_BETWEEN_COMMANDS = re.compile(r"[;&|\n(){}`]")

_EVERYTHING = frozenset({"/", "/*", "~", "~/", "~/*"})
_BEFORE_A_COMMAND = frozenset({"sudo", "exec", "nohup", "time", "then", "do", "else", "!"})
_ON_DISKS = frozenset({"wipefs", "blkdiscard", "sgdisk", "sfdisk", "fdisk", "parted"})
_ENDS = frozenset({"shutdown", "reboot", "poweroff", "halt"})


def slip_in(command: str) -> str:
    """What `command` would do that nobody can mean (`deletes everything`), or nothing."""
    if _FORK_BOMB.search("".join(command.split())):
        return "starts processes without end"
    home_named = command.replace("${HOME}", "~").replace("$HOME", "~")
    parts = _BETWEEN_COMMANDS.split(home_named.replace('"', "").replace("'", ""))
    return next((slip for part in parts if (slip := _slip(part))), "")


def _slip(part: str) -> str:
    if _INTO_A_DISK.search(part):
        return "overwrites a disk"
    words = list(dropwhile(_BEFORE_A_COMMAND.__contains__, part.split()))
    return _by_name(words[0].rpartition("/")[2], words[1:]) if words else ""


def _by_name(name: str, words: Sequence[str]) -> str:
    if name == "rm" and _recursive(words) and _EVERYTHING.intersection(words):
        return "deletes everything"
    if name in ("chmod", "chown") and _recursive(words) and _EVERYTHING.intersection(words):
        return "changes every file"
    if name.partition(".")[0] == "mkfs" or name in _ON_DISKS:
        return "changes a disk"
    if name == "dd" and any(map(_OF_A_DISK.match, words)):
        return "overwrites a disk"
    told = _ENDS.intersection(words) if name == "systemctl" else ()
    if name in _ENDS or told or (name == "init" and words[:1] in (["0"], ["6"])):
        return "stops the computer"
    return ""


def _recursive(words: Sequence[str]) -> bool:
    flags = [word for word in words if word.startswith("-")]
    return any(
        flag == "--recursive" or (not flag.startswith("--") and "r" in flag.lower())
        for flag in flags
    )


LONGEST_COMMAND = 100_000
"""Bytes; the system takes a little more as one argument of a program."""

LONGEST_IN_BACKGROUND = 86_400
"""Seconds that may be asked for as the limit of a background command."""


Relay = Callable[[], AbstractAsyncContextManager[Path]]
"""Opens a way into the network for one command (`NetworkRelay`): the socket that is its end."""

AfterUnconfined = Callable[[Caller], Awaitable[None]]
"""Told after each command that ran without a sandbox: anything may have changed."""


async def _nothing(_: Caller) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A command that somebody wants to run; `seconds` is None where nothing was said."""

    command: str
    cwd: str = ""
    seconds: int | None = None
    background: bool = False
    network: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """`seconds` for a command unless more is asked for, which may be at most `most_seconds`;
    `network` is whether the owner lets any command have it."""

    seconds: int = 60
    most_seconds: int = 600
    network: bool = True


class Shell:
    """Turns what is wanted into something that can be launched.

    `find` finds the sandbox at the first command, and again while there is none: the owner may
    install one meanwhile. `confined_of` says what a caller's command may touch, with or without
    network; `relay` is its way there, None where there is none.
    """

    def __init__(
        self,
        find: Callable[[], Awaitable[Found]],
        confined_of: Callable[[Caller, bool], Confined],
        *,
        limits: Limits | None = None,
        relay: Relay | None = None,
        after_unconfined: AfterUnconfined = _nothing,
    ) -> None:
        self._find, self._confined_of = find, confined_of
        self._limits = limits or Limits()
        self._relay = relay
        self._after_unconfined = after_unconfined
        self._finding = asyncio.Lock()
        self._sandbox: Sandbox | None = None

    async def sandbox(self) -> Sandbox:
        """What commands run in. Raises `ToolError` where nothing can run."""
        async with self._finding:
            if self._sandbox is None:
                found = await self._find()
                if found.sandbox is None:
                    raise ToolError(
                        f"commands are off: no sandbox works here ({found.problem})",
                        hint="Tell the owner: they mend that (`nanobot doctor` says how), or accept"
                        " the risk with `tools.exec.sandbox: none` in the configuration.",
                    )
                self._sandbox = found.sandbox
            return self._sandbox

    async def check(self, wanted: Wanted, caller: Caller) -> Sandbox:
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
        if sandbox.kind == "none" and (slip := slip_in(wanted.command)):
            raise ToolError(f"refused: this {slip}, and there is no sandbox to stop it")
        await asyncio.to_thread(self._confined, wanted, sandbox, caller)
        return sandbox

    def seconds(self, wanted: Wanted) -> int | None:
        """How long it may run, None for ever. Raises `ToolError` for more than is allowed."""
        most = LONGEST_IN_BACKGROUND if wanted.background else self._limits.most_seconds
        if wanted.seconds is not None and not 1 <= wanted.seconds <= most:
            raise ToolError(
                f"timeout is between 1 and {most} seconds",
                hint="" if wanted.background else "Use background=true for what takes longer.",
            )
        return wanted.seconds or (None if wanted.background else self._limits.seconds)

    def workspace(self, caller: Caller) -> Path:
        """The folder that the caller's commands run in."""
        return self._confined_of(caller, False).workspace

    @asynccontextmanager
    async def prepared(self, wanted: Wanted, running: Running) -> AsyncIterator[Launch]:
        """What a checked command needs, for as long as it runs."""
        sandbox = await self.sandbox()
        confined = await asyncio.to_thread(self._confined, wanted, sandbox, running.caller)
        async with AsyncExitStack() as stack:
            relay = None
            if confined.network == "relay" and self._relay is not None:
                relay = await stack.enter_async_context(self._relay())
            if sandbox.kind == "none":
                stack.push_async_callback(self._after_unconfined, running.caller)
            yield sandbox.launch((_shell(), "-c", wanted.command), confined, relay)
        if running.ending is not None and running.ending.code != 0 and sandbox.notes:
            running.notes.append(f"In this sandbox: {sandbox.notes}")

    def _confined(self, wanted: Wanted, sandbox: Sandbox, caller: Caller) -> Confined:
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
        if self._relay is None:
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
