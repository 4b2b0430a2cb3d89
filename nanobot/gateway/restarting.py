"""The operation `restart`, for those who are sure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nanobot.channel import Operation
from nanobot.errors import NanobotError


class Restarting:
    """`request` restarts nanobot in order, soon; `turns_running` counts what it interrupts."""

    def __init__(self, request: Callable[[], None], turns_running: Callable[[], int]) -> None:
        self._request, self._turns_running = request, turns_running

    def table(self) -> Mapping[str, Operation]:
        """By name, as it is called over the socket."""
        return {"restart": self.restart}

    async def restart(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Restart. Raises `NanobotError`, which tells what is under way, unless `sure` is true."""
        running = self._turns_running()
        if arguments.get("sure") is not True:
            hint = "Each gets a moment to end, and goes on afterwards. Say `sure: true`."
            raise NanobotError(
                f"a restart interrupts what is under way: {running} turns", hint=hint
            )
        self._request()
        return {"restarting": True, "turns_running": running}
