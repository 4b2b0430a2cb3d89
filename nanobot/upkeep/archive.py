"""A backup file: one compressed tar archive, encrypted if a public key is given.

`backup.json` comes first, then the home below `home/`. So it is written and read in one pass, and
`tar` and, if it is encrypted, `age` can unpack it too. The checksum at the end of the compressed
stream shows that it is complete.

Encryption is that of age (age-encryption.org). Only the secret key, the *identity*, can decrypt.
Backups can be of any size, so they are streamed: the library reads and writes by itself, in a
thread at the other end of a pipe.

A backup is untrusted input. Names stay below the target folder, no name is used twice, links are
made last and stay within the workspace, devices are rejected. It is never larger than its header
says, and the disk has room for that."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from errno import ENOSPC
from io import BufferedReader
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, BinaryIO, Literal, Self

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import asdict

from nanobot.bus.journal_file import SCHEMA
from nanobot.errors import ExtraMissing, NanobotError, StorageError, storage_hint
from nanobot.io import storage_errors, write_new
from nanobot.tasks import pace
from nanobot.upkeep.retention import has_room
from nanobot.upkeep.snapshot import BackupItem, belongs_in_backup, open_plain, stays_inside

FORMAT = 1
"""The version of the layout: `backup.json`, and the files below `home/`."""

_MAGIC = b"age-encryption.org/v1"
_SECRET = "AGE-SECRET-KEY-"  # noqa: S105 - how such keys begin
_MOST_IDENTITIES = 100_000
_KEYGEN = "Create a key pair with `nanobot backup keygen FILE`."

_HEAD, _HOME = "backup.json", "home/"
_MOST_HEAD = 1 << 20
_NAMES = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip
"""Members that only contain a name for the next ones."""
_LEVEL = 3  # text is a tenth larger than with the default 6, in half the time
_BLOCK = 256 * 1024
_RESERVE = 50 << 20
_DAMAGE = (
    EOFError, OverflowError, gzip.BadGzipFile, zlib.error, tarfile.TarError, UnicodeError,
    FileExistsError, NotADirectoryError, IsADirectoryError,
)  # fmt: skip

Progress = Callable[[int, int], None]
"""Called with the bytes just done and the total. May raise an error to cancel."""


class BackupHeader(Struct, frozen=True):
    """The header of a backup. `journal` is the format of its journal. `live`: a gateway ran when it
    was made. `files` and `size` (in bytes) are upper limits of its content. `left_out` lists the
    first paths of the home that are missing in it."""

    nanobot: str
    journal: int
    made_at: Annotated[datetime, Meta(tz=True)]
    live: bool
    media: bool
    files: Annotated[int, Meta(ge=0)]
    size: Annotated[int, Meta(ge=0)]
    left_out: tuple[str, ...] = ()
    format: int = FORMAT

    def encode(self) -> bytes:
        return json.dumps({**asdict(self), "made_at": self.made_at.isoformat()}, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes) -> BackupHeader:
        """Parse a header. Raises `BadBackup`."""
        try:
            return convert(json.loads(data), cls)
        except (ValueError, ValidationError, RecursionError) as error:
            raise BadBackup(f"its first file is not a backup header ({error})") from error


class BadBackup(NanobotError):
    """Not a backup, or a damaged one."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"this backup cannot be used: {reason}",
            hint="Nothing was changed. Choose another backup from `nanobot backup list`.",
        )


def _load_age() -> Any:
    """Import the encryption library. Raises `ExtraMissing`."""
    try:
        import pyrage  # type: ignore[import-untyped]
    except ImportError:
        raise ExtraMissing("encryption of backups", "backup-encryption") from None
    return pyrage


def make_identity(path: Path, made_at: str) -> str:
    """Write a new secret key to `path`, private to its owner, and return its public key. Raises
    `NanobotError` if the file exists, and `StorageError`."""
    identity = _load_age().x25519.Identity.generate()
    public = str(identity.to_public())
    text = f"# made {made_at}\n# public key: {public}\n{identity}\n"
    try:
        write_new(path, [text.encode()])
    except FileExistsError:
        raise NanobotError(
            f"{path} already exists",
            hint="Choose another name. You may still need the existing key for older backups.",
        ) from None
    except OSError as error:
        raise StorageError.of(path, error) from error
    return public


def public_key(recipient: str) -> object:
    """Parse a public key. Raises `NanobotError`."""
    age = _load_age()
    try:
        return age.x25519.Recipient.from_str(recipient)
    except age.RecipientError:
        raise NanobotError(f"{recipient!r} is not an age public key", hint=_KEYGEN) from None


def _read_identities(path: Path) -> list[object]:
    """Return the secret keys in a file of `age-keygen`. Raises `NanobotError`."""
    age = _load_age()
    found: list[object] = []
    with storage_errors(path), path.open("rb") as file:
        text = file.read(_MOST_IDENTITIES).decode("ascii", "replace")
    with contextlib.suppress(age.IdentityError):
        lines = (line.strip() for line in text.splitlines())
        found = [age.x25519.Identity.from_str(line) for line in lines if line.startswith(_SECRET)]
    if not found:
        raise NanobotError(f"{path} contains no age secret key", hint=_KEYGEN)
    return found


@contextlib.contextmanager
def encrypting(out: BinaryIO, recipient: str) -> Iterator[BinaryIO]:
    """Yield a file that encrypts into `out` for `recipient`, or `out` without one."""
    if not recipient:
        yield out
        return
    age, public = _load_age(), public_key(recipient)

    def encrypt(plain: BinaryIO) -> None:
        try:
            age.encrypt_io(plain, out, [public])
        except (age.EncryptError, OSError) as error:
            raise NanobotError(f"the backup cannot be written: {error}") from error

    with _open_pipe(encrypt, "wb") as entrance:
        yield entrance


@contextlib.contextmanager
def _decrypting(source: BufferedReader, identity: Path | None) -> Iterator[BinaryIO]:
    """Yield the plain content of `source`. Raises `NanobotError` without a fitting key, or if the
    encrypted data is damaged."""
    if source.peek(len(_MAGIC))[: len(_MAGIC)] != _MAGIC:
        yield source
        return
    if identity is None:
        raise NanobotError(
            "the backup is encrypted",
            hint="Specify the file that contains the secret key: --identity FILE.",
        )
    age, identities = _load_age(), _read_identities(identity)

    def decrypt(plain: BinaryIO) -> None:
        try:
            age.decrypt_io(source, plain, identities)
        except (age.DecryptError, OSError) as error:
            raise NanobotError(
                f"the backup cannot be decrypted, or it is damaged: {error}",
                hint="Use the secret key that belongs to the backup's public key.",
            ) from error

    with _open_pipe(decrypt, "rb") as result:
        yield result


@contextlib.contextmanager
def _open_pipe(work: Callable[[BinaryIO], None], mode: Literal["rb", "wb"]) -> Iterator[BinaryIO]:
    """Yield one end of a pipe, in this `mode`, while `work` has the other end in a thread. An error
    of `work` replaces the errors that it causes in the body, except a `NanobotError`, with which
    the body itself stops early."""
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
        except Exception:  # the thread's error is the cause, if there is one
            working.result()
            raise
        working.result()


def pack(
    out: BinaryIO, home: Path, head: BackupHeader, items: Sequence[BackupItem], progress: Progress
) -> tuple[int, list[str]]:
    """Write the backup of `items` to `out`. Return the number of files, and the paths of files that
    became shorter while they were read, which are filled up with zeros. A missing file is left out,
    but a missing file of the snapshot is an error. Raises `OSError`."""
    files, changed = 0, list[str]()
    steps = pace(count())

    def read(more: int) -> None:
        next(steps)
        progress(more, head.size)

    with (
        gzip.GzipFile("", "wb", _LEVEL, out, mtime=0) as compressed,
        tarfile.open(  # type: ignore[call-overload]  # the stubs do not know the last one
            fileobj=compressed, mode="w|", copybufsize=_BLOCK
        ) as tar,
    ):
        member, content = tarfile.TarInfo(_HEAD), head.encode()
        member.size, member.mode = len(content), 0o600
        member.mtime = int(head.made_at.timestamp())
        tar.addfile(member, io.BytesIO(content))
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
            files += 1
            if reader.is_short:
                changed.append(item.path)
    return files, changed


def _member(item: BackupItem) -> tarfile.TarInfo:
    member = tarfile.TarInfo(_HOME + item.path)
    member.mode, member.mtime, member.size = item.mode, item.modified, item.size
    if item.kind == "folder":
        member.type = tarfile.DIRTYPE
    elif item.kind == "link":
        member.type, member.linkname = tarfile.SYMTYPE, item.target
    return member


class _Exactly:
    """The first `size` bytes of a file, padded with zeros if it has become shorter."""

    def __init__(self, file: BinaryIO, size: int, progress: Callable[[int], None]) -> None:
        self._file, self._left, self._progress = file, size, progress
        self.is_short = False

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes, fewer only at the end."""
        wanted = min(size, self._left)
        data = b"" if self.is_short else self._file.read(wanted)
        self.is_short |= len(data) < wanted
        self._left -= wanted
        self._progress(wanted)
        return data.ljust(wanted, b"\0")


class UnpackResult(Struct, frozen=True):
    """The header of an unpacked backup, and its number of files and bytes."""

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
) -> UnpackResult:
    """Unpack a backup below the empty `folder`, or only the files that are `wanted` (by path in the
    home), and check all of them. Raises `NanobotError`: then the content of `folder` is useless."""
    try:
        with (
            file.open("rb") as source,
            _decrypting(source, identity) as plain,
            gzip.GzipFile(fileobj=plain, mode="rb") as stream,
            tarfile.open(
                fileobj=stream, mode="r|", bufsize=_BLOCK, encoding="utf-8", tarinfo=_Member
            ) as tar,
        ):
            head = _read_head(tar)
            if wanted is None and not has_room(folder, head.size + _RESERVE):
                hint = storage_hint(ENOSPC, folder)
                raise StorageError(
                    folder, f"there is not enough space for {head.size:,} bytes", hint=hint
                )
            files, size = _extract(tar, folder, head, wanted or (lambda _: True), progress)
            while stream.read(_BLOCK):  # read to the end, to verify the checksum
                pass
            return UnpackResult(head, files, size)
    except _DAMAGE as error:
        raise BadBackup(f"it is not a nanobot backup, or it is damaged ({error})") from error
    except OSError as error:
        raise StorageError.of(error.filename or file, error) from error


def _read_head(tar: tarfile.TarFile) -> BackupHeader:
    first = tar.next()
    reader = tar.extractfile(first) if first and first.name == _HEAD else None
    if reader is None:
        raise BadBackup("it does not have a backup header")
    head = BackupHeader.decode(reader.read(_MOST_HEAD))
    if (head.format, head.journal) != (FORMAT, SCHEMA.version):
        raise NanobotError(
            f"the backup was made by another version of nanobot ({head.nanobot})",
            hint="Install that version, then restore the backup.",
        )
    return head


def _extract(
    tar: tarfile.TarFile,
    folder: Path,
    head: BackupHeader,
    wanted: Callable[[str], bool],
    progress: Progress,
) -> tuple[int, int]:
    others = dict[str, tarfile.TarInfo]()
    files = size = 0
    while (member := tar.next()) is not None:
        path = _path_of(member.name)
        if not member.isreg() or member.issparse():
            if not (member.isdir() or (member.issym() and stays_inside(path, member.linkname))):
                raise BadBackup(f"{path!r} is neither a file nor a folder")
            others[path] = member
            continue
        files, size = files + 1, size + member.size
        if files > head.files or size > head.size:
            raise BadBackup("it contains more than its header lists")
        if wanted(path):
            place, content = folder / path, tar.extractfile(member)
            assert content is not None
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with content, place.open("xb") as out:
                shutil.copyfileobj(content, out, _BLOCK)
                os.fchmod(out.fileno(), member.mode & 0o777 | 0o400)
            os.utime(place, (member.mtime, member.mtime))
        progress(member.size, head.size)
    _make_others(folder, {path: others[path] for path in filter(wanted, others)})
    return files, size


def _make_others(folder: Path, others: Mapping[str, tarfile.TarInfo]) -> None:
    """Make links and folders. They come last, so that no file is written through a link, and
    folders are writable until then."""
    links = {path for path, member in others.items() if member.issym()}
    for path, member in sorted(others.items(), key=lambda one: one[1].isdir()):
        # Below a link, its steps up would start at another folder.
        if not links.isdisjoint(map(str, PurePosixPath(path).parents)):
            raise BadBackup(f"{path!r} is inside a link")
        if member.isdir():
            (folder / path).mkdir(parents=True, exist_ok=True)
            (folder / path).chmod(member.mode & 0o777 | 0o700)
        else:
            (folder / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / path).symlink_to(member.linkname)


def _path_of(name: str) -> str:
    """Return a member's path in the home. Raises `BadBackup` for a name that no backup contains."""
    path = name.removeprefix(_HOME)
    parts = path.split("/")
    if path == name or "\0" in path or not {"", ".", ".."}.isdisjoint(parts):
        raise BadBackup(f"the name {name!r} is not allowed")
    if not belongs_in_backup(parts[0]):  # backups, and the files of a restore
        raise BadBackup(f"{path!r} does not belong in a backup")
    return path


class _Member(tarfile.TarInfo):
    """A tar member with a limited name. The library reads names into memory, whatever size a header
    gives."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type in _NAMES and found.size > _MOST_HEAD:
            raise BadBackup("a file name in it is too long")
        return found
