"""The operations of a gateway, by capability, for the page, programs and the command line, and the
events of all conversations (`Feed`) for channels that show them.

- No turn needs the operations of `Looking`, and few nanobots are watched. So their capabilities are
  loaded at the first call, which saves memory and makes the start faster.
- Changes by the owner's operations are in the audit log, with their author. The page and programs
  pass `by` (`web:owner`), and the command line doesn't. Invariant: the log names changes by numbers
  and ids and holds no text of a person, so forgotten and erased text does not stay there."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from nanobot import programs
from nanobot.agent.hooks import TurnEvent
from nanobot.app.base import Base
from nanobot.app.memory import MemoryParts
from nanobot.app.services import Parts, build_heartbeat
from nanobot.bus.events import Address, ApprovalAsked, ApprovalClosed, InboundMessage, TurnEnded
from nanobot.channel import GatewayEvent, Keeper, Operation
from nanobot.commands import in_threads, optional_text
from nanobot.cron.tool import CronOperations
from nanobot.errors import NanobotError
from nanobot.gateway.pairing import Pairing
from nanobot.security.audit import AuditLog
from nanobot.text import join_some, one_line
from nanobot.tooling import TurnContext

Table = Mapping[str, Operation]

_DOCTOR_SECONDS = 120.0

LOOKED_AT: Mapping[str, Sequence[str]] = {
    "conversations": (
        "conversations.list", "conversations.show", "conversations.find", "conversations.search",
        "conversations.versions", "conversations.scope", "conversations.owner",
        "conversations.scopes", "conversations.take_back", "conversations.change",
        "conversations.delete", "conversations.mark", "conversations.titles",
    ),
    "turns": ("queue.list", "queue.retry", "queue.drop", "turn.show", "turns.list"),
    "figures": ("figures",),
    "records": ("audit.list", "logs.tail"),
    "memory": (
        "memory.facts", "memory.fact", "memory.edit", "memory.history", "memory.notes",
        "memory.scopes", "memory.growth",
    ),
    "config": ("config.show", "config.plan", "config.apply"),
    "snapshots": ("backup.snapshot",),
    "backups": ("backup.list", "backup.make"),
    "sign-ins": ("channels.sign_in", "channels.signing_in"),
    "set-up": ("setup.show", "setup.begin", "setup.answer", "setup.save", "setup.cancel"),
}  # fmt: skip
"""Operations built at their first call, by capability (see `Looking._build`)."""

RECORDED: Mapping[str, Sequence[str]] = {
    "memory.edit": ("version", "path"),
    "memory.restore": ("undone", "to", "versions"),
    "memory.forget": ("versions", "entries", "erase"),
    "memory.accept": ("numbers", "codes"),
    "memory.drop": ("numbers", "codes"),
    "memory.importance": ("level", "version"),
    "memory.dream": (),
    "memory.rebuild": (),
    "conversations.take_back": ("key", "turn"),
    "conversations.mark": ("key", "seq", "kept"),
    "conversations.change": ("key", "pinned", "archived"),
    "conversations.delete": ("key", "messages", "files"),
    "cron.add": ("id", "chat"),
    "cron.remove": ("id",),
    "cron.pause": ("id",),
    "cron.resume": ("id",),
    "cron.run": ("id",),
    "pair.approve": ("address", "owner"),
    "pair.revoke": ("address",),
    "channels.sign_in": ("name",),
    "config.apply": ("changed",),
    "setup.begin": ("topics",),
    "setup.answer": ("topic", "number"),
    "setup.save": ("changed",),
    "setup.cancel": (),
    "queue.retry": ("id",),
    "queue.drop": ("id",),
    "backup.make": (),
    "restart": (),
    "web.link": ("account", "setup"),
    "web.revoke": ("id",),
}
"""Operations that change something, and the fields of their results and arguments to log."""

_LONGEST = 100
_MOST = 10


def build_operations(parts: Parts, pairing: Pairing) -> dict[str, Operation]:
    base, toolbox = parts.base, parts.toolbox
    return {
        "status": parts.monitoring.status.status,
        "status.conversation": parts.monitoring.status.conversation,
        "dialects.replace": parts.models.replace_dialects,
        **parts.memory.service.table(),
        **pairing.table(),
        **toolbox.skills.table(),
        **CronOperations(toolbox.cron, base.known_chats, base.clock).table(),
        "heartbeat.show": build_heartbeat(base, parts.memory).show,
        "helpers.list": toolbox.helpers.list,
        **toolbox.mcp.table(),
        **toolbox.approval_commands.table(),
        **parts.platforms.supervisor.table(),
        **parts.models.voice.table(),
        **Looking(parts).table(),
    }


def build_conversations(base: Base, memory: MemoryParts) -> Table:
    """Return the operations on conversations."""
    from nanobot.gateway.changes import ConversationChanges
    from nanobot.gateway.conversations import Conversations

    sessions, scopes, memories = base.stores.sessions, base.scopes, memory.memories
    find = memory.index.find_messages
    conversations = Conversations(sessions, scopes, find, lambda scope: memories.of(scope).root)

    async def forget_shown(key: str) -> None:
        for name, channel in base.outlets.items():
            if isinstance(channel, Keeper):
                folder = base.settings.home / "state" / "channels" / name
                await channel.forget_chat(folder, key)

    changes = ConversationChanges(
        sessions,
        scopes,
        base.stores.journal,
        base.settings.data_folder,
        in_lane=base.lanes.run,
        holding=memories.holding,
        refresh_index=memory.index.refresh,
        forget_shown=forget_shown,
    )
    return {**conversations.table(), **changes.table()}


class Looking:
    """The operations for the page and other observers."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._base = parts, parts.base
        self._built: dict[str, Table] = {}
        self._examining = asyncio.Lock()

    def table(self) -> Table:
        return {
            **{
                name: self._at_first_call(capability, name)
                for capability, names in LOOKED_AT.items()
                for name in names
            },
            "doctor": self._doctor,
            "commands": self._commands,
            "models": self._models,
            "models.name": self._name_model,
        }

    def _at_first_call(self, capability: str, name: str) -> Operation:
        async def call(arguments: Mapping[str, object]) -> object:
            if capability not in self._built:
                self._built[capability] = self._build(capability)
            return await self._built[capability][name](arguments)

        return call

    def _build(self, capability: str) -> Table:
        table: Table
        base, parts, stores = self._base, self._parts, self._base.stores
        match capability:
            case "conversations":
                table = build_conversations(base, parts.memory)
            case "turns":
                from nanobot.gateway.operations import Operations

                model = base.settings.chat_model
                table = Operations(model, stores.journal, stores.sessions, base.bus).table()
            case "figures":
                from nanobot.gateway.operations import figures

                table = {"figures": partial(figures, stores.journal, base.clock)}
            case "records":
                from nanobot.gateway.operations import audit_records, log_lines

                logs = base.settings.home / "logs"
                audit, tail = partial(audit_records, logs), partial(log_lines, logs)
                table = in_threads({"audit.list": audit, "logs.tail": tail})
            case "memory":
                from nanobot.memory.service.page import MemoryPage

                table = MemoryPage(parts.memory.service.memory, parts.memory.memories).table()
            case "config":
                from nanobot.config.changes import ConfigOperations

                table = ConfigOperations(base.settings).table()
            case "snapshots":
                table = parts.upkeep.snapshots.table()
            case "backups":
                table = parts.upkeep.backup_maker.table()
            case _:
                table = self._build_with_channels(capability)
        assert table.keys() == {*LOOKED_AT[capability]}
        return table

    def _build_with_channels(self, capability: str) -> Table:
        """Build an operation that stops and starts channels."""
        base, supervisor = self._base, self._parts.platforms.supervisor
        settings, clock, background = base.settings, base.clock, base.background
        if capability == "sign-ins":
            from nanobot.app.sign_in import SignIns

            return SignIns(settings, supervisor, clock, background).table()
        from nanobot.app.setup.page import Setups

        return Setups(settings, supervisor, clock, background, base.redactor).table()

    async def _doctor(self, _: Mapping[str, object]) -> dict[str, object]:
        """Return the findings of `nanobot doctor`, in order. The checks take seconds, block, and
        load much that a gateway does not need, so they run in a process, one at a time. Raises
        `NanobotError` if they fail."""
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
                raise NanobotError("the checks failed", hint=hint) from error
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _commands(self, _: Mapping[str, object]) -> list[dict[str, str]]:
        return [{"name": one.name, "summary": one.summary} for one in self._base.commands]

    async def _models(self, _: Mapping[str, object]) -> dict[str, object]:
        served, settings = self._parts.models.served, self._base.settings
        names = await served.names() if served else ()
        real = {name: settings.name_on_server(name) for name in settings.models}
        default = settings.chat_model
        return {"models": [*settings.models, *names], "default": default, "names": real}

    async def _name_model(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the name of the `chosen` model, or of the default one, on its server."""
        settings, chosen = self._base.settings, optional_text(arguments, "chosen")
        is_offline = settings.model.provider == "offline" and not chosen
        return {"name": settings.name_on_server(chosen), "offline": is_offline}


class Feed:
    """Hook of the turns, as a `nanobot.channel.Overview`. It does nothing without watchers."""

    def __init__(self) -> None:
        self.operations: Mapping[str, Operation] = {}
        self._watchers: list[Callable[[GatewayEvent], None]] = []
        self._resumed: dict[tuple[str, str], InboundMessage] = {}

    @property
    def resumed(self) -> Sequence[InboundMessage]:
        return tuple(self._resumed.values())

    def resume(self, messages: Iterable[InboundMessage]) -> None:
        """Note the unanswered messages of the previous process."""
        self._resumed = {(one.session_key, one.answered_event): one for one in messages}

    @contextmanager
    def watch(self, watcher: Callable[[GatewayEvent], None]) -> Iterator[None]:
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None:
        if not (self._watchers or self._resumed):
            return
        if caller is not None:
            self.publish(caller.session_key, event)
        elif isinstance(event, InboundMessage):
            self.publish(event.session_key, event)
        else:
            chosen = event.session_key if isinstance(event, TurnEnded) else ""
            address = Address(event.channel, event.chat_id, event.thread_id)
            self.publish(chosen or address.key, event)

    def publish(self, key: str, event: TurnEvent | ApprovalAsked | ApprovalClosed) -> None:
        """Pass on an event of the conversation `key`."""
        if self._resumed and isinstance(event, TurnEnded) and event.outcome != "waiting":
            for event_id in event.event_ids:
                self._resumed.pop((key, event_id), None)
        for watcher in tuple(self._watchers):
            watcher(GatewayEvent(key, event))


def record_calls(operations: Table, audit: AuditLog) -> dict[str, Operation]:
    """Return the operations, with each call of a `RECORDED` one logged."""

    def wrap(name: str, operation: Operation) -> Operation:
        async def call(arguments: Mapping[str, object]) -> object:
            try:
                result = await operation(arguments)
            except NanobotError:
                audit.write(_record(name, "failed", arguments, {}))
                raise
            known = result if isinstance(result, dict) else {}
            audit.write(_record(name, "done", arguments, known))
            return result

        return call if name in RECORDED else operation

    return {name: wrap(name, operation) for name, operation in operations.items()}


def _record(
    name: str, outcome: str, arguments: Mapping[str, object], result: Mapping[str, object]
) -> dict[str, str]:
    changed = []
    for key in RECORDED[name]:
        value = result.get(key, arguments.get(key))
        if value not in (None, "", False, []):
            values = value if isinstance(value, list) else [value]
            shown = join_some([one_line(str(one), _LONGEST) for one in values], _MOST)
            changed.append(f"{key} {shown}")
    by, scope = arguments.get("by"), arguments.get("scope") or result.get("scope")
    record = {"event": "changed", "outcome": outcome, "tool": name}
    record["by"] = one_line(str(by or "terminal"), _LONGEST)
    if scope:
        record["scope"] = one_line(str(scope), _LONGEST)
    if changed:
        record["changed"] = ", ".join(changed)
    return record
