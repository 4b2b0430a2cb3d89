"""Files that came with a message of the terminal, on disk until the message is answered. Blocks."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path

from nanobot.bus.events import Media
from nanobot.channel.documents import kind_of
from nanobot.errors import NanobotError, SendRefused
from nanobot.io import make_folder, replace_file, storage_errors
from nanobot.text import one_line
from nanobot_cli.wire import MOST_BYTES, ChatRequest

_FOLDER = "files"
_KEPT_SECONDS = 30 * 86_400.0
"""Age at which a file is deleted that no turn has answered."""


class Uploads:
    """The files in the channel's folder, named after their message."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / _FOLDER

    def keep(
        self, event_id: str, files: Sequence[tuple[str, bytes]], now: float
    ) -> tuple[Media, ...]:
        """Store the files of a message, durably, also if it is repeated. Delete very old ones.
        Raises `StorageError`."""
        kept = list[Media]()
        with storage_errors(self._folder):
            make_folder(self._folder)
            for path in self._folder.iterdir():
                with suppress(FileNotFoundError):  # deleted by `drop`
                    if now - path.stat().st_mtime > _KEPT_SECONDS:
                        path.unlink()
            for number, (name, data) in enumerate(files):
                ref = f"{_id(event_id)}-{number}"
                replace_file(self._folder / ref, data)
                mime = guess_type(name)[0] or "application/octet-stream"
                kept.append(Media(ref, kind_of(mime), mime, one_line(name, 200), len(data)))
        return tuple(kept)

    def read(self, ref: str, limit: int) -> bytes:
        """Return the content of a file. Raises `SendRefused`."""
        path = self._folder / Path(ref).name
        try:
            if (size := path.stat().st_size) > limit:
                raise SendRefused(f"it is {size / 1e6:.0f} MB (limit: {limit / 1e6:.0f} MB)")
            return path.read_bytes()
        except OSError as error:
            raise SendRefused("it no longer exists") from error

    def drop(self, event_ids: Iterable[str]) -> None:
        """Delete the files of answered messages. Best effort."""
        with suppress(OSError):
            for path in [one for id in event_ids for one in self._folder.glob(f"{_id(id)}-*")]:
                path.unlink(missing_ok=True)


def decode_files(request: ChatRequest) -> list[tuple[str, bytes]]:
    """Return the names and contents of a request's files. Raises `NanobotError`."""
    if request.is_temporary:
        raise NanobotError("a temporary chat can't have files")
    try:
        files = [(one.name, b64decode(one.data, validate=True)) for one in request.attached]
    except ValueError as error:  # also for text that is not ASCII
        raise NanobotError("a file of the message is damaged") from error
    if sum(len(data) for _, data in files) > MOST_BYTES:
        raise NanobotError(f"the files are too large (limit: {MOST_BYTES >> 20} MB)")
    return files


def _id(event_id: str) -> str:
    return sha256(event_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
