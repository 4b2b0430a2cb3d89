"""Keeps channels running: one that crashes is started again and never takes the daemon down."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from loguru import logger

from nanobot.channel import Channel, ChannelHost
from nanobot.clock import Clock
from nanobot.errors import ChannelOff
from nanobot.tasks import Background, is_cancelled

_STABLE_SECONDS = 60.0


@dataclass(slots=True)
class ChannelState:
    """How a channel is doing: `starting`, `running`, `backoff`, `off` (until a person mends it) or
    `stopped`; `detail` says why it does not run, or what keeps it from working."""

    name: str
    state: str = "starting"
    detail: str = ""


class Supervisor:
    """Runs every channel until stopped."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        hosts: Mapping[str, ChannelHost],
        clock: Clock,
        rng: Random,
    ) -> None:
        self._channels, self._hosts, self._clock, self._rng = channels, hosts, clock, rng
        self._tasks = Background()
        self.states = {name: ChannelState(name) for name in channels}

    def start(self) -> None:
        """Start all channels."""
        for name, channel in self._channels.items():
            self._tasks.start(self._keep_running(channel, self.states[name]), name=name)

    def report(self, name: str, trouble: str) -> None:
        """What keeps a running channel from working; empty: nothing."""
        self.states[name].detail = trouble

    async def stop(self) -> None:
        """Stop intake at once."""
        await self._tasks.drain(0.0)
        for state in self.states.values():
            state.state = "stopped"

    async def _keep_running(self, channel: Channel, state: ChannelState) -> None:
        crashes = 0
        while True:
            started = self._clock.monotonic()
            state.state, state.detail = "running", ""
            try:
                reason = await self._run(channel)
            except ChannelOff as error:
                detail = f"{error}. {error.hint}" if error.hint else str(error)
                logger.error("channel {} is off: {}", channel.name, detail)
                state.state, state.detail = "off", detail
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
            return f"{type(error).__name__}: {error}"
        else:
            reason = "it ended by itself"
        logger.error("channel {}: {}", channel.name, reason)
        return reason
