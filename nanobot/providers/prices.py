"""What tokens cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prices:
    """The price of a million tokens of each kind, in the owner's currency; 0 where not known."""

    input: float = 0.0
    cached_input: float = 0.0
    output: float = 0.0

    def cost(self, *, prompt: int, cached: int, completion: int) -> float | None:
        """What calls cost that took so many tokens (`cached` are some of `prompt`); None where no
        price is known."""
        if not (self.input or self.cached_input or self.output):
            return None
        fresh = max(0, prompt - cached)
        total = fresh * self.input + cached * self.cached_input + completion * self.output
        return total / 1_000_000
