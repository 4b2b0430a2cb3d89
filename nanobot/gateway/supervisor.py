"""Keeps channels running: one that crashes is restarted and never takes the daemon down.

A sign-in at a platform needs the account and the adapter's folder to itself. It takes a lease on
the channel, one at a time, and renews it; a channel whose lease expires is started again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random

from loguru import logger

from nanobot.channel import Channel, ChannelHost
from nanobot.clock import Clock
from nanobot.errors import ChannelOff, NanobotError
from nanobot.security.redaction import Redactor
from nanobot.tasks import Background, is_cancelled

_STABLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ChannelSeen:
    """A `ChannelState` at one moment: something last came from its platform `heard_seconds` ago."""

    name: str
    state: str
    detail: str
    who: str
    heard_seconds: float | None


@dataclass(slots=True)
class ChannelState:
    """How a channel is doing: `starting`, `running`, `backoff`, `off` (until a person mends it),
    `lent` (to somebody who signs in) or `stopped`; `detail` says why it does not run, or what keeps
    it from working, `who` which account it is. `heard_at` is when something last came from the
    platform, `due` by when more is to come (monotonic seconds; None where it did not say)."""

    name: str
    state: str = "starting"
    detail: str = ""
    who: str = ""
    heard_at: float | None = None
    due: float | None = None

    def seen(self, now: float) -> ChannelSeen:
        """How it stands at `now`, on the same clock."""
        heard = None if self.heard_at is None else round(now - self.heard_at, 1)
        return ChannelSeen(self.name, self.state, self.detail, self.who, heard)


def _tell_nobody(_name: str, _detail: str) -> None:
    """For those who have nobody to tell."""


class Supervisor:
    """Runs every channel until stopped. `on_off` is told of one that stays off, and why. What
    channels say of their troubles is redacted, as libraries put addresses with tokens into it."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        hosts: Mapping[str, ChannelHost],
        clock: Clock,
        rng: Random,
        on_off: Callable[[str, str], None] = _tell_nobody,
        redactor: Redactor | None = None,
    ) -> None:
        self._channels, self._hosts, self._clock, self._rng = channels, hosts, clock, rng
        self._on_off, self._redact = on_off, (redactor or Redactor()).redact
        self._tasks = Background()
        self._running: dict[str, asyncio.Task[None]] = {}
        self.states = {name: ChannelState(name) for name in channels}

    def start(self) -> None:
        """Start all channels."""
        for name in self._channels:
            self._start(name)

    async def lend(self, name: str) -> None:
        """Stop a channel, so that somebody else may use its account and its folder, until
        `take_back`."""
        running = self._running[name]
        running.cancel()
        await asyncio.wait([running])
        state = self.states[name]
        state.state, state.detail, state.who = "lent", "somebody signs in", ""

    def take_back(self, name: str) -> None:
        """Start a channel that was lent."""
        if self.states[name].state == "lent":
            self._start(name)

    def report(self, name: str, trouble: str) -> None:
        """What keeps a running channel from working; empty: nothing."""
        self.states[name].detail = self._redact(trouble)

    def connected(self, name: str, who: str) -> None:
        """Which account a channel is."""
        self.states[name].who = who

    def alive(self, name: str, within: float) -> None:
        """A channel is heard of, and will be again within so many seconds (for ever: infinity)."""
        state, now = self.states[name], self._clock.monotonic()
        state.heard_at = now
        state.due = now + within if math.isfinite(within) else None

    async def stop(self) -> None:
        """Stop intake at once."""
        await self._tasks.drain(0.0)
        for state in self.states.values():
            state.state = "stopped"

    def _start(self, name: str) -> None:
        running = self._keep_running(self._channels[name], self.states[name])
        self._running[name] = self._tasks.start(running, name=name)

    async def _keep_running(self, channel: Channel, state: ChannelState) -> None:
        crashes = 0
        while True:
            started = self._clock.monotonic()
            state.state, state.detail, state.due = "running", "", None
            try:
                reason = await self._run(channel)
            except ChannelOff as error:
                detail = self._redact(f"{error}. {error.hint}" if error.hint else str(error))
                logger.error("channel {} is off: {}", channel.name, detail)
                state.state, state.detail = "off", detail
                self._on_off(channel.name, detail)
                return
            lasted = self._clock.monotonic() - started
            crashes = 1 if lasted > _STABLE_SECONDS else crashes + 1
            pause = min(2.0 ** min(crashes, 10), 300.0) * self._rng.uniform(0.5, 1.0)
            state.state, state.detail = "backoff", f"{reason}; next start in {pause:.0f} s"
            await self._clock.sleep(pause)

    async def _run(self, channel: Channel) -> str:
        """Let a channel run to its end, which should not come; why it came."""
        try:
            await channel.run(self._hosts[channel.name])
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            reason = "something it waited for was cancelled"
        except ChannelOff:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary: a crash is contained
            logger.opt(exception=error).error("channel {} crashed", channel.name)
            return self._redact(f"{type(error).__name__}: {error}")
        else:
            reason = "it ended by itself"
        logger.error("channel {}: {}", channel.name, reason)
        return reason


LEASE_SECONDS = 30.0
"""How long a channel is lent if its borrower says nothing more."""

Arguments = Mapping[str, object]


class ChannelOperations:
    """The operations `channels.…`. `configured` are the names of the channels that are set up;
    `supervisor` is None where no gateway runs, and nothing has to be borrowed there."""

    def __init__(
        self,
        configured: Sequence[str],
        supervisor: Supervisor | None,
        background: Background,
        clock: Clock,
    ) -> None:
        self._configured, self._supervisor = configured, supervisor
        self._background, self._clock = background, clock
        self._lent: dict[str, _Lease] = {}

    def table(self) -> Mapping[str, Callable[[Arguments], Awaitable[object]]]:
        """By name, as they are called over the socket."""
        return {
            "channels.status": self.status,
            "channels.borrow": self.borrow,
            "channels.return": self.give_back,
        }

    async def status(self, _: Arguments) -> dict[str, object]:
        """How each channel is doing."""
        live, now = self._supervisor, self._clock.monotonic()
        states = (
            list(live.states.values())
            if live
            else [ChannelState(name, "stopped", "no gateway runs") for name in self._configured]
        )
        channels = [asdict(state.seen(now)) for state in states]
        return {"running": live is not None, "channels": channels}

    async def borrow(self, arguments: Arguments) -> dict[str, object]:
        """Stop a channel for `LEASE_SECONDS`; where `by` has it already, for so long from now.

        Raises `NanobotError` while somebody else has it.
        """
        name, by, live = _text(arguments, "name"), _text(arguments, "by"), self._supervisor
        if live is None or name not in live.states:
            return {"lent": False}
        lease = self._lent.get(name)
        if lease is not None and lease.by != by:
            raise NanobotError(
                f"somebody else signs in at {name} right now",
                hint="Wait until that has ended, or end it.",
            )
        if lease is None:
            self._lent[name] = lease = _Lease(by)
            await live.lend(name)  # whatever it takes: the lease begins when it has stopped
            self._background.start(self._expire(name, lease), name=f"{name} is lent")
        lease.until = self._clock.monotonic() + LEASE_SECONDS
        return {"lent": True}

    async def give_back(self, arguments: Arguments) -> dict[str, object]:
        """Start a channel that `by` has borrowed again."""
        name, by = _text(arguments, "name"), _text(arguments, "by")
        lease = self._lent.get(name)
        if lease is not None and lease.by == by:
            self._take_back(name)
        return {"lent": False}

    async def _expire(self, name: str, lease: _Lease) -> None:
        """Start it again when its time is over."""
        while self._lent.get(name) is lease:
            left = lease.until - self._clock.monotonic()
            if left > 0:
                await self._clock.sleep(left)
            else:
                self._take_back(name)

    def _take_back(self, name: str) -> None:
        del self._lent[name]
        if self._supervisor is not None:
            self._supervisor.take_back(name)


@dataclass(slots=True)
class _Lease:
    """Who has a channel, and until when on the monotonic clock."""

    by: str
    until: float = 0.0


def _text(arguments: Arguments, key: str) -> str:
    value = arguments.get(key)
    if not isinstance(value, str) or not value:
        raise NanobotError(f"the operation needs a text in {key!r}")
    return value
