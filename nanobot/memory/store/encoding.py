"""A file of memory as text and back: a write changes no line that it does not mean to. Pure.

A person's editor may save in another encoding than UTF-8. What is no UTF-8 is shown as `\\ufffd`; a
line that still stands as it was shown keeps its bytes. The byte order mark that some put in front
is none of the text, and goes with the next write.
"""

from __future__ import annotations

BOM = "\ufeff"
_UNKNOWN = "\ufffd"


def text_of(content: bytes | None) -> str:
    """What a file says; empty where there is none."""
    return (content or b"").decode("utf-8", "replace").removeprefix(BOM)


def bytes_of(text: str, standing: bytes | None) -> bytes:
    """`text` for the file that holds `standing` now."""
    new = text.encode("utf-8", "replace")
    if _UNKNOWN not in text or not standing:
        return new
    kept: dict[bytes, list[bytes]] = {}
    for line in standing.split(b"\n"):
        kept.setdefault(text_of(line).encode(), []).append(line)
    lines = []
    for line in new.split(b"\n"):
        # Two lines may look the same: they are still in their order.
        as_it_was = kept.get(line)
        lines.append(as_it_was.pop(0) if as_it_was else line)
    return b"\n".join(lines)
