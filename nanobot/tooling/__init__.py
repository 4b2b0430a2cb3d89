"""What a tool is, who calls it, what a call could do beyond the conversation, and whether it may.

A tool is stateless: who is asking is an argument (`TurnContext`), because shared "current context"
is how one person's reply ends up in another's chat.

The policy is pure. Invariant: a call without a `Risk` runs; a call with one runs unasked only where
the owner's setting for its kind says so, and under `auto` only while nothing untrusted is in the
conversation. After that no words are compared: who may have written what the call passes on makes
no difference.

`registry` is the gate that every call passes, `approvals` asks the owner.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from itertools import accumulate
from typing import Any, Literal

from msgspec import Struct

from nanobot.bus.events import Address, Initiator
from nanobot.errors import ToolError
from nanobot.messages import Message, source_name
from nanobot.security.paths import Roots
from nanobot.text import printable
from nanobot.validation import Checked


class TurnContext(Struct, frozen=True):
    """Whom a turn is for, worked out once when it begins; on whose behalf its tools run.

    `scope` is whose memory and files: `owner`, `people/<id>` or `groups/<id>`. `messages_read`
    gives the messages that the model has read, and `origins` names the sources of untrusted
    content among them. Both grow with the turn; the runner freezes them for the calls of one step
    (`as_chosen`).
    `initiator` is who began the turn: for anything but a person nobody is there to be asked, and
    `job` names the scheduled job whose run it is. `off_record`: nothing of the turn is to be
    remembered. `conversation` stands for the messages since the last `/new`; a helper has that of
    the turn that made it. `show_output` shows a piece of a call's output to those who watch; best
    effort, cheap. `note_approval` hears in which chat the owner approved a call.
    """

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
    def attended(self) -> bool:
        """Whether somebody is there who can be asked."""
        return self.initiator == "person"


RootsOf = Callable[[TurnContext], Roots]
"""The folders that a caller may touch: what is not its own does not exist for it."""

RiskKind = Literal["send", "fetch", "exec", "persist", "schedule", "mcp"]
"""What a call can do beyond its conversation: `send` says something in another chat, `fetch` asks
for an address that could carry something out, `exec` runs a command that is not shut in, `persist`
changes what decides future behaviour, `schedule` makes a job, `mcp` calls somebody's program."""


class Risk(Struct, frozen=True):
    """Why a call may need the owner's approval. Made by code from the call's arguments.

    `what` names the action in a few plain words (`run a command with network access`);
    `details` is shown below it, whole and literally: everything that decides what would happen.
    """

    kind: RiskKind
    what: str
    details: str


class ResultFile(Struct, frozen=True):
    """A file that a tool brought. `name` and `mime` are the words of whoever made it."""

    name: str
    mime: str
    content: bytes


class ToolResult(Struct, frozen=True):
    """What the model gets back. `images` are base64 data with their MIME type. `files` are kept
    with those that come with messages, and the model reads where.

    `changed` lists workspace-relative paths that the call changed, for `/undo` and for people.
    `trusted`: the text is nanobot's or the caller's own; all other content is data, in which no
    instruction is followed and nothing becomes a memory without its person.
    """

    text: str
    is_error: bool = False
    images: tuple[tuple[str, str], ...] = ()
    files: tuple[ResultFile, ...] = ()
    changed: tuple[str, ...] = ()
    trusted: bool = False


class Repeatable(Struct, frozen=True):
    """What a standing approval of a call would cover, worked out by code. `key` names it, and
    `fingerprint` stands for how it is now: both are equal for another call exactly where the owner
    need not look again. `subject` tells people what it is. `own_results` is the origin of the texts
    that count for nothing new in the conversation; empty where any untrusted content counts."""

    key: str
    fingerprint: str
    subject: str
    own_results: str = ""


MAX_LINES = 2_000
"""Lines of a text that one result shows."""


def line_excerpt(text: str, name: str, start: int, end: int | None = None, *, max_text: int) -> str:
    """The lines `start` to `end` of a text (from 1 on), as far as `max_text` characters go, and how
    to read on. Raises `ToolError` where there are none."""
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
    fits = bisect_right(list(accumulate(len(line) + 1 for line in within)), max_text)
    if fits == total:
        return text
    piece, shown = within[:fits], before + max(1, fits)
    if not piece:
        cut = f"[line {start} has {len(within[0]):,} characters and is truncated here]"
        piece = [within[0][:max_text], cut]
    lines_shown = f"lines {start}-{shown} of {total}"
    if shown < total:
        piece.append(f"[{lines_shown}. Continue with start_line={shown + 1}]")
    elif start > 1:
        piece.append(f"[{lines_shown}]")
    return "\n".join(piece)


class Arguments(Checked, frozen=True):
    """Base of every tool's arguments: unknown fields are errors that the model can act on."""


class Tool:
    """Base of every tool, which gives `name`, `description`, `arguments` and `__call__`.

    `effects`: running it twice is not the same as once. Calls without effects may run side by side
    in one step. With `owners_only` there is none of that name for others than the owner.
    `parameters` is somebody else's JSON Schema for the arguments (an MCP server's); `arguments`
    must then accept whatever that may.
    """

    name: str
    description: str
    arguments: type[Arguments]
    effects: bool = False
    owners_only: bool = False
    parameters: Mapping[str, Any] | None = None

    async def __call__(self, arguments: Any, caller: TurnContext) -> ToolResult:
        """Do it. Raises `ToolError` with a text that the model can act on."""
        raise NotImplementedError

    async def risk(self, arguments: Any, caller: TurnContext) -> Risk | None:
        """What this call could do beyond its conversation; None where it can do nothing of that
        kind. Changes nothing. Raises `ToolError` for a call that cannot be made at all."""
        return None

    async def repeatable(self, arguments: Any, caller: TurnContext) -> Repeatable | None:
        """What a standing approval of this call would cover; None if each call needs its own."""
        return None

    async def pin(
        self, arguments: Any, caller: TurnContext
    ) -> Callable[[], AbstractAsyncContextManager[None]] | None:
        """For a tool whose calls do something else once files have changed (a command reads
        scripts). Called before the owner is asked. The result is entered after their yes and left
        when the call has run: it keeps those files as they are, and raises `ToolError` if they
        changed before the yes. Waiting for the answer keeps nothing and stops no other call."""
        return None


Approval = Literal["auto", "ask", "allow", "never"]
"""For one kind of risk: `auto` asks once untrusted content is in the conversation, `ask` each time,
`allow` not at all, and `never` refuses."""

OWNER = "owner"
_SHOWN_ORIGINS = 5

_FOR_THE_OWNER: frozenset[RiskKind] = frozenset({"send", "exec", "mcp", "schedule"})
"""What reaches beyond a person's own folder and chat, or goes on by itself: for anybody else the
owner is asked."""

_OWNERS_ONLY: frozenset[RiskKind] = frozenset({"persist"})
"""What other people leave behind must not act in the owner's name later, so it is refused."""


class Allowed(Struct, frozen=True):
    """The call may run. `by` is who allowed it, where somebody was asked."""

    by: str = ""


class Denied(Struct, frozen=True):
    """The call must not run. The model reads `reason`; `by` is the owner's account if they said no.
    `outcome`: only `denied` is a no, by the owner or their settings. Otherwise nobody could be
    asked (`not asked`), or nobody answered in time (`unanswered`)."""

    reason: str
    by: str = ""
    outcome: Literal["denied", "not asked", "unanswered"] = "denied"


def not_asked(why: str) -> Denied:
    """The refusal of a call about which the owner was not asked."""
    return Denied(
        f"this needs the owner's approval, and {why}. They have not denied it. Tell them what you"
        " wanted to do.",
        outcome="not asked",
    )


class Ask(Struct, frozen=True):
    """The owner decides; `because` is a sentence for them and for the model. `repeatable`: what
    they may allow for longer than this call."""

    risk: Risk
    because: str
    repeatable: Repeatable | None = None


Decision = Allowed | Denied | Ask


class OwnersPolicy(Struct, frozen=True):
    """Decides by the owner's settings."""

    approval: Mapping[RiskKind, Approval] = {}

    def decide(self, caller: TurnContext, risk: Risk | None) -> Decision:
        """Whether a call may run, once its arguments are known to be valid. Raising means no."""
        if risk is None:
            return Allowed()
        setting = self.approval.get(risk.kind, "auto")
        if setting == "never":
            return Denied(f"the owner has turned this off (tools.approval.{risk.kind}: never)")
        is_others = caller.scope != OWNER
        if is_others and risk.kind in _OWNERS_ONLY:
            return Denied(f"only the owner may {risk.what}. Use another name or folder")
        if setting == "ask":
            because = "Each call of this kind needs approval."
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
    """Whether a standing approval may be given for this call, or may serve it: only for a tool of
    an MCP server, in the owner's own conversation with a person there, and while the untrusted
    content in it is at most what this very tool answered."""
    owns = caller.scope == OWNER and caller.attended and not caller.job
    foreign = set(caller.origins()) - {what.own_results}
    return risk.kind == "mcp" and owns and not foreign
