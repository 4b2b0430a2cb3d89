"""Search over everything that was said and written down; see `index` for the class to use."""

from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.search.values import (
    Embedder,
    Hit,
    IndexStats,
    Passage,
    Query,
    SearchResult,
    Source,
    Sources,
)

__all__ = [
    "Embedder",
    "Hit",
    "IndexStats",
    "MemoryIndex",
    "Passage",
    "Query",
    "SearchResult",
    "Source",
    "Sources",
]
