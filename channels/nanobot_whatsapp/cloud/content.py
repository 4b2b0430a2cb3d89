"""What one message of the Cloud API holds, by its kind: words, a file, notes. Pure.

Every kind that is documented is here. One that is not, or that WhatsApp itself could not carry
(`unsupported`), becomes a note that says so: its sender wrote something and waits for an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nanobot.bus.events import Media, MediaKind
from nanobot.channel.text import one_line
from nanobot_whatsapp.cloud.reading import (
    Raw,
    flag_in,
    note,
    number_in,
    object_in,
    objects_in,
    text_in,
)

_MEDIA_ID = re.compile(r"[A-Za-z0-9_-]{1,256}", re.ASCII)
_PICTURES = frozenset({"image/jpeg", "image/png", "image/webp", "image/gif"})
"""Sent as documents these are still pictures to look at."""
_MOST = 20
"""Contacts, wares or answers that are named of one message."""
_LONGEST_ANSWER = 500
_TOKEN = "flow_token"  # noqa: S105 - the name of a field
_REPLIES = ("button_reply", "list_reply", "nfm_reply", "call_permission_reply")


@dataclass(frozen=True, slots=True)
class Content:
    """`text` are the sender's own words; `button` is the id of the button that said them."""

    text: str = ""
    media: Media | None = None
    notes: tuple[str, ...] = ()
    button: str = ""


def content_of(message: Raw) -> Content:
    """What a message says; never nothing."""
    told = text_in(message, "type")
    kind = told or next((kind for kind in _READERS if kind in message), "")
    reader = _READERS.get(kind)
    content = Content() if reader is None else reader(object_in(message, kind), message)
    notes = (*content.notes, *_circumstances(message))
    if content.text.strip() or content.media or content.notes:
        return Content(content.text, content.media, notes, content.button)
    return Content(notes=(_unknown(kind, message), *notes))


def _unknown(kind: str, message: Raw) -> str:
    inner = object_in(message, kind)
    named = text_in(object_in(message, "unsupported"), "type") or text_in(inner, "type")
    shown = one_line(named or kind).replace("_", " ")
    said = next((_details(error) for error in objects_in(message, "errors")), "")
    return note("a message of a kind that nanobot cannot read", shown or "unknown", said)


def _details(error: Raw) -> str:
    details = text_in(object_in(error, "error_data"), "details") or text_in(error, "details")
    return details or text_in(error, "title")


def _circumstances(message: Raw) -> tuple[str, ...]:
    """What Meta says of how the message came about, which is nobody's words."""
    referral = object_in(message, "referral")
    product = object_in(object_in(message, "context"), "referred_product")
    notes = []
    if referral:
        source = one_line(text_in(referral, "source_type")) or "link"
        told = (text_in(referral, key) for key in ("headline", "body", "source_url"))
        notes.append(note(f"came here from this {source}", *told))
    if product:
        notes.append(note("about this product", text_in(product, "product_retailer_id")))
    return tuple(notes)


def _text(inner: Raw, _: Raw) -> Content:
    return Content(text_in(inner, "body"))


def _file(kind: MediaKind) -> Callable[[Raw, Raw], Content]:
    def read(inner: Raw, _: Raw) -> Content:
        return Content(text_in(inner, "caption"), _media(inner, kind))

    return read


def _audio(inner: Raw, _: Raw) -> Content:
    return Content(media=_media(inner, "voice" if flag_in(inner, "voice") else "audio"))


def _voice(inner: Raw, _: Raw) -> Content:
    return Content(media=_media(inner, "voice"))


def _document(inner: Raw, _: Raw) -> Content:
    media = _media(inner, "document")
    if media is not None and media.mime in _PICTURES:
        media = Media(media.ref, "image", media.mime, media.name, media.size)
    return Content(text_in(inner, "caption"), media)


def _sticker(inner: Raw, _: Raw) -> Content:
    return Content(media=_media(inner, "image"), notes=("sticker",))


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
    return Content(notes=(note("location", place, *about),))


def _contacts(_: Raw, message: Raw) -> Content:
    cards = objects_in(message, "contacts")
    notes = [_card(card) for card in cards[:_MOST]]
    if len(cards) > _MOST:
        notes.append(f"and {len(cards) - _MOST} more contacts")
    return Content(notes=tuple(notes))


def _card(card: Raw) -> str:
    name, org = object_in(card, "name"), object_in(card, "org")
    shown = text_in(name, "formatted_name") or " ".join(
        filter(None, (text_in(name, "first_name"), text_in(name, "last_name")))
    )
    phones = [text_in(one, "phone") or text_in(one, "wa_id") for one in objects_in(card, "phones")]
    mails = [text_in(one, "email") for one in objects_in(card, "emails")]
    return note("contact", shown, text_in(org, "company"), *phones[:5], *mails[:5])


def _button(inner: Raw, _: Raw) -> Content:
    return Content(text_in(inner, "text"), button=text_in(inner, "payload"))


def _interactive(inner: Raw, _: Raw) -> Content:
    kind = next((kind for kind in _REPLIES if kind in inner), "")  # `type` is not always that
    reply = object_in(inner, kind)
    if kind in {"button_reply", "list_reply"}:
        about = text_in(reply, "description")
        notes = (note("it was described there as", about),) if about else ()
        return Content(text_in(reply, "title"), notes=notes, button=text_in(reply, "id"))
    if kind == "nfm_reply":
        return Content(notes=(note("form filled in", *_answers(reply)),))
    if kind == "call_permission_reply":
        return Content(notes=(note("answer about calls", text_in(reply, "response")),))
    return Content()


def _answers(reply: Raw) -> list[str]:
    """What was filled into a form, without the token that the sender of the form put into it."""
    answers = reply.get("response_json")
    if isinstance(answers, str):
        try:
            answers = json.loads(answers)
        except (ValueError, RecursionError):
            answers = None
    told = answers.items() if isinstance(answers, dict) else ()
    lines = [f"{key.replace('_', ' ')}: {_answer(value)}" for key, value in told if key != _TOKEN]
    return lines[:_MOST] or [text_in(reply, "body")]


def _answer(value: object) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shown[:_LONGEST_ANSWER]


def _order(inner: Raw, _: Raw) -> Content:
    wares = objects_in(inner, "product_items")
    told = [_ware(ware) for ware in wares[:_MOST]]
    if len(wares) > _MOST:
        told.append(f"and {len(wares) - _MOST} more")
    return Content(text_in(inner, "text"), notes=(note("order", *told),))


def _ware(ware: Raw) -> str:
    price = " ".join(filter(None, (_amount(ware, "item_price"), text_in(ware, "currency"))))
    shown = f"{_amount(ware, 'quantity') or '1'} × {text_in(ware, 'product_retailer_id')}"
    return f"{shown} at {price}" if price else shown


def _amount(raw: Raw, key: str) -> str:
    number = number_in(raw, key)
    return "" if number is None else f"{number:g}"


_READERS: Mapping[str, Callable[[Raw, Raw], Content]] = {
    "text": _text,
    "image": _file("image"),
    "video": _file("video"),
    "audio": _audio,
    "voice": _voice,
    "document": _document,
    "sticker": _sticker,
    "location": _location,
    "contacts": _contacts,
    "button": _button,
    "interactive": _interactive,
    "order": _order,
}
