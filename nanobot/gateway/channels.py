"""The core's side of the channel port, and the supervision of channels.

`Host` is everything that an adapter sees of nanobot. `Supervisor` restarts a crashed channel, which
never stops the daemon. A sign-in at a platform needs the account and the adapter's folder
exclusively, so it borrows the channel. A channel that is not returned is restarted after a
while."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random
from typing import Literal

from loguru import logger
from msgspec import Struct

from nanobot.agent.session_queue import refusal_notice
from nanobot.bus.events import API, PAGE, TERMINAL, InboundMessage, Media, Notice, OutboundMessage
from nanobot.bus.journal import Outgoing
from nanobot.bus.queue import MessageBus
from nanobot.bus.sql_journal import Journal
from nanobot.channel import (
    Admission,
    Channel,
    Chat,
    HttpHandler,
    MenuEntry,
    Operation,
    Sender,
    WebhookHandler,
    exclusive_among,
)
from nanobot.clock import Clock, pause_after
from nanobot.commands import CommandRegistry, text_argument
from nanobot.errors import ChannelOff, NanobotError, SendRefused, StorageError
from nanobot.gateway.webserver import WebServer
from nanobot.io import make_folder, storage_errors
from nanobot.security.access import Access
from nanobot.security.redaction import Redactor
from nanobot.tasks import Background, is_cancelled

_REMEMBERED = 10_000
"""Admissions to remember, so that an admitted message is not rejected when it is published."""

TOO_MANY = (
    "You sent more than {} messages in a minute, so I did not read the last ones. Wait a "
    "minute, then send them again."
)
_MINUTE = 60.0
_SENDERS = 10_000
"""Senders' minutes to remember. The sender without a message for longest is dropped first."""

_STORED_SECONDS = 10.0
"""Seconds after which a sent part is in the journal, unless the disk rejects it."""

_STABLE_SECONDS = 60.0
"""Seconds of running after which a crash counts as the first, so that the restart is quick."""


class ChannelState(Struct):
    """The state of a channel: `starting`, `running`, `idle` (until needed), `backoff`, `off` (until
    a person fixes it), `lent` (during a sign-in) or `stopped`. `detail` is the reason or the
    current problem, `who` is the account. `heard_at` is the time of the last sign of life, and
    `due` that of the next one, in monotonic seconds (None if the channel did not announce one)."""

    name: str
    state: str = "starting"
    detail: str = ""
    who: str = ""
    heard_at: float | None = None
    due: float | None = None

    def as_json(self, now: float) -> dict[str, object]:
        """Return the state at `now`, on the same clock. The last sign of life was `heard_seconds`
        ago."""
        return {
            "name": self.name,
            "state": self.state,
            "detail": self.detail,
            "who": self.who,
            "heard_seconds": None if self.heard_at is None else round(now - self.heard_at, 1),
        }


Verdict = Literal["accept", "notify", "drop"]
"""Accept a message, drop it with a notice to its sender, or drop it silently."""


class SenderRateLimit:
    """Limit of messages that each person may send per minute of the clock, by their time of sending
    (0: no limit). The owner has none. The first message beyond it gets a fixed notice without a
    model call. A message that could not be stored and is sent again counts once."""

    def __init__(self, per_minute: int, is_owner: Callable[[InboundMessage], bool]) -> None:
        self._per_minute, self._is_owner = per_minute, is_owner
        self.notice = TOO_MANY.format(per_minute)
        """Text for senders whose messages are dropped."""
        self._minutes: OrderedDict[tuple[str, int], dict[str, int]] = OrderedDict()
        """The messages of a sender in a minute, numbered in order of arrival."""
        self.count_shared: Callable[[str, int, str], Awaitable[int]] | None = None
        """In a team: counts a message once, and returns the count of all workers."""

    async def check(self, inbound: InboundMessage) -> Verdict:
        """Return the verdict on a message. Raise `StorageError` in a team."""
        if not self._per_minute or inbound.origin.initiator != "person" or self._is_owner(inbound):
            return "accept"
        sender = f"{inbound.channel}:{inbound.sender_id}"
        minute = int(inbound.timestamp.timestamp() // _MINUTE)
        event = f"{inbound.chat_id} {inbound.event_id}"
        counted = self._minutes.setdefault((sender, minute), {})
        self._minutes.move_to_end((sender, minute))
        if len(self._minutes) > _SENDERS:
            self._minutes.popitem(last=False)
        surplus = counted.setdefault(event, len(counted) + 1) - self._per_minute
        if surplus <= 0 and self.count_shared is not None:
            surplus = await self.count_shared(sender, minute, event) - self._per_minute
        return "accept" if surplus <= 0 else "notify" if surplus == 1 else "drop"


class HostParts(Struct, frozen=True):
    """The parts shared by all channels' hosts.

    `show` displays a notice to a person at once. `warn` takes a channel's name and a problem for
    its owner. Problems reported by channels are redacted, because libraries include addresses with
    tokens. `home` has media and the adapters' files. In a team `home` is shared, and the files of
    each worker's adapter are in `own_home`. `expect_own` raises `NanobotError` for a message to
    another person's conversation, and blocks. `is_owners` returns True if only the owner reads the
    message's chat."""

    bus: MessageBus
    journal: Journal
    access: Access
    web: WebServer
    home: Path
    clock: Clock
    background: Background
    commands: CommandRegistry
    rate: SenderRateLimit
    redactor: Redactor
    show: Callable[[Notice], None]
    warn: Callable[[str, str], None]
    expect_own: Callable[[InboundMessage], None]
    is_owners: Callable[[InboundMessage], bool]
    own_home: Path | None = None


class Host:
    """One channel's view of the core. Platforms' messages wait for room on the disk. Terminals and
    programs get an error instead."""

    def __init__(self, state: ChannelState, parts: HostParts, *, alone: bool = True) -> None:
        self._channel, self._state, self._parts = state.name, state, parts
        self.clock = parts.clock
        home = parts.home if alone or parts.own_home is None else parts.own_home
        self._state_folder = home / "state" / "channels" / state.name
        self._admitted: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._within = math.inf
        self._publishing = 0
        self._told_of_disk: set[str] = set()

    def admit(self, sender: Sender, chat: Chat, *, addressed: bool = True) -> Admission:
        access, pair = self._parts.access, (sender.id, chat.id)
        if access.permits(self._channel, sender, chat, addressed=addressed):
            self._admitted.pop(pair, None)
            self._admitted[pair] = None
            if len(self._admitted) > _REMEMBERED:
                self._admitted.popitem(last=False)
            return "allowed"
        if not access.permits(self._channel, sender, chat):
            # A sender who only did not address the agent keeps the batch's other messages.
            self._admitted.pop(pair, None)
        if addressed and access.may_request_access(self._channel, sender, chat):
            answering = self._answer_stranger(sender, chat)
            self._parts.background.start(answering, name="a stranger's answer")
        return "refused"

    async def publish(
        self, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Sequence[str]:
        """Store the messages of admitted senders. For others, only the cursor moves."""
        held = self._parts.bus.hold_reason
        if held is not None and self._channel in (TERMINAL, API):
            raise held.with_traceback(None)
        taken = [message for message in messages if await self._is_taken(message)]
        if held is not None:
            self._tell_of_disk(taken, held)
        # A channel that waits for room may be silent, but not longer: publishing in parallel to
        # its poll does not prove that the poll works.
        self._expect(math.inf)
        self._publishing += 1
        try:
            stored = await self._parts.bus.publish(self._channel, taken, cursor)
        except StorageError as error:
            self._tell_of_disk(taken, error)
            raise
        finally:
            self._publishing -= 1
            if not self._publishing:
                self._expect(self._within)
        self._told_of_disk.difference_update(message.chat_key for message in taken)
        return stored

    async def cursor(self) -> str | None:
        return await self._parts.journal.cursor(self._channel)

    async def has_received(self, chat_id: str, event_id: str, *, unanswered: bool = False) -> bool:
        event = (self._channel, chat_id, event_id)
        return await self._parts.journal.has_received(*event, unanswered=unanswered)

    async def resolve_button(self, button_id: str, sender: Sender, chat: Chat) -> str | None:
        people = (sender.id, *sender.also)
        return await self._parts.journal.resolve_button(button_id, self._channel, chat.id, people)

    def serve_webhook(self, path: str, handler: WebhookHandler) -> AbstractAsyncContextManager[str]:
        return self._parts.web.serve(path, handler)

    def serve_http(self, path: str, handler: HttpHandler) -> AbstractAsyncContextManager[str]:
        return self._parts.web.serve_http(path, handler)

    def media_path(self, media: Media) -> Path:
        path = self._parts.home / media.ref
        inside = path.parent == self._parts.home / "media" and path.is_file()
        if not inside or path.is_symlink():
            raise SendRefused(f"the file {media.name or media.ref} no longer exists")
        return path

    def menu(self) -> Sequence[MenuEntry]:
        return [MenuEntry(c.name, c.summary, c.allowed == "owner") for c in self._parts.commands]

    def report_problem(self, problem: str) -> None:
        self._state.detail = self._parts.redactor.redact(problem)

    def report_idle(self, why: str) -> None:
        self._state.state, self._state.detail = ("idle" if why else "running"), why

    async def report_undelivered(self, platform_id: str, reason: str) -> None:
        """Mark a part as undelivered, even if the journal records its sending a little later."""
        if not await self._mark_undelivered(platform_id, reason):
            looking = self._retry_mark(platform_id, reason)
            self._parts.background.start(looking, name="a message that was not delivered")

    async def _retry_mark(self, platform_id: str, reason: str) -> None:
        await self._parts.clock.sleep(_STORED_SECONDS)
        if not await self._mark_undelivered(platform_id, reason):
            logger.warning("{}: {} was not delivered: {}", self._channel, platform_id, reason)

    async def _mark_undelivered(self, platform_id: str, reason: str) -> bool:
        reason = self._parts.redactor.redact(reason)
        row = await self._parts.journal.mark_undelivered(self._channel, platform_id, reason)
        if row:
            logger.error("{}: {} was not delivered: {}", self._channel, row, reason)
            text = (
                f"A message on {self._channel} was not delivered: {reason.rstrip('.')}. To "
                "send it again, find its ID with `nanobot queue list` and run `nanobot queue "
                "retry ID`."
            )
            self._parts.warn(self._channel, text)
        return bool(row)

    def report_connected(self, who: str) -> None:
        self._state.who = who

    def report_alive(self, within: float) -> None:
        self._within = within
        self._expect(within)

    @property
    def owners(self) -> Sequence[str]:
        return self._parts.access.owners(self._channel)

    @property
    def state_folder(self) -> Path:
        """The adapter's folder, created on first use. Raises `StorageError`."""
        with storage_errors(self._state_folder):
            make_folder(self._state_folder)
        return self._state_folder

    @property
    def is_folder_shared(self) -> bool:
        return self._parts.own_home is not None and self._channel == API

    def _expect(self, within: float) -> None:
        """Record a sign of life. The next one is due within so many seconds (infinity: never)."""
        now = self._parts.clock.monotonic()
        self._state.heard_at = now
        self._state.due = now + within if math.isfinite(within) else None

    async def _is_taken(self, message: InboundMessage) -> bool:
        """Return True if the sender may write here, and so much. Raise `NanobotError` for a message
        to another person's conversation, before its readers see it."""
        if message.session_override or message.channel == PAGE:
            await asyncio.to_thread(self._parts.expect_own, message)
        if (message.sender_id, message.chat_id) not in self._admitted:
            chat = Chat(message.chat_id, message.is_group, thread_id=message.thread_id)
            if not self._parts.access.permits(self._channel, Sender(message.sender_id), chat):
                return False
        verdict = await self._parts.rate.check(message)
        if verdict == "notify":
            logger.warning("{}: {} exceeds the message limit", self._channel, message.chat_key)
            place, notice = (message.channel, message.chat_id), self._parts.rate.notice
            words = OutboundMessage(*place, notice, thread_id=message.thread_id)
            name = f"rate-{message.channel}-{message.chat_id}-{message.event_id}"
            telling = self._send(name, Outgoing("reply", (words,), (message.event_id,)))
            self._parts.background.start(telling, name="too many messages")
        return verdict == "accept"

    def _tell_of_disk(self, messages: Sequence[InboundMessage], error: StorageError) -> None:
        """Show once in each chat that its messages have to wait, until one of them is stored. The
        notice is not stored, because the disk has no room."""
        for message in messages:
            if message.expects_answer and message.chat_key not in self._told_of_disk:
                self._told_of_disk.add(message.chat_key)
                self._parts.show(refusal_notice(message, error, self._parts.is_owners))

    async def _send(self, name: str, reply: Outgoing) -> None:
        try:
            await self._parts.bus.send_outgoing(name, reply)
        except StorageError as error:
            logger.warning("{}: could not answer a sender: {}", self._channel, error)

    async def _answer_stranger(self, sender: Sender, chat: Chat) -> None:
        """Answer an unknown sender through the outbox, like everyone else.

        The request is stored first, so that no answer contains an unknown code. If a crash loses
        the answer, the sender is still on the owner's list, and gets the code with a message an
        hour later."""
        name = f"stranger-{self._channel}-{chat.id}-{self._parts.clock.now():%y%m%d-%H%M%S}"
        try:
            text = await self._parts.access.request_access(self._channel, sender, chat)
        except StorageError as error:
            logger.warning("could not answer an unknown sender: {}", error)
            return
        if text:
            logger.info("{}: an access request is pending: `nanobot pair list`", self._channel)
            place, only = (self._channel, chat.id), sender.id if chat.is_group else ""
            message = OutboundMessage(*place, text, thread_id=chat.thread_id, only=only)
            await self._send(name, Outgoing("reply", (message,)))


LEASE_SECONDS = 900.0
"""Seconds after which a borrowed channel is restarted. A sign-in takes ten minutes at most."""


class Supervisor:
    """Supervisor of the channels: runs them until stopped, lends them, and warns the owner if one
    stays off. `rng` spreads the restarts."""

    def __init__(self, channels: Mapping[str, Channel], parts: HostParts, rng: Random) -> None:
        self._channels, self._clock, self._rng = channels, parts.clock, rng
        self._warn, self._redact = parts.warn, parts.redactor.redact
        self._tasks = Background()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._lending = {name: asyncio.Lock() for name in channels}
        """Held while a channel ends, so that it is lent only afterwards and started only once."""
        self.states = {name: ChannelState(name) for name in channels}
        self.exclusive = exclusive_among(channels.values())
        """Channels that only one process can run."""
        common = {*self.exclusive, API}
        self.hosts = {
            name: Host(state, parts, alone=name in common) for name, state in self.states.items()
        }

    def start(self, but: Collection[str] = ()) -> None:
        """Start all channels except `but`, which are started later."""
        for name in self._channels:
            if name not in but:
                self.start_one(name)

    def start_one(self, name: str) -> None:
        self.states[name].state = "starting"
        self._running[name] = self._tasks.start(self._keep_running(name), name=name)

    async def stop_one(self, name: str) -> None:
        await self._end(name)
        del self._running[name]
        self.states[name].state = "stopped"

    async def stop(self) -> None:
        """Stop intake at once."""
        await self._tasks.drain(0.0)
        for state in self.states.values():
            state.state = "stopped"

    def table(self) -> Mapping[str, Operation]:
        return {
            "channels.status": self.status,
            "channels.borrow": self.lend,
            "channels.return": self.take_back,
        }

    async def status(self, _: Mapping[str, object]) -> dict[str, object]:
        now = self._clock.monotonic()
        return {"running": True, "channels": [one.as_json(now) for one in self.states.values()]}

    async def lend(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Stop the channel `name` until it is returned or `LEASE_SECONDS` are over, so that its
        account and its folder are free. Raise `NanobotError` if it is already lent."""
        name = text_argument(arguments, "name")
        if name not in self.states:
            return {"lent": False}
        async with self._lending[name]:
            state = self.states[name]
            if state.state == "lent":
                raise NanobotError(
                    f"someone else is signing in to {name} right now",
                    hint="Wait until they have finished, or cancel that sign-in.",
                )
            if name not in self._running:
                raise NanobotError(
                    f"another worker runs {name}",
                    hint="Sign in on that worker. `nanobot team status` shows which one it is.",
                )
            await self._end(name)  # the lease begins only after it has stopped
            state.state, state.detail, state.who = "lent", "someone is signing in", ""

            async def start_later() -> None:
                await self._clock.sleep(LEASE_SECONDS)
                await self._keep_running(name)

            self._running[name] = self._tasks.start(start_later(), name=name)
        return {"lent": True}

    async def take_back(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Restart a channel that was lent."""
        name = text_argument(arguments, "name")
        if name in self.states:
            async with self._lending[name]:
                if self.states[name].state == "lent":
                    await self._end(name)
                    self.start_one(name)
        return {"lent": False}

    async def _end(self, name: str) -> None:
        running = self._running[name]
        running.cancel()
        await asyncio.wait([running])

    async def _keep_running(self, name: str) -> None:
        """Run a channel and restart it after each crash, until it is off."""
        state, crashes = self.states[name], 0
        while True:
            started = self._clock.monotonic()
            state.state, state.detail, state.due = "running", "", None
            reason, failure = "it stopped unexpectedly", None
            try:
                await self._channels[name].run(self.hosts[name])
            except ChannelOff as error:
                detail = self._redact(f"{error}. {error.hint}" if error.hint else str(error))
                logger.error("channel {} is off: {}", name, detail)
                state.state, state.detail = "off", detail
                self._warn(name, f"The channel {name} is off: {detail}")
                return
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                reason = "an operation that it was waiting for was cancelled"
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary: a crash is contained
                reason, failure = self._redact(f"{type(error).__name__}: {error}"), error
            logger.opt(exception=failure).error("channel {} crashed: {}", name, reason)
            lasted = self._clock.monotonic() - started
            crashes = 1 if lasted > _STABLE_SECONDS else crashes + 1
            pause = pause_after(crashes + 1, 1.0, 300.0) * self._rng.uniform(0.5, 1.0)
            state.state, state.detail = "backoff", f"{reason} (restarting in {pause:.0f} s)"
            await self._clock.sleep(pause)
