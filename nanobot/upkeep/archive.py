"""A backup as a file: one compressed tar archive, encrypted if a public key is given.

`backup.json` comes first, then the home below `home/`, last `manifest.json` with the hash of every
file. So it is written and read in one pass, and a truncated backup has no manifest. `tar` and, if
it is encrypted, `age` can unpack it too.

Encryption is that of age (age-encryption.org): the public key may be kept anywhere; only the secret
key, the *identity*, can decrypt. Backups can be of any size, so they are streamed: a thread stands
between our reading or writing and the library, which does both by itself.

A backup that is read may come from anywhere: nothing in it is trusted before it is checked. Names
stay below the target folder, no name is used twice, links are made last and stay within the
workspace, devices are refused. Files are never larger than the head says, and the disk has room for
that. Every file matches its hash in the manifest, and the manifest lists every file.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from errno import ENOSPC
from io import BufferedReader
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, Self

from msgspec import Struct

from nanobot.bus.journal_file import SCHEMA
from nanobot.errors import ExtraMissing, NanobotError, StorageError, storage_hint
from nanobot.io import storage_errors, write_new
from nanobot.parsing import ValueCounter
from nanobot.tasks import paced
from nanobot.upkeep.contents import (
    FORMAT,
    BackupHeader,
    BackupItem,
    backup_part,
    open_plain,
    stays_inside,
)
from nanobot.upkeep.retention import has_room

_MAGIC = b"age-encryption.org/v1"
_SECRET = "AGE-SECRET-KEY-"  # noqa: S105 - how such keys begin
_MOST_IDENTITIES = 100_000
_KEYGEN = "`nanobot backup keygen FILE` makes a pair of keys."

_HEAD, _HOME, _MANIFEST = "backup.json", "home/", "manifest.json"
_LEVEL = 3
"""Text comes out a tenth larger than with the default 6, in half the time."""
_BLOCK = 256 * 1024

_MOST_HEAD, _MOST_MANIFEST = 1 << 20, 256 << 20
_MOST_HEADER = 1 << 20
_HEADERS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_MARKS_PER_FILE = 5
"""Of JSON in the manifest: two texts and a comma."""
_MOST_FOLDERS = 1_000_000
"""Folders and links; each costs the sender next to nothing, once compressed."""
_RESERVE = 50 << 20
_LATEST = 1 << 33
_DAMAGE = (
    EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError, UnicodeError, RecursionError,
    FileExistsError, NotADirectoryError, IsADirectoryError,
)  # fmt: skip

Progress = Callable[[int, int], None]
"""Called with how many bytes more are done, and of how many in all; may raise to call it off."""


class BadBackup(NanobotError):
    """Not a backup, or a damaged one."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"this backup cannot be used: {reason}",
            hint="Nothing was changed. Take another one; `nanobot backup list` shows them.",
        )


def _age() -> Any:
    """The library that encrypts. Raises `ExtraMissing`."""
    try:
        import pyrage  # type: ignore[import-untyped]
    except ImportError:
        raise ExtraMissing("encryption of backups", "backup-encryption") from None
    return pyrage


def make_identity(path: Path, made_at: str) -> str:
    """Write a new secret key to a new file at `path`, for its owner only; its public half.

    Raises `NanobotError` where something is there already, and `StorageError`.
    """
    identity = _age().x25519.Identity.generate()
    public = str(identity.to_public())
    text = f"# made {made_at}\n# public key: {public}\n{identity}\n"
    try:
        write_new(path, [text.encode()])
    except FileExistsError:
        raise NanobotError(
            f"{path} exists already", hint="Keep it if backups were encrypted for it."
        ) from None
    except OSError as error:
        raise StorageError.of(path, error) from error
    return public


def public_key(recipient: str) -> object:
    """The key to encrypt with. Raises `NanobotError` where this is none."""
    age = _age()
    try:
        return age.x25519.Recipient.from_str(recipient)
    except age.RecipientError:
        raise NanobotError(f"{recipient!r} is not an age public key", hint=_KEYGEN) from None


def _identities(path: Path) -> list[object]:
    """The secret keys in a file as `age-keygen` writes it. Raises `NanobotError`."""
    age = _age()
    found: list[object] = []
    with storage_errors(path), path.open("rb") as file:
        text = file.read(_MOST_IDENTITIES).decode("ascii", "replace")
    with contextlib.suppress(age.IdentityError):
        lines = (line.strip() for line in text.splitlines())
        found = [age.x25519.Identity.from_str(line) for line in lines if line.startswith(_SECRET)]
    if not found:
        raise NanobotError(f"{path} holds no age secret key", hint=_KEYGEN)
    return found


@contextlib.contextmanager
def encrypting(out: BinaryIO, recipient: str) -> Iterator[BinaryIO]:
    """What is written into it goes to `out`, encrypted for `recipient`; with none as it is."""
    if not recipient:
        yield out
        return
    age, public = _age(), public_key(recipient)

    def encrypt(plain: BinaryIO) -> None:
        try:
            age.encrypt_io(plain, out, [public])
        except (age.EncryptError, OSError) as error:
            raise NanobotError(f"the backup cannot be written: {error}") from error

    with _piped(encrypt, "wb") as entrance:
        yield entrance


@contextlib.contextmanager
def _decrypting(source: BufferedReader, identity: Path | None) -> Iterator[BinaryIO]:
    """What `source` holds, decrypted where it is encrypted. Raises `NanobotError` where there is no
    fitting key, or what was encrypted is damaged."""
    if source.peek(len(_MAGIC))[: len(_MAGIC)] != _MAGIC:
        yield source
        return
    if identity is None:
        raise NanobotError(
            "the backup is encrypted", hint="Name the file with its secret key: --identity FILE."
        )
    age, identities = _age(), _identities(identity)

    def decrypt(plain: BinaryIO) -> None:
        try:
            age.decrypt_io(source, plain, identities)
        except (age.DecryptError, OSError) as error:
            raise NanobotError(
                f"the backup cannot be decrypted, or it is damaged: {error}",
                hint="It needs the secret key that belongs to the public key it was made for.",
            ) from error

    with _piped(decrypt, "rb") as result:
        yield result


@contextlib.contextmanager
def _piped(work: Callable[[BinaryIO], None], mode: Literal["rb", "wb"]) -> Iterator[BinaryIO]:
    """One end of a pipe, of this `mode`, while `work` has the other one in a thread. Its failure is
    the reason for what the body then sees of the pipe, so it is what is raised; but not in place of
    a `NanobotError`, with which the body leaves before the end."""
    reader, writer = os.pipe()
    ours, theirs = (reader, writer) if mode == "rb" else (writer, reader)

    def run() -> None:
        with os.fdopen(theirs, "wb" if mode == "rb" else "rb") as end:
            work(end)

    with ThreadPoolExecutor(1, "age") as pool:
        working = pool.submit(run)
        try:
            with os.fdopen(ours, mode) as end:
                yield end
        except NanobotError:
            raise
        except Exception:  # raised again, unless the thread knows why
            working.result()
            raise
        working.result()


def pack(
    out: BinaryIO, home: Path, head: BackupHeader, items: Sequence[BackupItem], progress: Progress
) -> tuple[int, list[str]]:
    """Write the backup of `items` to `out`: how many files went in, and those that became shorter
    while they were read, which are filled up with zeros. A file that has gone is left out, but not
    one of the snapshot: without it there is no backup. Raises `OSError`."""
    sums: dict[str, str] = {}
    changed: list[str] = []
    steps = paced(count())

    def read(more: int) -> None:
        next(steps)
        progress(more, head.size)

    with (
        gzip.GzipFile("", "wb", _LEVEL, out, mtime=0) as compressed,
        tarfile.open(  # type: ignore[call-overload]  # the stubs do not know the last one
            fileobj=compressed, mode="w|", copybufsize=_BLOCK
        ) as tar,
    ):
        _add(tar, _HEAD, head.encoded(), head)
        for item in items:
            if item.kind != "file":
                tar.addfile(_member(item))
                continue
            try:
                source = home / item.source
                file = source.open("rb") if item.source else open_plain(home, item.path)
            except FileNotFoundError:
                if item.source:
                    raise
                continue
            with file:
                reader = _Exactly(file, item.size, read)
                tar.addfile(_member(item), reader)
            sums[item.path] = reader.hash.hexdigest()
            if reader.is_short:
                changed.append(item.path)
        _add(tar, _MANIFEST, json.dumps({"sha256": sums}, indent=0).encode(), head)
    return len(sums), changed


def _member(item: BackupItem) -> tarfile.TarInfo:
    member = tarfile.TarInfo(_HOME + item.path)
    member.mode, member.mtime, member.size = item.mode, item.modified, item.size
    if item.kind == "folder":
        member.type = tarfile.DIRTYPE
    elif item.kind == "link":
        member.type, member.linkname = tarfile.SYMTYPE, item.target
    return member


def _add(tar: tarfile.TarFile, name: str, content: bytes, head: BackupHeader) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o600
    member.mtime = int(head.made_at.timestamp())
    tar.addfile(member, io.BytesIO(content))


class _Exactly:
    """The first `size` bytes of a file, hashed on the way; zeros where it is shorter by now."""

    def __init__(self, file: BinaryIO, size: int, progress: Callable[[int], None]) -> None:
        self._file, self._left, self._progress = file, size, progress
        self.hash = hashlib.sha256()
        self.is_short = False

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; fewer only at the end."""
        wanted = self._left if size < 0 else min(size, self._left)
        data = b"" if self.is_short else self._file.read(wanted)
        self.is_short |= len(data) < wanted
        data = data.ljust(wanted, b"\0")
        self._left -= wanted
        self.hash.update(data)
        self._progress(wanted)
        return data


class Unpacked(Struct, frozen=True):
    """What came out of a backup: its first words, how many files and bytes."""

    head: BackupHeader
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
    try:
        with (
            file.open("rb") as source,
            _decrypting(source, identity) as plain,
            gzip.GzipFile(fileobj=plain, mode="rb") as stream,
            tarfile.open(
                fileobj=stream, mode="r|", bufsize=_BLOCK, encoding="utf-8", tarinfo=_Member
            ) as tar,
        ):
            unpacking = _Unpacking(tar, folder, wanted or (lambda _: True), progress)
            size = unpacking.head.size
            if wanted is None and not has_room(folder, size + _RESERVE):
                hint = storage_hint(ENOSPC, folder)
                raise StorageError(folder, f"there is no room for {size:,} bytes", hint=hint)
            unpacking.run()
            while stream.read(_BLOCK):  # to the end, the sums of the compression included
                pass
            return Unpacked(unpacking.head, len(unpacking.sums), unpacking.size)
    except _DAMAGE as error:
        raise BadBackup(f"it is not a backup of nanobot, or it is damaged ({error})") from error
    except OSError as error:
        raise StorageError.of(error.filename or file, error) from error


class _Member(tarfile.TarInfo):
    """A header of an archive that is read. The library holds the headers of headers (long names,
    extended attributes) in memory, whatever their size."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """See `tarfile.TarInfo`."""
        member = super().frombuf(buf, encoding, errors)
        if member.type in _HEADERS and member.size > _MOST_HEADER:
            raise tarfile.ReadError(f"a header of {member.size:,} bytes")
        return member


class _Unpacking:
    """Reads an archive once, from its head to its manifest."""

    def __init__(
        self, tar: tarfile.TarFile, folder: Path, wanted: Callable[[str], bool], progress: Progress
    ) -> None:
        self._tar, self._folder, self._wanted, self._progress = tar, folder, wanted, progress
        self._folders: dict[str, tarfile.TarInfo] = {}
        self._links: dict[str, str] = {}
        self.sums: dict[str, str] = {}
        self.size = 0
        first = tar.next()
        if first is None or first.name != _HEAD:
            raise BadBackup("it does not start like a backup")
        try:
            self.head = BackupHeader.decoded(b"".join(self._content(first, _MOST_HEAD)))
        except ValueError as error:
            raise BadBackup(str(error)) from error
        if (self.head.format, self.head.journal) != (FORMAT, SCHEMA.version):
            raise NanobotError(
                f"the backup was made by another version of nanobot ({self.head.nanobot})",
                hint="Install that version, then restore it.",
            )

    def run(self) -> None:
        """Unpack what follows the head. Raises `BadBackup`, and what reading and writing do."""
        while (member := self._tar.next()) is not None and member.name != _MANIFEST:
            self._add(member)
        if member is None:
            raise BadBackup("it is cut short")
        try:
            body = b"".join(self._content(member, _MOST_MANIFEST))
            ValueCounter(_MARKS_PER_FILE * (len(self.sums) + 3)).feed(body)
            data = json.loads(body)
            expected = dict(data["sha256"])
        except (ValueError, TypeError, KeyError) as error:
            raise BadBackup("its manifest is not valid") from error
        if self._tar.next() is not None:
            raise BadBackup("something follows its manifest")
        for path in sorted(expected.keys() | self.sums.keys()):
            if expected.get(path) != self.sums.get(path):
                raise BadBackup(f"{path!r} does not match its manifest")
        self._finish()

    def _content(self, member: tarfile.TarInfo, most: int) -> Iterator[bytes]:
        """What a file holds, in blocks."""
        if not 0 <= member.size <= most:
            raise BadBackup("it is larger than it says")
        reader = self._tar.extractfile(member) if member.isreg() and not member.issparse() else None
        if reader is None:
            raise BadBackup(f"{member.name!r} is neither a file nor a folder")
        return iter(lambda: reader.read(_BLOCK), b"")

    def _add(self, member: tarfile.TarInfo) -> None:
        path = _path_of(member.name)
        if len(self._folders) + len(self._links) >= _MOST_FOLDERS:
            raise BadBackup("it holds too many folders")
        if path in self.sums or path in self._folders or path in self._links:
            raise BadBackup(f"{path!r} is in it twice")
        if member.isdir():
            self._folders[path] = member
            if self._wanted(path):
                (self._folder / path).mkdir(mode=0o700, parents=True, exist_ok=True)
        elif member.issym() and stays_inside(path, member.linkname):
            self._links[path] = member.linkname
        else:
            self._write(path, member)

    def _write(self, path: str, member: tarfile.TarInfo) -> None:
        """Read a file, and write it if it is wanted."""
        if len(self.sums) >= self.head.files:
            raise BadBackup("it holds more than it says")
        content = self._content(member, self.head.size - self.size)
        self.size += member.size
        digest, place = hashlib.sha256(), self._folder / path
        with contextlib.ExitStack() as stack:
            out: BinaryIO | None = None
            if self._wanted(path):
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                out = stack.enter_context(place.open("xb"))
            for block in content:
                digest.update(block)
                self._progress(len(block), self.head.size)
                if out:
                    out.write(block)
        if out:
            place.chmod(member.mode & 0o777 | 0o400)
            os.utime(place, (_time(member), _time(member)))
        self.sums[path] = digest.hexdigest()

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
        for path, member in reversed(self._folders.items()):
            if self._wanted(path):
                place = self._folder / path
                place.chmod(member.mode & 0o777 | 0o700)
                os.utime(place, (_time(member), _time(member)))


def _time(member: tarfile.TarInfo) -> int:
    return int(min(max(member.mtime, 0), _LATEST))


def _path_of(name: str) -> str:
    """A member's path in the home."""
    path = name.removeprefix(_HOME)
    parts = path.split("/")
    if path == name or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise BadBackup(f"the name {name!r} is not allowed")
    if backup_part(parts[0], folder=True) == "out":  # backups, and what belongs to a restore
        raise BadBackup(f"{path!r} does not belong in a backup")
    return path
