"""`read_file`, `list_dir`, `find_files` and `grep`: read the workspace in pieces that fit a prompt,
and search names and contents.

The first bytes decide the type of a content, never the file name. A glob pattern without a slash
matches names at any depth. For each name of the pattern, matching takes time linear in the names of
the path.

A model's regular expression runs in its own process (`grep_worker`), which is killed on timeout."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from nanobot.errors import PathRefused, StorageError, ToolError
from nanobot.security.paths import FolderEntry, Place
from nanobot.security.worker import WorkerFailed, WorkerLimits, run_worker
from nanobot.tasks import pace
from nanobot.text import close_matches, printable
from nanobot.tooling import Arguments, RootsOf, Tool, ToolResult, TurnContext, line_excerpt
from nanobot.tooling.registry import MAX_RESULT
from nanobot.tools import grep_worker
from nanobot.tools.grep_worker import MatchAnswer, MatchRequest


def image_type(content: bytes) -> str:
    """Return the MIME type of an image that models accept, or an empty text."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    return ""


def is_binary(content: bytes) -> bool:
    """Check whether content is not text in any 8-bit encoding."""
    return b"\0" in content[:8192] or content.startswith(b"%PDF-")


MAX_TEXT = MAX_RESULT - 500
"""Characters of a file in one result. The rest is for nanobot's notes."""

MAX_IMAGE = 5_000_000
MAX_FILE = 20_000_000
MAX_LISTED = 500


class ReadFileArguments(Arguments, frozen=True):
    path: str
    start_line: Annotated[int, Meta(ge=1)] = 1
    end_line: Annotated[int | None, Meta(ge=1)] = None


class ListDirArguments(Arguments, frozen=True):
    path: str = "."


FindReceived = Callable[[str, TurnContext], Place | None]
"""Finds a file that the caller received with a message by its path, or returns None."""


class ReadFile(Tool, Struct, frozen=True):
    """Reads text by lines, images, and PDF through `pdf_text` (raises `ToolError`). Only the files
    `own` (workspace paths) are trusted, because their content was checked when it was written."""

    roots: RootsOf
    own: frozenset[str] = frozenset()
    received: FindReceived = lambda _, __: None
    pdf_text: Callable[[bytes], str] | None = None
    name = "read_file"
    description = "Read or look at a file: text, an image (png, jpeg, gif, webp) or a PDF."
    arguments = ReadFileArguments

    async def __call__(self, arguments: ReadFileArguments, caller: TurnContext) -> ToolResult:
        received = self.received(arguments.path, caller)

        place = received or self.roots(caller).place(arguments.path)
        own = place.root.writable and place.relative in self.own
        if own and await asyncio.to_thread(place.stat) is None:
            # A new person has no memory yet. This message has no untrusted content.
            return ToolResult(f"there is no {place.label} yet", is_error=True, trusted=True)
        result = await asyncio.to_thread(self._read, place, arguments)
        return replace(result, trusted=own)

    def _read(self, place: Place, arguments: ReadFileArguments) -> ToolResult:
        found = place.stat()
        if found is not None and found.kind == "folder":
            raise ToolError(f"{place.label} is a folder. Use list_dir")
        content = place.read_bytes(MAX_FILE)
        if content is None:
            raise build_missing_error(place)
        if not content:
            return ToolResult(f"[{place.label} is empty]")
        if mime := image_type(content):
            return image_result(place.label, content, mime)
        if content.startswith(b"%PDF-") and self.pdf_text is not None:
            content = self.pdf_text(content).encode()
        if is_binary(content):
            size = f"{len(content):,} bytes"
            raise ToolError(f"{place.label} is binary ({size}) and cannot be shown as text")
        return ToolResult(cut_excerpt(place, content, arguments.start_line, arguments.end_line))


class ListDir(Tool, Struct, frozen=True):
    """Lists one folder without its subfolders' contents."""

    roots: RootsOf
    name = "list_dir"
    description = "List a folder."
    arguments = ListDirArguments

    async def __call__(self, arguments: ListDirArguments, caller: TurnContext) -> ToolResult:
        place = self.roots(caller).place(arguments.path)
        return await asyncio.to_thread(self._list, place)

    def _list(self, place: Place) -> ToolResult:
        found = place.stat()
        if found is None:
            raise build_missing_error(place)
        if found.kind == "file":
            raise ToolError(f"{place.label} is a file. Use read_file")
        entries = place.entries()
        if not entries:
            return ToolResult(f"[{place.label} is empty]")
        lines = fit_lines([describe_entry(entry) for entry in entries], MAX_LISTED)
        if len(lines) < len(entries):
            lines.append(f"[{len(lines)} of {len(entries)} entries. Use find_files for the others]")
        return ToolResult("\n".join(lines))


def build_missing_error(place: Place) -> ToolError:
    """Return the error for a missing path, with similar names."""
    wanted = place.names[-1] if place.names else ""
    folder, near = Place(place.root, place.names[:-1]), list[str]()
    with suppress(StorageError, PathRefused):
        siblings = {entry.name.casefold(): entry.name for entry in folder.entries()}
        matches = close_matches(wanted.casefold(), siblings, 3)
        near = [folder.child(siblings[match]).label for match in matches]
    if not near:
        everywhere = Place(place.root, ()).walk_tree(5_000)
        near = [found.label for found, entry in everywhere if entry.name == wanted][:3]
    hint = f"Did you mean {' or '.join(near)}?" if near else "Use list_dir to see the files."
    return ToolError(f"there is no {place.label}", hint=hint)


def image_result(what: str, content: bytes, mime: str) -> ToolResult:
    """Return an image with a line that names it. Raise `ToolError` if it is too large."""
    if len(content) > MAX_IMAGE:
        raise ToolError(
            f"{what} is too large: {len(content):,} bytes, with a limit of {MAX_IMAGE:,} for images"
        )
    return ToolResult(
        f"[image {what}, {mime}, {len(content):,} bytes]",
        images=((base64.b64encode(content).decode(), mime),),
    )


def fit_lines(lines: list[str], most: int) -> list[str]:
    """Return the first of `lines`, up to `most`, that fit a result."""
    shown = lines[:most]
    while sum(map(len, shown)) + len(shown) > MAX_TEXT:
        del shown[-10:]  # ten at a time, to stay fast
    return shown


def cut_excerpt(place: Place, content: bytes, start: int, end: int | None) -> str:
    text = content.decode("utf-8", "replace")
    piece = line_excerpt(text, place.label, start, end, max_text=MAX_TEXT)
    if "\ufffd" not in piece or text.encode() == content:
        return piece
    line_end = "" if piece.endswith("\n") else "\n"
    return f"{piece}{line_end}[some bytes are not valid UTF-8 and are shown as \ufffd]"


def describe_entry(entry: FolderEntry) -> str:
    name = printable(entry.name)
    return {
        "folder": f"{name}/",
        "file": f"{name} {entry.size:,} bytes",
        "link": f"{name} (a link, not followed)",
        "other": f"{name} (not a file)",
    }[entry.kind]


SECONDS = 10.0

_CHOICE = r"\{([^{}]*)\}"
_MAX_PATTERN, _MAX_CHOICES = 300, 64


def compile_glob(pattern: str) -> Callable[[Sequence[str]], bool]:
    """Return a test for the names of a relative path. Raise `ToolError` for an unusable pattern."""
    if not pattern.strip() or len(pattern) > _MAX_PATTERN:
        raise ToolError("the pattern is empty or too long. An example is **/*.md")
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ToolError(
            "the pattern must be relative and without '..'. Use path to choose the folder"
        )
    choices = []
    for choice in expand_choices(pattern):
        names = [name for name in choice.split("/") if name not in ("", ".")]
        choices.append(names if "/" in choice else ["**", *names])  # a name matches at any depth
    return lambda names: any(match_names(choice, names) for choice in choices)


def expand_choices(pattern: str) -> list[str]:
    waiting, done = [pattern], []
    while waiting:
        current = waiting.pop()
        if (choice := re.search(_CHOICE, current)) is None:
            done.append(current)
            continue
        before, after = current[: choice.start()], current[choice.end() :]
        waiting += [f"{before}{middle}{after}" for middle in choice[1].split(",")]
        if len(waiting) + len(done) > _MAX_CHOICES:
            raise ToolError("the pattern has too many {a,b} choices")
    return done


def match_names(pattern: Sequence[str], names: Sequence[str]) -> bool:
    # reached[i]: the pattern so far can match the first i names.
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


MAX_VISITED = 50_000
"""Maximum entries of one search."""

MAX_FOUND = 200
MAX_SEARCHED_FILE = 5_000_000
MAX_SEARCHED = 30_000_000
"""Bytes that one grep reads, of all files. `MAX_SEARCHED_FILE` is the limit of one."""


class FindFilesArguments(Arguments, frozen=True):
    pattern: str
    path: str = "."


class GrepArguments(Arguments, frozen=True):
    pattern: str
    path: str = "."
    glob: str = ""
    ignore_case: bool = False
    context: Annotated[int, Meta(ge=0, le=10)] = 0


class FindFiles(Tool, Struct, frozen=True):
    roots: RootsOf
    name = "find_files"
    description = "Find files and folders by a glob: *.md (at any depth), notes/**/*.txt."
    arguments = FindFilesArguments

    async def __call__(self, arguments: FindFilesArguments, caller: TurnContext) -> ToolResult:
        folder = self.roots(caller).place(arguments.path)
        return await asyncio.to_thread(self._find, folder, arguments)

    def _find(self, folder: Place, arguments: FindFilesArguments) -> ToolResult:
        matches = compile_glob(arguments.pattern)
        found, visited = [], 0
        for place, entry in walk_below(folder):
            visited += 1
            if matches(place.names[len(folder.names) :]):
                found.append(f"{place.label}/" if entry.kind == "folder" else place.label)
        found.sort()
        shown = fit_lines(found, MAX_FOUND)
        if len(shown) < len(found):
            shown.append(f"[{len(shown)} of {len(found)} matches. Narrow the pattern]")
        if visited == MAX_VISITED:
            shown.append(f"[stopped after {visited:,} entries. Search a smaller folder]")
        return ToolResult("\n".join(shown) or f"no matches for {arguments.pattern}")


class Grep(Tool, Struct, frozen=True):
    roots: RootsOf
    name = "grep"
    description = "Search a file or folder line by line for a Python regular expression."
    arguments = GrepArguments

    async def __call__(self, arguments: GrepArguments, caller: TurnContext) -> ToolResult:
        pattern = arguments.pattern
        if not pattern or len(pattern) > 1_000:
            raise ToolError("the pattern is empty or too long")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolError(
                f"the pattern is not a regular expression: {error}",
                hint=f"To search for literal text, escape it: {re.escape(pattern)[:200]}",
            ) from error
        start = self.roots(caller).place(arguments.path)
        return await asyncio.to_thread(self._search, start, arguments)

    def _search(self, start: Place, arguments: GrepArguments) -> ToolResult:
        searched = skipped = 0

        def texts() -> Iterator[tuple[str, bytes]]:
            nonlocal searched, skipped
            room = MAX_SEARCHED
            for place in pace(choose_files(start, arguments.glob)):
                try:
                    content = place.read_bytes(min(room, MAX_SEARCHED_FILE)) or b""
                except PathRefused:
                    continue  # a hard link does not exist for tools
                except (StorageError, ToolError):
                    skipped += 1
                    continue
                if not is_binary(content):
                    searched += 1
                    room -= len(content)  # the limit is for all files together
                    yield place.label, content

        request = MatchRequest(
            arguments.pattern, arguments.ignore_case, arguments.context, MAX_FOUND
        )
        answer = match(request, texts())
        shown, notes = fit_lines(answer.lines, len(answer.lines)), []
        if len(shown) < len(answer.lines) or answer.shown < answer.matched:
            notes.append(
                f"[truncated: {answer.matched} lines match in {answer.files} files. Narrow "
                "the pattern or the path]"
            )
        if skipped:
            notes.append(f"[{skipped} files were not searched (too large, or too many)]")
        if not answer.lines:
            notes.insert(0, f"no matches in {searched} files")
        return ToolResult("\n".join(shown + notes))


def match(
    request: MatchRequest, texts: Iterable[tuple[str, bytes]], seconds: float = SECONDS
) -> MatchAnswer:
    """Return the matching lines of named texts. Blocks. Raise `ToolError` on timeout."""

    def encode_input() -> Iterator[bytes]:
        yield json.dumps(request).encode() + b"\n"
        for name, content in texts:
            yield json.dumps([name, len(content)]).encode() + b"\n"
            yield content

    try:
        output = run_worker(Path(grep_worker.__file__), (), encode_input(), WorkerLimits(seconds))
    except WorkerFailed as error:
        raise ToolError(
            f"the search {error}",
            hint="Avoid nested repeats such as (a+)+, or search fewer files.",
        ) from error
    return MatchAnswer(*json.loads(output))


def walk_below(folder: Place) -> Iterator[tuple[Place, FolderEntry]]:
    found = folder.stat()
    if found is None:
        raise build_missing_error(folder)
    if found.kind != "folder":
        raise ToolError(f"{folder.label} is not a folder")
    return pace(folder.walk_tree(MAX_VISITED))


def choose_files(start: Place, glob: str) -> list[Place]:
    """Return the files at or below `start` whose names match, sorted by name."""
    matches = compile_glob(glob or "**")
    found = start.stat()
    if found is not None and found.kind == "file":
        return [start] if matches(start.names[-1:]) else []
    below = (place for place, entry in walk_below(start) if entry.kind == "file")
    chosen = [place for place in below if matches(place.names[len(start.names) :])]
    return sorted(chosen, key=lambda place: place.label)
