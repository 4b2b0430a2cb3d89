"""The files of a scope that people read: their names, in one place."""

from __future__ import annotations

LONG_TERM = "memory/MEMORY.md"
PENDING = "memory/pending.md"
"""Facts that wait to be confirmed."""
RETIRED = "memory/retired.md"
"""Facts that are no longer true."""

PERSONAL = ("USER.md", "SOUL.md")
"""Who the person is, and how the agent is to be with them."""
FACTS = (LONG_TERM, *PERSONAL)
"""The files of what was learned."""
ALL_FACTS = (*FACTS, RETIRED)

BOOTSTRAP = ("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md")
"""What the system prompt holds, in this order."""
RULES = frozenset({*BOOTSTRAP, "HEARTBEAT.md"})
"""Files that decide how the agent behaves, beside memory."""

TRACKED = (*sorted(RULES), LONG_TERM, PENDING, RETIRED)
"""The files that have versions, relative to the scope's folder."""
