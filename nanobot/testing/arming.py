"""Faults that wait for the calls which they are meant for, and let go at the end what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from nanobot.testing.answers import Step

CallT = TypeVar("CallT")


@dataclass(slots=True)
class _Armed(Generic[CallT]):
    fits: Callable[[CallT], bool]
    step: Step
    left: int


class Arming(Generic[CallT]):
    """The part of a fake server that misbehaves: a call takes the first fault that fits it."""

    def __init__(self) -> None:
        self._armed: list[_Armed[CallT]] = []
        self._gates: list[asyncio.Event] = []

    def heal(self) -> None:
        """Forget all faults, and let go what they hold."""
        self._armed.clear()
        self._let_go()

    def _let_go(self) -> None:
        for gate in self._gates:
            gate.set()
        self._gates.clear()

    def _take(self, call: CallT) -> Step | None:
        for armed in self._armed:
            if armed.fits(call):
                armed.left -= 1
                self._armed = [one for one in self._armed if one.left]
                return armed.step
        return None

    def _arm_for(self, fits: Callable[[CallT], bool], step: Step, times: int) -> None:
        self._armed.append(_Armed(fits, step, times))

    def _gate(self) -> asyncio.Event:
        gate = asyncio.Event()
        self._gates.append(gate)
        return gate
