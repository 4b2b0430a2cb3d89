"""`write_file` and `edit_file`: changes to the workspace, each of which can be undone.

File tools change the workspace only in this way. First the old content is kept for `/undo`,
durably. Then the file is written, only if it is still as the tool read it, and for long-term files
by their own guarded writer. If another writer changed a different place of the file in between, the
edit is repeated on the new content.

What is kept for `/undo` is one folder per turn with one file per change, written before the change
is made: a JSON header (path, the hash of what is about to be written, whether a file stood there)
on the first line, then the old content. A change that was announced and never made does no harm:
undoing it finds the old content in place. What someone changed after the turn is never overwritten.

Models quote from memory: they lose indentation, change line endings, or remember an older version.
So if an edit finds no match, it shows the closest lines, with their numbers. The cost of that
search is bounded by the number and the length of the compared lines.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from nanobot.errors import NanobotError, StorageError, ToolError, WriteConflict
from nanobot.io import storage_errors
from nanobot.security.paths import Place, Root
from nanobot.text import close_matches
from nanobot.tooling import OWNER, Arguments, Risk, RootsOf, Tool, ToolResult, TurnContext
from nanobot.tools.read_tools import image_type, is_binary, missing
from nanobot.tools.shell.processes import Processes

Outcome = Literal["restored", "removed", "unchanged", "changed since", "failed"]

_TURN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")
_LIMIT = 64_000_000
_UNDONE = "undone"  # marks a turn of which something was left alone
_LEFT_ALONE: tuple[Outcome, ...] = ("changed since", "failed")


class FileChange(Struct, frozen=True):
    """One change of a file. `previous` is None where there was no file; `new_hash` is SHA-256."""

    path: str
    previous: bytes | None
    new_hash: str

    def encoded(self) -> bytes:
        header = {"path": self.path, "existed": self.previous is not None, "new": self.new_hash}
        return json.dumps(header).encode() + b"\n" + (self.previous or b"")

    @classmethod
    def decoded(cls, stored: bytes) -> FileChange:
        """What `encoded` made. Raises `ValueError` for anything else."""
        line, _, previous = stored.partition(b"\n")
        header = json.loads(line)
        match header:
            case {"path": str(path), "existed": bool(existed), "new": str(new)}:
                return cls(path, previous if existed else None, new)
        raise ValueError("not an undo record")


class UndoLog:
    """Keeps pre-images in `folder`, outside the workspace, and restores them.

    `workspace` must be the root that the tools write through: it holds the lock of its writers.
    Everything here blocks; callers on the event loop use a thread.
    """

    def __init__(self, folder: Path, workspace: Root) -> None:
        self._root = Root(folder, name="undo log")
        self._workspace = workspace
        self._numbering = threading.Lock()

    def before_change(self, turn_id: str, path: str, previous: bytes | None, new: bytes) -> None:
        """Store what stands at `path` before `new` is written there. Raises `StorageError`."""
        change = FileChange(path, previous, hashlib.sha256(new).hexdigest())
        self._root.create()
        with self._numbering:
            records = self._records(turn_id)
            number = int(records[-1].names[-1]) + 1 if records else 1
            self._turn(turn_id).child(f"{number:06d}").write_bytes(change.encoded(), expected=None)
        if number == 1:
            self.prune()

    def not_changed(self, turn_id: str, path: str, new: bytes) -> None:
        """Drop the last record of `before_change`: `new` was not written. Raises `StorageError`."""
        wanted = hashlib.sha256(new).hexdigest()
        with self._numbering:
            for record in reversed(self._records(turn_id)):
                change = FileChange.decoded(record.read_bytes(_LIMIT) or b"")
                if (change.path, change.new_hash) == (path, wanted):
                    record.remove()
                    return

    def path_of(self, place: Place) -> str:
        """A place's path from the workspace, also where its root is a folder inside that."""
        inner = os.path.relpath(place.root.path, self._workspace.path)
        return place.relative if inner == "." else f"{inner}/{place.relative}"

    def turns(self) -> list[str]:
        """The turns that changed something and were not undone, the latest first."""
        return [turn for turn in self._folders() if self._turn(turn).child(_UNDONE).stat() is None]

    def paths(self, turn_id: str) -> list[str]:
        """The files that a turn changed, as far as they were not put back."""
        found = []
        for record in self._records(turn_id) if _TURN_ID.fullmatch(turn_id) else ():
            with suppress(ValueError):
                found.append(FileChange.decoded(record.read_bytes(_LIMIT) or b"").path)
        return list(dict.fromkeys(found))

    def revert(self, turn_id: str) -> list[tuple[str, Outcome]]:
        """Undo a turn, newest change first; say per file what came of it.

        A file that is no longer what the turn wrote is left alone ("changed since"). Records of
        what was put back are dropped, so that undoing twice does nothing; the others stay.
        """
        outcomes: dict[str, Outcome] = {}
        for record in reversed(self._records(turn_id)):
            try:
                change = FileChange.decoded(record.read_bytes(_LIMIT) or b"")
            except ValueError:
                outcomes[record.relative] = "failed"
                continue
            outcome = self._restore(change)
            before = outcomes.setdefault(change.path, outcome)
            if outcome != "unchanged" and before not in _LEFT_ALONE:
                outcomes[change.path] = outcome
            if outcome not in _LEFT_ALONE:
                record.remove()
        if self._records(turn_id):
            self._turn(turn_id).child(_UNDONE).write_bytes(b"")
        else:
            self._drop(turn_id)
        return list(outcomes.items())

    def prune(self, keep: int = 200) -> None:
        for turn_id in self._folders()[keep:]:
            with suppress(StorageError):  # another turn may forget it just now; else the next does
                self._drop(turn_id)

    def _restore(self, change: FileChange) -> Outcome:
        place = self._workspace.place(change.path)
        try:
            current = place.read_bytes(_LIMIT)
            if current == change.previous:
                return "unchanged"
            if current is None or hashlib.sha256(current).hexdigest() != change.new_hash:
                return "changed since"
            if change.previous is None:
                place.remove(expected=current)
                return "removed"
            place.write_bytes(change.previous, expected=current)
        except NanobotError:
            return "failed"
        return "restored"

    def _turn(self, turn_id: str) -> Place:
        if not _TURN_ID.fullmatch(turn_id):
            raise ValueError(f"{turn_id!r} is not the id of a turn")
        return self._root.place(turn_id)

    def _records(self, turn_id: str) -> list[Place]:
        turn = self._turn(turn_id)
        if turn.stat() is None:
            return []
        names = sorted(entry.name for entry in turn.entries() if entry.name.isdigit())
        return [turn.child(name) for name in names]

    def _folders(self) -> list[str]:
        if not self._root.path.is_dir():
            return []
        folders = [
            entry
            for entry in self._root.place(".").entries()
            if entry.kind == "folder" and _TURN_ID.fullmatch(entry.name)
        ]
        folders.sort(key=lambda entry: (entry.mtime_ns, entry.name), reverse=True)
        return [entry.name for entry in folders]

    def _drop(self, turn_id: str) -> None:
        turn = self._turn(turn_id)
        if turn.stat() is None:
            return
        for entry in turn.entries():
            turn.child(entry.name).remove()
        with storage_errors(self._root.path / turn_id):
            (self._root.path / turn_id).rmdir()


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
        raise ToolError("old_text is empty. Use write_file to create a file")
    if "\r\n" in text and text.count("\n") == text.count("\r\n"):
        old, new = (one.replace("\r\n", "\n").replace("\n", "\r\n") for one in (old, new))
    if old == new:
        raise ToolError("old_text and new_text are the same")
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
            f"old_text occurs {len(lines)} times (lines {_listed(lines)}). Include more of "
            "the surrounding text, or set replace_all"
        )
    return new.join(pieces), tuple(lines)


def _listed(lines: Sequence[int]) -> str:
    return ", ".join(map(str, lines[:10])) + (", …" if len(lines) > 10 else "")


def _why_not_found(text: str, old: str) -> str:
    reason = ""
    if " ".join(old.split()) in " ".join(text.split()):
        reason = "Only spaces, indentation, or line endings differ. "
    elif old.casefold() in text.casefold():
        reason = "Only upper and lower case differ. "
    lines = text.split("\n")
    wanted = old.strip("\n").split("\n")
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    compared = [line.strip()[:_MAX_COMPARED_LENGTH] for line in lines[:_MAX_COMPARED]]
    best = close_matches(wanted[anchor].strip()[:_MAX_COMPARED_LENGTH], compared, n=1)
    if not best:
        return f"{reason}The file contains nothing similar. Read it again."
    start = max(0, compared.index(best[0]) - anchor)
    shown = lines[start : start + min(len(wanted), _MAX_SHOWN)]
    region = "\n".join(f"{start + i}: {line[:500]}" for i, line in enumerate(shown, 1))
    return f"{reason}The closest lines, with their numbers, are:\n{region}"


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
            return Risk("send", "write a file that another conversation can read", details)
        what = await asyncio.to_thread(self._persists, place, caller)
        return Risk("persist", what, details) if what else None

    def _persists(self, place: Place, caller: TurnContext) -> str:
        """What is done by changing a file that still acts after the conversation; empty for an
        ordinary one, and where a guarded writer decides. Blocks."""
        if caller.scope != OWNER and outlasts(place):
            return "write a file that programs run automatically"
        if self.undo.path_of(place).partition("/")[0].casefold() == SKILLS:
            return "write a file that changes my future behaviour"
        if self.documents.is_document(place.relative, caller):
            return ""
        if runs_by_itself(place):
            return "write a file that your programs run automatically"
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
                f"the text has an invalid character at position {error.start}",
                hint="It is half of a surrogate pair. Write the whole character.",
            ) from error
        if len(new) > MAX_CHANGED:
            raise ToolError(f"the file would be too large ({len(new):,} bytes)")
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
            done = f"{place.shown} already has this content ({len(new):,} bytes)"
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
            f"--- replace {which} occurrence of\n"
            f"{arguments.old_text}\n"
            "+++ with\n"
            f"{arguments.new_text}"
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
                f"{place.shown} is not valid UTF-8 (byte {error.start}), and an edit could "
                "damage it"
            ) from error
        old, new = arguments.old_text, arguments.new_text
        everywhere = arguments.replace_all
        new, lines = await asyncio.to_thread(replace_exactly, text, old, new, everywhere=everywhere)
        times = "once" if len(lines) == 1 else f"{len(lines)} times"
        done = f"edited {place.shown}: replaced {times}, line {_listed(lines)}"
        return await self.writer.write(place, new, previous, caller, done)
