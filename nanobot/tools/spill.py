"""Where tool results go that are too long for a prompt: plain files that `read_file` can read."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from nanobot.security.paths import Root


class SpillFolder:
    """Keeps the latest `keep` long results in `folder`."""

    def __init__(self, folder: Path, keep: int = 200) -> None:
        self._root = Root(folder, name="spill folder")
        self._keep = keep

    async def keep(self, text: str, tool: str) -> str:
        """Store `text`; return its absolute path. Raises `StorageError`."""
        return await asyncio.to_thread(self._store, text, tool)

    def _store(self, text: str, tool: str) -> str:
        content = text.encode("utf-8", "replace")
        label = "".join(c for c in tool[:40] if c.isascii() and (c.isalnum() or c in "-_"))
        name = f"{label}-{hashlib.sha256(content).hexdigest()[:16]}.txt"
        self._root.create()
        self._root.place(name).write_bytes(content)
        self._prune()
        return str(self._root.path / name)

    def _prune(self) -> None:
        folder = self._root.place(".")
        files = [entry for entry in folder.entries() if entry.kind == "file"]
        files.sort(key=lambda entry: entry.mtime_ns, reverse=True)
        for entry in files[self._keep :]:
            folder.child(entry.name).remove()
