"""Reading a skill's folder, whole: what the owner enables is every file in it.

What always holds: no link is followed and nothing beyond the limits is read; a folder with either
is no skill. The bytes that are returned are those that were hashed. Blocks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from nanobot.errors import NanobotError
from nanobot.security.names import printable
from nanobot.security.paths import Entry, Place
from nanobot.skills.values import MAIN, Kind, SkillFile

MOST_FILES = 500
MOST_BYTES = 20_000_000
"""Of all files of a skill together."""
MOST_MAIN = 256_000
"""Bytes of a SKILL.md."""

_SCRIPTS = re.compile(
    r"\.(?:ba|c|fi|k|z)?sh|\.(?:bat|cmd|command|exe|com|ps1|psm1|vbs|scpt)|\.py[cwz]?|\.[cm]?[jt]sx?|"
    r"\.(?:cgi|go|jar|lua|php|pl|r|rb|rs|so|tcl|wasm)"
)
"""Endings of what is something to run."""

_SCRIPT_NAMES = frozenset({"dockerfile", "gemfile", "justfile", "makefile", "rakefile"})


class Unreadable(Exception):
    """The folder cannot be used; says why."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of a folder, by path, and the content of those that were asked for."""

    files: tuple[SkillFile, ...] = ()
    kept: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def main(self) -> str:
        """The text of SKILL.md. Raises `Unreadable`."""
        name = main_of(self.files)
        content = self.kept[name]
        if len(content) > MOST_MAIN:
            raise Unreadable(f"its {name} is too large")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise Unreadable(f"its {name} is not UTF-8") from error

    @property
    def digests(self) -> dict[str, str]:
        """What identifies it: the SHA-256 of each file, by path."""
        return {file.path: file.digest for file in self.files}


Fingerprint = tuple[tuple[str, str, int, int], ...]
"""Of each entry: path, kind, size, time of change. Differs whenever a file was changed by ordinary
means; only saves reading again."""


def fingerprint(folder: Place) -> Fingerprint:
    """What tells whether a folder must be read again."""
    return tuple(
        (place.relative, entry.kind, entry.size, entry.mtime_ns)
        for place, entry in folder.walk(MOST_FILES + 1)
    )


def read(folder: Place, wanted: Callable[[str], bool] = lambda _: False) -> Contents:
    """The files below `folder`, with the content of SKILL.md and of those whose path is `wanted`.
    Raises `Unreadable`."""
    room = MOST_BYTES
    files: list[SkillFile] = []
    kept: dict[str, bytes] = {}
    try:
        for place, path in _plain_files(folder):
            content = place.read_bytes(room)
            if content is None:
                raise Unreadable(f"{path} has just gone")
            room -= len(content)
            files.append(_described(path, content))
            if path.casefold() == MAIN.casefold() or wanted(path):
                kept[path] = content
    except NanobotError as error:  # a link, no permission, too much
        raise Unreadable(str(error)) from error
    return Contents(tuple(sorted(files, key=lambda file: file.path)), kept)


def read_packaged(folder: Path) -> Contents:
    """The same for a folder of the program itself, whose files installers may have hard-linked."""
    kept = {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    return Contents(tuple(_described(path, content) for path, content in kept.items()), kept)


def main_of(files: tuple[SkillFile, ...]) -> str:
    """The path of SKILL.md, which some write in another case. Raises `Unreadable`."""
    names = [file.path for file in files if file.path.casefold() == MAIN.casefold()]
    if not names:
        raise Unreadable(f"it has no {MAIN}")
    return MAIN if MAIN in names else names[0]


def _plain_files(folder: Place) -> Iterator[tuple[Place, str]]:
    skipped = len(folder.names)
    for number, (place, entry) in enumerate(folder.walk(MOST_FILES + 1)):
        path = "/".join(place.names[skipped:])
        if number >= MOST_FILES:
            raise Unreadable(f"it has more than {MOST_FILES:,} files")
        _refuse_unusable(path, entry)
        if entry.kind == "file":
            yield place, path


def _refuse_unusable(path: str, entry: Entry) -> None:
    shown = printable(path)
    if entry.kind == "link":
        raise Unreadable(f"{shown} is a link, and links are not followed")
    if entry.kind == "other":
        raise Unreadable(f"{shown} is not a plain file")
    if shown != path:
        raise Unreadable(f"{shown} is no name for a file of a skill")


def _described(path: str, content: bytes) -> SkillFile:
    return SkillFile(path, len(content), hashlib.sha256(content).hexdigest(), _kind(path, content))


def _kind(path: str, content: bytes) -> Kind:
    name = PurePosixPath(path)
    ending = name.suffix.lower()
    in_scripts = "scripts" in name.parts[:-1] and ending not in {".md", ".txt"}
    named = bool(_SCRIPTS.fullmatch(ending)) or name.name.lower() in _SCRIPT_NAMES
    if in_scripts or named or content.startswith(b"#!"):
        return "script"
    try:
        content.decode()
    except UnicodeDecodeError:
        return "binary"
    return "binary" if b"\0" in content else "text"
