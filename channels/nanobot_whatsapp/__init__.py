"""WhatsApp as a channel, as a linked device or through Meta's Cloud API.

Imports are lazy: checking the settings loads neither transport, and running one does not load the
other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot.channel import Channel
    from nanobot_whatsapp.settings import WhatsAppSettings


def whatsapp_channel(options: WhatsAppSettings) -> Channel:
    """Return the channel with the configured transport."""
    if options.transport == "cloud":
        from nanobot_whatsapp.cloud.transport import CloudTransport

        return CloudTransport(options)
    from nanobot_whatsapp.linked.transport import LinkedTransport

    return LinkedTransport(options)


WhatsAppChannel = whatsapp_channel
"""The name of the entry point."""
