"""The time zone in which commands tell times that they read from files."""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path


def zone_of(home: Path) -> tzinfo | None:
    """The person's, `agent.timezone`; None, which is the system's, where none is set or what is
    set cannot be used: what is read has nothing to do with that."""
    from zoneinfo import ZoneInfo

    from nanobot.config.load import load_settings
    from nanobot.errors import ConfigError

    try:
        name = load_settings(home).agent.timezone
    except ConfigError:
        return None
    return ZoneInfo(name) if name else None
