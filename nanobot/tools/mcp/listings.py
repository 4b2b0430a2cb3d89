"""Which of a server's tools are offered: those that are as the owner accepted them. Pure.

Whatever is new or different waits, the first listing as well: a description speaks to the model in
every conversation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace

from nanobot.tools.mcp.values import Card


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server listed last, and what of it was ever accepted, by name. `identity` is the
    server's."""

    identity: str
    listed: tuple[Card, ...] = ()
    accepted: Mapping[str, Card] = field(default_factory=dict)

    def seen(self, cards: Iterable[Card]) -> Listing:
        """After the server has listed its tools again."""
        return replace(self, listed=tuple(cards))

    def accept(self) -> Listing:
        """After the owner has accepted what waits."""
        waiting = {card.name: card for card in self.waiting}
        return replace(self, accepted={**self.accepted, **waiting})

    @property
    def offered(self) -> tuple[Card, ...]:
        """The tools that may be called."""
        return tuple(card for card in self.listed if self.accepted.get(card.name) == card)

    @property
    def waiting(self) -> tuple[Card, ...]:
        """The tools that are new or not what they were."""
        return tuple(card for card in self.listed if self.accepted.get(card.name) != card)

    @property
    def digest(self) -> str:
        """Stands for exactly what waits; empty where nothing does."""
        waiting = [astuple(card) for card in self.waiting]
        return hashlib.sha256(json.dumps(waiting).encode()).hexdigest()[:16] if waiting else ""
