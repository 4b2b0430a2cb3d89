"""Doubles for tests and for authors of plugins: real enough to test against, under full control.

The product imports nothing from here. Names load when they are used, so that a test which needs a
clock does not pay for a web server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot.testing.clock import FakeClock
    from nanobot.testing.graph import FakeGraphAPI
    from nanobot.testing.model import ScriptedModel, calls, fails, says, together
    from nanobot.testing.openai_server import FakeOpenAI
    from nanobot.testing.person import ScriptedPerson
    from nanobot.testing.telegram import FakeTelegram
    from nanobot.testing.web import FakeWeb, SearchHit

__all__ = [
    "FakeClock",
    "FakeGraphAPI",
    "FakeOpenAI",
    "FakeTelegram",
    "FakeWeb",
    "ScriptedModel",
    "ScriptedPerson",
    "SearchHit",
    "calls",
    "fails",
    "says",
    "together",
]

_HOMES = {
    "FakeClock": "clock",
    "FakeGraphAPI": "graph",
    "FakeOpenAI": "openai_server",
    "FakeTelegram": "telegram",
    "FakeWeb": "web",
    "ScriptedModel": "model",
    "ScriptedPerson": "person",
    "SearchHit": "web",
    "calls": "model",
    "fails": "model",
    "says": "model",
    "together": "model",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
