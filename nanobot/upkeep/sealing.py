"""Encryption of backups, with age (age-encryption.org): for a public key, which may lie about; only
who has the secret one, the *identity*, can read them. The program `age` reads and writes the same.

A backup is of any size, so it flows through: a thread of ours, which ends with the `with`, stands
between what writes or reads and the library, which does both by itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Protocol

from nanobot.errors import NanobotError, StorageError

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
