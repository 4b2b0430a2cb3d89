"""`find_files` and `grep`: where something is, by name or by content.

A glob pattern without a slash matches names at any depth, as people mean it. Matching takes time
linear in the names of the path for each name of the pattern, whatever the pattern.

Python's `re` can take exponential time on thirty characters, and holds the interpreter's lock all
the while: neither a bound on the length of lines nor a look at the clock between them helps. So a
regular expression that a model wrote is matched in a process of its own (`matching`), which is
killed when its time is up.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import warnings
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from pydantic import Field

from nanobot.errors import PathRefused, StorageError, ToolError
from nanobot.security.paths import Entry, Place
from nanobot.tooling import Arguments, RootsOf, Tool, ToolResult, TurnContext
from nanobot.tools import matching
from nanobot.tools.matching import Answer, Request, Source
from nanobot.tools.reading import binary_kind, fitting, missing

_CHOICE = re.compile(r"\{([^{}]*)\}")
_MAX_PATTERN, _MAX_CHOICES = 300, 64


def compile_glob(pattern: str) -> Callable[[Sequence[str]], bool]:
    """A test for the names of a relative path. Raises `ToolError` for a useless pattern."""
    if not pattern.strip() or len(pattern) > _MAX_PATTERN:
        raise ToolError("the pattern is empty or too long; an example is **/*.md")
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ToolError("the pattern is relative to path and cannot leave it; use path instead")
    choices = [_names(choice) for choice in _expanded(pattern)]
    return lambda names: any(_matches(choice, names) for choice in choices)


def _expanded(pattern: str) -> list[str]:
    waiting, done = [pattern], []
    while waiting:
        current = waiting.pop()
        if (choice := _CHOICE.search(current)) is None:
            done.append(current)
            continue
        before, after = current[: choice.start()], current[choice.end() :]
        waiting += [f"{before}{middle}{after}" for middle in choice[1].split(",")]
        if len(waiting) + len(done) > _MAX_CHOICES:
            raise ToolError("the pattern has too many {a,b} choices")
    return done


def _names(pattern: str) -> list[str]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    return ["**", *names] if "/" not in pattern else names


def _matches(pattern: Sequence[str], names: Sequence[str]) -> bool:
    # reached[i]: the pattern so far can have matched the first i names.
    reached = [True] + [False] * len(names)
    for part in pattern:
        if part == "**":
            first = reached.index(True) if True in reached else len(reached)
            reached = [index >= first for index in range(len(reached))]
        else:
            reached = [False] + [
                before and fnmatchcase(name, part)
                for before, name in zip(reached, names, strict=False)
            ]
    return reached[-1]


_AT_ONCE = 64 * 1024
"""Bytes that wait for the process at most, beside the portion that they are of."""


class Matcher:
    """Runs a request in a process of its own, for at most `seconds`."""

    def __init__(self, seconds: float = matching.SECONDS) -> None:
        self._seconds = seconds

    async def match(self, request: Request, portions: Iterator[Sequence[Source]]) -> Answer:
        """The matches. The sources come in `portions`, which are asked for in a thread, one when
        the process has taken the last: so no more is held than that. Raises `ToolError` when the
        pattern takes too long, and what `portions` raises."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-B", "-W", "ignore", matching.__file__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )  # fmt: skip
        try:
            async with asyncio.timeout(self._seconds):
                with suppress(BrokenPipeError, ConnectionResetError):  # it ended: see below
                    await _feed(process, request, portions)
                assert process.stdout is not None
                output = await process.stdout.read()
                await process.wait()
        except TimeoutError as error:
            raise ToolError(
                f"the pattern took longer than {self._seconds:g} seconds",
                hint="Avoid repeats inside repeats such as (a+)+, or search less.",
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise ToolError("the search was stopped: it needed too much time or memory")
        lines, shown, matched, files = json.loads(output)
        return Answer(tuple(lines), shown, matched, files)


async def _feed(process: Process, request: Request, portions: Iterator[Sequence[Source]]) -> None:
    pipe = process.stdin
    assert pipe is not None
    pipe.write(json.dumps(request).encode() + b"\n")
    while (portion := await asyncio.to_thread(next, portions, None)) is not None:
        for source in portion:
            pipe.write(json.dumps([source.name, len(source.content)]).encode() + b"\n")
            for start in range(0, len(source.content), _AT_ONCE):
                pipe.write(source.content[start : start + _AT_ONCE])
                await pipe.drain()
    pipe.close()  # asyncio logs a broken pipe where waiting for this is cancelled


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
class FindFiles(Tool):
    """Names by glob pattern."""

    roots: RootsOf
    name = "find_files"
    description = "Find files and folders by a glob pattern on their names."
    arguments = FindFilesArguments

    async def __call__(self, arguments: FindFilesArguments, caller: TurnContext) -> ToolResult:
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
        shown = fitting(found, MAX_FOUND)
        if len(shown) < len(found):
            shown.append(f"[{len(shown)} of {len(found)} matches; narrow the pattern]")
        if visited == MAX_VISITED:
            shown.append(f"[stopped after {visited:,} entries; search a folder further down]")
        return ToolResult("\n".join(shown) or f"nothing matches {arguments.pattern}")


@dataclass(frozen=True, slots=True)
class Grep(Tool):
    """Lines by regular expression."""

    roots: RootsOf
    matcher: Matcher = field(default_factory=Matcher)
    name = "grep"
    description = (
        "Search the content of files by a regular expression; shows path:line: text. "
        "Binary files are skipped."
    )
    arguments = GrepArguments

    async def __call__(self, arguments: GrepArguments, caller: TurnContext) -> ToolResult:
        _refuse_invalid(arguments.pattern)
        start = self.roots(caller).place(arguments.path)
        reading = _Reading(await asyncio.to_thread(_chosen, start, arguments.glob))
        request = Request(arguments.pattern, arguments.ignore_case, arguments.context, MAX_FOUND)
        answer = await self.matcher.match(request, reading.portions())
        lines = list(answer.lines)
        shown, notes = fitting(lines, len(lines)), []
        if len(shown) < len(lines) or answer.shown < answer.matched:
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
        return ToolResult("\n".join(shown + notes))


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
