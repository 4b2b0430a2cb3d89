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
    """Implements `nanobot.channel.Overview`, as a hook of the turns."""

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
        """Pass on what happens in a turn."""
        if not self._watchers:
            return
        if caller is not None:
            self.publish(caller.session_key, event)
        elif isinstance(event, InboundMessage):
            self.publish(event.session_key, event)
        elif not isinstance(event, ToolFinished):
            self.publish(Address(event.channel, event.chat_id, event.thread_id).key, event)

    def publish(self, key: str, event: TurnEvent | ApprovalAsked | ApprovalClosed) -> None:
        """Pass on what happens in the conversation `key`."""
        for watcher in tuple(self._watchers):
            watcher(Happening(key, event))
