"""`write_file` and `edit_file`: changes to the workspace, each of which can be undone.

File tools change the workspace only in this way. First the old content is stored for `/undo`,
durably. Then the file is written, only if it still has the content that the tool read. Long-term
files have their own guarded writer. If another writer changed a different place of the file in
between, the edit is repeated on the new content.

The undo log has one folder per turn with one file per change, written before the change: a JSON
header (path, hash of the new content, `existed`) on the first line, then the old content. An
announced change that never happened does no harm: undo finds the old content in place. A change by
someone else after the turn is never overwritten.

Models quote from memory: they lose indentation, change line endings, or remember an older version.
So if an edit finds no match, it shows the closest lines with their numbers. That search compares a
limited number of lines of limited length."""

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
from nanobot.tools.read_tools import build_missing_error, image_type, is_binary
from nanobot.tools.shell.processes import Processes

Outcome = Literal["restored", "removed", "unchanged", "kept (it has changed since)", "failed"]

_TURN_ID = r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}"
_LIMIT = 64_000_000
_UNDONE = "undone"  # marks a turn with files that were left alone
_LEFT_ALONE: tuple[Outcome, ...] = ("kept (it has changed since)", "failed")


class FileChange(Struct, frozen=True):
    """One change of a file. `previous` is None if there was no file. `new_hash` is SHA-256."""

    path: str
    previous: bytes | None
    new_hash: str

    def encode(self) -> bytes:
        header = {"path": self.path, "existed": self.previous is not None, "new": self.new_hash}
        return json.dumps(header).encode() + b"\n" + (self.previous or b"")

    @classmethod
    def decode(cls, stored: bytes) -> FileChange:
        """Parse a stored change. Raise `ValueError` if it is invalid."""
        line, _, previous = stored.partition(b"\n")
        header = json.loads(line)
        match header:
            case {"path": str(path), "existed": bool(existed), "new": str(new)}:
                return cls(path, previous if existed else None, new)
        raise ValueError("not an undo record")


class UndoLog:
    """Stores old contents in `folder`, outside the workspace, and restores them.

    `workspace` must be the root that the tools write through: it holds the lock of its writers. All
    methods block; the event loop calls them in a thread."""

    def __init__(self, folder: Path, workspace: Root) -> None:
        self._root = Root(folder, name="undo log")
        self._workspace = workspace
        self._numbering = threading.Lock()

    def before_change(self, turn_id: str, path: str, previous: bytes | None, new: bytes) -> None:
        """Store the old content of `path` before `new` is written. Raise `StorageError`."""
        # written before the file changes
        change = FileChange(path, previous, hashlib.sha256(new).hexdigest())
        self._root.create()
        with self._numbering:
            records = self._list_records(turn_id)
            number = int(records[-1].names[-1]) + 1 if records else 1
            self._place_of_turn(turn_id).child(f"{number:06d}").write_bytes(
                change.encode(), expected=None
            )
        if number == 1:  # once per turn
            self.prune()

    def forget_change(self, turn_id: str, path: str, new: bytes) -> None:
        """Drop the last record of `before_change`, because `new` was not written. Raise
        `StorageError`."""
        wanted = hashlib.sha256(new).hexdigest()
        with self._numbering:
            for record in reversed(self._list_records(turn_id)):
                change = FileChange.decode(record.read_bytes(_LIMIT) or b"")
                if (change.path, change.new_hash) == (path, wanted):
                    record.remove()
                    return

    def path_of(self, place: Place) -> str:
        """Return the path from the workspace, even if the place's root is a folder inside it."""
        inner = os.path.relpath(place.root.path, self._workspace.path)
        return place.relative if inner == "." else f"{inner}/{place.relative}"

    def turns(self) -> list[str]:
        """Return the turns with changes that were not undone, the latest first."""
        return [
            turn
            for turn in self._list_folders()
            if self._place_of_turn(turn).child(_UNDONE).stat() is None
        ]

    def paths(self, turn_id: str) -> list[str]:
        """Return the files that a turn changed and that were not restored."""
        found = []
        for record in self._list_records(turn_id) if re.fullmatch(_TURN_ID, turn_id) else ():
            with suppress(ValueError):
                found.append(FileChange.decode(record.read_bytes(_LIMIT) or b"").path)
        return list(dict.fromkeys(found))

    def revert(self, turn_id: str) -> list[tuple[str, Outcome]]:
        """Undo a turn, the newest change first, and return the outcome for each file.

        A file that differs from the turn's version is left alone. Records of restored files are
        dropped, so a second undo does nothing. The others stay."""
        outcomes: dict[str, Outcome] = {}
        for record in reversed(self._list_records(turn_id)):
            try:
                change = FileChange.decode(record.read_bytes(_LIMIT) or b"")
            except ValueError:
                outcomes[record.relative] = "failed"
                continue
            outcome = self._restore(change)
            before = outcomes.setdefault(change.path, outcome)
            if outcome != "unchanged" and before not in _LEFT_ALONE:
                outcomes[change.path] = outcome
            if outcome not in _LEFT_ALONE:
                record.remove()
        if self._list_records(turn_id):
            self._place_of_turn(turn_id).child(_UNDONE).write_bytes(b"")
        else:
            self._drop(turn_id)
        return list(outcomes.items())

    def prune(self, keep: int = 200) -> None:
        for turn_id in self._list_folders()[keep:]:
            with suppress(StorageError):  # another turn may remove it now, or the next one will
                self._drop(turn_id)

    def _restore(self, change: FileChange) -> Outcome:
        place = self._workspace.place(change.path)
        try:
            current = place.read_bytes(_LIMIT)
            if current == change.previous:  # announced, but never written
                return "unchanged"
            if current is None or hashlib.sha256(current).hexdigest() != change.new_hash:
                return "kept (it has changed since)"
            if change.previous is None:
                place.remove(expected=current)
                return "removed"
            place.write_bytes(change.previous, expected=current)
        except NanobotError:
            return "failed"
        return "restored"

    def _place_of_turn(self, turn_id: str) -> Place:
        if not re.fullmatch(_TURN_ID, turn_id):
            raise ValueError(f"{turn_id!r} is not the id of a turn")
        return self._root.place(turn_id)

    def _list_records(self, turn_id: str) -> list[Place]:
        turn = self._place_of_turn(turn_id)
        if turn.stat() is None:
            return []
        names = sorted(entry.name for entry in turn.entries() if entry.name.isdigit())
        return [turn.child(name) for name in names]

    def _list_folders(self) -> list[str]:
        if not self._root.path.is_dir():
            return []
        folders = [
            entry
            for entry in self._root.place(".").entries()
            if entry.kind == "folder" and re.fullmatch(_TURN_ID, entry.name)
        ]
        folders.sort(key=lambda entry: (entry.mtime_ns, entry.name), reverse=True)
        return [entry.name for entry in folders]

    def _drop(self, turn_id: str) -> None:
        turn = self._place_of_turn(turn_id)
        if turn.stat() is None:
            return
        for entry in turn.entries():
            turn.child(entry.name).remove()
        with storage_errors(self._root.path / turn_id):
            (self._root.path / turn_id).rmdir()


SKILLS = "skills"
"""The workspace folder whose files guide the agent after they are enabled."""

_MAX_COMPARED = 2_000
_MAX_COMPARED_LENGTH = 80
"""In longer lines, `difflib` ignores frequent letters."""
_MAX_SHOWN = 12


def replace_exactly(
    text: str, old: str, new: str, *, everywhere: bool
) -> tuple[str, tuple[int, ...]]:
    """Replace `old` by `new` and return the new text and the changed line numbers (from 1). Raise
    `ToolError` if the place is ambiguous.

    In a file with only CR LF line endings, both texts get them too."""
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
        raise ToolError(f"old_text was not found. {explain_not_found(text, old)}")
    if len(lines) > 1 and not everywhere:
        raise ToolError(
            f"old_text occurs {len(lines)} times (lines {list_numbers(lines)}). Include more of "
            "the surrounding text, or set replace_all"
        )
    return new.join(pieces), tuple(lines)


def list_numbers(lines: Sequence[int]) -> str:
    return ", ".join(map(str, lines[:10])) + (", …" if len(lines) > 10 else "")


def explain_not_found(text: str, old: str) -> str:
    reason = ""
    if " ".join(old.split()) in " ".join(text.split()):
        reason = "Only spaces, indentation, or line endings differ. "
    elif old.casefold() in text.casefold():
        reason = "Only upper and lower case differ. "
    lines = text.split("\n")
    wanted = old.strip("\n").split("\n")
    # the longest line is the most specific
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
"""Bytes of the largest file that tools change, because its old content is stored as well."""


class DocumentStore(Protocol):
    """The guarded writer of long-term files.

    Paths are relative to the caller's workspace. The caller selects the memory."""

    def is_document(self, path: str, caller: TurnContext) -> bool: ...

    async def replace(
        self, path: str, text: str, *, expected: bytes | None, caller: TurnContext
    ) -> int:
        """Write `text` if the file still has the content `expected` (None: no file).

        Return the number of the new version, or 0 for none. Raise `WriteConflict` if the content
        differs, or `ToolError` if the guard rejects the text or untrusted content may have caused
        it."""
        ...


Foreign = Callable[[str, TurnContext], bool]
"""Checks whether a file (path from the caller's folder) belongs to another conversation, whose
people read it."""


class WorkspaceWriter(Struct, frozen=True):
    """Writes files for tools. `commands` has the commands in the same folders."""

    roots: RootsOf
    undo: UndoLog
    documents: DocumentStore
    commands: Processes
    foreign: Foreign = lambda _, __: False

    async def risk(self, path: str, change: str, caller: TurnContext) -> Risk | None:
        """Return the risk of a change: it affects future behaviour, or others read it."""
        place = self.roots(caller).place(path)
        if not place.root.writable:
            return None
        details = f"file: {place.label}\n{change}"
        if self.foreign(place.relative, caller):
            # The path alone may carry information.
            return Risk("send", "write a file that another conversation can read", details)
        what = await asyncio.to_thread(self._find_effect, place, caller)
        return Risk("persist", what, details) if what else None

    def _find_effect(self, place: Place, caller: TurnContext) -> str:
        """Return the lasting effect of changing a file, or an empty text if it has none or a
        guarded writer decides. Blocks."""
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
        """Return a place and its content before a change, None if there is no file."""
        place = self.roots(caller).place(path)
        place.refuse_unless_writable()
        return place, await asyncio.to_thread(place.read_bytes, MAX_CHANGED)

    async def write(
        self, place: Place, text: str, previous: bytes | None, caller: TurnContext, done: str
    ) -> ToolResult:
        """Replace `previous` by `text` and return `done` as the result."""
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
        # Files of an approved command must not change. A file that runs automatically would end
        # each command that sees it appear, and be renamed.
        self.commands.refuse_if_held(caller)  # also when the file is harmless
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
            await asyncio.to_thread(self.undo.forget_change, caller.turn_id, path, new)
            raise
        return ToolResult(done, changed=(path,), trusted=True)


def runs_by_itself(place: Place) -> bool:
    """Check whether programs run a file automatically (`autorun`), or it may be in a bare
    repository. Blocks."""
    from nanobot.security.confine import autorun

    above = (Place(place.root, place.names[:count]) for count in range(len(place.names)))
    return autorun.runs_by_itself(place.relative) or any(
        folder.child("HEAD").stat() is not None for folder in above
    )


_REPOSITORY = frozenset({"head", "objects", "refs", "commondir", "gitdir"})
"""Names by which git recognizes a repository."""


def outlasts(place: Place) -> bool:
    """Check whether a file may act later in the owner's name: it runs automatically, is hidden, or
    is part of a repository or a skill. Stricter than for the owner, because no one is asked.
    Blocks."""
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
        done = f"created {place.label} ({len(new):,} bytes)"
        if previous == new:
            done = f"{place.label} already has this content ({len(new):,} bytes)"
        elif previous is not None:
            done = f"overwrote {place.label} ({len(previous):,} bytes before, {len(new):,} now)"
        return await self.writer.write(place, arguments.content, previous, caller, done)


_ATTEMPTS = 50
"""Enough for as many writers, because each failed attempt means that another succeeded."""


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
            raise await asyncio.to_thread(build_missing_error, place)
        if image_type(previous) or is_binary(previous):
            raise ToolError(f"{place.label} is binary and cannot be edited as text")
        try:
            text = previous.decode()
        except UnicodeDecodeError as error:
            raise ToolError(
                f"{place.label} is not valid UTF-8 (byte {error.start}), and an edit could "
                "damage it"
            ) from error
        old, new = arguments.old_text, arguments.new_text
        everywhere = arguments.replace_all
        new, lines = await asyncio.to_thread(replace_exactly, text, old, new, everywhere=everywhere)
        times = "once" if len(lines) == 1 else f"{len(lines)} times"
        done = f"edited {place.label}: replaced {times}, line {list_numbers(lines)}"
        return await self.writer.write(place, new, previous, caller, done)
