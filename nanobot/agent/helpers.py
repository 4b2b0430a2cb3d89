"""Subagents: the `spawn` tool, and the helpers that work on its tasks in the background.

Invariants:

- A helper sees its task and nothing else of the conversation. It gives exactly one report, as a
  message of nanobot in that conversation, even after a crash.
- It can't send to a chat, start helpers or jobs, or write to memory. A call that needs approval is
  rejected, because no person is there to ask.
- Its report is marked with the untrusted content that the conversation held at its start, or that
  it read itself.
- The turn that its report begins is no person's. That turn starts no helpers or jobs, and asks for
  no approval."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from typing import Annotated

from loguru import logger
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from nanobot.agent.runner import AgentRunner, TurnLog
from nanobot.bus.events import NANOBOT, InboundMessage, Origin
from nanobot.bus.queue import MessageBus
from nanobot.bus.sql_journal import Journal
from nanobot.clock import with_timeout
from nanobot.errors import NanobotError, ToolError
from nanobot.memory.taint import origin_of_relay, origins_of
from nanobot.messages import Message
from nanobot.providers.port import CallOptions, Prompt, Toolset, system_message, user_message
from nanobot.tasks import Background
from nanobot.text import one_line
from nanobot.tooling import OWNER, Arguments, Tool, ToolResult, TurnContext
from nanobot.tools.shell.processes import Processes

SPAWN = "spawn"
MOST_OF_ONE, MOST_OF_OTHERS = 8, 2
"""Most helpers at a time of one conversation, and of all conversations of a scope other than the
owner's."""

_REPORT_CHARACTERS = 12_000
_LABEL_CHARACTERS = 60
_LOST = (
    "was interrupted when nanobot stopped. What it had done until then is unknown; look before"
    " repeating it. Its task was: {}"
)


class _Helper(Struct):
    """A running helper. `messages_read` is the conversation of `caller` at its start, with the
    marks `tainted`. `log` has the task and the messages that the helper read itself."""

    id: str
    label: str
    task: str
    caller: TurnContext
    messages_read: tuple[Message, ...]
    tainted: tuple[str, ...]
    begun_at: datetime
    log: TurnLog = field(default_factory=TurnLog)
    work: asyncio.Task[None] | None = field(default=None)

    @property
    def key(self) -> str:
        """Session key of the helper's own calls."""
        return f"helper:{self.id}"

    def origins(self) -> tuple[str, ...]:
        """Return the marks of its report."""
        return tuple(dict.fromkeys((*self.tainted, *origins_of(self.log.messages))))

    def report(self, what: str, now: datetime, text: str = "") -> InboundMessage:
        """Return the message with the outcome `what`, and its report if there is one."""
        caller, foreign = self.caller, self.origins()
        mark = origin_of_relay(self.key, foreign) if foreign else NANOBOT
        return InboundMessage(
            caller.channel,
            caller.chat_id,
            sender_id=NANOBOT,
            content=f"[{NANOBOT}: the helper “{self.label}” {what}]{text}",
            event_id=f"task:{self.id}",
            timestamp=now,
            thread_id=caller.thread_id,
            session_override=caller.session_key,
            origin=Origin("report", caller.scope, mark=mark),
        )


class Helpers:
    """The subagents, which use `runner`, with its tools and the prompt `instructions`. Up to
    `most_running` run in parallel over all conversations, half of them for others than the owner.
    Each has up to `minutes`, and holds its scope by `holding`. Its processes in `processes` end
    with it."""

    def __init__(
        self,
        *,
        runner: AgentRunner,
        instructions: str,
        journal: Journal,
        bus: MessageBus,
        processes: Processes,
        holding: Callable[[str], AbstractAsyncContextManager[None]] = lambda _: nullcontext(),
        most_running: int = 4,
        minutes: float = 30.0,
        new_id: Callable[[], str] = lambda: secrets.token_hex(3),
    ) -> None:
        self._runner, self._instructions, self._minutes = runner, instructions, minutes
        self._journal, self._bus, self._processes = journal, bus, processes
        self._clock, self._new_id, self._holding = runner.clock, new_id, holding
        self._places = asyncio.Semaphore(most_running)
        self._places_of_others = asyncio.Semaphore(max(1, most_running // 2))
        self._tasks = Background()
        self._at_work: dict[str, _Helper] = {}

    async def list(self, _: Mapping[str, object]) -> dict[str, object]:
        """Return the running helpers, oldest first."""
        return {
            "helpers": [
                {
                    "id": one.id,
                    "label": one.label,
                    "task": one.task,
                    "session": one.caller.session_key,
                    "scope": one.caller.scope,
                    "begun_at": one.begun_at.isoformat(timespec="seconds"),
                    "steps": len(one.log.messages),
                }
                for one in self._at_work.values()
            ],
            "minutes": self._minutes,
        }

    async def spawn(self, task: str, label: str, caller: TurnContext) -> str:
        """Start a helper for `task` and return its ID. Raises `ToolError` and `StorageError`."""
        if caller.off_record:
            raise ToolError("this chat is temporary, so no helper can report to it later")
        count, most = len(self._of(caller.session_key)), MOST_OF_ONE
        if caller.scope != OWNER:
            count = sum(h.caller.scope == caller.scope for h in self._at_work.values())
            most = MOST_OF_OTHERS
        if count >= most:
            raise ToolError(f"{count} helpers are already running here. Wait for them")
        label = one_line(label or task, _LABEL_CHARACTERS)
        messages_read = tuple(caller.messages_read())
        now, origins = self._clock.now(), caller.origins()
        helper = _Helper(self._new_id(), label, task, caller, messages_read, origins, now)
        lost = helper.report(_LOST.format(one_line(task, 1_000)), now)
        self._at_work[helper.id] = helper
        try:
            await self._journal.add_helper(helper.id, lost)
        except BaseException:
            del self._at_work[helper.id]
            raise
        helper.work = self._tasks.start(self._run(helper), name=helper.key)
        return helper.id

    async def stop(self, session_key: str) -> int:
        """Stop the helpers of a conversation without a report, and return their number. Raises
        `StorageError`. They have ended even then, and the next start reports them."""
        mine = self._of(session_key)
        for helper in mine:
            if helper.work is not None:
                helper.work.cancel()
        for helper in mine:
            await self._journal.remove_helper(helper.id)
        return len(mine)

    async def recover(self, scopes: Collection[str] | None = None) -> None:
        """Report the helpers that an earlier process lost, in a team the helpers of another worker
        in these `scopes`. Raises `StorageError` if they can't be read."""
        for helper_id, message in await self._journal.find_lost_helpers(scopes):
            if helper_id not in self._at_work:
                logger.info("subagent {} was interrupted when nanobot stopped", helper_id)
                await self._conclude(helper_id, message)

    async def close(self) -> None:
        """Stop all helpers. The next start reports them."""
        await self._tasks.drain(0)

    def _of(self, session_key: str) -> Sequence[_Helper]:
        return [h for h in self._at_work.values() if h.caller.session_key == session_key]

    async def _run(self, helper: _Helper) -> None:
        scope = helper.caller.scope
        limit = nullcontext() if scope == OWNER else self._places_of_others
        try:
            async with self._holding(scope):
                try:
                    async with limit, self._places:
                        report = await self._report(helper)
                    await self._conclude(helper.id, report)
                finally:
                    await self._processes.stop(helper.key)
        except NanobotError as error:  # another worker holds the scope
            failed = _failure(error, is_owner=scope == OWNER)
            await self._conclude(helper.id, helper.report(failed, self._clock.now()))
        finally:
            del self._at_work[helper.id]

    async def _conclude(self, helper_id: str, message: InboundMessage) -> None:
        """Store a report, however long the disk rejects it. A repeated one is dropped by its event
        ID."""

        async def store() -> None:
            await self._bus.publish_internal(message)
            await self._journal.remove_helper(helper_id)

        await self._bus.until_stored(message, store)

    async def _report(self, helper: _Helper) -> InboundMessage:
        """Run a helper and return its report, however it ends."""
        text = ""
        try:
            answer = await with_timeout(self._clock, self._minutes * 60, self._work(helper))
            what = "has finished. The person has not seen its report:"
            text = f"\n{answer[:_REPORT_CHARACTERS]}"
            if len(answer) > _REPORT_CHARACTERS:
                text += "\n[the report was cut off here]"
        except TimeoutError:
            what = f"ran out of its {self._minutes:g} minutes. It has no report."
        except Exception as error:  # noqa: BLE001 - the boundary: a broken helper is reported
            what = _failure(error, is_owner=helper.caller.scope == OWNER)
        return helper.report(what, self._clock.now(), text)

    async def _work(self, helper: _Helper) -> str:
        log = helper.log
        log.messages.append(Message("user", helper.task, self._clock.now(), origin=NANOBOT))
        messages = (system_message(self._instructions), user_message(helper.task))
        tools = Toolset.of(self._runner.tools.specs(helper.caller.scope))
        caller = replace(
            helper.caller,
            session_key=helper.key,
            messages_read=lambda: (*helper.messages_read, *log.messages),
            origins=helper.origins,
            initiator="helper",
        )
        options = CallOptions(use="helpers")
        prompt = Prompt(messages, tools)
        return (await self._runner.run(prompt, caller, options=options, log=log)).text


def _failure(error: BaseException, *, is_owner: bool) -> str:
    reason = type(error).__name__
    if isinstance(error, NanobotError):
        reason = one_line(str(error.redact_for(is_owner=is_owner)), None)
    return f"failed: {reason}. It has no report."


class SpawnArguments(Arguments, frozen=True):
    task: Annotated[
        str,
        Meta(
            min_length=1, max_length=20_000, description="All it must know; it sees nothing else."
        ),
    ]
    label: Annotated[str, Meta(max_length=200)] = ""


class Spawn(Tool, Struct, frozen=True):
    helpers: Helpers
    name = SPAWN
    description = (
        "Give a task to a helper in the background, for what takes long or can be done side by "
        "side. Its report comes as a later message: do not wait for it."
    )
    arguments = SpawnArguments
    effects = True

    async def __call__(self, arguments: SpawnArguments, caller: TurnContext) -> ToolResult:
        if not caller.is_attended:
            raise ToolError("only a conversation with a person can have helpers")
        helper = await self.helpers.spawn(arguments.task, arguments.label, caller)
        return ToolResult(f"Helper {helper} is at work; its report will come.", trusted=True)
