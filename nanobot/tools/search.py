"""`find_files` and `grep`: where something is, by name or by content."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from nanobot.errors import PathRefused, StorageError, ToolError
from nanobot.security.paths import Entry, Place
from nanobot.tooling import Arguments, Caller, RootsOf, ToolResult
from nanobot.tools.content import binary_kind
from nanobot.tools.globs import compile_glob
from nanobot.tools.matcher import Matcher
from nanobot.tools.matching import Request, Source
from nanobot.tools.reading import MAX_TEXT, missing

MAX_VISITED = 50_000
"""Entries that one search looks at."""

MAX_FOUND = 200
MAX_SEARCHED_FILE = 5_000_000
MAX_SEARCHED = 30_000_000
"""Bytes that one grep reads, of one file and of all."""

_PORTION = 256 * 1024
"""Bytes that are read before they are searched, but for a single larger file."""


class FindFilesArguments(Arguments):
    pattern: str = Field(description="Such as *.md (at any depth), notes/**/*.txt, {a,b}.txt")
    path: str = Field(default=".", description="Folder to search.")


class GrepArguments(Arguments):
    pattern: str = Field(description="A Python regular expression, matched line by line.")
    path: str = Field(default=".", description="File or folder to search.")
    glob: str = Field(default="", description="Only files that match this, such as *.md")
    ignore_case: bool = False
    context: int = Field(default=0, ge=0, le=10, description="Lines to show around each match.")


@dataclass(frozen=True, slots=True)
class FindFiles:
    """Names by glob pattern."""

    roots: RootsOf
    name: str = "find_files"
    description: str = "Find files and folders by a glob pattern on their names."
    arguments: type[FindFilesArguments] = FindFilesArguments
    effects: bool = False
    parallel: bool = True

    async def __call__(self, arguments: FindFilesArguments, caller: Caller) -> ToolResult:
        folder = self.roots(caller).place(arguments.path)
        return await asyncio.to_thread(self._find, folder, arguments)

    def _find(self, folder: Place, arguments: FindFilesArguments) -> ToolResult:
        matches = compile_glob(arguments.pattern)
        found, visited = [], 0
        for place, entry in _below(folder):
            visited += 1
            if matches(place.names[len(folder.names) :]):
                found.append(f"{place.shown}/" if entry.kind == "folder" else place.shown)
        found.sort()
        shown = found[:MAX_FOUND]
        while sum(map(len, shown)) + len(shown) > MAX_TEXT:
            del shown[-10:]
        if len(shown) < len(found):
            shown.append(f"[{len(shown)} of {len(found)} matches; narrow the pattern]")
        if visited == MAX_VISITED:
            shown.append(f"[stopped after {visited:,} entries; search a folder further down]")
        return ToolResult("\n".join(shown) or f"nothing matches {arguments.pattern}")


@dataclass(frozen=True, slots=True)
class Grep:
    """Lines by regular expression."""

    roots: RootsOf
    matcher: Matcher = field(default_factory=Matcher)
    name: str = "grep"
    description: str = (
        "Search the content of files by a regular expression; shows path:line: text. "
        "Binary files are skipped."
    )
    arguments: type[GrepArguments] = GrepArguments
    effects: bool = False
    parallel: bool = True

    async def __call__(self, arguments: GrepArguments, caller: Caller) -> ToolResult:
        _refuse_invalid(arguments.pattern)
        start = self.roots(caller).place(arguments.path)
        reading = _Reading(await asyncio.to_thread(_chosen, start, arguments.glob))
        request = Request(arguments.pattern, arguments.ignore_case, arguments.context, MAX_FOUND)
        answer = await self.matcher.match(request, reading.portions())
        lines = list(answer.lines)
        size, kept = 0, 0
        while kept < len(lines) and size + len(lines[kept]) < MAX_TEXT:
            size += len(lines[kept]) + 1
            kept += 1
        notes = []
        if kept < len(lines) or answer.shown < answer.matched:
            notes.append(
                f"[cut: {answer.matched} lines match in {answer.files} files; "
                "narrow the pattern or the path]"
            )
        if reading.skipped:
            notes.append(
                f"[{reading.skipped} files were too large or too many and were not searched]"
            )
        if not lines:
            notes.insert(0, f"no line matches in {reading.searched} files")
        return ToolResult("\n".join(lines[:kept] + notes))


class _Reading:
    """Reads files for a search. At its end it knows how many were `searched`, and how many had to
    be left out (`skipped`)."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self.searched = self.skipped = 0

    def portions(self) -> Iterator[list[Source]]:
        """The texts among them, some at a time."""
        portion: list[Source] = []
        room, size = MAX_SEARCHED, 0
        for place in self._places:
            content = _content(place, min(room, MAX_SEARCHED_FILE))
            if content is None:
                self.skipped += 1
            elif not binary_kind(content):
                portion.append(Source(place.shown, content))
                self.searched += 1
                room -= len(content)
                size += len(content)
            if size >= _PORTION:
                yield portion
                portion, size = [], 0
        yield portion


def _chosen(start: Place, glob: str) -> list[Place]:
    """The files to search, by name."""
    matches = compile_glob(glob or "**")
    chosen = [place for place, names in _files(start) if matches(names)]
    return sorted(chosen, key=lambda place: place.shown)


def _below(folder: Place) -> Iterator[tuple[Place, Entry]]:
    found = folder.stat()
    if found is None:
        raise missing(folder)
    if found.kind != "folder":
        raise ToolError(f"{folder.shown} is not a folder")
    return folder.walk(MAX_VISITED)


def _files(start: Place) -> Iterator[tuple[Place, tuple[str, ...]]]:
    """The files at or below `start`, with their names as a glob sees them."""
    found = start.stat()
    if found is not None and found.kind == "file":
        yield start, start.names[-1:]
        return
    for place, entry in _below(start):
        if entry.kind == "file":
            yield place, place.names[len(start.names) :]


def _content(place: Place, limit: int) -> bytes | None:
    try:
        return place.read_bytes(limit)
    except StorageError:
        return None
    except PathRefused:
        return b""  # a hard link: for tools it is not there
    except ToolError:
        return None


def _refuse_invalid(pattern: str) -> None:
    if not pattern or len(pattern) > 1_000:
        raise ToolError("the pattern is empty or too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolError(
            f"the pattern is not a regular expression: {error}",
            hint=f"To search for the text itself, escape it: {re.escape(pattern)[:200]}",
        ) from error
