"""Who may talk to this nanobot: the owner's lists, and pairing with codes beside them.

`access` decides and lets people in, `book` is what pairing adds, its bounds, and its file.
"""

from nanobot.security.access.access import (
    Access,
    AccessRules,
    Approved,
    GroupMode,
    Request,
    Revoked,
)
from nanobot.security.access.book import Asked, Known

__all__ = ["Access", "AccessRules", "Approved", "Asked", "GroupMode", "Known", "Request", "Revoked"]
