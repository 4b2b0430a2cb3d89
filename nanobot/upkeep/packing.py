"""Encryption of backups, with age (age-encryption.org): for a public key, which may lie about; only
who has the secret one, the *identity*, can read them. The program `age` reads and writes the same.

A backup is of any size, so it flows through: a thread of ours, which ends with the `with`, stands
between what writes or reads and the library, which does both by itself.

Writing a backup: one compressed tar archive, as a stream.

`backup.json` comes first, then the home below `home/`, last `manifest.json` with the hash of every
file. So it is read as it was written, in one go, and one that was cut short has no manifest. `tar`
and, where it is encrypted, `age` unpack it as well.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Protocol

from nanobot.errors import NanobotError, StorageError
from nanobot.upkeep.contents import Head, Item, encode_sums

MAGIC = b"age-encryption.org/v1"
_SECRET = "AGE-SECRET-KEY-"  # noqa: S105 - how such keys begin
_MOST_IDENTITIES = 100_000
_KEYGEN = "`nanobot backup keygen FILE` makes a pair of keys."


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes, /) -> int:
        """Take all of them."""
        ...

    def flush(self) -> None:
        """Pass on what was taken."""
        ...


def make_identity(path: Path, made_at: str) -> str:
    """Write a new secret key to a new file at `path`, for its owner only; its public half.

    Raises `NanobotError` where something is there already, and `StorageError`.
    """
    from pyrage import x25519  # type: ignore[import-untyped]

    identity = x25519.Identity.generate()
    public = str(identity.to_public())
    text = f"# made {made_at}\n# public key: {public}\n{identity}\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise NanobotError(
            f"{path} exists already", hint="Keep it if it is a key that backups were made for."
        ) from None
    except OSError as error:
        raise StorageError.of(path, error) from error
    return public


def check_recipient(recipient: str) -> None:
    """Raise `NanobotError` where this is no public key."""
    from pyrage import RecipientError, x25519

    try:
        x25519.Recipient.from_str(recipient)
    except RecipientError:
        raise NanobotError(f"{recipient!r} is no public key of age", hint=_KEYGEN) from None


@contextlib.contextmanager
def sealed(out: Sink, recipient: str) -> Iterator[Sink]:
    """What is written into it goes to `out`, encrypted for `recipient`; with none as it is."""
    if not recipient:
        yield out
        return
    from pyrage import encrypt_io, x25519

    recipients = [x25519.Recipient.from_str(recipient)]
    watched = _Watched(out)
    reader, writer = os.pipe()

    def encrypt() -> None:
        with os.fdopen(reader, "rb") as plain:
            encrypt_io(plain, watched, recipients)

    with _beside(encrypt, watched), os.fdopen(writer, "wb") as entrance:
        yield entrance


@contextlib.contextmanager
def unsealed(source: BufferedReader, identity: Path | None) -> Iterator[BinaryIO]:
    """What `source` holds, decrypted where it is encrypted. Raises `NanobotError` where there is no
    fitting key, or what was encrypted is damaged."""
    if source.peek(len(MAGIC))[: len(MAGIC)] != MAGIC:
        yield source
        return
    from pyrage import decrypt_io

    if identity is None:
        raise NanobotError(
            "the backup is encrypted", hint="Say where its secret key is: --identity FILE."
        )
    identities = read_identities(identity)
    reader, writer = os.pipe()

    entrance = os.fdopen(writer, "wb")
    watched = _Watched(entrance)

    def decrypt() -> None:
        with entrance:
            decrypt_io(source, watched, identities)

    with _beside(decrypt, watched), os.fdopen(reader, "rb") as result:
        yield result


def read_identities(path: Path) -> list[object]:
    """The secret keys in a file as `age-keygen` writes it. Raises `NanobotError`."""
    from pyrage import IdentityError, x25519

    try:
        with path.open("rb") as file:
            text = file.read(_MOST_IDENTITIES).decode("ascii", "replace")
    except OSError as error:
        raise StorageError.of(path, error) from error
    try:
        lines = (line.strip() for line in text.splitlines())
        found: list[object] = [
            x25519.Identity.from_str(line) for line in lines if line.startswith(_SECRET)
        ]
    except IdentityError:
        found = []
    if not found:
        raise NanobotError(f"{path} holds no secret key of age", hint=_KEYGEN)
    return found


class _Watched:
    """A sink that remembers why it took nothing: the library only says that it did not."""

    def __init__(self, out: Sink) -> None:
        self._out = out
        self.error: OSError | None = None

    def write(self, data: bytes, /) -> int:
        try:
            return self._out.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._out.flush()


@contextlib.contextmanager
def _beside(work: Callable[[], None], watched: _Watched) -> Iterator[None]:
    """Run `work` in a thread for as long as the body. Its failure is the reason for what the body
    then sees of the pipe between the two, so it is what is raised; but not that the body left
    before the end, nor in place of what the body has to say."""
    from pyrage import DecryptError, EncryptError

    failures: list[Exception] = []

    def run() -> None:
        try:
            work()
        except (OSError, DecryptError, EncryptError) as error:
            failures.append(watched.error or error)

    thread = threading.Thread(target=run, name="age", daemon=True)
    thread.start()
    try:
        yield
    except NanobotError:
        thread.join()
        raise
    except Exception:  # raised again, unless the thread knows why
        thread.join()
        _raise_first(failures)
        raise
    finally:
        thread.join()
    _raise_first(failures)


def _raise_first(failures: list[Exception]) -> None:
    for error in failures:
        if isinstance(error, BrokenPipeError):
            continue
        if isinstance(error, OSError) and error.errno is not None:
            raise error
        raise _translated(error) from error


def _translated(error: Exception) -> Exception:
    from pyrage import DecryptError

    if isinstance(error, DecryptError):
        return NanobotError(
            f"the backup cannot be decrypted: {error}",
            hint="It takes the secret key to the public one that it was made for.",
        )
    return NanobotError(f"the backup is damaged: {error}", hint="Take another one.")


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
