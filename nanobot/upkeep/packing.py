"""Writing a backup: one compressed tar archive, as a stream.

`backup.json` comes first, then the home below `home/`, last `manifest.json` with the hash of every
file. So it is read as it was written, in one go, and one that was cut short has no manifest. `tar`
and, where it is encrypted, `age` unpack it as well.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import stat
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nanobot.upkeep.contents import Head, Item, encode_sums
from nanobot.upkeep.sealing import Sink

HEAD, HOME, MANIFEST = "backup.json", "home/", "manifest.json"
_LEVEL, _AS_IT_IS = 3, 0
"""Text comes out a tenth larger than with the default 6, in half the time."""
_SMALL = 64 * 1024
_COMPRESSED = {
    ".7z", ".age", ".bz2", ".docx", ".gif", ".gz", ".jpeg", ".jpg", ".m4a", ".mkv", ".mp3",
    ".mp4", ".ods", ".odt", ".ogg", ".opus", ".pdf", ".png", ".pptx", ".webm", ".webp",
    ".xlsx", ".xz", ".zip", ".zst",
}  # fmt: skip
"""Files whose format compresses already: trying again takes most of the time, for nothing."""
_BLOCK = 256 * 1024

Progress = Callable[[int, int], None]
"""Hears how many bytes more are done, and of how many in all; may raise to call it off."""


@dataclass(frozen=True, slots=True)
class Packed:
    """How many files and bytes went in; `changed` are files that became shorter while they were
    read, which are filled up with zeros."""

    files: int
    size: int
    changed: tuple[str, ...]


def pack(
    out: Sink,
    head: Head,
    items: Sequence[Item],
    progress: Progress,
    opened: Callable[[Item], BinaryIO | None],
) -> Packed:
    """Write the backup of `items` to `out`. A file that `opened` has None for is left out. Raises
    `OSError`."""
    sums: dict[str, str] = {}
    changed: list[str] = []
    size = 0
    compressed = _Compressed(out)
    with (
        contextlib.closing(compressed),
        tarfile.open(  # type: ignore[call-overload]  # the stubs do not know the last one
            fileobj=compressed, mode="w|", copybufsize=_BLOCK
        ) as tar,
    ):
        _add(tar, HEAD, head.encoded(), head)
        for item in items:
            if item.kind != "file":
                tar.addfile(_member(item))
                continue
            if (file := opened(item)) is None:
                continue
            with file:
                compressed.use(_level_for(item))
                reader = _Exactly(file, item.size, lambda more: progress(more, head.size))
                tar.addfile(_member(item), reader)
            sums[item.path] = reader.digest
            size += item.size
            if reader.missing:
                changed.append(item.path)
        compressed.use(_LEVEL)
        _add(tar, MANIFEST, encode_sums(sums), head)
    return Packed(len(sums), size, tuple(changed))


def _member(item: Item) -> tarfile.TarInfo:
    member = tarfile.TarInfo(HOME + item.path)
    member.mode, member.mtime = stat.S_IMODE(item.mode), item.modified
    match item.kind:
        case "file":
            member.size = item.size
        case "folder":
            member.type = tarfile.DIRTYPE
        case "link":
            member.type, member.linkname = tarfile.SYMTYPE, item.target
    return member


def _add(tar: tarfile.TarFile, name: str, content: bytes, head: Head) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o600
    member.mtime = int(head.made_at.timestamp())
    tar.addfile(member, io.BytesIO(content))


def _level_for(item: Item) -> int:
    compresses = item.size < _SMALL or Path(item.path).suffix.lower() not in _COMPRESSED
    return _LEVEL if compresses else _AS_IT_IS


class _Compressed:
    """What is written goes to `out` as gzip's format, whose parts may be compressed differently."""

    def __init__(self, out: Sink) -> None:
        self._out, self._level = out, _LEVEL
        self._part = self._begun()

    def use(self, level: int) -> None:
        """From now on, but for the few bytes that the archive holds back."""
        if level != self._level:
            self._part.close()
            self._level = level
            self._part = self._begun()

    def write(self, data: bytes) -> int:
        """Compress all of it."""
        return self._part.write(data)

    def close(self) -> None:
        """Write the end of the last part."""
        self._part.close()

    def _begun(self) -> gzip.GzipFile:
        return gzip.GzipFile("", "wb", self._level, self._out, mtime=0)


class _Exactly:
    """The first `size` bytes of a file, hashed on the way; zeros where it is shorter by now."""

    def __init__(self, file: BinaryIO, size: int, progress: Callable[[int], None]) -> None:
        self._file, self._left, self._progress = file, size, progress
        self._hash = hashlib.sha256()
        self.missing = 0

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; fewer only at the end."""
        wanted = self._left if size < 0 else min(size, self._left)
        data = b"" if self.missing else self._file.read(wanted)
        if len(data) < wanted:
            self.missing += wanted - len(data)
            data = data.ljust(wanted, b"\0")
        self._left -= wanted
        self._hash.update(data)
        self._progress(wanted)
        return data

    @property
    def digest(self) -> str:
        """The SHA-256 of what was read, in hex."""
        return self._hash.hexdigest()
