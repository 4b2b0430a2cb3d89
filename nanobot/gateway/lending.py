"""What people ask about the channels from outside: how they are, and to let go of one for a while.

Who signs in at a platform needs the account and the adapter's folder for themselves. They borrow
the channel, one at a time, and say again and again that they still need it: one whose borrower is
gone without a word is started again by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.gateway.supervisor import ChannelState, Supervisor
from nanobot.tasks import Background

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
