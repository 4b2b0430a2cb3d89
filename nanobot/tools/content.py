"""What kind of content bytes are, told from how they begin and never from a file's name."""

from __future__ import annotations

_BINARY = (
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "zip archive or office document"),
    (b"\x1f\x8b", "gzip archive"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (b"\x7fELF", "program"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"ID3", "MP3 audio"),
    (b"OggS", "Ogg audio"),
    (b"fLaC", "FLAC audio"),
    (b"RIFF", "audio or video"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


def image_type(content: bytes) -> str:
    """The MIME type of an image that models take; empty for anything else."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    return ""


def binary_kind(content: bytes) -> str:
    """What binary content is, in words; empty for text (in any 8-bit encoding)."""
    if b"\0" not in content[:8192] and not content.startswith(b"%PDF-"):
        return ""
    if content[4:8] == b"ftyp":
        return "MPEG-4 audio or video"
    return next((kind for start, kind in _BINARY if content.startswith(start)), "unknown kind")
