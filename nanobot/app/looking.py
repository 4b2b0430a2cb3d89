"""The operations of those who look at a nanobot from outside: the page, programs, the command line.

No turn needs them, and most nanobots are seldom looked at. So each capability here is loaded and
built when one of its operations is called for the first time: a gateway that nobody looks at does
not hold it in memory, and is ready sooner.
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache

from nanobot import programs
from nanobot.app.services import Parts
from nanobot.channel import Operation
from nanobot.errors import NanobotError

Table = Mapping[str, Operation]

_DOCTOR_SECONDS = 120.0


def at_first_call(build: Callable[[], Table], *names: str) -> Table:
    """The operations `names`, which are those of the table that `build` makes at the first call of
    one of them."""

    @cache
    def built() -> Table:
        table = build()
        assert table.keys() == {*names}
        return table

    def operation(name: str) -> Operation:
        async def call(arguments: Mapping[str, object]) -> object:
            return await built()[name](arguments)

        return call

    return {name: operation(name) for name in names}


class Looking:
    """Those operations of one gateway."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._base = parts, parts.base
        settings = parts.base.settings
        self._model, self._named = settings.chat_model, tuple(settings.models)
        self._examining = asyncio.Lock()

    def table(self) -> dict[str, Operation]:
        """All of them by name."""
        return {
            **at_first_call(
                self._conversations, "conversations.list", "conversations.show",
                "conversations.find", "conversations.scope", "conversations.owner",
                "conversations.scopes", "conversations.take_back",
            ),
            **at_first_call(
                self._queue_and_turns, "queue.list", "queue.retry", "queue.drop", "turn.show",
                "turns.list",
            ),
            **at_first_call(self._figures, "figures"),
            **at_first_call(self._records, "audit.list", "logs.tail"),
            **at_first_call(
                self._memory_page, "memory.facts", "memory.fact", "memory.edit",
                "memory.history", "memory.notes", "memory.scopes", "memory.growth",
            ),
            **at_first_call(self._config, "config.show", "config.plan", "config.apply"),
            **at_first_call(self._snapshots, "backup.snapshot"),
            **at_first_call(self._backups, "backup.list", "backup.make"),
            **at_first_call(self._sign_ins, "channels.sign_in", "channels.signing_in"),
            "doctor": self._doctor,
            "commands": self._commands,
            "models": self._served,
        }  # fmt: skip

    def _conversations(self) -> Table:
        from nanobot.gateway.conversations import Conversations

        return Conversations(self._base.stores.sessions, self._base.scopes).table()

    def _queue_and_turns(self) -> Table:
        from nanobot.gateway.operations import Operations

        stores, bus = self._base.stores, self._base.bus
        return Operations(self._model, stores.journal, stores.sessions, bus).table()

    def _figures(self) -> Table:
        from nanobot.gateway.figures import Figures

        return Figures(self._base.stores.journal, self._base.clock).table()

    def _records(self) -> Table:
        from nanobot.gateway.records import Records

        return Records(self._base.settings.home / "logs").table()

    def _memory_page(self) -> Table:
        from nanobot.memory.service.page import MemoryPage

        memory = self._parts.memory
        return MemoryPage(memory.service.memory, memory.memories).table()

    def _config(self) -> Table:
        from nanobot.config.changing import ConfigOperations

        return ConfigOperations(self._base.settings).table()

    def _sign_ins(self) -> Table:
        from nanobot.app.signing_in import SignIns

        base, supervisor = self._base, self._parts.platforms.supervisor
        return SignIns(base.settings, supervisor, base.clock, base.background).table()

    def _snapshots(self) -> Table:
        return self._parts.upkeep.snapshots.table()

    def _backups(self) -> Table:
        return self._parts.upkeep.backup_maker.table()

    async def _doctor(self, _: Mapping[str, object]) -> dict[str, object]:
        """What the checks of `nanobot doctor` find, in order. They take seconds, block, and load
        what a gateway does not need, so they run in a process of their own, one at a time. Raises
        `NanobotError` where they do not end."""
        home = str(self._base.settings.home.absolute())
        launch = programs.own_command("--home", home, "doctor", "--json")
        async with self._examining:
            process = await launch.spawn(stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
            try:
                async with asyncio.timeout(_DOCTOR_SECONDS):
                    output = (await process.communicate())[0]
                return {"findings": json.loads(output)}
            except (TimeoutError, ValueError) as error:
                hint = "Run `nanobot doctor` in a terminal."
                raise NanobotError("the checks did not end as they should", hint=hint) from error
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _commands(self, _: Mapping[str, object]) -> list[dict[str, str]]:
        found = self._base.commands
        return [{"name": command.name, "summary": command.summary} for command in found]

    async def _served(self, _: Mapping[str, object]) -> dict[str, object]:
        served = self._parts.models.served
        names = await served.names() if served else ()
        return {"models": [*self._named, *names], "default": self._model}
