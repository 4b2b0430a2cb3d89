"""Tools, who calls them, and the one gate that every call passes.

A tool is stateless: who is asking is an argument (`Caller`), because shared "current context" is
how one person's reply ends up in another's chat. `ToolRegistry.call` is the only way to run a tool,
for chats and, later, schedules and helpers alike; it validates, decides, bounds and records.
Whatever a model or a tool does wrong becomes a text that the model can act on; a call never raises
for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Protocol

from loguru import logger
from pydantic import BaseModel, ConfigDict

from nanobot.errors import NanobotError, StorageError, ToolError, TurnStopped
from nanobot.messages import Message, ToolCall
from nanobot.providers.port import ToolSpec
from nanobot.schema import parameters_of, parse_arguments
from nanobot.security.paths import Roots
from nanobot.security.redaction import Redactor

MAX_RESULT = 16_000
"""Characters of a result that go into the prompt; what is longer is kept aside and previewed."""

_HEAD, _TAIL = 8_000, 3_000
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a tool runs.

    `scope` is whose memory and files: `owner`, `people/<id>` or `groups/<id>`. `heard` gives the
    messages that the model has read when it calls: what may become a memory depends on who said it.
    """

    channel: str
    chat_id: str
    session_key: str
    turn_id: str
    sender_id: str = ""
    scope: str = "owner"
    thread_id: str = ""
    heard: Callable[[], Iterable[Message]] = tuple


RootsOf = Callable[[Caller], Roots]
"""The folders that a caller may touch: what is not its own does not exist for it."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model gets back. `images` are base64 data with their MIME type.

    `changed` lists workspace-relative paths that the call changed, for `/undo` and for people.
    `trusted`: the text is nanobot's or the caller's own; all other content is data, in which no
    instruction is followed and nothing becomes a memory without its person.
    """

    text: str
    is_error: bool = False
    images: tuple[tuple[str, str], ...] = ()
    changed: tuple[str, ...] = ()
    trusted: bool = False


class Arguments(BaseModel):
    """Base of every tool's arguments: unknown fields are errors that the model can act on."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Tool(Protocol):
    """One tool. `effects`: running it twice is not the same as once. `parallel`: calls of it may
    run beside others in the same step (only for tools without effects)."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def arguments(self) -> type[Arguments]: ...
    @property
    def effects(self) -> bool: ...
    @property
    def parallel(self) -> bool: ...

    async def __call__(self, arguments: Any, caller: Caller) -> ToolResult:
        """Do it. Raise `ToolError` with a text that the model can act on."""
        ...


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call may run."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The call must not run; `reason` is told to the model."""

    reason: str


Decision = Allowed | Denied


class Policy(Protocol):
    """Says whether a call may run, once its arguments are known to be valid."""

    def decide(self, tool: Tool, arguments: Arguments, caller: Caller) -> Decision:
        """Decide on one call. Raising means no."""
        ...


class Audit(Protocol):
    """Where decisions are recorded."""

    def record(self, tool: Tool, caller: Caller, decision: Decision) -> None:
        """Note one decision, before it takes effect."""
        ...


class Overflow(Protocol):
    """Where results go that are too long for a prompt."""

    async def keep(self, text: str, tool: str) -> str:
        """Store `text`; return the path by which `read_file` reads it. Raises `StorageError`."""
        ...


class AllowEverything:
    """The policy of an agent that has one person and no untrusted input."""

    def decide(self, tool: Tool, arguments: Arguments, caller: Caller) -> Decision:
        return Allowed()


class LoggedDecisions:
    """An audit in the debug log."""

    def record(self, tool: Tool, caller: Caller, decision: Decision) -> None:
        logger.debug("{} for {} in {}: {}", tool.name, caller.session_key, caller.turn_id, decision)


class ToolRegistry:
    """The one gate. Tools are offered to the model in the order in which they were registered."""

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        audit: Audit | None = None,
        redactor: Redactor | None = None,
        overflow: Overflow | None = None,
    ) -> None:
        self._policy: Policy = policy or AllowEverything()
        self._audit: Audit = audit or LoggedDecisions()
        self._redactor = redactor or Redactor()
        self._overflow = overflow
        self._tools: dict[str, Tool] = {}
        self._specs: dict[str, ToolSpec] = {}

    def register(self, tool: Tool) -> None:
        """Offer `tool`. Raises `ValueError` for a name that is taken or that the API refuses."""
        if not _NAME.fullmatch(tool.name):
            raise ValueError(f"{tool.name!r} cannot be the name of a tool")
        if tool.name in self._tools:
            raise ValueError(f"there is a tool named {tool.name!r} already")
        if tool.parallel and tool.effects:
            raise ValueError(f"{tool.name!r} has effects, so its calls cannot run in parallel")
        self._tools[tool.name] = tool
        self._specs[tool.name] = ToolSpec(
            tool.name, tool.description, parameters_of(tool.arguments)
        )

    def register_all(self, tools: Iterable[Tool]) -> None:
        """Offer several tools."""
        for tool in tools:
            self.register(tool)

    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model sees them."""
        return tuple(self._specs.values())

    def has_effects(self, name: str) -> bool:
        """Whether running this tool twice differs from once; an unknown tool does nothing."""
        tool = self._find(name)
        return tool is not None and tool.effects

    def can_run_parallel(self, name: str) -> bool:
        """Whether a call of this tool may run beside others of the same step."""
        tool = self._find(name)
        return tool is None or tool.parallel

    async def call(self, call: ToolCall, caller: Caller) -> ToolResult:
        """Run one call of the model. Raises only to stop the turn (cancellation, `TurnStopped`)."""
        try:
            return await self._finished(call.name, await self._run(call, caller))
        except TurnStopped:
            raise
        except NanobotError as error:
            problem = f"{error}\n{error.hint}" if error.hint else str(error)
            return ToolResult(self._clean(problem)[:MAX_RESULT], is_error=True)
        except Exception as error:  # noqa: BLE001 - the boundary between a broken tool and the turn
            logger.opt(exception=error).error("the tool {} crashed", call.name[:80])
            text = f"{call.name[:80]} failed unexpectedly ({type(error).__name__}); try another way"
            return ToolResult(self._clean(text), is_error=True)

    async def _run(self, call: ToolCall, caller: Caller) -> ToolResult:
        tool = self._find(call.name)
        if tool is None:
            raise self._unknown(call.name)
        arguments = parse_arguments(tool.arguments, call.arguments)
        decision = self._policy.decide(tool, arguments, caller)
        self._audit.record(tool, caller, decision)
        if isinstance(decision, Denied):
            raise ToolError(f"not allowed: {decision.reason}")
        return await tool(arguments, caller)

    def _find(self, name: str) -> Tool | None:
        found = self._tools.get(name)
        return found or self._tools.get(name.strip().removeprefix("functions."))

    def _unknown(self, name: str) -> ToolError:
        near = get_close_matches(name[:80], self._tools, 1)
        hint = f"Did you mean {near[0]}? " if near else ""
        known = ", ".join(self._tools) or "none"
        return ToolError(f"no tool named {name[:80]!r}", hint=f"{hint}The tools are: {known}.")

    async def _finished(self, name: str, result: ToolResult) -> ToolResult:
        text = self._clean(result.text)
        if len(text) > MAX_RESULT:
            text = await self._previewed(name, text)
        return replace(result, text=text)

    def _clean(self, text: str) -> str:
        # Lone surrogates (names that are not UTF-8) would make the whole next request invalid.
        return self._redactor.redact(text.encode("utf-8", "backslashreplace").decode())

    async def _previewed(self, name: str, text: str) -> str:
        head, tail = text[:_HEAD], text[-_TAIL:]
        where = "The rest could not be kept"
        if self._overflow is not None:
            try:
                path = await self._overflow.keep(text, name)
                line = head.count("\n") + 1
                where = f"Read on with read_file, path {path}, start_line={line}"
            except StorageError as error:
                logger.warning("a long result of {} was not kept: {}", name, error)
        left_out = len(text) - len(head) - len(tail)
        return (
            f"{head}\n[… {left_out:,} of {len(text):,} characters are left out here. {where}. "
            f"The end follows.]\n{tail}"
        )
