"""Files: accepted types and sizes, and downloads."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from tests.doubles.graph.errors import BAD_PARAMETER
from tests.doubles.graph.values import Json, Refusal, Upload

MEGABYTE = 1024 * 1024

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
)
"""A picture of one pixel."""

OGG = b"OggS\x00\x02" + bytes(22) + b"OpusHead\x01\x01"
"""The beginning of a voice note."""

URL_SECONDS = 300
"""Validity of a file's address."""

_OFFICE = "application/vnd.openxmlformats-officedocument"
TYPES: dict[str, frozenset[str]] = {
    "image": frozenset({"image/jpeg", "image/png"}),
    "audio": frozenset({"audio/aac", "audio/amr", "audio/mp4", "audio/mpeg", "audio/ogg"}),
    "video": frozenset({"video/3gpp", "video/mp4"}),
    "sticker": frozenset({"image/webp"}),
    "document": frozenset(
        {
            "application/msword",
            "application/pdf",
            "application/vnd.ms-excel",
            "application/vnd.ms-powerpoint",
            f"{_OFFICE}.presentationml.presentation",
            f"{_OFFICE}.spreadsheetml.sheet",
            f"{_OFFICE}.wordprocessingml.document",
            "text/plain",
        }
    ),
}
"""Permitted types of uploads. A document may have any of these types."""

ALL_TYPES = frozenset().union(*TYPES.values())

_LIMITS = {"image": 5, "audio": 16, "video": 16, "sticker": 0.5, "document": 100}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file on the server. `size` is the reported size, and the content may differ."""

    id: str
    size: int
    upload: Upload

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the content."""
        return hashlib.sha256(self.upload.content).digest()

    def in_message(self, url: str, **more: object) -> Json:
        """Return the object of a message with this file."""
        return {
            "mime_type": self.upload.mime,
            "sha256": base64.b64encode(self.digest).decode(),
            "id": self.id,
            "url": url,
            **more,
        }


def essence(mime: str) -> str:
    """Return a type without its parameters: "audio/ogg" of "audio/ogg; codecs=opus"."""
    return mime.partition(";")[0].strip().lower()


def check_upload(file: Upload) -> None:
    """Reject unsupported files."""
    mime = essence(file.mime)
    if mime not in ALL_TYPES:
        known = ", ".join(sorted(ALL_TYPES))
        raise Refusal(
            BAD_PARAMETER,
            f"Param file must be a file with one of the following types: {known}. "
            f"Received file of type '{mime}'.",
        )
    if not file.content:
        raise Refusal(BAD_PARAMETER, "the file is empty")
    if len(file.content) > _LIMITS["document"] * MEGABYTE:
        raise Refusal(BAD_PARAMETER, "the file is too large")


def fits_kind(kind: str, file: Upload) -> bool:
    """Check whether a message of this kind may carry the file."""
    good = kind == "document" or essence(file.mime) in TYPES[kind]
    return good and len(file.content) <= _LIMITS[kind] * MEGABYTE
