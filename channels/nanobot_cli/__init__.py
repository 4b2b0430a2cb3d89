"""The terminal as a channel: `CliChannel` in the gateway, and the chat that a person types into.

The channel is loaded on first use: a client process also imports from this package, and must not
pay for asyncio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_cli.channel import CliChannel

__all__ = ["CliChannel"]


def __getattr__(name: str) -> object:
    if name == "CliChannel":
        from nanobot_cli.channel import CliChannel

        return CliChannel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
