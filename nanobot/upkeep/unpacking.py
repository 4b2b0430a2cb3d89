"""Reads a backup, which may come from anywhere: nothing in it is trusted before it is checked.

Names stay below the target folder, no name is used twice, links are made last and stay within the
workspace, devices are refused. The archive is never larger than it says first, and the disk has
room for that. Every file matches its hash in the manifest, and the manifest lists every file.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from nanobot.bus.journal_file import FORMAT as JOURNAL_FORMAT
from nanobot.errors import NanobotError, StorageError
from nanobot.io import write_all
from nanobot.upkeep.contents import FORMAT, Head, part_of, stays_inside
from nanobot.upkeep.packing import HEAD, HOME, MANIFEST, Progress, decrypting
from nanobot.upkeep.retention import has_room

_BLOCK = 256 * 1024
_SLACK = 1 << 20
"""Bytes that may stand between two files: headers, long names."""
_MOST_MANIFEST = 256 << 20
_RESERVE = 50 << 20
_MOST_FOLDERS = 1_000_000
"""Folders and links; each costs the sender next to nothing, once compressed."""
_LATEST = 1 << 33
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)
_DAMAGE = (
    gzip.BadGzipFile, zlib.error, tarfile.TarError, UnicodeError,
    FileExistsError, NotADirectoryError, IsADirectoryError,
)  # fmt: skip


class BadBackup(NanobotError):
    """Not a backup, or a damaged one."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"this backup cannot be used: {reason}",
            hint="Nothing was changed. Take another one; `nanobot backup list` shows them.",
        )


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What came out of a backup: its first words, how many files and bytes."""

    head: Head
    files: int
    size: int


def unpack(
    file: Path,
    identity: Path | None,
    folder: Path,
    *,
    wanted: Callable[[str], bool] | None = None,
    progress: Progress = lambda *_: None,
) -> Unpacked:
    """Write the files of a backup, or those that are `wanted` (by path in the home), below
    `folder`, which is empty, and check all of them. Raises `NanobotError`; what is in `folder` is
    of no use then."""
    with _opened(file, identity) as stream:
        unpacking = _Unpacking(stream, folder, wanted or (lambda _: True), progress)
        size = unpacking.head.size
        if wanted is None and not has_room(folder, size + _RESERVE):
            raise StorageError(folder, f"there is no room for {size:,} bytes")
        unpacking.run()
        return Unpacked(unpacking.head, len(unpacking.sums), unpacking.size)


def expect_file(file: Path) -> None:
    """Raise `NanobotError` where `file` cannot be a backup, since it is missing or a folder."""
    hint = "`nanobot backup list` shows what there is."
    if not file.exists():
        raise NanobotError(f"there is no {file}", hint=hint)
    if file.is_dir():
        raise NanobotError(f"{file} is a folder, not a backup", hint=hint)


@contextlib.contextmanager
def _opened(file: Path, identity: Path | None) -> Iterator[BinaryIO]:
    expect_file(file)
    try:
        with (
            file.open("rb") as source,
            decrypting(source, identity) as plain,
            gzip.GzipFile(fileobj=plain, mode="rb") as decompressed,
        ):
            yield decompressed  # type: ignore[misc]  # it is read as one
    except EOFError as error:
        raise BadBackup("it is cut short") from error
    except _DAMAGE as error:
        raise BadBackup(f"it is not a backup of nanobot, or it is damaged ({error})") from error
    except OSError as error:
        raise StorageError.of(error.filename or file, error) from error


class _Unpacking:
    """Reads an archive once, from its head to its manifest. Of the decompressed stream,
    which a hostile backup can make endless, no more is read than its members declare."""

    def __init__(
        self,
        stream: BinaryIO,
        folder: Path,
        wanted: Callable[[str], bool],
        progress: Progress,
    ) -> None:
        self._stream, self._left = stream, 2 * _SLACK
        self._folder, self._wanted, self._progress = folder, wanted, progress
        self._folders: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        self.sums: dict[str, str] = {}
        self.size = 0
        self._tar: tarfile.TarFile = tarfile.open(  # noqa: SIM115 - who opened the stream closes it
            fileobj=self,  # type: ignore[call-overload]  # it is only read
            mode="r|",
            bufsize=_BLOCK,
            errors="surrogateescape",
            encoding="utf-8",
        )
        first = self._next()
        if first is None or first.name != HEAD or first.type not in _PLAIN:
            raise BadBackup("it does not start like a backup")
        try:
            self.head = Head.decoded(b"".join(self._content(first, _SLACK)))
        except ValueError as error:
            raise BadBackup(str(error)) from error
        if self.head.format > FORMAT or self.head.journal > JOURNAL_FORMAT:
            raise NanobotError(
                f"the backup was made by a newer nanobot ({self.head.nanobot})",
                hint="Install that version, then restore it.",
            )

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes of the stream, for the archive."""
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise BadBackup("it is larger than it says")
        return data

    def run(self) -> None:
        """Unpack what follows the head. Raises `BadBackup`, and what reading and writing do."""
        while (member := self._next()) is not None and member.name != MANIFEST:
            self._take(member)
        if member is None:
            raise BadBackup("it is cut short")
        try:
            data = json.loads(b"".join(self._content(member, _MOST_MANIFEST)))
            expected = dict(data["sha256"])
        except (ValueError, TypeError, KeyError) as error:
            raise BadBackup("its manifest is not valid") from error
        if self._next() is not None:
            raise BadBackup("something follows its manifest")
        while self.read(_BLOCK):  # to the end, the sums of the compression included
            pass
        for path in sorted(expected.keys() | self.sums.keys()):
            if expected.get(path) != self.sums.get(path):
                raise BadBackup(f"{path!r} does not match its manifest")
        self._finish()

    def _next(self) -> tarfile.TarInfo | None:
        """The next member, None behind the last."""
        self._left = 2 * _SLACK
        return self._tar.next()

    def _content(self, member: tarfile.TarInfo, most: int) -> Iterator[bytes]:
        """What a file holds, in blocks."""
        if not 0 <= member.size <= most:
            raise BadBackup("it is larger than it says")
        self._left = member.size + 2 * _SLACK
        reader = self._tar.extractfile(member)
        assert reader is not None  # only files are asked for
        left = member.size
        while left:
            block = reader.read(min(left, _BLOCK))
            if not block:
                raise BadBackup("it is cut short")
            left -= len(block)
            yield block

    def _take(self, member: tarfile.TarInfo) -> None:
        path = _path_of(member.name)
        known = len(self.sums) + len(self._folders) + len(self._links)
        if known >= self.head.files + _MOST_FOLDERS:
            raise BadBackup("it holds more than it says")
        if path in self.sums or path in self._folders or path in self._links:
            raise BadBackup(f"{path!r} is in it twice")
        if member.isdir():
            self._folders[path] = (member.mode & 0o777 | 0o700, _time(member))
            if self._wanted(path):
                (self._folder / path).mkdir(mode=0o700, parents=True, exist_ok=True)
        elif member.issym() and stays_inside(path, member.linkname):
            self._links[path] = member.linkname
        elif member.type in _PLAIN and member.sparse is None:
            self.sums[path] = self._file(path, member)
        else:
            raise BadBackup(f"{path!r} is neither a file nor a folder")

    def _file(self, path: str, member: tarfile.TarInfo) -> str:
        """Write a file, if it is wanted; its hash."""
        left = self.head.size - self.size
        if len(self.sums) >= self.head.files:
            raise BadBackup("it is larger than it says")
        digest, out = hashlib.sha256(), -1
        self.size += member.size
        with contextlib.ExitStack() as stack:
            if self._wanted(path):
                place = self._folder / path
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                out = os.open(place, flags, 0o600)
                stack.callback(os.close, out)
            for block in self._content(member, left):
                digest.update(block)
                self._progress(len(block), self.head.size)
                if out >= 0:
                    write_all(out, block)
            if out >= 0:
                os.fchmod(out, member.mode & 0o777 | 0o400)
                os.utime(out, (_time(member), _time(member)))
        return digest.hexdigest()

    def _finish(self) -> None:
        """Make the links, and give folders their modes and times."""
        for path, target in self._links.items():
            # Below a link it would lie somewhere else than its steps up were counted from.
            if any(str(parent) in self._links for parent in PurePosixPath(path).parents):
                raise BadBackup(f"{path!r} lies below a link")
            if self._wanted(path):
                place = self._folder / path
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                place.symlink_to(target)
        for path, (mode, modified) in reversed(self._folders.items()):
            if self._wanted(path):
                place = self._folder / path
                place.chmod(mode)
                os.utime(place, (modified, modified))


def _time(member: tarfile.TarInfo) -> int:
    return int(min(max(member.mtime, 0), _LATEST))


def _path_of(name: str) -> str:
    """A member's path in the home."""
    path = name.removeprefix(HOME)
    parts = path.split("/")
    if path == name or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise BadBackup(f"the name {name!r} is not allowed")
    if part_of(parts[0], folder=True) == "out":  # backups, and what belongs to a restore
        raise BadBackup(f"{path!r} does not belong in a backup")
    return path
