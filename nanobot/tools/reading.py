"""`read_file` and `list_dir`: what stands in the workspace, in pieces that fit a prompt.

What kind of content bytes are is told from how they begin and never from a file's name.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from nanobot.errors import PathRefused, StorageError, ToolError
from nanobot.security.paths import FolderEntry, Place
from nanobot.text import close_matches, printable
from nanobot.tooling import Arguments, RootsOf, Tool, ToolResult, TurnContext, line_excerpt
from nanobot.tooling.registry import MAX_RESULT


def image_type(content: bytes) -> str:
    """The MIME type of an image that models take; empty for anything else."""
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
    """Whether content is no text (in any 8-bit encoding)."""
    return b"\0" in content[:8192] or content.startswith(b"%PDF-")


MAX_TEXT = MAX_RESULT - 500
"""Characters of a file in one result; the rest is room for what is said about it."""

MAX_IMAGE = 5_000_000
MAX_FILE = 20_000_000
MAX_LISTED = 500


class ReadFileArguments(Arguments, frozen=True):
    path: str
    start_line: Annotated[int, Meta(ge=1)] = 1
    end_line: Annotated[int | None, Meta(ge=1)] = None


class ListDirArguments(Arguments, frozen=True):
    path: str = "."


Received = Callable[[str, TurnContext], Place | None]
"""Finds a file that came with a message of the caller's by its path; None for any other path."""


class ReadFile(Tool, Struct, frozen=True):
    """Text by lines, images as images, PDF as what `pdf_text` makes of it (raises `ToolError`).
    Only what stands in the files `own` (paths in the workspace) is not foreign content: whatever
    comes into those was checked when it did."""

    roots: RootsOf
    own: frozenset[str] = frozenset()
    received: Received = lambda _, __: None
    pdf_text: Callable[[bytes], str] | None = None
    name = "read_file"
    description = "Read or look at a file: text, an image (png, jpeg, gif, webp) or a PDF."
    arguments = ReadFileArguments

    async def __call__(self, arguments: ReadFileArguments, caller: TurnContext) -> ToolResult:
        received = self.received(arguments.path, caller)
        place = received or self.roots(caller).place(arguments.path)
        own = place.root.writable and place.relative in self.own
        if own and await asyncio.to_thread(place.stat) is None:
            # Someone new has no memory yet: to say so brings in nothing foreign.
            return ToolResult(f"there is no {place.shown} yet", is_error=True, trusted=True)
        result = await asyncio.to_thread(self._read, place, arguments)
        return replace(result, trusted=own)

    def _read(self, place: Place, arguments: ReadFileArguments) -> ToolResult:
        found = place.stat()
        if found is not None and found.kind == "folder":
            raise ToolError(f"{place.shown} is a folder; list it with list_dir")
        content = place.read_bytes(MAX_FILE)
        if content is None:
            raise missing(place)
        if not content:
            return ToolResult(f"[{place.shown} is empty]")
        if mime := image_type(content):
            return image_result(place.shown, content, mime)
        if content.startswith(b"%PDF-") and self.pdf_text is not None:
            content = self.pdf_text(content).encode()
        if is_binary(content):
            size = f"{len(content):,} bytes"
            raise ToolError(f"{place.shown} is binary ({size}); it cannot be shown as text")
        return ToolResult(_excerpt(place, content, arguments.start_line, arguments.end_line))


class ListDir(Tool, Struct, frozen=True):
    """One folder, not what lies in its folders."""

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
            raise missing(place)
        if found.kind == "file":
            raise ToolError(f"{place.shown} is a file; read it with read_file")
        entries = place.entries()
        if not entries:
            return ToolResult(f"[{place.shown} is empty]")
        lines = fitting([_listed(entry) for entry in entries], MAX_LISTED)
        if len(lines) < len(entries):
            lines.append(f"[{len(lines)} of {len(entries)} entries; find_files finds the others]")
        return ToolResult("\n".join(lines))


def missing(place: Place) -> ToolError:
    """The error for a path where nothing stands, with names that come close."""
    wanted = place.names[-1] if place.names else ""
    folder, near = Place(place.root, place.names[:-1]), list[str]()
    with suppress(StorageError, PathRefused):
        siblings = {entry.name.casefold(): entry.name for entry in folder.entries()}
        matches = close_matches(wanted.casefold(), siblings, 3)
        near = [folder.child(siblings[match]).shown for match in matches]
    if not near:
        everywhere = Place(place.root, ()).walk_tree(5_000)
        near = [found.shown for found, entry in everywhere if entry.name == wanted][:3]
    hint = f"Did you mean {' or '.join(near)}?" if near else "list_dir shows what is there."
    return ToolError(f"there is no {place.shown}", hint=hint)


def image_result(what: str, content: bytes, mime: str) -> ToolResult:
    """An image, under a line that says which. Raises `ToolError` for one that is too large."""
    if len(content) > MAX_IMAGE:
        raise ToolError(f"{what} has {len(content):,} bytes; images may have {MAX_IMAGE:,} at most")
    return ToolResult(
        f"[image {what}, {mime}, {len(content):,} bytes]",
        images=((base64.b64encode(content).decode(), mime),),
    )


def fitting(lines: list[str], most: int) -> list[str]:
    """The first of `lines`, at most so many, that fit a result."""
    shown = lines[:most]
    while sum(map(len, shown)) + len(shown) > MAX_TEXT:
        del shown[-10:]
    return shown


def _excerpt(place: Place, content: bytes, start: int, end: int | None) -> str:
    text = content.decode("utf-8", "replace")
    piece = line_excerpt(text, place.shown, start, end, max_text=MAX_TEXT)
    if "\ufffd" not in piece or text.encode() == content:
        return piece
    line_end = "" if piece.endswith("\n") else "\n"
    return f"{piece}{line_end}[some bytes are not valid UTF-8 and are shown as \ufffd]"


def _listed(entry: FolderEntry) -> str:
    name = printable(entry.name)
    return {
        "folder": f"{name}/",
        "file": f"{name} {entry.size:,} bytes",
        "link": f"{name} (a link, not followed)",
        "other": f"{name} (not a file)",
    }[entry.kind]
