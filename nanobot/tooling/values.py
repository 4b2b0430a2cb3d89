"""What a tool is, who calls it, what a call could do beyond the conversation, and what comes back.

A tool is stateless: who is asking is an argument (`TurnContext`), because shared "current context"
is how one person's reply ends up in another's chat.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

from nanobot.bus.events import Address, BegunBy
from nanobot.messages import Message
from nanobot.security.paths import Roots


@dataclass(frozen=True, slots=True)
class TurnContext:
    """Whom a turn is for, worked out once when it begins; on whose behalf its tools run.

    Taint is never frozen: what the model has read is asked for at each call. `scope` is whose
    memory and files: `owner`, `people/<id>` or `groups/<id>`. `heard` gives the
    messages that the model has read when it calls: what may become a memory depends on who said it.
    `origins` names where the untrusted text among them came from, empty where there is none.
    `begun_by` is who began the turn: for anything but a person nobody is there to be asked, and
    `job` names the scheduled job whose run it is. `conversation` stands for the messages since the
    last `/new`; a helper has that of whoever asked for it. `show` shows a piece of a call's output
    to whoever watches; best effort, cheap.
    """

    channel: str
    chat_id: str
    session_key: str
    turn_id: str
    sender_id: str = ""
    scope: str = "owner"
    thread_id: str = ""
    heard: Callable[[], Iterable[Message]] = tuple
    origins: Callable[[], tuple[str, ...]] = tuple
    begun_by: BegunBy = "person"
    job: str = ""
    conversation: str = ""
    show: Callable[[str], None] = lambda _: None

    @property
    def address(self) -> Address:
        """The chat that the call is made in."""
        return Address(self.channel, self.chat_id, self.thread_id)

    @property
    def attended(self) -> bool:
        """Whether somebody is there who can be asked."""
        return self.begun_by == "person"

    @property
    def watched(self) -> bool:
        """Whether the turn is in a conversation with a person, who sees how it goes on."""
        return self.begun_by in {"person", "report"}


RootsOf = Callable[[TurnContext], Roots]
"""The folders that a caller may touch: what is not its own does not exist for it."""

RiskKind = Literal["send", "fetch", "exec", "persist", "schedule", "mcp"]
"""What a call can do beyond its conversation: `send` says something in another chat, `fetch` asks
for an address that could carry something out, `exec` runs a command that is not shut in, `persist`
changes what decides future behaviour, `schedule` makes a job, `mcp` calls somebody's program."""


@dataclass(frozen=True, slots=True)
class Risk:
    """Why a call may need the owner's approval. Made by code from the call's arguments.

    `what` completes "May I …?" in a few plain words (`run a command with network access`);
    `details` is shown below it, whole and literally: everything that decides what would happen.
    """

    kind: RiskKind
    what: str
    details: str


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

    async def __call__(self, arguments: Any, caller: TurnContext) -> ToolResult:
        """Do it. Raise `ToolError` with a text that the model can act on."""
        ...


@runtime_checkable
class Risky(Protocol):
    """A tool some of whose calls may need the owner's approval."""

    async def risk(self, arguments: Any, caller: TurnContext) -> Risk | None:
        """What this call could do beyond its conversation; None where it can do nothing of that
        kind. Changes nothing. Raises `ToolError` for a call that cannot be made at all."""
        ...


@runtime_checkable
class Undisturbed(Protocol):
    """A tool whose calls may do something else once files have changed: a command reads scripts."""

    def undisturbed(
        self, arguments: Any, caller: TurnContext
    ) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]:
        """Entered before the owner is asked about a call, left when it has run: meanwhile nobody
        else changes what it may work on. Gives what is awaited after the owner's yes, which raises
        `ToolError` if anything did change. Raises `ToolError` where that cannot be had now."""
        ...


@runtime_checkable
class OwnersOnly(Protocol):
    """A tool that exists for the owner alone where `owners_only` is true; for others there is none
    of that name."""

    @property
    def owners_only(self) -> bool: ...


@runtime_checkable
class WithSchema(Protocol):
    """A tool whose arguments are described by somebody else's JSON Schema (an MCP server's).
    `arguments` must then accept whatever that schema may, as extra fields."""

    @property
    def parameters(self) -> dict[str, Any]: ...
