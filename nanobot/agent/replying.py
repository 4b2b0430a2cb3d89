"""What of a turn goes to its chat, and what another conversation gets to know of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from nanobot.agent.running import RunningTurn
from nanobot.agent.unasked import failed_text, is_silent, note_for_chat, waiting_text
from nanobot.bus.events import InboundMessage, OutboundMessage
from nanobot.bus.outbox import Outgoing
from nanobot.clock import Clock

Split = Callable[[OutboundMessage], tuple[OutboundMessage, ...]]
"""Cuts a message into parts that its channel can send."""


class Replies:
    """Makes them."""

    def __init__(self, split: Split, clock: Clock) -> None:
        self._split, self._clock = split, clock

    def of(
        self, turn: RunningTurn, text: str, state: Literal["done", "failed", "stopped"]
    ) -> tuple[Outgoing, ...]:
        """The reply that ends a turn; none where there is nothing to say."""
        if turn.inbound.apart:
            text = "" if is_silent(text) else text
            text = failed_text(turn.inbound, text) if state == "failed" else text
            if not text:
                return ()
        outgoing = self.to(turn.inbound, text, turn.event_ids, "reply")
        return (outgoing,) if outgoing.parts else ()

    def waiting(self, turn: RunningTurn, text: str) -> Outgoing | None:
        """That a turn has to wait, in these words where somebody waits for it."""
        if not turn.inbound.awaited:
            text = waiting_text(turn.inbound)
        return self.to(turn.inbound, text, turn.event_ids, "waiting") if text else None

    def notes(
        self, turn: RunningTurn, text: str, reply: Sequence[Outgoing]
    ) -> tuple[InboundMessage, ...]:
        """What the chat's conversation gets to know of a reply that nobody there asked for."""
        if not turn.inbound.apart or not reply:
            return ()
        return (note_for_chat(turn.inbound, text, turn.caller.origins(), self._clock.now()),)

    def to(
        self, inbound: InboundMessage, text: str, event_ids: tuple[str, ...], call: str
    ) -> Outgoing:
        """A text for the chat of `inbound`, in a group as a reply, so that all see to what; `call`
        tells the messages of a turn apart."""
        message = OutboundMessage(
            inbound.channel,
            inbound.chat_id,
            text,
            reply_to=inbound.message_id if inbound.is_group else "",
            thread_id=inbound.thread_id,
        )
        return Outgoing(call, self._split(message), event_ids)
