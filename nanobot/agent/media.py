"""Files of messages and tools, received or sent, each stored once under its content hash.

A file's type is read from its content, not its name. A file wrongly sent as an image would make
every later request of its conversation invalid, and a chat shows a file that it can't play as a
document."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import mimetypes
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from loguru import logger

from nanobot.bus.events import Media, MediaKind
from nanobot.errors import WriteConflict
from nanobot.messages import MEDIA
from nanobot.providers.port import Image
from nanobot.security.paths import Place, Root
from nanobot.tools.read_tools import image_type

MAX_BYTES = 20 * 1024 * 1024
"""Largest file that is accepted."""
MAX_IMAGE_BYTES = 5 * 1024 * 1024
"""Largest image that is put into a prompt."""

_IMAGE_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
}
_IMAGE_TYPES = frozenset((*_IMAGE_SUFFIXES.values(), ".jpeg"))
_SUFFIXES = {"audio/ogg": ".ogg", "audio/mp4": ".m4a", "audio/wav": ".wav", "audio/webm": ".webm"}
"""Suffixes that Python's table lacks. A transcriber relies on the suffix."""
_OFFICE = "application/vnd.openxmlformats-officedocument"
_MORE_TYPES = {
    ".docx": f"{_OFFICE}.wordprocessingml.document",
    ".xlsx": f"{_OFFICE}.spreadsheetml.sheet",
    ".pptx": f"{_OFFICE}.presentationml.presentation",
    ".md": "text/markdown",
    ".ogg": "audio/ogg",
    ".flac": "audio/flac",
    ".mkv": "video/x-matroska",
}
_NAME = re.compile(r"[0-9a-f]{32}\.[a-z0-9]{1,8}")
_USABLE = re.compile(r"\.[a-z0-9]{1,8}")

_UNKNOWN = "application/octet-stream"


@cache
def _mime_types() -> mimetypes.MimeTypes:
    """Return Python's MIME types and a few more. The system's table is not used, as it differs
    between machines, though Python still reads it first."""
    table = mimetypes.MimeTypes()
    for suffix, mime in _MORE_TYPES.items():
        table.add_type(mime, suffix)
    return table


def file_type(content: bytes, name: str) -> tuple[MediaKind, str]:
    """Return how a chat shows `content`, and its MIME type. Sounds and pictures that chats can't
    play are documents. `name` only helps to name their type."""
    if (mime := image_type(content)) and mime != "image/gif":  # a photo would not move
        return "image", mime
    if content.startswith(b"OggS") and b"OpusHead" in content[:512]:
        return "voice", "audio/ogg"
    if content.startswith((b"ID3", b"\xff\xfb")):  # tags, or the usual kind of frame
        return "audio", "audio/mpeg"
    if content[4:8] == b"ftyp":
        return _MPEG4.get(content[8:11], ("video", "video/mp4"))
    if content.startswith(b"%PDF-"):
        return "document", "application/pdf"
    return "document", mime or _mime_types().guess_type(name)[0] or _UNKNOWN


_MPEG4: Mapping[bytes, tuple[MediaKind, str]] = {
    b"M4A": ("audio", "audio/mp4"),
    b"M4B": ("audio", "audio/mp4"),
    b"qt ": ("video", "video/quicktime"),
    b"hei": ("document", "image/heic"),  # pictures in the same container
    b"mif": ("document", "image/heic"),
    b"avi": ("document", "image/avif"),
}
"""Contents of an MPEG-4 container by the start of its brand."""


def media_name(data: bytes, mime: str, name: str = "") -> str:
    """Return the name of a file in the store. See `MediaStore.put`."""
    return f"{hashlib.sha256(data).hexdigest()[:32]}{_suffix_of(data, mime, name)}"


class MediaStore:
    """The folder `media/` of a home. A name can't lead out of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = Root(folder, name="media folder")

    def put(self, data: bytes, mime: str, name: str = "") -> str:
        """Store `data` and return its name. The same content has the same name, except for the
        suffix, which is taken from `name` if the type does not determine it. Raises
        `StorageError`."""
        kept = media_name(data, mime, name)
        self._root.create()
        if self._is_used_now(kept):
            return kept
        with contextlib.suppress(WriteConflict):  # the same content was just stored
            self._root.place(kept).write_bytes(data, expected=None)
        return kept

    def put_base64(self, data: str, mime: str) -> str:
        return self.put(base64.b64decode(data), mime)

    def put_outgoing(self, data: bytes, name: str) -> Media:
        """Store a file that is about to be sent as `name`, so that later changes don't matter.
        Raises `StorageError`."""
        kind, mime = file_type(data, name)
        return Media(f"{MEDIA}/{self.put(data, mime, name)}", kind, mime, name, len(data))

    def place(self, path: str) -> Place | None:
        """Return a stored file by its path in notes (`media/…`), or None for other paths and
        deleted files."""
        folder, _, name = path.rpartition("/")
        if folder != MEDIA or not _NAME.fullmatch(name):
            return None
        place = Root(self._folder, writable=False, name="media folder").place(name)
        return place if place.stat() else None

    def image(self, name: str) -> Image | None:
        """Return a stored image for a prompt, or None if it is no image, is gone or is too big."""
        if Path(name).suffix not in _IMAGE_TYPES or not _NAME.fullmatch(name):
            return None
        try:
            data = (self._folder / name).read_bytes()
        except OSError:
            return None
        mime = image_type(data)
        if not mime or len(data) > MAX_IMAGE_BYTES:
            return None
        self._is_used_now(name)
        return Image(base64.b64encode(data).decode(), mime)

    def _is_used_now(self, name: str) -> bool:
        """Mark a file as used, so that it is not deleted as old. Return False if it doesn't
        exist."""
        try:
            os.utime(self._folder / name)
        except FileNotFoundError:
            return False
        except OSError as error:
            logger.debug("{} cannot be marked as used: {}", name, error)
        return True


def _suffix_of(data: bytes, mime: str, name: str) -> str:
    """Return a suffix by the content, the declared type, or the name. Only an image has an image's
    suffix, and no executable file keeps its own."""
    from nanobot.security.confine.autorun import runs_by_itself

    if found := image_type(data):
        return _IMAGE_SUFFIXES[found]
    declared, own = mime.partition(";")[0].strip().lower(), Path(name).suffix.lower()
    by_type = _SUFFIXES.get(declared) or _mime_types().guess_extension(declared)
    guesses = (own, by_type) if declared in ("", _UNKNOWN) else (by_type, own)
    for guess in filter(None, guesses):
        is_usable = _USABLE.fullmatch(guess) and guess not in _IMAGE_TYPES
        if is_usable and not runs_by_itself(f"file{guess}"):
            return guess
    return ".bin"
