"""What a check of `nanobot doctor` gets, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from nanobot.cli.status import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot.clock import Clock
    from nanobot.config.settings import Settings


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `hint` says what to do about it."""

    check: str
    state: Literal["ok", "warn", "fail"]
    text: str
    hint: str = ""


@dataclass(slots=True)
class Heard:
    """What one check hears that another is about. `times`: who told what time it is, and by how
    many seconds this machine is ahead of them. `judged`: a gateway runs and says itself what it
    could not answer or deliver."""

    times: list[tuple[str, float]] = field(default_factory=list)
    judged: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """What is examined. A gateway may take `patience` seconds to answer."""

    settings: Settings
    clock: Clock
    ask_model: bool = False
    patience: float = PATIENCE_SECONDS
    heard: Heard = field(default_factory=Heard)

    @property
    def home(self) -> Path:
        """The home."""
        return self.settings.home

    def hear(self, who: str, told: datetime | None) -> None:
        """Somebody has just said what time it is, if they did."""
        if told is not None:
            self.heard.times.append((who, (self.clock.now() - told).total_seconds()))


Check = Callable[[Case], Iterable[Finding]]
