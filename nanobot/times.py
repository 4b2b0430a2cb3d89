"""How times are said to people. Pure, and quick to load."""

from __future__ import annotations


def duration(seconds: int) -> str:
    """`3 d 4 h`, `5 min`: the two largest units."""
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    found = []
    for name, size in units:
        count, seconds = divmod(seconds, size)
        if count:
            found.append(f"{count} {name}")
    return " ".join(found[:2]) or "0 s"
