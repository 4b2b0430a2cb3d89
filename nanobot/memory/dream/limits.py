"""What one run of Dream may use, and how asking the model can fail."""

from __future__ import annotations

from msgspec import Struct

from nanobot.errors import NanobotError


class Unintelligible(NanobotError):
    """The model does not answer in the form that it is asked for."""


class RunBudgetSpent(NanobotError):
    """A run has asked as much as it may; what is left waits for the next."""


class DreamLimits(Struct, frozen=True):
    """What one run may use. `batch` is entries a question; `max_tokens` counts questions and
    answers."""

    batch: int = 20
    max_calls: int = 20
    max_tokens: int = 200_000
