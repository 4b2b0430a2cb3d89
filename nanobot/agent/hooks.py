"""What others may watch of a turn. A hook that fails is logged and never breaks the turn."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from loguru import logger

from nanobot.bus.events import TurnEnded
from nanobot.messages import ToolCall
from nanobot.tooling import Caller, ToolResult


class AgentHook:
    """Override what you need; every method does nothing by default."""

    async def turn_started(self, caller: Caller, event_ids: tuple[str, ...]) -> None:
        """The agent begins to work on these events."""

    def text(self, caller: Caller, delta: str, restart: bool) -> None:
        """More text of the reply; `restart` voids what came before. Called often: be quick."""

    async def tool_started(self, caller: Caller, call: ToolCall) -> None:
        """A tool is about to run: nothing stands in its way, and where the owner had to be asked
        they have said yes. There is none for a call that does not run."""

    def tool_output(self, caller: Caller, call: ToolCall, text: str) -> None:
        """A running tool prints something. Called often: be quick."""

    async def tool_finished(
        self, caller: Caller, call: ToolCall, result: ToolResult, seconds: float
    ) -> None:
        """A tool that was started has run."""

    async def turn_ended(self, ended: TurnEnded) -> None:
        """The turn is committed; its reply is about to be sent."""


class CompositeHook(AgentHook):
    """Calls several hooks in order and keeps each one's failure to itself."""

    def __init__(self, hooks: Sequence[AgentHook]) -> None:
        self._hooks = tuple(hooks)

    async def turn_started(self, caller: Caller, event_ids: tuple[str, ...]) -> None:
        for hook in self._hooks:
            with _contained(hook):
                await hook.turn_started(caller, event_ids)

    def text(self, caller: Caller, delta: str, restart: bool) -> None:
        for hook in self._hooks:
            with _contained(hook):
                hook.text(caller, delta, restart)

    async def tool_started(self, caller: Caller, call: ToolCall) -> None:
        for hook in self._hooks:
            with _contained(hook):
                await hook.tool_started(caller, call)

    def tool_output(self, caller: Caller, call: ToolCall, text: str) -> None:
        for hook in self._hooks:
            with _contained(hook):
                hook.tool_output(caller, call, text)

    async def tool_finished(
        self, caller: Caller, call: ToolCall, result: ToolResult, seconds: float
    ) -> None:
        for hook in self._hooks:
            with _contained(hook):
                await hook.tool_finished(caller, call, result, seconds)

    async def turn_ended(self, ended: TurnEnded) -> None:
        for hook in self._hooks:
            with _contained(hook):
                await hook.turn_ended(ended)


@contextlib.contextmanager
def _contained(hook: AgentHook) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the boundary: hooks never break a turn
        logger.opt(exception=error).warning("hook {} failed", type(hook).__name__)
