"""Documents and files of an adapter: a quarantine for unreadable input, small state files, and
checks of outbound files."""

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

from nanobot.bus.events import Media, MediaKind
from nanobot.channel import ChannelHost
from nanobot.errors import SendRefused, StorageError
from nanobot.io import append_line, json_line, replace_file, storage_errors
from nanobot.text import one_line

M = TypeVar("M", bound=Struct)

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""MIME types of the pictures that models and browsers show."""

_FILE = "quarantine.jsonl"
_FILE_BYTES = 1_000_000
_MOST_CHARACTERS = 50_000


class Quarantine:
    """Keeps unreadable input in the channel's folder, readable only by the owner (0600). Never
    raises if the disk is full, but logs it.

    This input has not passed the access check, so a stranger must not be able to fill the disk with
    it. Repeated input is stored once, and the file is bounded: the oldest entries are dropped."""

    def __init__(self, channel: str, host: ChannelHost) -> None:
        self._path, self._clock = host.state_folder / _FILE, host.clock
        self._channel = channel
        self._known = deque[int](maxlen=256)  # hashes of recent input

    def keep(self, raw: object, reason: str) -> None:
        """Store `raw` and log a warning without its content. Does nothing if the same input came
        recently. `reason` contains nothing of the input."""
        text = raw if isinstance(raw, str) else dump_json(raw)
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


def dump_json(raw: object) -> str:
    """Return JSON without escapes of its own, so that a search (`/forget --erase`) finds the
    text."""
    try:
        return json.dumps(raw, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(type(raw))


class StateFile(Generic[M]):
    """A small state file (0600) of an adapter: one `model`, replaced as a whole, with its defaults
    if there is no file. A damaged file is set aside and never overwritten, and its content is lost.
    Blocks."""

    def __init__(self, path: Path, model: type[M]) -> None:
        self._path, self._model = path, model

    def read(self) -> M:
        """Return the stored value or the defaults. Raises `StorageError` if the disk refuses."""
        try:
            return decode(self._path.read_bytes(), type=self._model)
        except FileNotFoundError:
            return self._model()
        except OSError as error:
            raise StorageError.of(self._path, error) from error
        except (MsgspecError, ValueError):
            names = (self._path.with_suffix(f".damaged{n or ''}") for n in count())
            aside = next(name for name in names if not name.exists())
            logger.error("{} is damaged and was moved to {}", self._path, aside.name)
            with suppress(OSError):
                self._path.replace(aside)
            return self._model()

    def write(self, value: M) -> None:
        """Replace the file. On `StorageError` it is unchanged."""
        text = json.dumps(to_builtins(value), ensure_ascii=False)
        with storage_errors(self._path):
            replace_file(self._path, text.encode(errors="replace"))


class FileFacts(NamedTuple):
    """The display name of an outbound file, its MIME type without parameters (empty if unknown),
    and its size in bytes."""

    name: str
    mime: str
    size: int


def file_facts(media: Media, path: Path, limit: int, platform: str) -> FileFacts:
    """Describe an outbound file. Raises `SendRefused` if it is missing, empty, or larger than
    `limit` bytes."""
    name = one_line(media.name or path.name)
    try:
        size = path.stat().st_size
    except OSError:
        hint = "Ask for it again."
        raise SendRefused(f"the file {name} no longer exists", hint=hint) from None
    if size > limit:
        raise SendRefused(
            f"{name} is {size / 1e6:.0f} MB, but {platform} accepts at most {limit / 1e6:.0f} MB",
            hint="Make it smaller, or share a link to it.",
        )
    if size == 0:
        raise SendRefused(f"{name} is empty, and {platform} does not accept empty files")
    mime = media.mime or guess_type(name)[0] or ""
    return FileFacts(name, mime.partition(";")[0].strip().lower(), size)


def kind_of(mime: str) -> MediaKind:
    """Return how a chat shows a file of this MIME type."""
    match mime.partition("/")[0]:
        case "image" if mime in PICTURES:
            return "image"
        case "audio":
            return "audio"
        case "video":
            return "video"
    return "document"
