"""Who writes the files that decide future behaviour: never a file tool by itself."""

from __future__ import annotations

from typing import Protocol


class DocumentStore(Protocol):
    """The guarded writer of long-term files. Paths are relative to the workspace."""

    def is_document(self, path: str) -> bool:
        """Whether writes to `path` must come here."""
        ...

    async def replace(self, path: str, text: str, *, expected: str | None, author: str) -> None:
        """Write `text` where `expected` (the text that was read; None: no file) still stands.

        Raises `WriteConflict` where it does not, and `ToolError` where the guard refuses the text.
        """
        ...
