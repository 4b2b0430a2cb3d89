"""The operation `restart`, for those who are sure."""

from __future__ import annotations

from collections.abc import Mapping

from nanobot.agent.commands import Restartable
from nanobot.agent.turn import Turns
from nanobot.channel import Operation
from nanobot.errors import NanobotError


class Restarting:
    """Restarts `process`, which interrupts the `turns` that are running."""

    def __init__(self, process: Restartable, turns: Turns) -> None:
        self._process, self._turns = process, turns

    def table(self) -> Mapping[str, Operation]:
        """By name, as it is called over the socket."""
        return {"restart": self.restart}

    async def restart(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Restart. Raises `NanobotError`, which tells what is under way, unless `sure` is true."""
        running = len(self._turns.running)
        if arguments.get("sure") is not True:
            hint = "Each gets a moment to end, and goes on afterwards. Say `sure: true`."
            raise NanobotError(
                f"a restart interrupts what is under way: {running} turns", hint=hint
            )
        self._process.request_restart()
        return {"restarting": True, "turns_running": running}
