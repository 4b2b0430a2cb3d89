"""Documents and files of an adapter: what cannot be read is kept aside for a developer, small files
hold state, and files are sent.
"""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from itertools import count
from mimetypes import guess_type
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from loguru import logger
from msgspec import MsgspecError, Struct, to_builtins
from msgspec.json import decode

from nanobot.bus.events import Media
from nanobot.channel import ChannelHost
from nanobot.errors import SendRefused, StorageError
from nanobot.io import append_line, json_line, replace_file, storage_errors
from nanobot.text import one_line

M = TypeVar("M", bound=Struct)

_FILE = "quarantine.jsonl"
_FILE_BYTES = 1_000_000
_MOST_CHARACTERS = 50_000


class Quarantine:
    """Keeps things in the folder of the channel. Never raises for want of space; the log says so.

    They come before anybody was asked who may write, so nobody can fill the disk with them: the
    same is kept once, and the file is bounded; what does not fit pushes out the oldest. It is for
    the owner's eyes (0600).
    """

    def __init__(self, channel: str, host: ChannelHost) -> None:
        self._path, self._clock = host.state_folder / _FILE, host.clock
        self._channel = channel
        self._known = deque[int](maxlen=256)

    def keep(self, raw: object, reason: str) -> None:
        """Put `raw` aside, and warn of that without what is in it; nothing of either if it was
        there lately. `reason` holds nothing of it."""
        text = raw if isinstance(raw, str) else _as_text(raw)
        if hash(text) in self._known:
            return
        self._known.append(hash(text))
        logger.warning("{}: unreadable input is set aside ({}): {}", self._channel, reason, _FILE)
        time = self._clock.now().isoformat()
        entry = {"time": time, "reason": reason, "what": text[:_MOST_CHARACTERS]}
        try:
            if append_line(self._path, json_line(entry, compact=False).encode()) > _FILE_BYTES:
                self._path.replace(self._path.with_suffix(".old.jsonl"))
        except OSError as failure:
            logger.warning("{}: cannot write {}: {}", self._channel, self._path, failure.strerror)


def _as_text(raw: object) -> str:
    """As JSON, its letters as they are: the file's own escapes are all there is of them, so that
    a search (`/forget --erase`) finds them."""
    try:
        return json.dumps(raw, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(type(raw))


class StateFile(Generic[M]):
    """A small file of an adapter's own (0600): one `model`, replaced as a whole; its defaults where
    there is no file. A damaged file is set aside and never written over, and what it held is lost.
    Blocks.
    """

    def __init__(self, path: Path, model: type[M]) -> None:
        self._path, self._model = path, model

    def read(self) -> M:
        """Raises `StorageError` where the disk refuses."""
        try:
            return decode(self._path.read_bytes(), type=self._model)
        except FileNotFoundError:
            return self._model()
        except OSError as error:
            raise StorageError.of(self._path, error) from error
        except (MsgspecError, ValueError):
            names = (self._path.with_suffix(f".damaged{n or ''}") for n in count())
            aside = next(name for name in names if not name.exists())
            logger.error("{} is damaged and set aside as {}", self._path, aside.name)
            with suppress(OSError):
                self._path.replace(aside)
            return self._model()

    def write(self, value: M, *, durable: bool = True) -> None:
        """Raises `StorageError`; the file is as it was then."""
        text = json.dumps(to_builtins(value), ensure_ascii=False)
        with storage_errors(self._path):
            replace_file(self._path, text.encode(errors="replace"), durable=durable)


class FileFacts(NamedTuple):
    """Of a file to send: its name for people, its MIME type without parameters (empty: unknown),
    its size in bytes."""

    name: str
    mime: str
    size: int


def file_facts(media: Media, path: Path, limit: int, platform: str) -> FileFacts:
    """Raises `SendRefused` where the file is gone, empty, or larger than `limit` bytes."""
    name = one_line(media.name or path.name)
    try:
        size = path.stat().st_size
    except OSError:
        hint = "Ask for it again."
        raise SendRefused(f"the file {name} no longer exists", hint=hint) from None
    if size > limit:
        raise SendRefused(
            f"{name} has {size / 1e6:.0f} MB, but {platform} accepts at most {limit / 1e6:.0f} MB",
            hint="Make it smaller, or share a link to it.",
        )
    if size == 0:
        raise SendRefused(f"{name} is empty, and {platform} does not accept empty files")
    mime = media.mime or guess_type(name)[0] or ""
    return FileFacts(name, mime.partition(";")[0].strip().lower(), size)
