"""Doubles for plugin authors and nanobot's own tests: a scripted model, a clock, a channel.

The product imports nothing from here. The fakes of whole platforms are in `tests/doubles/`."""

from nanobot.testing.channel import FakeChannel
from nanobot.testing.clock import FakeClock
from nanobot.testing.model import ScriptedModel, ScriptedPerson, calls, fails, says, together

__all__ = [
    "FakeChannel",
    "FakeClock",
    "ScriptedModel",
    "ScriptedPerson",
    "calls",
    "fails",
    "says",
    "together",
]
