"""The table of running commands with their owners, and exclusive runs for a scope.

A command runs independently of the call that started it, so another call can read it. Invariant: it
belongs to the conversation and scope that started it, and does not exist for others. Their number
is limited, and `close` leaves none.

The files that a command will read can't be known before it runs. So from the owner's question to
the end of an approved command its whole folder must stay the same: a change before approval voids
the approval, and after it nothing else runs or writes there. The check uses ctime, which only the
kernel sets."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from loguru import logger
from msgspec import Struct, field

from nanobot.clock import Clock
from nanobot.errors import NanobotError, ToolError
from nanobot.programs import Launch
from nanobot.tasks import Background
from nanobot.text import printable
from nanobot.tooling import TurnContext
from nanobot.tools.shell.process import GRACE, Ending, Process

_TICK = 0.02
"""Seconds; longer than the granularity of the kernel's change times."""


def fingerprint(folder: str) -> bytes:
    """Return a digest that differs after anything in `folder` was created, changed or removed.
    Links are not followed. Blocks: about a second for 200,000 files."""
    time.sleep(_TICK)  # so that the next change gets another time
    digest = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in (".", *folders, *sorted(files)):
            with suppress(FileNotFoundError):
                path = f"{place}/{name}"
                status = os.lstat(path)
                line = f"{path}\0{status.st_ino} {status.st_ctime_ns}\n"
                digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.digest()


_KEPT_SECONDS = 3_600.0
"""Finished commands can be read for this time."""

_SHOWN_COMMAND = 80
_RULES_CHANGED = "It was stopped because nanobot changed a rule file, such as AGENTS.md or USER.md."

_HELD = (
    "a command that the owner approved is running. Until it ends, no other command can run here, "
    "and no file can be written"
)

Prepare = Callable[["ShellCommand"], AbstractAsyncContextManager[Launch]]
"""Sets up the environment of a command while it runs."""


class ShellCommand(Struct, eq=False):
    """A command that runs or ran. `over` is set at its end; then `ending` is valid, or `problem` if
    it could not start. `notes` are reported in addition to the output. `mounted`: mounts protect
    its read-only files, but not from replacement outside the sandbox. `launched`: it no longer
    waits for `quiesce`."""

    id: str
    command: str
    caller: TurnContext
    process: Process
    background: bool
    seconds: float | None
    mounted: bool = False
    notes: list[str] = field(default_factory=list)
    ending: Ending | None = None
    problem: NanobotError | None = None
    ended_at: float = 0.0
    launched: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def __str__(self) -> str:
        return f"{self.id} ({shorten_command(self.command)})"

    async def wait(self) -> Ending:
        """Wait for its end and return it. Raise `NanobotError` if it could not start."""
        await self.over.wait()
        if self.ending is None:
            raise self.problem or ToolError("the command could not be run")
        return self.ending


class _Hold(Struct, eq=False):
    """A turn with exclusive use of a scope's folder, for one command (`command` after its
    start)."""

    turn: tuple[str, str]
    command: ShellCommand | None = None


class Processes:
    """The table of commands: at most `per_session` in the background of one conversation, and
    `in_all` at the same time."""

    def __init__(self, clock: Clock, *, per_session: int = 8, in_all: int = 32) -> None:
        self._clock, self._per_session, self._in_all = clock, per_session, in_all
        self._table: dict[str, ShellCommand] = {}
        self._quiet: Counter[str] = Counter()
        self._quiet_ended = asyncio.Event()
        self._holds: dict[str, _Hold] = {}
        self._approved: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._background = Background()
        self._closed = False
        self._ledger = -1

    @property
    def ledger(self) -> int:
        """The open file in which commands record their usage (see `Confinement`)."""
        if self._ledger < 0:
            self._ledger = os.memfd_create("commands")
        return self._ledger

    def start(
        self,
        command: str,
        caller: TurnContext,
        prepared: Prepare,
        seconds: float | None,
        *,
        background: bool,
        mounted: bool = False,
    ) -> ShellCommand:
        """Start `command` for at most `seconds`. Raise `ToolError` if too many run.

        In the foreground, its output is shown to the caller's people."""
        self.refuse_if_held(caller)
        self._make_room(caller, background)
        process = Process(self._clock, None if background else caller.show_output)
        id = secrets.token_hex(3)
        running = ShellCommand(id, command, caller, process, background, seconds, mounted)
        self._table[running.id] = running
        if hold := self._holds.get(caller.scope):
            hold.command = running  # the folder is reserved for it
        self._background.start(self._run(running, prepared), name=f"command {running.id}")
        return running

    def find(self, name: str, caller: TurnContext) -> ShellCommand:
        """Return the caller's background command. Raise `ToolError` for an unknown name."""
        mine = {running.id: running for running in self._list_background(caller)}
        if name in mine:
            return mine[name]
        shown = ", ".join(map(str, mine.values()))
        raise ToolError(
            f"no background command {printable(name)} in this conversation",
            hint=f"The background commands are: {shown}."
            if shown
            else "There are none. Finished commands are kept for an hour.",
        )

    def remove(self, running: ShellCommand) -> None:
        self._table.pop(running.id, None)

    async def stop(self, session_key: str) -> int:
        """Kill the commands of a conversation and return the number in the background."""
        found = [one for one in self._list_alive() if one.caller.session_key == session_key]
        await kill_all(found)
        return sum(running.background for running in found)

    @asynccontextmanager
    async def quiesce(self, scope: str) -> AsyncIterator[None]:
        """Kill the `mounted` commands of this scope and hold new ones, to replace their read-only
        files."""
        self._quiet[scope] += 1
        try:
            ending = [
                one
                for one in self._list_alive()
                if one.launched and one.mounted and one.caller.scope == scope
            ]
            for running in ending:
                running.notes.append(_RULES_CHANGED)  # the model should know why
            await kill_all(ending)
            yield
        finally:
            self._quiet[scope] -= 1
            self._quiet_ended.set()
            self._quiet_ended = asyncio.Event()

    @asynccontextmanager
    async def reserve(self, caller: TurnContext) -> AsyncIterator[None]:
        """Reserve this scope's folder for an approved command until it ends, even in the
        background. Wait for running commands. Raise `ToolError` if one is in the background."""
        async with self._approved[caller.scope]:
            self.refuse_if_held(caller)
            self._holds[caller.scope] = hold = _Hold((caller.session_key, caller.turn_id))
            try:
                self.refuse_if_running(caller, background=True)
                for one in self._list_running(caller.scope):
                    await one.over.wait()
                yield
            finally:
                if hold.command is None or hold.command.over.is_set():
                    self._holds.pop(caller.scope, None)

    def refuse_if_held(self, caller: TurnContext) -> None:
        """Raise `ToolError` if another call has reserved the folder."""
        hold = self._holds.get(caller.scope)
        if hold is None:
            return
        if hold.command is not None and hold.command.over.is_set():
            del self._holds[caller.scope]
        elif hold.command is not None or hold.turn != (caller.session_key, caller.turn_id):
            raise ToolError(
                _HELD,
                hint="Try again later, or use exec_kill if the command runs in the background.",
            )

    def refuse_if_running(self, caller: TurnContext, *, background: bool = False) -> None:
        """Raise `ToolError` if commands of the caller's scope run (only in the `background`, if
        set)."""
        shown = [
            str(one)
            if one.caller.session_key == caller.session_key
            else shorten_command(one.command)
            for one in self._list_running(caller.scope)
            if one.background or not background
        ]
        if shown:
            raise ToolError(
                "this command must run alone in its folder, but others are running: "
                f"{', '.join(shown)}",
                hint=(
                    "Wait until they end, or stop them: exec_kill here, /stop in another "
                    "conversation."
                ),
            )

    async def close(self) -> None:
        """Kill all commands and allow no new ones."""
        self._closed = True
        for running in self._table.values():
            running.process.kill()
        await self._background.drain(2 * GRACE)
        if self._ledger >= 0:
            os.close(self._ledger)
            self._ledger = -1

    def _list_alive(self) -> list[ShellCommand]:
        return [running for running in self._table.values() if not running.over.is_set()]

    def _list_running(self, scope: str) -> list[ShellCommand]:
        return [one for one in self._list_alive() if one.caller.scope == scope]

    def _list_background(self, caller: TurnContext) -> list[ShellCommand]:
        """Return the background commands of a conversation, without long finished ones."""
        past = self._clock.monotonic() - _KEPT_SECONDS
        for running in list(self._table.values()):
            if running.over.is_set() and (running.ended_at <= past or not running.background):
                self.remove(running)
        whose = (caller.scope, caller.session_key)
        return [
            one
            for one in self._table.values()
            if one.background and (one.caller.scope, one.caller.session_key) == whose
        ]

    def _make_room(self, caller: TurnContext, background: bool) -> None:
        """Evict finished commands. Raise `ToolError` if too many are running."""
        if self._closed:
            raise ToolError("nanobot is stopping and starts no new commands")
        mine, alive = self._list_background(caller), self._list_alive()
        if background and sum(one in alive for one in mine) >= self._per_session:
            raise ToolError(
                f"{self._per_session} background commands are already running in this conversation",
                hint=f"Stop one with exec_kill: {', '.join(map(str, mine))}.",
            )
        if len(alive) >= self._in_all:
            raise ToolError("too many commands are running", hint="Try again later.")
        for running in [one for one in mine if one not in alive][: -self._per_session]:
            self.remove(running)

    async def _run(self, running: ShellCommand, prepared: Prepare) -> None:
        try:
            while running.mounted and self._quiet[running.caller.scope]:
                await self._quiet_ended.wait()
            running.launched = True
            async with prepared(running) as launch:
                running.ending = await running.process.run(launch, running.seconds)
        except NanobotError as error:
            running.problem = error
            if running.ending is not None:  # the caller gets only the ending
                logger.warning("the command {} has ended, and then: {}", running.id, error)
        except OSError as error:
            running.problem = ToolError(f"the command could not be started: {error.strerror}")
        finally:
            running.ended_at = self._clock.monotonic()
            running.over.set()


async def kill_all(found: Sequence[ShellCommand]) -> None:
    for running in found:
        running.process.kill()
    for running in found:
        await running.over.wait()


def shorten_command(command: str) -> str:
    return printable(" ".join(command.split())[:_SHOWN_COMMAND])
