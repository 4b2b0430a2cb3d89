"""The way out: all that tools ask of the network goes through here, and only to public addresses.

Invariant: a name is resolved once, every address it has must be public, and the connection goes to
the very address that was checked. `egress` is the client, `urls` says what is public and plain,
`dialling` decides and connects, `transport` speaks HTTP.
"""

from nanobot.security.egress.dialling import Resolve
from nanobot.security.egress.egress import Egress
from nanobot.security.egress.urls import (
    MEGABYTE,
    EgressError,
    EgressLimits,
    EgressRefused,
    EgressRequest,
    EgressResponse,
    Url,
    is_public,
    parse_url,
)

__all__ = [
    "MEGABYTE",
    "Egress",
    "EgressError",
    "EgressLimits",
    "EgressRefused",
    "EgressRequest",
    "EgressResponse",
    "Resolve",
    "Url",
    "is_public",
    "parse_url",
]
