"""What happens in all conversations, for channels that show the whole gateway.

Nothing is kept and nothing computed while nobody watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from nanobot.agent.runner import TurnEvent
from nanobot.bus.events import (
    Address,
    ApprovalAsked,
    ApprovalClosed,
    InboundMessage,
    ToolFinished,
)
from nanobot.channel import Happening, Operation
from nanobot.tooling import TurnContext


class Feed:
    """Implements `nanobot.channel.Overview`, and `AgentHook` to learn what happens."""

    def __init__(self) -> None:
        self.operations: Mapping[str, Operation] = {}
        self._watchers: list[Callable[[Happening], None]] = []

    @contextmanager
    def watch(self, watcher: Callable[[Happening], None]) -> Iterator[None]:
        """See `Overview`."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None:
        """Pass an event on to all who watch."""
        if not self._watchers:
            return
        if caller is not None:
            key = caller.session_key
        elif isinstance(event, InboundMessage):
            key = event.session_key
        elif isinstance(event, ToolFinished):
            return
        else:
            key = Address(event.channel, event.chat_id, event.thread_id).key
        self._pass(Happening(key, event))

    def publish(self, session_key: str, event: ApprovalAsked | ApprovalClosed) -> None:
        """Pass on what is no event of a turn's own: a question, and its end."""
        self._pass(Happening(session_key, event))

    def _pass(self, happening: Happening) -> None:
        for watcher in tuple(self._watchers):
            watcher(happening)
