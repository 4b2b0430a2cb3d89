"""The port that channel adapters implement, and the core's side of it.

An adapter only translates between a platform and `nanobot.bus.events`. The core handles access,
durability, order, retries and splitting for all platforms. The modules in this package hold code
that adapters share. The last section defines the functions that commands call (sign in, check, set
up). Each has its own entry point, and an adapter provides its platform's."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from msgspec import Struct, field

from nanobot.bus.events import (
    API,
    OWNER_ACCOUNT,
    PAGE,
    PULLED,
    TERMINAL,
    Address,
    ApprovalAsked,
    ApprovalClosed,
    InboundMessage,
    Media,
    OutboundPart,
    Progress,
    Receipt,
)
from nanobot.bus.split import Limits as Limits
from nanobot.clock import Clock

if TYPE_CHECKING:
    from aiohttp import web


_BORROWING = (PAGE, API)


def account_of(channel: str, sender_id: str) -> tuple[str, str]:
    """Return a sender's account (channel, id), which decides who they are.

    Senders on the page and at the API are named by their account on another channel
    (`telegram:12345`), or `owner`.
    """
    if channel not in _BORROWING:
        return channel, sender_id
    there, _, account = sender_id.partition(":")
    if account and there not in (TERMINAL, *_BORROWING):
        return there, account
    return (TERMINAL, sender_id) if sender_id == OWNER_ACCOUNT else (channel, sender_id)


def find_home_chat(address: Address, session_key: str) -> Address:
    """Return the chat for later messages to a conversation. A person may have continued a
    conversation of the page in the terminal, or the reverse."""
    home = Address.of(session_key)
    return home if {address.channel, home.channel} == {*PULLED} else address


class Sender(Struct, frozen=True):
    """The sender of a message. `also` are other ids of the same person: lists of people match any
    of them. `name` is a display name, for texts only, never for decisions."""

    id: str
    name: str = ""
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.id, self.name, *self.also)):
            raise TypeError("a sender whose ids or name are not text")


class Chat(Struct, frozen=True):
    """The chat that a message was sent to. `title` is a group's name, for texts only."""

    id: str
    is_group: bool = False
    title: str = ""
    thread_id: str = ""

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.id, self.title, self.thread_id)):
            raise TypeError("a chat whose id or title is not text")


Admission = Literal["allowed", "refused"]


KEEP, NO_LONGER = "/note", "/note --undo"
"""The text of a reaction that asks to keep its message, and of one that withdraws this, as if typed
in reply to the message. An adapter sets `unanswered`, so that it gets no answer. Any other reaction
is a note."""

_KEEPING = frozenset(
    "✍📌⭐"
)  # Telegram offers only the first of these. WhatsApp accepts any emoji.
_VARIANTS = dict.fromkeys((0xFE0F, *range(0x1F3FB, 0x1F400)))
"""The variation selector for coloured emoji, and the skin tones."""


def asks_to_keep(reactions: Iterable[str]) -> bool:
    """Return True if one of these emoji asks to keep the message."""
    return any(emoji.translate(_VARIANTS) in _KEEPING for emoji in reactions)


class MenuEntry(Struct, frozen=True):
    """A slash command for a platform's menu. `owner_only`: only the owner may use it."""

    name: str
    summary: str
    owner_only: bool = False


_BY_PROXY = (
    r"via|forwarded|cdn-loop|front-end-https|proxy-.*|wl-proxy-.*"
    r"|x-(forwarded|original|real|remote|cluster|proxy|proxied|envoy|varnish|arr|amz|amzn"
    r"|cloud|azure|appengine|scheme|host|url|rewrite|https?|ssl|tls|cache|request-start)(-.*)?"
    r"|.*(client|connecting|real|remote|source|peer|user)-?(ip|addr|address|host|port)"
    r"|(cf|fly|fastly|tailscale|akamai|cloudfront|ali-cdn|incap|ngrok|do)-.*"
)


def came_by_proxy(headers: Iterable[str]) -> bool:
    """Return True if headers with these lower-case names show that a proxy passed the request on.
    It may then come from anywhere, although its connection is local. Each proxy uses its own
    headers, so they are matched by kind: client address, host, scheme, proxy name."""
    return any(re.fullmatch(_BY_PROXY, name) for name in headers)  # compiled on first use


class WebhookRequest(Struct, frozen=True):
    """A request from a platform. `path` is relative to the registered path, without the slash.
    `headers` have lower-case names. `query` holds the last value of each name."""

    method: str
    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes


class WebhookReply(Struct, frozen=True):
    """The answer to the platform."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


WebhookHandler = Callable[[WebhookRequest], Awaitable[WebhookReply]]

HttpHandler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]
"""Answers a whole request. It reads the body itself (`request.content` if it may exceed the limit
of `request.read`), may stream its answer, and has no time limit."""


class ChannelHost(Protocol):
    """The core, as an adapter sees it."""

    def admit(self, sender: Sender, chat: Chat, *, addressed: bool = True) -> Admission:
        """Check access. Call this before you do anything else with a sender's input.

        `addressed`: in a group, the message was meant for the agent (a mention, a reply or a
        command). In private chats the core sends strangers pairing instructions, at a limited
        rate."""

    async def publish(
        self, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Sequence[str]:
        """Store messages in one transaction, together with the platform cursor that covers them.

        Return the event ids that were new, once they are durable. Only then acknowledge the
        messages to the platform. Waits while too many messages are unanswered: don't poll during
        that time. Raises `StorageError` if the disk refuses."""

    async def cursor(self) -> str | None:
        """Return the last stored cursor, or None."""

    async def has_received(self, chat_id: str, event_id: str, *, unanswered: bool = False) -> bool:
        """Return True if an event was stored within the last month. With `unanswered`, only events
        that are still unanswered count."""

    async def resolve_button(self, button_id: str, sender: Sender, chat: Chat) -> str | None:
        """Return the value of a pressed button, or None if it does not exist in this chat or is not
        for this person."""

    def serve_webhook(self, path: str, handler: WebhookHandler) -> AbstractAsyncContextManager[str]:
        """Serve `path` (with a leading slash) on the shared HTTP server while inside. Yields the
        local address. An exception in the handler becomes status 500, so that the platform
        retries."""

    def serve_http(self, path: str, handler: HttpHandler) -> AbstractAsyncContextManager[str]:
        """Serve `path` for programs and web pages, like `serve_webhook`. The host name is already
        checked. The handler must check the client and an `Origin` itself."""

    def media_path(self, media: Media) -> Path:
        """Return the path of an outbound file. Raises `SendRefused` if it no longer exists."""

    def menu(self) -> Sequence[MenuEntry]:
        """Return the slash commands."""

    def report_problem(self, problem: str) -> None:
        """Report a problem of the channel for `nanobot status`. An empty text clears it."""

    def report_idle(self, why: str) -> None:
        """Report why the channel is idle until it is needed. An empty text: it is active now."""

    async def report_undelivered(self, platform_id: str, reason: str) -> None:
        """Report that the platform dropped a part that it had accepted under this id (`Receipt`,
        not `is_final`). The owner is notified, and `nanobot queue` lists it. Raises
        `StorageError`."""

    def report_connected(self, who: str) -> None:
        """Report the platform account, for `nanobot channels status`."""

    def report_alive(self, within: float) -> None:
        """Report a sign of life from the platform (a refusal counts). The adapter promises another
        one within this many seconds, otherwise it counts as hung. An adapter that never calls this
        is not watched."""

    @property
    def owners(self) -> Sequence[str]:
        """The known ids of the owner on this channel."""

    @property
    def clock(self) -> Clock:
        """The clock to use."""

    @property
    def state_folder(self) -> Path:
        """A folder (0700) for this adapter's state."""

    @property
    def is_folder_shared(self) -> bool:
        """True if other workers of a team run this adapter too, with the same state folder. They
        may answer messages that were published here."""


WRITING: ContextVar[Callable[[], None]] = ContextVar("writing", default=lambda: None)
"""A callback that a channel calls before it writes a request that delivers something."""


@runtime_checkable
class Reachable(Protocol):
    """A channel whose platform accepts no idempotency key, so that a repeated part may arrive
    twice. The core calls `reach` before it repeats a part that may have arrived."""

    async def reach(self) -> None:
        """Make a request that changes nothing. Raises a `SendError` while the platform does not
        answer."""


@runtime_checkable
class ClosesChoices(Protocol):
    """A channel that can remove the buttons of a delivered message."""

    async def close_choices(self, part: OutboundPart, receipt: Receipt, outcome: str) -> None:
        """Remove the buttons of `part`, which was delivered as `receipt`, and show the line
        `outcome` with it. Best effort: called once, and exceptions are only logged."""


class Channel(Protocol):
    """One platform. `load_channels` in `nanobot.app.base` finds the implementations, by entry
    point."""

    @property
    def name(self) -> str:
        """The name in session keys, such as `telegram`."""

    @property
    def limits(self) -> Limits:
        """The limits of one part."""

    async def run(self, host: ChannelHost) -> None:
        """Receive until cancelled. After an exception the supervisor restarts the channel, except
        after `ChannelOff`, which means that only a person can fix the problem."""

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver one part. Raise `SendLater` if it certainly did not arrive, and `SendRefused` if
        it never will. Any other exception means that it may have arrived (see `SendUnknown`). If
        called before `run`, wait for the connection."""

    async def fetch(self, media: Media, limit: int) -> bytes:
        """Return an inbound file of at most `limit` bytes. Raises `SendRefused` if it is larger or
        unavailable."""

    async def show_progress(self, event: Progress) -> None:
        """Show progress if the platform can. Never raise if it can't."""


Operation = Callable[[Mapping[str, object]], Awaitable[object]]
"""A named operation of the control socket, the page and offline commands: arguments to JSON-able
data. It acts for the owner. Raises `NanobotError`."""


class GatewayEvent(Struct, frozen=True):
    """An event in the gateway, and the session it belongs to."""

    session_key: str
    event: InboundMessage | Progress | ApprovalAsked | ApprovalClosed


class Overview(Protocol):
    """The whole gateway, for channels that show it: the owner's operations, and the events of all
    conversations."""

    @property
    def operations(self) -> Mapping[str, Operation]:
        """The operations of the control socket, by name."""

    @property
    def resumed(self) -> Sequence[InboundMessage]:
        """The messages of the previous process that have no answer yet. They cause no event."""

    def watch(self, watcher: Callable[[GatewayEvent], None]) -> AbstractContextManager[None]:
        """Call `watcher` with every event while inside. It must be quick."""


@runtime_checkable
class Overseer(Protocol):
    """A channel that shows the whole gateway or has its own operations."""

    def oversee(self, overview: Overview) -> Mapping[str, Operation]:
        """Accept the overview before `run`, and return the channel's own operations
        (`web.link`)."""


@runtime_checkable
class Keeper(Protocol):
    """A channel that keeps messages which no session has, such as answers to commands."""

    async def forget_chat(self, folder: Path, key: str) -> None:
        """Delete the messages of the conversation `key` from the channel's state `folder`, which
        may not exist. The channel need not run. Raises `StorageError`."""


@runtime_checkable
class Exclusive(Protocol):
    """A channel that only one process can run per account, at least as configured. In a team, one
    worker runs it and sends all of its messages."""

    @property
    def is_exclusive(self) -> bool:
        """True if only one process can run it."""


@runtime_checkable
class PathServer(Protocol):
    """A channel that serves paths on the HTTP server. Requests before it runs get a 503, so that
    the platform repeats them."""

    @property
    def paths(self) -> Collection[str]:
        """The paths, as passed to `ChannelHost.serve_webhook` or `serve_http`."""


def exclusive_among(channels: Iterable[Channel]) -> frozenset[str]:
    """Return the names of the channels that one worker runs for all."""
    return frozenset(
        one.name for one in channels if isinstance(one, Exclusive) and one.is_exclusive
    )


class LoginRequest(Struct, frozen=True):
    """The input of a login: the adapter's settings (`options`), its state folder (0700), and the
    output to a person. No other process uses the account or the folder during the login. `number`:
    a phone number in digits, to get a code to type instead of one to scan. `is_set_up`: the
    settings are already written, so the login doesn't explain them. `show_code`: draws a code to
    scan. Without it, the code is drawn as text."""

    options: object
    state_folder: Path
    say: Callable[[str], None]
    clock: Clock
    number: str = ""
    is_set_up: bool = False
    show_code: Callable[[str], None] | None = None


Login = Callable[[LoginRequest], Awaitable[None]]
"""Signs in at a platform that requires a person. Found by entry point in the group
`nanobot.channel_logins`, by the name of the channel. Raises `NanobotError`."""


class CheckRequest(Struct, frozen=True):
    """The input of a check for `nanobot doctor`: the adapter's settings (`options`) and its state
    folder, which may not exist. A gateway may be using both, so a check changes nothing. Requests
    to a platform must finish within `seconds`."""

    options: object
    state_folder: Path
    clock: Clock
    seconds: float


class CheckFinding(Struct, frozen=True):
    """One finding of a check. `hint` explains what to do about it."""

    state: Literal["ok", "warn", "fail"]
    text: str
    hint: str = ""


Check = Callable[[CheckRequest], Awaitable[Sequence[CheckFinding]]]
"""Checks whether a channel can work. Found by entry point in the group `nanobot.channel_checks`, by
the name of the channel. Texts contain no secrets."""


class WentBack(Exception):
    """A person goes back. Don't catch it: the step runs again, with the earlier answers as
    defaults."""


class Person(Protocol):
    """The person who sets nanobot up. Answers are stripped. If the setup is unattended, defaults
    are used, and a question without a default raises `NanobotError`. Each question may raise
    `WentBack`."""

    def say(self, text: str) -> None:
        """Show a text of one or a few sentences."""

    async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
        """Return the answer, or the default if it is empty. A `secret` is not echoed."""

    async def confirm(self, question: str, *, default: bool = True) -> bool:
        """Ask a yes-or-no question."""

    async def choose(self, question: str, choices: Sequence[str], default: int = 0) -> int:
        """Return the index of the chosen item."""


class SetupRequest(Struct, frozen=True):
    """The input of a setup. `options` are the adapter's current settings, if any, and `owners` the
    owner's current ids there. `given` are settings that are known already, by key, and are not
    asked for. `attended`: a person can answer. `test`: try the settings out at the platform."""

    person: Person
    options: object | None
    owners: Sequence[str]
    given: Mapping[str, str]
    clock: Clock
    attended: bool = True
    test: bool = True


class SetupResult(Struct, frozen=True):
    """The settings to write. `values` and `secrets` have keys of the adapter's settings. Other keys
    keep their values, and an empty `owners` keeps the owner's ids. `who` is the platform account,
    for people. `sign_in`: the channel's `Login` follows. `unchecked`: the platform could not be
    reached, and the person keeps the answers."""

    values: Mapping[str, str | bool] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    owners: Sequence[str] = ()
    who: str = ""
    sign_in: bool = False
    unchecked: bool = False


Setup = Callable[[SetupRequest], Awaitable[SetupResult | None]]
"""Asks a person for a channel's settings and tries them out. Returns None if the person leaves them
unchanged. Found by entry point in the group `nanobot.channel_setups`, by the name of the channel.
Writes nothing. Raises `NanobotError`."""
