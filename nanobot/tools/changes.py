"""The one way in which the file tools change the workspace.

First what stood there is kept for `/undo`, durably; then the change is made, only if the file still
is what the tool read, and for long-term files by their own guarded writer.
"""

from __future__ import annotations

import asyncio

from nanobot.errors import ToolError
from nanobot.security.paths import Place
from nanobot.tooling import Caller
from nanobot.tools.documents import DocumentStore
from nanobot.tools.undo import UndoLog

MAX_CHANGED = 20_000_000
"""Bytes of the largest file that tools change: its old content is kept as well."""


class WorkspaceWriter:
    """Writes files for tools."""

    def __init__(self, undo: UndoLog, documents: DocumentStore) -> None:
        self._undo = undo
        self._documents = documents

    def path_of(self, place: Place) -> str:
        """A place's path from the workspace, of which a caller's own root may be a part."""
        return self._undo.path_of(place)

    def is_document(self, place: Place, caller: Caller) -> bool:
        """Whether a guarded writer decides about what is written there."""
        return self._documents.is_document(place.relative, caller)

    async def read(self, place: Place) -> bytes | None:
        """What stands at `place` before a change; None where nothing does."""
        place.refuse_unless_writable()
        return await asyncio.to_thread(place.read_bytes, MAX_CHANGED)

    async def write(self, place: Place, text: str, previous: bytes | None, caller: Caller) -> bytes:
        """Put `text` where `previous` stood; return the bytes written."""
        try:
            new = text.encode()
        except UnicodeEncodeError as error:
            raise ToolError(
                f"the text holds a broken character at position {error.start}",
                hint="Half of a surrogate pair stands there; write the character itself.",
            ) from error
        if len(new) > MAX_CHANGED:
            raise ToolError(f"{len(new):,} bytes are too much for one file")
        await asyncio.to_thread(
            self._undo.before_change, caller.turn_id, self.path_of(place), previous, new
        )
        if self.is_document(place, caller):
            await self._documents.replace(
                place.relative,
                text,
                expected=None if previous is None else previous.decode("utf-8", "replace"),
                caller=caller,
            )
        else:
            await asyncio.to_thread(place.write_bytes, new, expected=previous)
        return new
