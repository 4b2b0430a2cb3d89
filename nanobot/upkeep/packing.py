"""Writes a backup: one compressed tar archive, as a stream, encrypted if a public key is given.

`backup.json` comes first, then the home below `home/`, last `manifest.json` with the hash of every
file. So it is read in one pass, and a truncated backup has no manifest. `tar` and, if it is
encrypted, `age` can unpack it too.

Encryption is that of age (age-encryption.org): the public key may be kept anywhere; only the secret
key, the *identity*, can decrypt. Backups can be of any size, so they are streamed: a thread stands
between our reading or writing and the library, which does both by itself.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from nanobot.errors import NanobotError, StorageError
from nanobot.io import storage_errors, write_new
from nanobot.upkeep.contents import Head, Item, open_plain

_MAGIC = b"age-encryption.org/v1"
_SECRET = "AGE-SECRET-KEY-"  # noqa: S105 - how such keys begin
_MOST_IDENTITIES = 100_000
_KEYGEN = "`nanobot backup keygen FILE` makes a pair of keys."

HEAD, HOME, MANIFEST = "backup.json", "home/", "manifest.json"
_LEVEL = 3
"""Text comes out a tenth larger than with the default 6, in half the time."""
_BLOCK = 256 * 1024

Progress = Callable[[int, int], None]
"""Hears how many bytes more are done, and of how many in all; may raise to call it off."""


def make_identity(path: Path, made_at: str) -> str:
    """Write a new secret key to a new file at `path`, for its owner only; its public half.

    Raises `NanobotError` where something is there already, and `StorageError`.
    """
    from pyrage import x25519  # type: ignore[import-untyped]

    identity = x25519.Identity.generate()
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


def check_recipient(recipient: str) -> None:
    """Raise `NanobotError` where this is no public key."""
    from pyrage import RecipientError, x25519

    try:
        x25519.Recipient.from_str(recipient)
    except RecipientError:
        raise NanobotError(f"{recipient!r} is not an age public key", hint=_KEYGEN) from None


def _identities(path: Path) -> list[object]:
    """The secret keys in a file as `age-keygen` writes it. Raises `NanobotError`."""
    from pyrage import IdentityError, x25519

    found: list[object] = []
    with storage_errors(path), path.open("rb") as file:
        text = file.read(_MOST_IDENTITIES).decode("ascii", "replace")
    with contextlib.suppress(IdentityError):
        lines = (line.strip() for line in text.splitlines())
        found = [x25519.Identity.from_str(line) for line in lines if line.startswith(_SECRET)]
    if not found:
        raise NanobotError(f"{path} holds no age secret key", hint=_KEYGEN)
    return found


@contextlib.contextmanager
def encrypting(out: BinaryIO, recipient: str) -> Iterator[BinaryIO]:
    """What is written into it goes to `out`, encrypted for `recipient`; with none as it is."""
    if not recipient:
        yield out
        return
    from pyrage import EncryptError, encrypt_io, x25519

    reader, writer = os.pipe()

    def encrypt() -> None:
        try:
            with os.fdopen(reader, "rb") as plain:
                encrypt_io(plain, out, [x25519.Recipient.from_str(recipient)])
        except (EncryptError, OSError) as error:
            raise NanobotError(f"the backup cannot be written: {error}") from error

    with _beside(encrypt), os.fdopen(writer, "wb") as entrance:
        yield entrance


@contextlib.contextmanager
def decrypting(source: BufferedReader, identity: Path | None) -> Iterator[BinaryIO]:
    """What `source` holds, decrypted where it is encrypted. Raises `NanobotError` where there is no
    fitting key, or what was encrypted is damaged."""
    if source.peek(len(_MAGIC))[: len(_MAGIC)] != _MAGIC:
        yield source
        return
    from pyrage import DecryptError, decrypt_io

    if identity is None:
        raise NanobotError(
            "the backup is encrypted", hint="Name the file with its secret key: --identity FILE."
        )
    identities = _identities(identity)
    reader, writer = os.pipe()

    def decrypt() -> None:
        try:
            with os.fdopen(writer, "wb") as entrance:
                decrypt_io(source, entrance, identities)
        except DecryptError as error:
            raise NanobotError(
                f"the backup cannot be decrypted: {error}",
                hint="It needs the secret key that belongs to the public key it was made for.",
            ) from error
        except OSError as error:
            raise NanobotError(
                f"the backup is damaged: {error}", hint="Take another one."
            ) from error

    with _beside(decrypt), os.fdopen(reader, "rb") as result:
        yield result


@contextlib.contextmanager
def _beside(work: Callable[[], None]) -> Iterator[None]:
    """Run `work` in a thread for as long as the body. Its failure is the reason for what the body
    then sees of the pipe between the two, so it is what is raised; but not in place of a
    `NanobotError`, with which the body leaves before the end."""
    with ThreadPoolExecutor(1, "age") as pool:
        working = pool.submit(work)
        try:
            yield
        except NanobotError:
            raise
        except Exception:  # raised again, unless the thread knows why
            working.result()
            raise
        working.result()


def pack(
    out: BinaryIO, home: Path, head: Head, items: Sequence[Item], progress: Progress
) -> tuple[int, list[str]]:
    """Write the backup of `items` to `out`: how many files went in, and those that became shorter
    while they were read, which are filled up with zeros. A file that has gone is left out, but not
    one of the snapshot: without it there is no backup. Raises `OSError`."""
    sums: dict[str, str] = {}
    changed: list[str] = []
    with (
        gzip.GzipFile("", "wb", _LEVEL, out, mtime=0) as compressed,
        tarfile.open(  # type: ignore[call-overload]  # the stubs do not know the last one
            fileobj=compressed, mode="w|", copybufsize=_BLOCK
        ) as tar,
    ):
        _add(tar, HEAD, head.encoded(), head)
        for item in items:
            if item.kind != "file":
                tar.addfile(_member(item))
                continue
            if (file := _opened(home, item)) is None:
                continue
            with file:
                reader = _Exactly(file, item.size, lambda more: progress(more, head.size))
                tar.addfile(_member(item), reader)
            sums[item.path] = reader.hash.hexdigest()
            if reader.is_short:
                changed.append(item.path)
        _add(tar, MANIFEST, json.dumps({"sha256": sums}, indent=0).encode(), head)
    return len(sums), changed


def _opened(home: Path, item: Item) -> BinaryIO | None:
    if item.source:
        return (home / item.source).open("rb")
    try:
        return open_plain(home, item.path)
    except FileNotFoundError:
        return None


def _member(item: Item) -> tarfile.TarInfo:
    member = tarfile.TarInfo(HOME + item.path)
    member.mode, member.mtime, member.size = item.mode, item.modified, item.size
    if item.kind == "folder":
        member.type = tarfile.DIRTYPE
    elif item.kind == "link":
        member.type, member.linkname = tarfile.SYMTYPE, item.target
    return member


def _add(tar: tarfile.TarFile, name: str, content: bytes, head: Head) -> None:
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
