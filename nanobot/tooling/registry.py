"""The only gate to tools: every call goes through `ToolRegistry.call`.

Chats, scheduled jobs and subagents all use it. It parses the call, judges its risk, asks the owner
if necessary, and records the decision and the outcome. A mistake of a model or a tool becomes a
text that the model can act on. A call never raises for it.

The schema of a tool's arguments is short because every request carries it. Parsing is tolerant if
only one meaning is possible (arguments encoded twice, or none for a tool that needs none).
Otherwise the error lists each field to change. It quotes the model's text on one line with control
characters escaped, so that an error always looks like one."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from loguru import logger
from msgspec.structs import replace

from nanobot.errors import CallRefused, NanobotError, StorageError, ToolError, TurnStopped
from nanobot.messages import ToolCall
from nanobot.providers.port import ToolSpec
from nanobot.security.audit import AuditLog, Value
from nanobot.security.paths import Root
from nanobot.security.redaction import Redactor
from nanobot.text import close_matches, printable, shorten
from nanobot.tooling import (
    OWNER,
    Allowed,
    Arguments,
    Ask,
    Denied,
    OwnersPolicy,
    Tool,
    ToolResult,
    TurnContext,
    deny_unasked,
    may_repeat,
)
from nanobot.validation import Fault, Invalid, build, fields_of, format_key, json_schema

MAX_RESULT = 16_000
"""Characters of a result in the prompt. Longer results are saved and previewed."""

_HEAD, _TAIL = 8_000, 3_000
_NAMES, _SHOWN_CHANGES = 80, 20
_MOST_MALFORMED = 1_000
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TEXTS = frozenset({"arguments", "details", "error"})
"""Fields of the audit log that may hold words of a chat."""

AskOwner = Callable[[ToolCall, TurnContext, Ask], Awaitable[Allowed | Denied]]
"""Waits for the owner's approval. Cancelling withdraws the question (`Approvals.ask`)."""


class SpillFolder:
    """Folder for results that are too long for a prompt: the latest `keep`, as plain files for
    `read_file`."""

    def __init__(self, folder: Path, keep: int = 200) -> None:
        self._root = Root(folder, name="spill folder")
        self._keep = keep

    def store(self, text: str, tool: str) -> str:
        """Store `text` and return its absolute path. Blocks. Raises `StorageError`."""
        content = text.encode("utf-8", "replace")
        label = "".join(c for c in tool[:40] if c.isascii() and (c.isalnum() or c in "-_"))
        name = f"{label}-{hashlib.sha256(content).hexdigest()[:16]}.txt"
        self._root.create()
        self._root.place(name).write_bytes(content)
        folder = self._root.place(".")
        files = [entry for entry in folder.entries() if entry.kind == "file"]
        files.sort(key=lambda entry: entry.mtime_ns, reverse=True)
        for entry in files[self._keep :]:
            folder.child(entry.name).remove()
        return str(self._root.path / name)


class ToolRegistry:
    """The gate. The model sees the tools in the order of their registration.

    Without a `policy` every call runs (one person, no untrusted input). Without `ask` the owner
    can't be reached. `version` grows with each change of the offered tools."""

    def __init__(
        self,
        *,
        policy: OwnersPolicy | None = None,
        ask: AskOwner | None = None,
        audit: AuditLog | None = None,
        redactor: Redactor | None = None,
        spill: SpillFolder | None = None,
        folders: Iterable[Path] = (),
    ) -> None:
        self._policy, self._ask, self._audit = policy, ask, audit
        # the longest first, for replacing
        self._folders = sorted(map(str, folders), key=len, reverse=True)
        self._redactor = redactor or Redactor()
        self._spill = spill
        self._tools: dict[str, tuple[Tool, ToolSpec]] = {}
        self.version = 0

    def register(self, tool: Tool) -> None:
        """Offer `tool`. Raise `ValueError` if its name is taken or the API rejects it."""
        if not _NAME.fullmatch(tool.name):
            raise ValueError(f"{tool.name!r} is not a valid tool name")
        if tool.name in self._tools:
            raise ValueError(f"a tool named {tool.name!r} already exists")
        given = tool.parameters
        parameters = given if given is not None else parameters_of(tool.arguments)
        self._tools[tool.name] = tool, ToolSpec(tool.name, tool.description, parameters)
        self.version += 1

    def register_all(self, tools: Iterable[Tool]) -> None:
        for tool in tools:
            self.register(tool)

    def withdraw(self, name: str) -> None:
        """Stop offering the tool with this name, if any."""
        if self._tools.pop(name, None) is not None:
            self.version += 1

    def only(self, names: Iterable[str]) -> ToolRegistry:
        """Return the same gate, limited to the current tools with these names."""
        fewer = copy(self)  # shares everything but the tools
        fewer._tools = {name: self._tools[name] for name in names if name in self._tools}
        return fewer

    def specs(self, scope: str = OWNER) -> tuple[ToolSpec, ...]:
        """Return the tools as the model sees them in this scope."""
        return tuple(spec for tool, spec in self._tools.values() if is_offered_to(tool, scope))

    def has_effects(self, name: str) -> bool:
        """Check whether a second run of this tool makes a difference. False for an unknown tool."""
        tool = self._find(name)
        return tool is not None and tool.effects

    async def call(
        self,
        call: ToolCall,
        caller: TurnContext,
        starting: Callable[[], Awaitable[None]] | None = None,
    ) -> ToolResult:
        """Run one call of the model. Await `starting` right before the tool runs, after all checks.
        Raise only to stop the turn (cancellation, `TurnStopped`) or if `starting` raises."""
        async with AsyncExitStack() as held:
            try:
                tool, arguments = await self._admit(call, caller, held)
            except TurnStopped:
                raise
            except Exception as error:  # noqa: BLE001 - the boundary between a model's call and the turn
                return self._build_failure(call, error, caller)
            if starting:
                await starting()  # the last moment before an effect
            result = await self._run(tool, arguments, call, caller)
        if tool.effects:
            end: dict[str, Value] = {"outcome": "error" if result.is_error else "ok"}
            if result.changed:
                end["changed"] = " ".join(result.changed[:_SHOWN_CHANGES])
            if result.is_error:
                end["error"] = result.text
            self._record("ended", call, caller, **end)
        return result

    async def _admit(
        self, call: ToolCall, caller: TurnContext, held: AsyncExitStack
    ) -> tuple[Tool, Arguments]:
        """Return the tool and its arguments if the call may run. `held` keeps the files of an
        approved call unchanged. Raise `ToolError`."""
        tool = self._find(call.name)
        if tool is None or not is_offered_to(tool, caller.scope):
            names, wanted = [spec.name for spec in self.specs(caller.scope)], call.name[:80]
            near = close_matches(wanted, names, 1)
            hint = f"Did you mean {near[0]}? " if near else ""
            known = ", ".join(names) or "none"
            raise ToolError(f"no tool named {wanted!r}", hint=f"{hint}The tools are: {known}.")
        if call.malformed:
            raise CallRefused(
                "your call is invalid and was not run: the arguments must be a JSON object "
                "that matches the tool",
                hint=f"You wrote: {call.malformed[:_MOST_MALFORMED]}",
            )
        arguments = parse_arguments(tool.arguments, call.arguments)
        decision = await self._decide(tool, arguments, call, caller, held)
        if isinstance(decision, Denied):
            verb = "not allowed" if decision.outcome == "denied" else "not run"
            raise CallRefused(f"{verb}: {decision.reason}")
        return tool, arguments

    async def _decide(
        self,
        tool: Tool,
        arguments: Arguments,
        call: ToolCall,
        caller: TurnContext,
        held: AsyncExitStack,
    ) -> Allowed | Denied:
        """Judge the risk of a call and ask the owner if necessary."""
        risk = await tool.risk(arguments, caller)
        decision = self._policy.decide(caller, risk) if self._policy else Allowed()
        self._record(
            "decided", call, caller, **describe_outcome(decision), arguments=call.arguments
        )
        if not isinstance(decision, Ask):
            return decision
        question, pinned = decision, None
        if caller.is_attended:
            pinned = await tool.pin(arguments, caller)
            what = await tool.repeatable(arguments, caller)
            if what and may_repeat(caller, question.risk, what):
                question = replace(question, repeatable=what)
        answer = await self._ask_owner(call, caller, question)
        asked = {"risk": question.risk.kind, "asked": question.risk.what}
        self._record("answered", call, caller, **describe_outcome(answer), **asked)
        if isinstance(answer, Allowed) and pinned:
            await held.enter_async_context(pinned())  # from here the files stay unchanged
        return answer

    async def _ask_owner(
        self, call: ToolCall, caller: TurnContext, question: Ask
    ) -> Allowed | Denied:
        if not caller.is_attended:
            return Denied(
                f"{question.because} This needs the owner's approval, and no one is there to be "
                "asked. They have not denied it. Say in your answer what you would have done.",
                outcome="not asked",
            )
        if self._ask is None:
            return deny_unasked("they can't be asked here")
        try:
            return await self._ask(call, caller, question)
        except asyncio.CancelledError:
            self._record("answered", call, caller, outcome="withdrawn")  # the turn was stopped
            raise
        except StorageError as error:  # the owner has not answered, so the turn waits
            raise TurnStopped("the owner can't be asked now") from error

    async def _run(
        self, tool: Tool, arguments: Arguments, call: ToolCall, caller: TurnContext
    ) -> ToolResult:
        watched = replace(
            caller, show_output=lambda text: caller.show_output(self._clean(text, caller))
        )
        try:
            result = await tool(arguments, watched)
            text = self._clean(result.text, caller)
            if len(text) > MAX_RESULT:
                text = await self._preview(call.name, caller, text)
            return replace(result, text=text)
        except TurnStopped:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary between a broken tool and the turn
            return self._build_failure(call, error, caller)

    def _record(self, event: str, call: ToolCall, caller: TurnContext, **more: Value) -> None:
        """Log the decision about a call before it takes effect, and its outcome."""
        if self._audit is None:
            return
        arguments = call.arguments.encode("utf-8", "surrogatepass")
        if caller.is_temporary:
            more = {name: one for name, one in more.items() if name not in _TEXTS}
        self._audit.write(
            {
                "event": event,
                "tool": call.name[:_NAMES],
                "call": call.id[:_NAMES],
                "arguments_sha256": hashlib.sha256(arguments).hexdigest(),
                "session": caller.session_key,
                "turn": caller.turn_id,
                "scope": caller.scope,
                "sender": caller.sender_id,
                "begun_by": caller.initiator,
                **({"job": caller.job} if caller.job else {}),
                **more,
            }
        )

    def _build_failure(self, call: ToolCall, error: Exception, caller: TurnContext) -> ToolResult:
        if isinstance(error, NanobotError):
            error = error.redact_for(is_owner=caller.scope == OWNER)
            problem = f"{error}\n{error.hint}" if error.hint else str(error)
            own = isinstance(error, CallRefused)
            return ToolResult(self._clean(problem, caller)[:MAX_RESULT], is_error=True, trusted=own)
        shown = None if caller.is_temporary else error
        logger.opt(exception=shown).error("the tool {} crashed", call.name[:80])
        text = f"{call.name[:80]} failed unexpectedly ({type(error).__name__}). Try another way"
        return ToolResult(self._clean(text, caller), is_error=True)

    def _find(self, name: str) -> Tool | None:
        """Find a tool by its name, including a prefix that some models add."""
        found = self._tools.get(name) or self._tools.get(name.strip().removeprefix("functions."))
        return found[0] if found else None

    def _clean(self, text: str, caller: TurnContext) -> str:
        # Lone surrogates (file names that are not UTF-8) make the whole next request invalid.
        text = self._redactor.redact(text.encode("utf-8", "backslashreplace").decode())
        for folder in self._folders if caller.scope != OWNER else ():
            text = text.replace(folder, "…")  # guests must not learn nanobot's paths
        return text

    async def _preview(self, name: str, caller: TurnContext, text: str) -> str:
        head, tail = text[:_HEAD], text[-_TAIL:]
        where = "The rest was not saved"
        kept = caller.scope == OWNER and not caller.is_temporary  # others could not read it
        if self._spill is not None and kept:
            try:
                path = await asyncio.to_thread(self._spill.store, text, name)
                line = head.count("\n") + 1
                where = f"Continue with read_file, path {path}, start_line={line}"
            except StorageError as error:
                logger.warning("can't save a long result of {}: {}", name, error)
        left_out = len(text) - len(head) - len(tail)
        return (
            f"{head}\n[… {left_out:,} of {len(text):,} characters omitted. {where}. "
            f"The end follows.]\n{tail}"
        )


def is_offered_to(tool: Tool, scope: str) -> bool:
    return scope == OWNER or not tool.owners_only


def describe_outcome(decision: Allowed | Denied | Ask) -> dict[str, Value]:
    if isinstance(decision, Ask):
        risk = decision.risk
        asked: dict[str, Value] = {"risk": risk.kind, "asked": risk.what, "details": risk.details}
        return {"outcome": "asked", "because": decision.because, **asked}
    by: dict[str, Value] = {"by": decision.by} if decision.by else {}
    if isinstance(decision, Denied):
        return {"outcome": decision.outcome, "because": decision.reason, **by}
    return {"outcome": "allowed", **by}


MAX_ARGUMENTS = 2_000_000
"""Characters of JSON. Files that a model writes are far smaller."""

A = TypeVar("A", bound=Arguments)


@cache
def parameters_of(model: type[Arguments]) -> Mapping[str, Any]:
    """Return the JSON Schema of `model`, cached. It omits lengths, a minimum of 0 or 1, and most
    defaults, because every request carries it."""
    return shorten_schema(json_schema(model))


_UNSAID = frozenset({"minLength", "maxLength", "minItems", "maxItems"})


def shorten_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    brief = {key: value for key, value in schema.items() if key not in _UNSAID}
    if brief.get("minimum", 2) <= 1:  # a model needs no hint for 0 or 1
        del brief["minimum"]
    if choices := list(filter(None, brief.pop("enum", ()))):  # an empty choice means the default
        brief["enum"] = choices
    if not (choices and brief.get("default")):
        brief.pop("default", None)
    if "items" in brief:
        brief["items"] = shorten_schema(brief["items"])
    if "properties" in brief:
        brief["properties"] = {key: shorten_schema(one) for key, one in brief["properties"].items()}
    return brief


def parse_arguments(model: type[A], text: str) -> A:
    """Parse the model's JSON. Raise `ToolError` with the fields to change."""
    value = load_json(text)
    if isinstance(value, str) and value.lstrip()[:1] in ("{", ""):
        value = load_json(value)  # encoded twice
    value = {} if value is None else value
    if not isinstance(value, dict):
        kind = {str: "a string", list: "a list", bool: "true or false"}.get(type(value), "a number")
        raise CallRefused(f"the arguments must be a JSON object, not {kind}")
    try:
        return build(model, value)
    except Invalid as error:
        raise CallRefused(explain_faults(model, error.faults)) from error


def load_json(text: str) -> Any:
    if len(text) > MAX_ARGUMENTS:
        raise CallRefused(f"the arguments are too large ({len(text):,} characters)")
    if not text.strip():
        return None
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CallRefused(f"the arguments are not valid JSON: {error}") from error


def refuse_constant(name: str) -> Any:
    raise CallRefused(f"the arguments contain {name}, which is not JSON")


def explain_faults(model: type[Arguments], faults: Sequence[Fault]) -> str:
    lines = ["the arguments are invalid:"]
    for fault in faults[:8]:  # enough to correct a call
        where = printable(format_key(fault.key)[:80]) or "the arguments"
        given = f" (given: {shorten(repr(fault.given), 60)})" if fault.given is not None else ""
        hint = f" {printable(fault.hint)}".rstrip()
        lines.append(f"- {where}: {printable(fault.message)}{given}.{hint}")
    fields = fields_of(model)
    required = [name for name, field in fields.items() if field.required]
    optional = [name for name in fields if name not in required]
    others = f" Optional: {', '.join(optional)}." if optional else ""
    return "\n".join([*lines, f"Required: {', '.join(required) or 'nothing'}.{others}"])
