"""The 24 hours after somebody wrote, in which they may be written to.

Meta takes a message outside of them and says afterwards that it was not delivered. Notices come in
any order, and more than once; what happened last counts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime

from nanobot.channel.health import HealthReporter
from nanobot_whatsapp.cloud.failures import OUTSIDE_WINDOW

_MOST = 1_000


class Windows:
    """Of all people; says it while one of those that were tried is closed."""

    def __init__(self, health: HealthReporter) -> None:
        self._health = health
        self._known: OrderedDict[str, tuple[datetime, bool]] = OrderedDict()

    def opened(self, people: Iterable[str], at: datetime) -> None:
        """They wrote then, or something arrived there."""
        for person in people:
            self._learned(person, at, is_open=True)

    def closed(self, person: str, at: datetime) -> None:
        """Something did not arrive there then."""
        self._learned(person, at, is_open=False)

    def _learned(self, person: str, at: datetime, *, is_open: bool) -> None:
        known = self._known.get(person)
        if known is not None and (at < known[0] or (at, is_open) == known):
            return
        self._known[person] = (at, is_open)
        self._known.move_to_end(person)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        if all(open_ for _, open_ in self._known.values()):
            self._health.resolve("window")
        else:
            self._health.report("window", f"a message was not delivered, since {OUTSIDE_WINDOW}")
