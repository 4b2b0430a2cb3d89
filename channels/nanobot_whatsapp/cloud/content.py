"""What one message of the Cloud API contains, by its kind: text, a file, notes. Pure.

JSON is read leniently: a value of another type than documented counts as absent, so nothing in
here raises. Kinds that only businesses have a use for (orders, forms), unknown ones, and those that
WhatsApp itself could not carry (`unsupported`) become a note that says so: the sender waits for an
answer.

Notes and names end up in bracketed lines, which are nanobot's: what people choose freely never
contains a bracket or a line end of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from nanobot.bus.events import Media, MediaKind
from nanobot.text import one_line

Raw = Mapping[str, object]
"""A JSON object."""

_MEDIA_ID = re.compile(r"[A-Za-z0-9_-]{1,256}", re.ASCII)
_PICTURES = frozenset({"image/jpeg", "image/png", "image/webp", "image/gif"})
"""Sent as documents, these are still pictures to look at."""
_DETAIL_CHARACTERS = 500
_MAX_CONTACTS = 20


def object_in(raw: Raw, key: str) -> Raw:
    """The object there; an empty one if there is none."""
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def list_in(raw: Raw, key: str) -> Sequence[object]:
    """The list there; an empty one if there is none."""
    value = raw.get(key)
    return value if isinstance(value, list) else ()


def objects_in(raw: Raw, key: str) -> list[Raw]:
    """The objects of the list there."""
    return [item for item in list_in(raw, key) if isinstance(item, dict)]


def text_in(raw: Raw, key: str) -> str:
    """The text there; a whole number counts as one."""
    value = raw.get(key)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def number_in(raw: Raw, key: str) -> float | None:
    """The number there, also if it is written as a text; None unless it is finite."""
    value = raw.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


@dataclass(frozen=True, slots=True)
class Content:
    """`text` are the sender's own words; `button` is the id of the button that said them."""

    text: str = ""
    media: Media | None = None
    notes: tuple[str, ...] = ()
    button: str = ""


def content_of(message: Raw) -> Content:
    """What a message says; never nothing."""
    kind = text_in(message, "type") or next((kind for kind in _READERS if kind in message), "")
    inner, reader = object_in(message, kind), _READERS.get(kind)
    content = Content(text_in(inner, "text")) if reader is None else reader(inner, message)
    if reader is not None and (content.text.strip() or content.media or content.notes):
        return content
    named = text_in(object_in(message, "unsupported"), "type") or text_in(inner, "type") or kind
    errors = objects_in(message, "errors")
    reason = error_text(errors[0]) if errors else ""
    shown = one_line(named).replace("_", " ") or "unknown"
    note = _note("a message of a kind that nanobot cannot read", shown, reason)
    return replace(content, notes=(note,))


def error_text(error: Raw) -> str:
    """What Meta says of an error, the details first."""
    details = text_in(object_in(error, "error_data"), "details") or text_in(error, "details")
    return details or text_in(error, "message") or text_in(error, "title")


def _note(kind: str, *details: str) -> str:
    """`kind: detail, detail`, or `kind` if no detail is known."""
    known = ", ".join(filter(None, (one_line(detail, _DETAIL_CHARACTERS) for detail in details)))
    return f"{kind}: {known}" if known else kind


def _file(kind: MediaKind) -> Callable[[Raw, Raw], Content]:
    return lambda inner, _: Content(text_in(inner, "caption"), _media(inner, kind))


def _audio(inner: Raw, _: Raw) -> Content:
    return Content(media=_media(inner, "voice" if inner.get("voice") is True else "audio"))


def _document(inner: Raw, _: Raw) -> Content:
    media = _media(inner, "document")
    if media is not None and media.mime in _PICTURES:
        media = replace(media, kind="image")
    return Content(text_in(inner, "caption"), media)


def _media(inner: Raw, kind: MediaKind) -> Media | None:
    id = text_in(inner, "id")
    if not _MEDIA_ID.fullmatch(id):
        return None
    mime = one_line(text_in(inner, "mime_type").partition(";")[0]).lower()
    size = number_in(inner, "file_size") or 0.0
    return Media(id, kind, mime, one_line(text_in(inner, "filename")), max(0, int(size)))


def _location(inner: Raw, _: Raw) -> Content:
    latitude, longitude = number_in(inner, "latitude"), number_in(inner, "longitude")
    if latitude is None or longitude is None:
        return Content()
    place = ", ".join(f"{n:.6f}".rstrip("0").rstrip(".") for n in (latitude, longitude))
    about = (text_in(inner, key) for key in ("name", "address", "url"))
    return Content(notes=(_note("location", place, *about),))


def _contacts(_: Raw, message: Raw) -> Content:
    cards = objects_in(message, "contacts")
    notes = [_card(card) for card in cards[:_MAX_CONTACTS]]
    if len(cards) > _MAX_CONTACTS:
        notes.append(f"and {len(cards) - _MAX_CONTACTS} more contacts")
    return Content(notes=tuple(notes))


def _card(card: Raw) -> str:
    name, org = object_in(card, "name"), object_in(card, "org")
    shown = text_in(name, "formatted_name") or " ".join(
        filter(None, (text_in(name, "first_name"), text_in(name, "last_name")))
    )
    phones = [text_in(one, "phone") or text_in(one, "wa_id") for one in objects_in(card, "phones")]
    mails = [text_in(one, "email") for one in objects_in(card, "emails")]
    return _note("contact", shown, text_in(org, "company"), *phones[:5], *mails[:5])


def _interactive(inner: Raw, _: Raw) -> Content:
    kind = "button_reply" if "button_reply" in inner else "list_reply"
    reply = object_in(inner, kind)
    about = text_in(reply, "description")
    notes = (_note("it was described there as", about),) if about else ()
    return Content(text_in(reply, "title"), notes=notes, button=text_in(reply, "id"))


_READERS: Mapping[str, Callable[[Raw, Raw], Content]] = {
    "text": lambda inner, _: Content(text_in(inner, "body")),
    "image": _file("image"),
    "video": _file("video"),
    "audio": _audio,
    "voice": lambda inner, _: Content(media=_media(inner, "voice")),
    "document": _document,
    "sticker": lambda inner, _: Content(media=_media(inner, "image"), notes=("sticker",)),
    "location": _location,
    "contacts": _contacts,
    "button": lambda inner, _: Content(text_in(inner, "text"), button=text_in(inner, "payload")),
    "interactive": _interactive,
}
