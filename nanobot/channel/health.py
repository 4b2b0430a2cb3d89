"""How an adapter reports what is wrong: each problem once, and without flooding the log."""

from __future__ import annotations

from collections import deque

from loguru import logger

from nanobot.channel.port import ChannelHost
from nanobot.clock import Clock

_WARNINGS = 5
_WARNING_SECONDS = 3600.0


class HealthReporter:
    """Keeps `nanobot status` and the log informed of what keeps a channel from working.

    Several problems can exist at a time, each under a `cause` such as "connection", "token" or
    "disk"; `nanobot status` shows all of them. What is reported already is not repeated.
    """

    def __init__(self, channel: str, host: ChannelHost) -> None:
        self._channel, self._host = channel, host
        self._problems: dict[str, str] = {}
        self._reported = ""

    @property
    def problems(self) -> str:
        """All current problems in one line; empty if there are none."""
        return "; ".join(self._problems.values())

    def report(self, cause: str, text: str) -> None:
        """A problem exists, or is now described by `text`."""
        self._problems[cause] = text
        self._publish()

    def resolve(self, cause: str) -> None:
        """The problem with this cause, if there was one, is over."""
        if self._problems.pop(cause, None) is not None:
            self._publish()

    def _publish(self) -> None:
        if self.problems == self._reported:
            return
        self._reported = self.problems
        if self._reported:
            logger.warning("{}: {}", self._channel, self._reported)
        else:
            logger.info("{}: works again", self._channel)
        self._host.report(self._reported)


class RateLimitedLog:
    """One kind of warning that anybody can cause at will: five an hour at the level `warning`, the
    rest at `debug`."""

    def __init__(self, channel: str, clock: Clock) -> None:
        self._channel, self._clock = channel, clock
        self._warned: deque[float] = deque(maxlen=_WARNINGS)

    def warn(self, text: str) -> None:
        """Log `text`, at `debug` where the limit is reached."""
        now = self._clock.monotonic()
        allowed = len(self._warned) < _WARNINGS or now - self._warned[0] >= _WARNING_SECONDS
        if allowed:
            self._warned.append(now)
        logger.log("WARNING" if allowed else "DEBUG", "{}: {}", self._channel, text)
