"""WhatsApp as a channel, by a linked device or through Meta's Cloud API.

Nothing is imported before it is used: checking the settings must not cost either transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_whatsapp.channel import WhatsAppChannel

__all__ = ["WhatsAppChannel"]


def __getattr__(name: str) -> object:
    if name != "WhatsAppChannel":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nanobot_whatsapp.channel import WhatsAppChannel

    return WhatsAppChannel
