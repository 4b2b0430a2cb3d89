"""Files on the way out: as what WhatsApp takes them.

Pictures, sound and films are shown only in some formats (see `nanobot_whatsapp.kinds`) and sizes;
everything else goes as a document. Of documents the Cloud API takes only some kinds, among them
plain text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from mimetypes import guess_type
from pathlib import Path

from nanobot.bus.events import Media, MediaKind
from nanobot.channel.text import one_line
from nanobot.errors import SendRefused
from nanobot_whatsapp.kinds import plain_mime, shown_as

LARGEST_FILE = 100_000_000
"""Bytes of a document."""

_LARGEST = {"image": 5_000_000, "audio": 16_000_000, "voice": 16_000_000, "video": 16_000_000}
_USUAL: Mapping[MediaKind, str] = {
    "image": "image/jpeg",
    "voice": "audio/ogg",
    "video": "video/mp4",
}
"""What is taken for granted where neither the file nor its name says what it is."""
_OFFICE = "application/vnd.openxmlformats-officedocument"
_DOCUMENTS = frozenset(
    {
        "text/plain",
        "application/pdf",
        "application/msword",
        "application/vnd.ms-excel",
        "application/vnd.ms-powerpoint",
        f"{_OFFICE}.wordprocessingml.document",
        f"{_OFFICE}.spreadsheetml.sheet",
        f"{_OFFICE}.presentationml.presentation",
    }
)
_PLAIN = "text/plain"
_WRITTEN = frozenset(
    {"application/json", "application/xml", "application/yaml", "application/x-yaml"}
    | {"application/toml", "application/javascript", "application/x-sh", "application/sql"}
)
"""Kinds that are plain text to whoever opens them."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file on disk, the name that people see, what it is sent as, and the kind that WhatsApp is
    told."""

    path: Path
    name: str
    shape: MediaKind
    mime: str


def upload_of(media: Media, path: Path) -> Upload:
    """How to send a file; raises `SendRefused` where it is gone, empty or too large."""
    name = one_line(media.name or path.name)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise SendRefused(f"the file {name} is gone") from error
    if size > LARGEST_FILE:
        raise SendRefused(
            f"{name} has {size / 1e6:.0f} MB; WhatsApp takes at most {LARGEST_FILE / 1e6:.0f} MB",
            hint="Make it smaller or put it where it can be downloaded.",
        )
    if size == 0:
        raise SendRefused(f"{name} is empty, and WhatsApp takes no empty files")
    said = media.mime or guess_type(name)[0] or _USUAL.get(media.kind, "")
    mime = plain_mime(said)
    shape = shown_as(media.kind, mime)
    if shape != "document" and size > _LARGEST[shape]:
        shape = "document"
    upload = Upload(path, name, shape, mime)
    return as_document(upload) if shape == "document" else upload


def as_document(upload: Upload) -> Upload:
    """The same file as a plain document."""
    mime = upload.mime
    if mime not in _DOCUMENTS and (mime.startswith("text/") or mime in _WRITTEN):
        mime = _PLAIN
    return replace(upload, shape="document", mime=mime or "application/octet-stream")
