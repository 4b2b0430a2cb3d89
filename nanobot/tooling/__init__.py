"""Tools, their callers, the risk of a call, and the policy that allows or denies it.

A tool is stateless: the caller is an argument (`TurnContext`). A shared "current context" is how
one person's reply ends up in another's chat.

The policy is pure. Invariant: a call without a `Risk` runs. A call with a `Risk` runs without
approval only if the owner's setting for its kind allows it, and under `auto` only while the
conversation has no untrusted content. The policy never compares words: who wrote the content of a
call makes no difference.

`registry` is the gate that every call passes. `approvals` asks the owner."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from itertools import accumulate
from typing import Any, Literal

from msgspec import Struct

from nanobot.bus.events import API, Address, Initiator
from nanobot.errors import ToolError
from nanobot.messages import Message, source_name
from nanobot.security.paths import Roots
from nanobot.text import printable
from nanobot.validation import Checked


class TurnContext(Struct, frozen=True):
    """The person or program that a turn acts for. Built once, when the turn begins.

    `scope` selects memory and files: `owner`, `people/<id>` or `groups/<id>`. `messages_read`
    returns the messages that the model has read, and `origins` the sources of untrusted content
    among them. Both grow with the turn; the runner freezes them for the calls of one step
    (`as_chosen`).
    `initiator` began the turn. Unless it is a person, no one can be asked. `job` is the scheduled
    job of the run. `off_record`: the turn leaves no memories. `conversation` identifies the
    messages since the last `/new`; a subagent has that of its parent turn. `show_output` streams a
    call's output to viewers (best effort, cheap). `note_approval` receives the chat in which the
    owner approved a call."""

    channel: str
    chat_id: str
    session_key: str
    turn_id: str
    sender_id: str = ""
    scope: str = "owner"
    thread_id: str = ""
    messages_read: Callable[[], Iterable[Message]] = tuple
    origins: Callable[[], tuple[str, ...]] = tuple
    initiator: Initiator = "person"
    job: str = ""
    off_record: bool = False
    conversation: str = ""
    show_output: Callable[[str], None] = lambda _: None
    note_approval: Callable[[Address], None] = lambda _: None

    @property
    def address(self) -> Address:
        return Address(self.channel, self.chat_id, self.thread_id)

    @property
    def is_temporary(self) -> bool:
        """True in a person's temporary chat, of which no text is stored."""
        return self.off_record and self.channel != API

    def is_stored_at(self, address: Address) -> bool:
        """Return True unless a message to this address is one of the temporary chat."""
        return not self.is_temporary or address != self.address

    @property
    def is_attended(self) -> bool:
        """True if a person is there to be asked."""
        return self.initiator == "person"


RootsOf = Callable[[TurnContext], Roots]
"""Returns the folders that a caller may touch. Other folders do not exist for it."""

RiskKind = Literal["send", "fetch", "exec", "persist", "schedule", "mcp"]
"""The effect of a call beyond its conversation: `send` posts in another chat, `fetch` requests an
address that could leak data, `exec` runs a command outside the sandbox, `persist` changes future
behaviour, `schedule` makes a job, `mcp` calls a third-party program."""


class Risk(Struct, frozen=True):
    """The reason why a call may need the owner's approval. Code makes it from the call's arguments.

    `what` names the action in a few plain words (`run a command with network access`). `details` is
    shown below it in full: everything that decides the effect."""

    kind: RiskKind
    what: str
    details: str


class ResultFile(Struct, frozen=True):
    """A file that a tool returned. `name` and `mime` are untrusted."""

    name: str
    mime: str
    content: bytes


class ToolResult(Struct, frozen=True):
    """The result that the model gets. `images` are base64 data with their MIME type. `files` are
    stored with the files of messages, and the model reads their paths.

    `changed` lists the workspace-relative paths that the call changed, for `/undo` and for people.
    `trusted`: the text comes from nanobot or the caller. All other content is data: its
    instructions are not followed, and nothing becomes a memory without its person."""

    text: str
    is_error: bool = False
    images: tuple[tuple[str, str], ...] = ()
    files: tuple[ResultFile, ...] = ()
    changed: tuple[str, ...] = ()
    trusted: bool = False


class Repeatable(Struct, frozen=True):
    """The scope of a possible standing approval. `key` names the action, `fingerprint` its current
    state. Both are equal for another call only if the owner need not look again. `subject`
    describes it to people. `own_results` is the origin of texts that do not count as untrusted;
    empty if all do."""

    key: str
    fingerprint: str
    subject: str
    own_results: str = ""


MAX_LINES = 2_000
"""Lines of a text in one result."""


def line_excerpt(text: str, name: str, start: int, end: int | None = None, *, max_text: int) -> str:
    """Return the lines `start` to `end` (from 1) up to `max_text` characters, and how to continue.
    Raise `ToolError` if there are none."""
    if not text:
        return text
    lines = text.removesuffix("\n").split("\n")  # as editors count them
    total, before = len(lines), start - 1
    last = end or total
    if start > total:
        raise ToolError(f"{name} has only {total} lines")
    if last < start:
        raise ToolError(f"end_line {end} comes before start_line {start}")
    within = lines[before : min(last, before + MAX_LINES)]
    # + 1: the newline
    fits = bisect_right(list(accumulate(len(line) + 1 for line in within)), max_text)
    if fits == total:
        return text
    piece, shown = within[:fits], before + max(1, fits)
    if not piece:  # even the first line is too long
        cut = f"[line {start} has {len(within[0]):,} characters and is truncated here]"
        piece = [within[0][:max_text], cut]
    lines_shown = f"lines {start}-{shown} of {total}"
    if shown < total:
        piece.append(f"[{lines_shown}. Continue with start_line={shown + 1}]")
    elif start > 1:
        piece.append(f"[{lines_shown}]")
    return "\n".join(piece)


class Arguments(Checked, frozen=True):
    """Base class of tool arguments. Unknown fields are errors that the model can correct."""


class Tool:
    """Base class of all tools. Subclasses define `name`, `description`, `arguments` and `__call__`.

    `effects`: a second run makes a difference. Calls without effects may run in parallel in one
    step. `owners_only` hides the tool from everyone but the owner. `parameters` is a third-party
    JSON Schema (of an MCP server); `arguments` must then accept everything that it allows."""

    name: str
    description: str
    arguments: type[Arguments]
    effects: bool = False
    owners_only: bool = False
    parameters: Mapping[str, Any] | None = None

    async def __call__(self, arguments: Any, caller: TurnContext) -> ToolResult:
        """Run the tool. Raise `ToolError` with a text that the model can act on."""
        raise NotImplementedError

    async def risk(self, arguments: Any, caller: TurnContext) -> Risk | None:
        """Return the risk of this call beyond its conversation, or None. Change nothing. Raise
        `ToolError` if the call is impossible."""
        return None

    async def repeatable(self, arguments: Any, caller: TurnContext) -> Repeatable | None:
        """Return the scope of a standing approval, or None if each call needs its own."""
        return None

    async def pin(
        self, arguments: Any, caller: TurnContext
    ) -> Callable[[], AbstractAsyncContextManager[None]] | None:
        """Return a context manager that keeps files unchanged during the call, or None.

        For tools that depend on files (a command reads scripts). Called before the owner is asked.
        The context is entered after approval and left after the call. It raises `ToolError` if the
        files changed before approval. Until then no file is locked and no other call is blocked."""
        return None


Approval = Literal["auto", "ask", "allow", "never"]
"""The setting for one kind of risk: `auto` asks if the conversation has untrusted content, `ask`
always asks, `allow` never asks, and `never` denies."""

OWNER = "owner"
_SHOWN_ORIGINS = 5

_FOR_THE_OWNER: frozenset[RiskKind] = frozenset({"send", "exec", "mcp", "schedule"})
"""Actions that reach beyond a person's folder and chat, or continue unattended. For other people
the owner is asked."""

_OWNERS_ONLY: frozenset[RiskKind] = frozenset({"persist"})
"""Denied to other people: their content must not act in the owner's name later."""


class Allowed(Struct, frozen=True):
    """The call may run. `by` is the person who approved it, if anyone was asked."""

    by: str = ""


class Denied(Struct, frozen=True):
    """The call must not run. The model reads `reason`; `by` is the owner's account if they denied
    it. `outcome`: only `denied` is a decision by the owner or their settings. The others mean that
    no one could be asked (`not asked`) or answered in time (`unanswered`)."""

    reason: str
    by: str = ""
    outcome: Literal["denied", "not asked", "unanswered"] = "denied"


def deny_unasked(why: str) -> Denied:
    """Return the denial of a call that the owner was not asked about."""
    return Denied(
        f"this needs the owner's approval, and {why}. They have not denied it. Tell them what you"
        " wanted to do.",
        outcome="not asked",
    )


class Ask(Struct, frozen=True):
    """The owner decides. `because` is a sentence for the owner and the model. `repeatable` is the
    scope of a possible standing approval."""

    risk: Risk
    because: str
    repeatable: Repeatable | None = None


Decision = Allowed | Denied | Ask


class OwnersPolicy(Struct, frozen=True):
    """Policy that follows the owner's settings."""

    approval: Mapping[RiskKind, Approval] = {}

    def decide(self, caller: TurnContext, risk: Risk | None) -> Decision:
        """Decide on a call with valid arguments. An exception means no."""
        if risk is None:
            return Allowed()
        setting = self.approval.get(risk.kind, "auto")
        if setting == "never":
            return Denied(f"the owner has turned this off (tools.approval.{risk.kind}: never)")
        is_others = caller.scope != OWNER  # a guest or a group
        if is_others and risk.kind in _OWNERS_ONLY:
            return Denied(f"only the owner may {risk.what}. Use another name or folder")
        if setting == "ask":
            because = "Every call of this kind needs approval."
        elif is_others and risk.kind in _FOR_THE_OWNER:
            because = "Someone other than the owner requested this."
        else:
            origins = caller.origins() if setting == "auto" else ()
            if not origins:
                return Allowed()
            named = ", ".join(map(printable, map(source_name, origins[:_SHOWN_ORIGINS])))
            because = f"The conversation contains untrusted content (from {named})."
        return Ask(risk, because)


def may_repeat(caller: TurnContext, risk: Risk, what: Repeatable) -> bool:
    """Check whether a standing approval may be given or used for this call: only for an MCP tool,
    in the owner's own attended conversation, without untrusted content other than this tool's
    results."""
    owns = caller.scope == OWNER and caller.is_attended and not caller.job
    foreign = set(caller.origins()) - {what.own_results}  # the tool's own results do not count
    return risk.kind == "mcp" and owns and not foreign
