"""Who may talk to this nanobot: the owner's lists, and pairing with codes beside them.

`access` is the whole of it; `rules` what the configuration says and the decision, `book` what
pairing adds and its bounds, `keeper` and `file` where that is kept, `codes` the codes, `words` the
texts.
"""

from nanobot.security.access.access import Access, Approved, Request, Revoked
from nanobot.security.access.book import Asked, Known
from nanobot.security.access.rules import AccessRules, GroupMode

__all__ = ["Access", "AccessRules", "Approved", "Asked", "GroupMode", "Known", "Request", "Revoked"]
