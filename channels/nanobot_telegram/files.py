"""Files on the way out: as what Telegram takes them, and streamed from disk.

Telegram shows photos, voice notes, videos and music only in some formats and sizes; everything else
goes as a document, which always works. Nothing is read into memory whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from mimetypes import guess_type
from pathlib import Path
from typing import Literal

from telegram import InputFile

from nanobot.bus.events import Media
from nanobot.channel.text import valid_unicode
from nanobot.errors import SendRefused

Shape = Literal["photo", "animation", "voice", "audio", "video", "document"]

LARGEST_FILE = 50_000_000
"""Bytes that a bot may upload."""

_LARGEST_PHOTO = 10_000_000

_PHOTOS = frozenset({"image/jpeg", "image/png", "image/webp"})
_VOICES = frozenset({"audio/ogg", "audio/opus", "audio/mpeg", "audio/mp3"})
_VOICES |= {"audio/mp4", "audio/m4a", "audio/x-m4a"}
_MUSIC = frozenset({"audio/mpeg", "audio/mp3", "audio/mp4", "audio/m4a", "audio/x-m4a"})
_VIDEOS = frozenset({"video/mp4"})


@dataclass(frozen=True, slots=True)
class Upload:
    """A file on disk, the name that people see, and what it is sent as. `size` is in bytes."""

    path: Path
    name: str
    shape: Shape
    size: int


def upload_of(media: Media, path: Path) -> Upload:
    """How to send a file; raises `SendRefused` where it is gone, empty or too large."""
    name = valid_unicode(media.name or path.name)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise _gone(name) from error
    if size > LARGEST_FILE:
        raise SendRefused(
            f"{name} has {size / 1e6:.0f} MB; Telegram takes at most {LARGEST_FILE / 1e6:.0f} MB "
            "from a bot",
            hint="Make it smaller or put it where it can be downloaded.",
        )
    if size == 0:
        raise SendRefused(f"{name} is empty, and Telegram takes no empty files")
    mime = media.mime or guess_type(name)[0] or ""
    return Upload(path, name, _shape(media, mime.partition(";")[0].strip().lower(), size), size)


def together(uploads: Sequence[Upload]) -> tuple[Upload, ...]:
    """The same files as shapes that one album may mix: photos with videos, else only one kind."""
    shapes = {upload.shape for upload in uploads}
    if len(uploads) == 1 or shapes <= {"photo", "video"} or shapes == {"audio"}:
        return tuple(uploads)
    return as_documents(uploads)


def as_documents(uploads: Sequence[Upload]) -> tuple[Upload, ...]:
    """The same files as plain documents."""
    return tuple(Upload(one.path, one.name, "document", one.size) for one in uploads)


@contextmanager
def opened(uploads: Sequence[Upload]) -> Iterator[list[InputFile]]:
    """Open for one request; raises `SendRefused` where a file is gone meanwhile."""
    with ExitStack() as stack:
        files = []
        for upload in uploads:
            try:
                handle = stack.enter_context(upload.path.open("rb"))
            except OSError as error:
                raise _gone(upload.name) from error
            files.append(
                InputFile(handle, upload.name, attach=len(uploads) > 1, read_file_handle=False)
            )
        yield files


def _gone(name: str) -> SendRefused:
    return SendRefused(f"the file {name} is gone", hint="Ask for it to be made again.")


def _shape(media: Media, mime: str, size: int) -> Shape:
    match media.kind:
        case "image" if mime == "image/gif":
            return "animation"
        case "image" if size <= _LARGEST_PHOTO and (mime in _PHOTOS or not mime):
            return "photo"
        case "voice" if mime in _VOICES or not mime:
            return "voice"
        case "audio" | "voice" if mime in _MUSIC:
            return "audio"
        case "video" if mime in _VIDEOS or not mime:
            return "video"
    return "document"
