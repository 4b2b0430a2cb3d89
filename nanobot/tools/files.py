"""`write_file` and `edit_file`: changes to the workspace, each of which can be undone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import Field

from nanobot.errors import ToolError
from nanobot.security.paths import Place
from nanobot.tooling import Arguments, Caller, Risk, RootsOf, ToolResult
from nanobot.tools.changes import WorkspaceWriter, runs_by_itself
from nanobot.tools.content import binary_kind, image_type
from nanobot.tools.editing import replace_exactly
from nanobot.tools.reading import missing


class WriteFileArguments(Arguments):
    path: str = Field(description="Relative to the workspace.")
    content: str = Field(description="The whole new content.")


class EditFileArguments(Arguments):
    path: str = Field(description="Relative to the workspace.")
    old_text: str = Field(description="Exactly as it stands in the file, with enough around it.")
    new_text: str
    replace_all: bool = Field(default=False, description="Replace every occurrence.")


Lasting = Callable[[str], bool]
"""Whether a file, by its path from the workspace, decides future behaviour and has no guarded
writer of its own: a skill's."""


Foreign = Callable[[str, Caller], bool]
"""Whether a file, by its path from the caller's folder, is of another conversation: what is written
there is read by others."""


def _nothing(_: str) -> bool:
    return False


def _nobodys(_: str, __: Caller) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class _Writing:
    """What both tools are asked before they change a file."""

    roots: RootsOf
    writer: WorkspaceWriter
    lasting: Lasting = _nothing
    foreign: Foreign = _nobodys

    async def _risk(self, place: Place, change: str, caller: Caller) -> Risk | None:
        if not place.root.writable:
            return None
        details = f"file: {place.shown}\n{change}"
        if self.foreign(place.relative, caller):
            # Never the caller's own words alone: the path says something as well.
            return Risk("send", "write a file that another conversation reads", details)
        if self.lasting(self.writer.path_of(place)):
            return Risk("persist", "write a file that will guide me from then on", details)
        if self.writer.is_document(place, caller):
            return None  # its guarded writer decides
        if await asyncio.to_thread(runs_by_itself, place):
            what = "write a file that programs of yours run or obey by themselves"
            return Risk("persist", what, details)
        return None


@dataclass(frozen=True, slots=True)
class WriteFile(_Writing):
    """Whole files."""

    name: str = "write_file"
    description: str = "Create a file, with its folders, or replace the whole of one."
    arguments: type[WriteFileArguments] = WriteFileArguments
    effects: bool = True
    parallel: bool = False

    async def risk(self, arguments: WriteFileArguments, caller: Caller) -> Risk | None:
        """A file that decides future behaviour, or that others read."""
        place = self.roots(caller).place(arguments.path)
        return await self._risk(place, arguments.content, caller)

    async def __call__(self, arguments: WriteFileArguments, caller: Caller) -> ToolResult:
        place = self.roots(caller).place(arguments.path)
        previous = await self.writer.read(place)
        written = await self.writer.write(place, arguments.content, previous, caller)
        if previous is None:
            done = f"created {place.shown} ({len(written):,} bytes)"
        elif previous == written:
            done = f"{place.shown} held exactly this already ({len(written):,} bytes)"
        else:
            done = f"overwrote {place.shown} ({len(previous):,} bytes before, {len(written):,} now)"
        return ToolResult(done, changed=(self.writer.path_of(place),), trusted=True)


@dataclass(frozen=True, slots=True)
class EditFile(_Writing):
    """Exact replacements."""

    name: str = "edit_file"
    description: str = (
        "Replace a piece of a text file. old_text must stand there exactly, and only once "
        "unless replace_all is set. Read the file first."
    )
    arguments: type[EditFileArguments] = EditFileArguments
    effects: bool = True
    parallel: bool = False

    async def risk(self, arguments: EditFileArguments, caller: Caller) -> Risk | None:
        """A file that decides future behaviour, or that others read."""
        place = self.roots(caller).place(arguments.path)
        which = "every" if arguments.replace_all else "the only"
        change = (
            f"--- instead of {which} occurrence of\n{arguments.old_text}"
            f"\n+++ now\n{arguments.new_text}"
        )
        return await self._risk(place, change, caller)

    async def __call__(self, arguments: EditFileArguments, caller: Caller) -> ToolResult:
        place = self.roots(caller).place(arguments.path)
        previous = await self.writer.read(place)
        if previous is None:
            raise await asyncio.to_thread(missing, place)
        text = _text(place.shown, previous)
        edited = await asyncio.to_thread(
            replace_exactly,
            text,
            arguments.old_text,
            arguments.new_text,
            everywhere=arguments.replace_all,
        )
        await self.writer.write(place, edited.text, previous, caller)
        where = ", ".join(map(str, edited.lines[:10])) + (", …" if len(edited.lines) > 10 else "")
        times = "once" if len(edited.lines) == 1 else f"{len(edited.lines)} times"
        return ToolResult(
            f"edited {place.shown}: replaced {times}, line {where}",
            changed=(self.writer.path_of(place),),
            trusted=True,
        )


def _text(shown: str, content: bytes) -> str:
    if image_type(content) or binary_kind(content):
        raise ToolError(f"{shown} is binary and cannot be edited as text")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{shown} is not valid UTF-8 (byte {error.start}), so an edit could damage it"
        ) from error
