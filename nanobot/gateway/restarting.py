"""The operation `restart`: what a restart would interrupt, and doing it once somebody is sure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nanobot.channel import Operation


class Restarting:
    """`request` restarts nanobot in order, soon; `turns_running` counts what it interrupts."""

    def __init__(self, request: Callable[[], None], turns_running: Callable[[], int]) -> None:
        self._request, self._turns_running = request, turns_running

    def table(self) -> Mapping[str, Operation]:
        """By name, as it is called over the socket."""
        return {"restart": self.restart}

    async def restart(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Restart where `sure` is true; else only tell what is under way."""
        sure = arguments.get("sure") is True
        running = self._turns_running()
        if sure:
            self._request()
        return {"restarting": sure, "turns_running": running}
