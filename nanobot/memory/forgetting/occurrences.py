"""Where a text stands among all the files of a home, and taking it out of single files. Blocks.

Every byte is looked at, and git's compressed objects are opened. Of links only those are followed
that stand for a folder of nanobot's own (its media on another disk), and what is compressed or
encoded otherwise (PDF, pictures, office files) holds its text in a form that is not recognised.

A file is replaced as a whole or not at all, and left alone where somebody changes it meanwhile. One
that a process appends to all the time (a log) is overwritten in place: its length stays, so nothing
that is appended is lost.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import IO

from nanobot.errors import WriteConflict
from nanobot.io import FileState, replace_file, storage_errors, sync_folder
from nanobot.memory.forgetting.matcher import LONGEST, TextMatcher


class Kind(Enum):
    """How an erasure takes a text out of a file."""

    STORE = auto()
    """The store that it belongs to writes it again: journal, search index, versions."""
    CONVERSATION = auto()
    """The same, unless it is broken."""
    FACTS = auto()
    """Lines go as a whole."""
    TEXT = auto()
    UNDO = auto()
    """Text behind a line that says what it is."""
    IN_PLACE = auto()
    """Overwritten where it stands: others append meanwhile."""
    REMOVED = auto()
    TEMPORARY = auto()
    """Removed, once it is no longer in use."""
    SETTINGS = auto()
    REPOSITORY = auto()


LEFT_ALONE = {
    Kind.SETTINGS: "your settings, which I do not change: edit it yourself",
    Kind.REPOSITORY: "your own git repository, which I do not rewrite",
}
"""Kinds of files that are reported and never changed, with the reason."""

_AT_HOME = (
    ("state/journal.db.before-", Kind.REMOVED),
    ("state/journal.db", Kind.STORE),
    ("state/index.db", Kind.STORE),
    ("state/memory.git/", Kind.STORE),
    ("state/undo/", Kind.UNDO),
    ("state/backup", Kind.TEMPORARY),
    ("state/cli_history", Kind.IN_PLACE),
    ("logs/", Kind.IN_PLACE),
    ("media/", Kind.REMOVED),
    ("sessions/archive/", Kind.TEXT),
    ("sessions/", Kind.CONVERSATION),
    ("config.yaml", Kind.SETTINGS),
    ("secrets.env", Kind.SETTINGS),
)
"""What a path in the home begins with; the first that fits counts."""

_OWN = ("logs", "media", "sessions", "spill", "state", "workspace")
"""Folders of nanobot's own; any of them may be a link to another disk."""

_FACTS = re.compile(
    r"(?:(?:people|groups)/[^/]+/)?"
    r"(?:(?:AGENTS|SOUL|USER|TOOLS|HEARTBEAT)\.md|memory/(?!HISTORY)[^/]+\.md)"
)
_TEMPORARY = re.compile(r"\..+\.tmp|.+\.nanobot-tmp")
_STRUCTURED = {".json", ".jsonl"}
_BLOCK = 256 * 1024
_OVERLAP = 4 * LONGEST
_LARGEST_OBJECT = 64_000_000


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A file that holds the text (`in_text`) or has it in its name, or one that cannot be read.

    `shown` is its path for people, without the text; `is_text` says that it is no binary file.
    """

    path: Path
    shown: str
    kind: Kind
    in_text: bool = False
    in_name: bool = False
    is_text: bool = True
    is_readable: bool = True

    @property
    def can_be_cleaned(self) -> bool:
        """Whether an erasure takes the text out of the file."""
        of_a_kind = self.kind not in LEFT_ALONE and (self.is_text or self.kind is not Kind.TEXT)
        return self.in_text and of_a_kind


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of a nanobot, and its workspace, which may lie elsewhere."""

    folder: Path
    workspace: Path

    def occurrences(self, matcher: TextMatcher) -> list[Occurrence]:
        """All files that hold the text, or have it in their name, and what could not be read."""
        found, unread = list[Occurrence](), list[Path]()
        for path, kind in self.files(unread.append):
            shown = self._shown(path)
            try:
                in_text, is_text = _search(path, matcher)
            except FileNotFoundError:
                continue
            except OSError:
                unread.append(path)
                continue
            if not is_text and matcher.is_short and kind in {Kind.REMOVED, Kind.TEXT}:
                in_text = False  # any three letters stand somewhere in a photo
            in_name = matcher.is_in(shown)
            if in_text or in_name:
                shown = matcher.redact_plain(shown)
                found.append(Occurrence(path, shown, kind, in_text, in_name, is_text))
        for path in unread:
            shown = matcher.redact_plain(self._shown(path))
            found.append(Occurrence(path, shown, self._kind_of(path), is_readable=False))
        return found

    def files(self, on_unread: Callable[[Path], None]) -> Iterator[tuple[Path, Kind]]:
        """Every regular file; each once. `on_unread` is told of what cannot be looked into."""

        def refused(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):  # gone meanwhile
                on_unread(Path(str(error.filename)))

        for top in self._folders():
            for root, folders, names in os.walk(top, onerror=refused):
                folders.sort()
                for name in sorted(names):
                    path = Path(root, name)
                    try:
                        if stat.S_ISREG(path.lstat().st_mode):
                            yield path, self._kind_of(path)
                    except OSError as error:
                        refused(error)

    def _folders(self) -> Iterator[Path]:
        """The home, the workspace, and the folders of its own that lie elsewhere."""
        known = list[Path]()
        for folder in (self.folder, self.workspace, *(self.folder / name for name in _OWN)):
            real = folder.resolve()
            if not any(real.is_relative_to(other) for other in known):
                known.append(real)
                yield folder

    def _kind_of(self, path: Path) -> Kind:
        if _TEMPORARY.fullmatch(path.name):
            return Kind.TEMPORARY
        if path.is_relative_to(self.workspace):
            inside = path.relative_to(self.workspace)
            if ".git" in inside.parts:
                return Kind.REPOSITORY
            return Kind.FACTS if _FACTS.fullmatch(str(inside)) else Kind.TEXT
        name = str(path.relative_to(self.folder))
        return next((kind for start, kind in _AT_HOME if name.startswith(start)), Kind.TEXT)

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self.folder) if path.is_relative_to(self.folder) else path)


def take_out(one: Occurrence, matcher: TextMatcher) -> None:
    """Take the text out of a file that can be cleaned and belongs to no store.

    Raises `StorageError` or, where somebody saved just now, `WriteConflict`; the file is whole.
    """
    if one.kind in {Kind.REMOVED, Kind.TEMPORARY}:
        remove(one.path)
    elif one.kind is Kind.IN_PLACE:
        _overwrite(one.path, matcher)
    else:
        _replace(one.path, lambda text: _rewritten(one, text, matcher))


def remove(path: Path) -> None:
    """Delete a file, durably."""
    with storage_errors(path), suppress(FileNotFoundError):
        path.unlink()
        sync_folder(path.parent)


def _search(path: Path, matcher: TextMatcher) -> tuple[bool, bool]:
    """Whether a file holds the text, and whether it is a text that can be changed."""
    with open(path, "rb", opener=_without_links) as file:
        if (unpacked := _unpacked(path, file)) is not None:
            return any(map(matcher.is_in_bytes, unpacked)), False
        found, is_text, kept, block = False, True, b"", file.read(_BLOCK)
        while block:
            is_text = is_text and b"\0" not in block
            data, following = kept + block, file.read(_BLOCK)
            found = found or matcher.is_in_bytes(data, is_first=not kept, is_last=not following)
            kept, block = data[-_OVERLAP:], following
        return found, is_text


def _unpacked(path: Path, file: IO[bytes]) -> Iterable[bytes] | None:
    """What git keeps compressed in this file; None where it is no such file."""
    if path.suffix == ".pack" and file.read(4) == b"PACK":
        return _objects_in(path)
    file.seek(0)
    if path.parent.parent.name == "objects" and file.read(1) == b"\x78":
        file.seek(0)
        with suppress(zlib.error):
            packed = file.read(_LARGEST_OBJECT)
            return [zlib.decompressobj().decompress(packed, _LARGEST_OBJECT)]
    file.seek(0)
    return None


def _objects_in(path: Path) -> Iterator[bytes]:
    from dulwich.object_format import SHA1
    from dulwich.pack import Pack

    try:
        with Pack(str(path.with_suffix("")), object_format=SHA1) as pack:
            for item in pack.iterobjects():
                yield item.as_raw_string()
    except Exception as error:  # a library says anything of what was left half written
        raise OSError(f"{path.name} is damaged") from error


def _rewritten(one: Occurrence, text: str, matcher: TextMatcher) -> str:
    if one.kind is Kind.FACTS:
        return matcher.without_lines(text)
    if one.kind is Kind.UNDO:
        header, newline, content = text.partition("\n")
        return header + newline + matcher.redact_plain(content)
    structured = one.path.suffix in _STRUCTURED
    return matcher.redact(text) if structured else matcher.redact_plain(text)


def _overwrite(path: Path, matcher: TextMatcher) -> None:
    """A crash in between leaves the rest for the next time."""
    with (
        storage_errors(path),
        suppress(FileNotFoundError),
        open(path, "r+b", buffering=0, opener=_without_links) as file,
    ):
        text = file.read().decode("utf-8", "surrogateescape")
        blotted = matcher.blot(text)
        if blotted != text:
            os.pwrite(file.fileno(), blotted.encode("utf-8", "surrogateescape"), 0)
            os.fsync(file.fileno())


def _replace(path: Path, rewritten: Callable[[str], str]) -> None:
    with storage_errors(path), suppress(FileNotFoundError):
        before = path.lstat()
        with open(path, "rb", opener=_without_links) as file:
            text = file.read().decode("utf-8", "surrogateescape")

        def unchanged() -> None:
            if FileState.of(path.lstat()) != FileState.of(before):
                raise WriteConflict(path.name)

        new = rewritten(text)
        if new != text:
            content = new.encode("utf-8", "surrogateescape")
            replace_file(path, content, stat.S_IMODE(before.st_mode) & 0o777, unchanged)


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
