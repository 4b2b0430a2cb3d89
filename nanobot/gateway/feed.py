"""What happens in all conversations, for channels that show the whole gateway.

Nothing is kept and nothing computed while nobody watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from nanobot.agent.runner import Hooks, TurnEvent
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
    """Implements `nanobot.channel.Overview`. What happens in turns is learned from `hooks`."""

    def __init__(self, hooks: Hooks) -> None:
        self.operations: Mapping[str, Operation] = {}
        self._hooks = hooks
        self._watchers: list[Callable[[Happening], None]] = []

    @contextmanager
    def watch(self, watcher: Callable[[Happening], None]) -> Iterator[None]:
        """See `Overview`."""

        def pass_on(event: TurnEvent, caller: TurnContext | None = None) -> None:
            if caller is not None:
                key = caller.session_key
            elif isinstance(event, InboundMessage):
                key = event.session_key
            elif isinstance(event, ToolFinished):
                return
            else:
                key = Address(event.channel, event.chat_id, event.thread_id).key
            watcher(Happening(key, event))

        self._watchers.append(watcher)
        try:
            with self._hooks.following(pass_on):
                yield
        finally:
            self._watchers.remove(watcher)

    def publish(self, session_key: str, event: ApprovalAsked | ApprovalClosed) -> None:
        """Pass on what is no event of a turn's own: a question, and its end."""
        for watcher in tuple(self._watchers):
            watcher(Happening(session_key, event))
