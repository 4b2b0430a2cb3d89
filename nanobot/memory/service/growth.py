"""How memory grew: entries of the history, and bytes of them, by month, of all scopes together."""

from __future__ import annotations

from collections.abc import Iterable

from nanobot.memory.history import HistoryLog, encode


def growth(histories: Iterable[HistoryLog]) -> list[dict[str, object]]:
    """`month` (as `2026-03`), `entries` and `bytes` that were added in it, the earliest first;
    months without any are left out. Blocks."""
    entries: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for history in histories:
        for entry in history.entries():
            month = f"{entry.timestamp:%Y-%m}"
            entries[month] = entries.get(month, 0) + 1
            sizes[month] = sizes.get(month, 0) + len(encode(entry))
    return [{"month": m, "entries": entries[m], "bytes": sizes[m]} for m in sorted(entries)]
