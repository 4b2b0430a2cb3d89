"""Files as WhatsApp shows or plays them, which it does in some formats only. Everything else goes
as a document."""

from __future__ import annotations

from collections.abc import Mapping

from nanobot.bus.events import MediaKind

_PICTURES = frozenset({"image/jpeg", "image/png"})
_FILMS = frozenset({"video/mp4", "video/3gpp"})
_SOUNDS = frozenset({"audio/aac", "audio/amr", "audio/mp4", "audio/mpeg", "audio/ogg"})
_SPEECH = frozenset({"audio/ogg"})
_SHOWN: Mapping[MediaKind, frozenset[str]] = {
    "image": _PICTURES,
    "video": _FILMS,
    "audio": _SOUNDS,
    "voice": _SPEECH,
}
_ALIASES = {
    "audio/mp3": "audio/mpeg",
    "audio/m4a": "audio/mp4",
    "audio/x-m4a": "audio/mp4",
    "audio/opus": "audio/ogg",
    "application/ogg": "audio/ogg",
    "audio/x-aac": "audio/aac",
    "image/jpg": "image/jpeg",
    "video/3gp": "video/3gpp",
}


def plain_mime(mime: str) -> str:
    """`mime` without parameters, under the name that WhatsApp knows it by."""
    known = mime.partition(";")[0].strip().lower()
    return _ALIASES.get(known, known)


def shown_as(kind: MediaKind, mime: str) -> MediaKind:
    """What a file of this kind can be sent as; `mime` is a plain one."""
    if kind == "voice" and mime not in _SPEECH:
        kind = "audio"
    return kind if mime in _SHOWN.get(kind, ()) else "document"
