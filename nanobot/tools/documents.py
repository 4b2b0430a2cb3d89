"""Who writes the files that decide future behaviour: never a file tool by itself."""

from __future__ import annotations

from typing import Protocol

from nanobot.tooling import Caller


class DocumentStore(Protocol):
    """The guarded writer of long-term files.

    Paths are relative to the caller's workspace; whose memory one belongs to, the caller says.
    """

    def is_document(self, path: str, caller: Caller) -> bool:
        """Whether writes to `path` must come here."""
        ...

    async def replace(self, path: str, text: str, *, expected: str | None, caller: Caller) -> int:
        """Write `text` where `expected` (the text that was read; None: no file) still stands.

        Returns the number of the version that this made, 0 for none. Raises `WriteConflict` where
        something else stands there, `ToolError` where the guard refuses the text or foreign content
        in the conversation may have caused it.
        """
        ...
