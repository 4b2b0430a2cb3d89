"""The port that channel adapters implement, and the core's side of it.

An adapter only translates between a platform and `nanobot.bus.events`. Access, durability, order,
retries and splitting are the core's, the same for every platform.
"""

from nanobot.channel.documents import document_of
from nanobot.channel.entry_points import (
    Check,
    CheckFinding,
    CheckRequest,
    Login,
    LoginRequest,
    Person,
    Setup,
    SetupRequest,
    SetupResult,
)
from nanobot.channel.network import fault_in_words
from nanobot.channel.port import (
    Admission,
    Channel,
    ChannelHost,
    Chat,
    Limits,
    MenuEntry,
    Reachable,
    Sender,
    WebhookHandler,
    WebhookReply,
    WebhookRequest,
)

__all__ = [
    "Admission",
    "Channel",
    "ChannelHost",
    "Chat",
    "Check",
    "CheckFinding",
    "CheckRequest",
    "Limits",
    "Login",
    "LoginRequest",
    "MenuEntry",
    "Person",
    "Reachable",
    "Sender",
    "Setup",
    "SetupRequest",
    "SetupResult",
    "WebhookHandler",
    "WebhookReply",
    "WebhookRequest",
    "document_of",
    "fault_in_words",
]
