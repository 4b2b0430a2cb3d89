"""Files in messages: the JSON of each kind, and the server's checks."""

from __future__ import annotations

from tests.doubles.telegram.values import Json, Refusal, Upload, bad_request
from tests.doubles.telegram.world import StoredFile

MEGABYTE = 1024 * 1024
DOWNLOAD_LIMIT = 20 * MEGABYTE
UPLOAD_LIMIT = 50 * MEGABYTE
PHOTO_LIMIT = 10 * MEGABYTE

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
)
"""A picture of one pixel."""

OGG = b"OggS\x00\x02" + bytes(22) + b"OpusHead\x01\x01"
"""The beginning of a voice note."""

KINDS = ("photo", "document", "voice", "video", "audio", "animation")
"""Kinds that a bot may send. Each has its method and its field."""

_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")
_FRAME: Json = {"width": 640, "height": 480}
_EXTRAS: dict[str, Json] = {
    "voice": {"duration": 3},
    "audio": {"duration": 3},
    "video": {**_FRAME, "duration": 3},
    "animation": {**_FRAME, "duration": 3},
    "video_note": {"length": 240, "duration": 3},
    "sticker": {
        "type": "regular",
        "width": 512,
        "height": 512,
        "is_animated": False,
        "is_video": False,
    },
}
_NAMELESS = ("voice", "video_note", "sticker")


def attachment(kind: str, file: StoredFile, small: StoredFile | None = None) -> Json:
    """Return the fields of a message with `file`. A photo has up to two sizes, the largest last. An
    animation is a document as well."""
    if kind == "photo":
        sizes: list[object] = [{**small.json, "width": 90, "height": 67}] if small else []
        return {"photo": [*sizes, {**file.json, "width": 1280, "height": 960}]}
    value: Json = {**file.json, **_EXTRAS.get(kind, {})}
    if kind not in _NAMELESS:
        value["file_name"] = file.upload.name
    if file.upload.mime and kind not in ("video_note", "sticker"):
        value["mime_type"] = file.upload.mime
    return {"animation": value, "document": value} if kind == "animation" else {kind: value}


def check_upload(kind: str, file: Upload) -> None:
    """Reject unsupported files of this kind."""
    size = len(file.content)
    if size > UPLOAD_LIMIT:
        raise Refusal(413, "Request Entity Too Large")
    if not size:
        raise bad_request("file must be non-empty")
    if kind == "photo":
        _check_photo(file.content)


def _check_photo(content: bytes) -> None:
    size = len(content)
    if size > PHOTO_LIMIT:
        raise bad_request(
            f"file of size {size} bytes is too big for a photo; "
            f"the maximum size is {PHOTO_LIMIT} bytes"
        )
    if not content.startswith(_PICTURES):
        raise bad_request("IMAGE_PROCESS_FAILED")
    if content.startswith(_PICTURES[0]):
        width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
        narrow, wide = sorted((width, height))
        if width + height > 10_000 or wide > 20 * narrow:
            raise bad_request("PHOTO_INVALID_DIMENSIONS")
