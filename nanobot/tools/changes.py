"""The one way in which the file tools change the workspace.

First what stood there is kept for `/undo`, durably; then the change is made, only if the file still
is what the tool read, and for long-term files by their own guarded writer.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from nanobot.errors import ToolError
from nanobot.security.confine import autorun
from nanobot.security.paths import Place
from nanobot.tooling import Caller
from nanobot.tools.documents import DocumentStore
from nanobot.tools.undo import UndoLog

MAX_CHANGED = 20_000_000
"""Bytes of the largest file that tools change: its old content is kept as well."""


class Commands(Protocol):
    """What runs in the folders that are written in."""

    def refuse_if_held(self, caller: Caller) -> None:
        """Raise `ToolError` while a command has the caller's folder to itself."""
        ...

    def refuse_if_running(self, caller: Caller) -> None:
        """Raise `ToolError` while any command runs there."""
        ...


class WorkspaceWriter:
    """Writes files for tools."""

    def __init__(self, undo: UndoLog, documents: DocumentStore, commands: Commands) -> None:
        self._undo = undo
        self._documents = documents
        self._commands = commands

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
        await self._refuse_beside_commands(place, caller)
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

    async def _refuse_beside_commands(self, place: Place, caller: Caller) -> None:
        """What the owner was asked about stays as it is, and a command in whose sight something
        appears that runs by itself would be ended, and that renamed."""
        self._commands.refuse_if_held(caller)
        if not self.is_document(place, caller) and await asyncio.to_thread(runs_by_itself, place):
            self._commands.refuse_if_running(caller)


def runs_by_itself(place: Place) -> bool:
    """Whether it is of `autorun`'s list or in a folder of it, or makes or is in a bare repository.
    Blocks."""
    folder = Place(place.root, ())
    for name in place.names:
        there = {one for one in autorun.SHAPE if one == name.lower() or folder.child(one).stat()}
        head = name.upper() == "HEAD" or folder.child("HEAD").stat() is not None
        if autorun.kind(folder.relative, name) or (head and autorun.is_repository(there)):
            return True
        folder = folder.child(name)
    return False
