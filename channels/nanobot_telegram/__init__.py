"""Telegram as a channel, through the Bot API.

Imports are lazy, so that checking the settings does not load the platform's library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_telegram.channel import TelegramChannel

__all__ = ["TelegramChannel"]


def __getattr__(name: str) -> object:
    if name != "TelegramChannel":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nanobot_telegram.channel import TelegramChannel

    return TelegramChannel
