"""The port that channel adapters implement, and the core's side of it.

An adapter only translates between a platform and `nanobot.bus.events`. Access, durability, order,
retries and splitting are the core's, the same for every platform. What adapters have in common is
in the modules here. At the end is what an adapter can do for commands (sign in, check, set up),
each a function with an entry point of its own; it brings those that make sense on its platform.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from msgspec import Struct, field

from nanobot.bus.events import (
    ApprovalAsked,
    ApprovalClosed,
    InboundMessage,
    Media,
    OutboundPart,
    Progress,
    Receipt,
    ToolFinished,
)
from nanobot.bus.split import Limits as Limits
from nanobot.clock import Clock

if TYPE_CHECKING:
    from aiohttp import web


class Sender(Struct, frozen=True):
    """Who sent something. `also` are other ids of the same person; lists of people match any.

    `name` is what people call them: for texts, never for decisions.
    """

    id: str
    name: str = ""
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.id, self.name, *self.also)):
            raise TypeError("a sender whose ids or name are not text")


class Chat(Struct, frozen=True):
    """Where something was sent; `title` is a group's name, for texts only."""

    id: str
    is_group: bool = False
    title: str = ""
    thread_id: str = ""

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.id, self.title, self.thread_id)):
            raise TypeError("a chat whose id or title is not text")


Admission = Literal["allowed", "refused"]


KEEP, NO_LONGER = "/note", "/note --undo"
"""What a reaction says that asks to keep the message it is on, or that does so no longer, as typed
in reply to it. An adapter sets `unanswered`, so that it gets no answer. Every other reaction is a
note that asks for nothing."""

_KEEPING = frozenset("✍📌⭐")
"""Telegram offers the first of these; WhatsApp takes any."""
_VARIANTS = dict.fromkeys((0xFE0F, *range(0x1F3FB, 0x1F400)))
"""The request for a coloured sign, and the colours of a hand."""


def asks_to_keep(reactions: Iterable[str]) -> bool:
    """Whether one of these emoji does."""
    return any(emoji.translate(_VARIANTS) in _KEEPING for emoji in reactions)


class MenuEntry(Struct, frozen=True):
    """A slash command for a platform's menu; `owner_only`: nobody else may use it."""

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
    """Whether headers of these names (small letters) show that a proxy passed a request on: it may
    come from anywhere then, though its connection is from this machine. By kind, since each proxy
    has headers of its own: who asked, under which name and scheme, and the names of proxies."""
    return any(re.fullmatch(_BY_PROXY, name) for name in headers)  # compiled when it is needed


class WebhookRequest(Struct, frozen=True):
    """A request that a platform made. `path` is below the one registered, without the slash;
    `headers` have lower-case names; `query` holds the last value of each name."""

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
"""Answers a whole request: it reads the body itself (`request.content` where it may be larger than
`request.read` allows), may stream its answer, and takes the time that it needs."""


class ChannelHost(Protocol):
    """All that an adapter gets from the core."""

    def admit(self, sender: Sender, chat: Chat, *, addressed: bool = True) -> Admission:
        """Ask this before anything else is done with what a sender sent.

        `addressed`: in a group, that it was meant for the agent (mentioned, replied to, commanded).
        A stranger who writes in private is told how to be let in, by the core and not too often.
        """

    async def publish(
        self, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Sequence[str]:
        """Store messages, and with them the platform cursor that covers them, in one transaction.

        Returns when they are durable (only then may the platform be told), with the event ids that
        were new; the others had been seen before. Waits while too many are unanswered: that is the
        back-pressure, so do not poll on meanwhile. Raises `StorageError` when the disk refuses.
        """

    async def cursor(self) -> str | None:
        """The cursor stored last, or None."""

    async def has_received(self, chat_id: str, event_id: str, *, unanswered: bool = False) -> bool:
        """Whether an event was stored before, within a month: answered or not, or only `unanswered`
        ones."""

    async def resolve_button(self, button_id: str, sender: Sender, chat: Chat) -> str | None:
        """The value of a button that was pressed; None where there is none such in this chat, or
        none for this person."""

    def serve_webhook(self, path: str, handler: WebhookHandler) -> AbstractAsyncContextManager[str]:
        """Serve `path` (begins with a slash) on the one HTTP server while inside; gives the local
        address. An exception in the handler becomes status 500, so that the platform tries again.
        """

    def serve_http(self, path: str, handler: HttpHandler) -> AbstractAsyncContextManager[str]:
        """Serve `path` for programs and web pages, as `serve_webhook` does for platforms. The host
        name is checked before; who asks, and an `Origin`, the handler must check itself."""

    def media_path(self, media: Media) -> Path:
        """Where an outbound file lies on disk. Raises `SendRefused` where it is gone."""

    def menu(self) -> Sequence[MenuEntry]:
        """The slash commands."""

    def report_problem(self, problem: str) -> None:
        """What keeps the channel from working, for `nanobot status`; empty: nothing does."""

    def report_idle(self, why: str) -> None:
        """Report why the channel is idle until it is needed. Empty: it serves now."""

    async def report_undelivered(self, platform_id: str, reason: str) -> None:
        """The platform dropped a part that it had accepted under this id (`Receipt`, not
        `is_final`). The owner is told, and `nanobot queue` has it. Raises `StorageError`."""

    def report_connected(self, who: str) -> None:
        """Which account of the platform this is, for `nanobot channels status`."""

    def report_alive(self, within: float) -> None:
        """Something came from the platform, be it a refusal. An adapter that calls this
        promises to do so again within so many seconds; if it does not, it is judged to hang. One
        that never calls it is not judged."""

    @property
    def owners(self) -> Sequence[str]:
        """The ids of the owner on this channel, as far as they are known."""

    @property
    def clock(self) -> Clock:
        """The time."""

    @property
    def state_folder(self) -> Path:
        """A folder (0700) for this adapter's own state."""

    @property
    def is_folder_shared(self) -> bool:
        """Whether other workers of a team run this adapter beside this one, with the same folder of
        state: they may answer what was published here."""


WRITING: ContextVar[Callable[[], None]] = ContextVar("writing", default=lambda: None)
"""A callback: a channel calls it before it writes a request that delivers something."""


@runtime_checkable
class Reachable(Protocol):
    """Part of a channel whose platform takes no idempotency key, so that a repeated part may arrive
    twice. The core calls `reach` before it repeats a part that may have arrived."""

    async def reach(self) -> None:
        """Ask the platform for something that changes nothing. Raises a `SendError` while it does
        not answer."""


@runtime_checkable
class ClosesChoices(Protocol):
    """What a channel has too that can take back the buttons of a message that it delivered."""

    async def close_choices(self, part: OutboundPart, receipt: Receipt, outcome: str) -> None:
        """Take the buttons of `part` away, which became `receipt`, and show the line `outcome` with
        it. Best effort: it is asked once, and what it raises is only logged."""


class Channel(Protocol):
    """One platform. Found by entry point in the group `nanobot.channels`."""

    @property
    def name(self) -> str:
        """As it stands in session keys: `telegram`."""

    @property
    def limits(self) -> Limits:
        """What one part may hold."""

    async def run(self, host: ChannelHost) -> None:
        """Receive until cancelled. Raising means a crash: the supervisor starts it again, unless it
        is `ChannelOff`, which says that only a person can fix it."""

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver one part. Raise `SendLater` if it certainly did not arrive, and `SendRefused` if
        it never will; any other exception means that it may have arrived (see `SendUnknown`). May
        be called before `run`, and then waits for it."""

    async def fetch(self, media: Media, limit: int) -> bytes:
        """The content of an inbound file of at most `limit` bytes; raises `SendRefused` for one
        that is larger or cannot be had."""

    async def show_progress(self, event: Progress) -> None:
        """Show progress if the platform can; never raise for want of it."""


Operation = Callable[[Mapping[str, object]], Awaitable[object]]
"""What the control socket, the page and commands on a home at rest can ask for, by name: its
arguments to JSON-able data. It acts for the owner. Raises `NanobotError`."""


class Happening(Struct, frozen=True):
    """Something that happens in the gateway, and the conversation it belongs to."""

    session_key: str
    event: InboundMessage | Progress | ToolFinished | ApprovalAsked | ApprovalClosed


class Overview(Protocol):
    """The whole gateway, for channels that show it: the operations that the owner can ask for, and
    what happens in all conversations."""

    @property
    def operations(self) -> Mapping[str, Operation]:
        """By name: those of the control socket."""

    def watch(self, watcher: Callable[[Happening], None]) -> AbstractContextManager[None]:
        """Call `watcher` with everything that happens, while inside. It must be quick."""


@runtime_checkable
class Overseeing(Protocol):
    """What a channel has too that shows the whole gateway, or has operations of its own."""

    def oversee(self, overview: Overview) -> Mapping[str, Operation]:
        """Take the overview, before `run`; the channel's own operations (`web.link`)."""


@runtime_checkable
class Exclusive(Protocol):
    """What a channel has too that only one process can run for an account, at least as it is set
    up: one worker of a team runs it, and sends all that goes out on it."""

    @property
    def is_exclusive(self) -> bool:
        """Whether that is so."""


@runtime_checkable
class Serving(Protocol):
    """Part of a channel that serves paths on the HTTP server. Earlier requests get a 503, so that
    the platform repeats them."""

    @property
    def paths(self) -> Collection[str]:
        """The paths, each as `ChannelHost.serve_webhook` or `serve_http` gets it."""


def exclusive_among(channels: Iterable[Channel]) -> frozenset[str]:
    """The names of those that one worker runs for all."""
    return frozenset(
        one.name for one in channels if isinstance(one, Exclusive) and one.is_exclusive
    )


class LoginRequest(Struct, frozen=True):
    """What signing in needs: the adapter's own settings (`options`), a folder (0700) for its state,
    and a person to talk to. `number` is a phone number in digits where they want a code to type in
    rather than one to scan. `is_set_up`: the settings are written already, so that nothing has to
    be said of them. `show_code` takes what there is to scan, where it is drawn elsewhere; without,
    it is drawn in what is said. While it lasts nothing else uses the account or the folder."""

    options: object
    state_folder: Path
    say: Callable[[str], None]
    clock: Clock
    number: str = ""
    is_set_up: bool = False
    show_code: Callable[[str], None] | None = None


Login = Callable[[LoginRequest], Awaitable[None]]
"""Signs in at a platform that wants a person for it; found by entry point in the group
`nanobot.channel_logins`, by the name of the channel. Returns when it is done; raises
`NanobotError`."""


class CheckRequest(Struct, frozen=True):
    """What an adapter may look at for `nanobot doctor`: its own settings (`options`) and the folder
    of its state, which need not be there. A gateway may be running with both: nothing is changed.
    What is asked of a platform must not take longer than `seconds`."""

    options: object
    state_folder: Path
    clock: Clock
    seconds: float


class CheckFinding(Struct, frozen=True):
    """One thing that was found; `hint` says what to do about it."""

    state: Literal["ok", "warn", "fail"]
    text: str
    hint: str = ""


Check = Callable[[CheckRequest], Awaitable[Sequence[CheckFinding]]]
"""Finds out whether a channel can work; found by entry point in the group `nanobot.channel_checks`,
by the name of the channel. Texts hold no secrets."""


class WentBack(Exception):
    """A person goes back. Let it pass: the step is run again, with the earlier answers as
    defaults."""


class Person(Protocol):
    """Who sets nanobot up. Texts are a sentence or a few; the person's words come without the space
    around them. Where nobody is there to be asked, a default is taken, and asking for what has none
    raises `NanobotError`. Each question may raise `WentBack`."""

    def say(self, text: str) -> None:
        """Tell something."""

    async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
        """What the person answers, or the default for no answer. A `secret` is not shown."""

    async def confirm(self, question: str, *, default: bool = True) -> bool:
        """Yes or no."""

    async def choose(self, question: str, choices: Sequence[str], default: int = 0) -> int:
        """Which of the choices, as an index."""


class SetupRequest(Struct, frozen=True):
    """What setting a channel up needs: the person, the adapter's present settings (`options`, None
    where it has none) and the owner's present ids there, and what is `given` already, by the keys
    of the adapter's settings, which is not asked for. `attended`: somebody is there to be asked.
    `test`: what is given is tried out at the platform."""

    person: Person
    options: object | None
    owners: Sequence[str]
    given: Mapping[str, str]
    clock: Clock
    attended: bool = True
    test: bool = True


class SetupResult(Struct, frozen=True):
    """The settings to write. `values` and `secrets` have keys of the adapter's settings. Other keys
    keep their values, and an empty `owners` keeps the owner's ids. `who` is the account on the
    platform, for people. `sign_in`: the channel's `Login` comes next. `unchecked`: the platform
    could not be reached, and the person keeps the answers."""

    values: Mapping[str, str | bool] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    owners: Sequence[str] = ()
    who: str = ""
    sign_in: bool = False
    unchecked: bool = False


Setup = Callable[[SetupRequest], Awaitable[SetupResult | None]]
"""Asks a person for what a channel needs, and tries it out; None where they leave it as it is.
Found by entry point in the group `nanobot.channel_setups`, by the name of the channel. Writes
nothing. Raises `NanobotError`."""
