"""`write_file` and `edit_file`: changes to the workspace, each of which can be undone.

File tools change the workspace only in this way. First the old content is kept for `/undo`,
durably. Then the file is written, only if it is still as the tool read it, and for long-term files
by their own guarded writer. If another writer changed a different place of the file in between, the
edit is repeated on the new content.

Models quote from memory: they lose indentation, change line endings, or remember an older version.
So if an edit finds no match, it shows the closest lines, with their numbers. The cost of that
search is bounded by the number and the length of the compared lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from nanobot.errors import ToolError, WriteConflict
from nanobot.security.paths import Place
from nanobot.text import close_matches
from nanobot.tooling import OWNER, Arguments, Risk, RootsOf, Tool, ToolResult, TurnContext
from nanobot.tools.reading import image_type, is_binary, missing
from nanobot.tools.shell.processes import Processes
from nanobot.tools.undo import UndoLog

SKILLS = "skills"
"""The folder in the workspace whose files guide the agent, once they are enabled."""

_MAX_COMPARED = 2_000
_MAX_COMPARED_LENGTH = 80
"""`difflib` takes frequent letters of longer ones for junk."""
_MAX_SHOWN = 12


def replace_exactly(
    text: str, old: str, new: str, *, everywhere: bool
) -> tuple[str, tuple[int, ...]]:
    """Replace `old` by `new`: the new text, and the lines (from 1) at which something was replaced.
    Raises `ToolError` unless it is clear which place is meant.

    In a file that ends its lines with CR LF throughout, so do the texts given.
    """
    if not old:
        raise ToolError("old_text is empty; write_file creates files")
    if "\r\n" in text and text.count("\n") == text.count("\r\n"):
        old, new = (one.replace("\r\n", "\n").replace("\n", "\r\n") for one in (old, new))
    if old == new:
        raise ToolError("old_text and new_text are the same; nothing would change")
    pieces = text.split(old)
    lines, line = list[int](), 1
    for piece in pieces[:-1]:
        line += piece.count("\n")
        lines.append(line)
        line += old.count("\n")
    if not lines:
        raise ToolError(f"old_text was not found. {_why_not_found(text, old)}")
    if len(lines) > 1 and not everywhere:
        raise ToolError(
            f"old_text stands there {len(lines)} times (lines {_listed(lines)}); give more of the"
            " text around the one that is meant, or set replace_all"
        )
    return new.join(pieces), tuple(lines)


def _listed(lines: Sequence[int]) -> str:
    return ", ".join(map(str, lines[:10])) + (", …" if len(lines) > 10 else "")


def _why_not_found(text: str, old: str) -> str:
    reason = ""
    if " ".join(old.split()) in " ".join(text.split()):
        reason = "Only spaces, indentation or line endings differ. "
    elif old.casefold() in text.casefold():
        reason = "Only upper and lower case differ. "
    lines = text.split("\n")
    wanted = old.strip("\n").split("\n")
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    compared = [line.strip()[:_MAX_COMPARED_LENGTH] for line in lines[:_MAX_COMPARED]]
    best = close_matches(wanted[anchor].strip()[:_MAX_COMPARED_LENGTH], compared, n=1)
    if not best:
        return f"{reason}Nothing like it stands there; read the file again."
    start = max(0, compared.index(best[0]) - anchor)
    shown = lines[start : start + min(len(wanted), _MAX_SHOWN)]
    region = "\n".join(f"{start + i}: {line[:500]}" for i, line in enumerate(shown, 1))
    return f"{reason}The closest lines are (with their numbers in front):\n{region}"


MAX_CHANGED = 20_000_000
"""Bytes of the largest file that tools change: its old content is kept as well."""


class DocumentStore(Protocol):
    """The guarded writer of long-term files.

    Paths are relative to the caller's workspace; whose memory one belongs to, the caller says.
    """

    def is_document(self, path: str, caller: TurnContext) -> bool: ...

    async def replace(
        self, path: str, text: str, *, expected: bytes | None, caller: TurnContext
    ) -> int:
        """Write `text` where `expected` (what was read; None: no file) still stands.

        Returns the number of the version that this made, 0 for none. Raises `WriteConflict` where
        something else stands there, `ToolError` where the guard refuses the text or foreign content
        in the conversation may have caused it.
        """
        ...


Foreign = Callable[[str, TurnContext], bool]
"""Whether a file, by its path from the caller's folder, is of another conversation: what is written
there is read by others."""


class WorkspaceWriter(Struct, frozen=True):
    """Writes files for tools. `commands` are what runs in the folders that are written in."""

    roots: RootsOf
    undo: UndoLog
    documents: DocumentStore
    commands: Processes
    foreign: Foreign = lambda _, __: False

    async def risk(self, path: str, change: str, caller: TurnContext) -> Risk | None:
        """What a change of a file could do: it decides future behaviour, or others read it."""
        place = self.roots(caller).place(path)
        if not place.root.writable:
            return None
        details = f"file: {place.shown}\n{change}"
        if self.foreign(place.relative, caller):
            # Never the caller's own words alone: the path says something as well.
            return Risk("send", "write a file that another conversation reads", details)
        what = await asyncio.to_thread(self._persists, place, caller)
        return Risk("persist", what, details) if what else None

    def _persists(self, place: Place, caller: TurnContext) -> str:
        """What is done by changing a file that still acts after the conversation; empty for an
        ordinary one, and where a guarded writer decides. Blocks."""
        if caller.scope != OWNER and outlasts(place):
            return "leave a file that programs may obey by themselves"
        if self.undo.path_of(place).partition("/")[0].casefold() == SKILLS:
            return "write a file that will guide me from then on"
        if self.documents.is_document(place.relative, caller):
            return ""
        if runs_by_itself(place):
            return "write a file that programs of yours run or obey by themselves"
        return ""

    async def read(self, path: str, caller: TurnContext) -> tuple[Place, bytes | None]:
        """A place, and what stands there before a change; None where nothing does."""
        place = self.roots(caller).place(path)
        place.refuse_unless_writable()
        return place, await asyncio.to_thread(place.read_bytes, MAX_CHANGED)

    async def write(
        self, place: Place, text: str, previous: bytes | None, caller: TurnContext, done: str
    ) -> ToolResult:
        """Put `text` where `previous` stood; `done` is what to say then."""
        try:
            new = text.encode()
        except UnicodeEncodeError as error:
            raise ToolError(
                f"the text holds a broken character at position {error.start}",
                hint="It has half of a surrogate pair; write the character itself.",
            ) from error
        if len(new) > MAX_CHANGED:
            raise ToolError(f"{len(new):,} bytes are too much for one file")
        is_document = self.documents.is_document(place.relative, caller)
        # What the owner was asked about stays as it is, and a command in whose sight something
        # appears that runs by itself would be ended, and that renamed.
        self.commands.refuse_if_held(caller)
        if not is_document and await asyncio.to_thread(runs_by_itself, place):
            self.commands.refuse_if_running(caller)
        path = self.undo.path_of(place)
        await asyncio.to_thread(self.undo.before_change, caller.turn_id, path, previous, new)
        try:
            if is_document:
                await self.documents.replace(place.relative, text, expected=previous, caller=caller)
            else:
                await asyncio.to_thread(place.write_bytes, new, expected=previous)
        except WriteConflict:
            await asyncio.to_thread(self.undo.not_changed, caller.turn_id, path, new)
            raise
        return ToolResult(done, changed=(path,), trusted=True)


def runs_by_itself(place: Place) -> bool:
    """Whether a file runs by itself (`autorun`), or may lie in a bare repository. Blocks."""
    from nanobot.security.confine import autorun

    above = (Place(place.root, place.names[:count]) for count in range(len(place.names)))
    return autorun.runs_by_itself(place.relative) or any(
        folder.child("HEAD").stat() is not None for folder in above
    )


_REPOSITORY = frozenset({"head", "objects", "refs", "commondir", "gitdir"})
"""What git takes a folder for a repository by."""


def outlasts(place: Place) -> bool:
    """Whether a file may act later without its writer, in the owner's name: it runs by itself or is
    hidden, or is a part of a repository or of a skill. Stricter than for the owner's own files:
    nobody is asked about it. Blocks."""
    from nanobot.security.confine.autorun import plain

    names = list(map(plain, place.names))
    kept = any(not name or name.startswith(".") or name in _REPOSITORY for name in names)
    return kept or names[0] == SKILLS or runs_by_itself(place)


class WriteFileArguments(Arguments, frozen=True):
    path: str
    content: str


class EditFileArguments(Arguments, frozen=True):
    path: str
    old_text: str
    new_text: str
    replace_all: bool = False


class WriteFile(Tool, Struct, frozen=True):
    writer: WorkspaceWriter
    name = "write_file"
    description = "Write a whole file; its folders are made."
    arguments = WriteFileArguments
    effects = True

    async def risk(self, arguments: WriteFileArguments, caller: TurnContext) -> Risk | None:
        return await self.writer.risk(arguments.path, arguments.content, caller)

    async def __call__(self, arguments: WriteFileArguments, caller: TurnContext) -> ToolResult:
        place, previous = await self.writer.read(arguments.path, caller)
        new = arguments.content.encode("utf-8", "replace")
        done = f"created {place.shown} ({len(new):,} bytes)"
        if previous == new:
            done = f"{place.shown} held exactly this already ({len(new):,} bytes)"
        elif previous is not None:
            done = f"overwrote {place.shown} ({len(previous):,} bytes before, {len(new):,} now)"
        return await self.writer.write(place, arguments.content, previous, caller, done)


_ATTEMPTS = 50
"""Enough for as many writers at once, because each failed attempt means that another succeeded."""


class EditFile(Tool, Struct, frozen=True):
    writer: WorkspaceWriter
    name = "edit_file"
    description = (
        "Replace old_text, which must stand in the file exactly, and only once unless replace_all "
        "is set. Read the file first."
    )
    arguments = EditFileArguments
    effects = True

    async def risk(self, arguments: EditFileArguments, caller: TurnContext) -> Risk | None:
        which = "every" if arguments.replace_all else "the only"
        change = (
            f"--- instead of {which} occurrence of\n{arguments.old_text}"
            f"\n+++ now\n{arguments.new_text}"
        )
        return await self.writer.risk(arguments.path, change, caller)

    async def __call__(self, arguments: EditFileArguments, caller: TurnContext) -> ToolResult:
        """Replace the text. Repeat if another writer changed a different place in between."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(WriteConflict):
                return await self._edit(arguments, caller)
        return await self._edit(arguments, caller)

    async def _edit(self, arguments: EditFileArguments, caller: TurnContext) -> ToolResult:
        place, previous = await self.writer.read(arguments.path, caller)
        if previous is None:
            raise await asyncio.to_thread(missing, place)
        if image_type(previous) or is_binary(previous):
            raise ToolError(f"{place.shown} is binary and cannot be edited as text")
        try:
            text = previous.decode()
        except UnicodeDecodeError as error:
            raise ToolError(
                f"{place.shown} is not valid UTF-8 (byte {error.start}), so an edit could damage it"
            ) from error
        old, new = arguments.old_text, arguments.new_text
        everywhere = arguments.replace_all
        new, lines = await asyncio.to_thread(replace_exactly, text, old, new, everywhere=everywhere)
        times = "once" if len(lines) == 1 else f"{len(lines)} times"
        done = f"edited {place.shown}: replaced {times}, line {_listed(lines)}"
        return await self.writer.write(place, new, previous, caller, done)
