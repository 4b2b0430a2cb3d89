"""The items in one call of Meta's webhook: pure.

A call has entries, these have changes, and a change (its `value`) has messages, statuses and errors
of one business number. Each item is read separately: an unreadable one becomes `BrokenItem` and
affects no other. Values of an undocumented type count as absent, so nothing here raises, for any
document.

Unknown kinds of messages, and kinds that WhatsApp itself could not transmit (`unsupported`), become
a note, because the sender expects an answer. A call can't be answered here, so it becomes a note
without an answer. Ignored: messages in groups or to other numbers, and changes about other subjects
(templates, messages written on the business's phone).

Meta identifies people by number (`from`, `wa_id`), and by its own ids that hide the number
(`US.1349…`; `US.ENT.1181…` for a group of businesses). Older calls have only the number. People who
hide their number have none."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import islice
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import Media, MediaKind, Quote
from nanobot.channel import KEEP, NO_LONGER, asks_to_keep
from nanobot.text import one_line
from nanobot_whatsapp.ingest import OURS, UNREADABLE, IncomingMessage
from nanobot_whatsapp.people import Person, id_of, is_id, is_number, is_person

Raw = Mapping[str, object]
"""A JSON object."""

_MEDIA_ID = re.compile(r"[A-Za-z0-9_-]{1,256}", re.ASCII)
_PICTURES = frozenset({"image/jpeg", "image/png", "image/webp", "image/gif"})
"""Pictures that were sent as documents."""
_KINDS: Mapping[str, MediaKind] = {
    "image": "image", "video": "video", "audio": "audio", "voice": "voice", "document": "document",
    "sticker": "image",
}  # fmt: skip
_READ = (*_KINDS, "text", "location", "contacts", "button", "interactive", "order")
_DETAIL_CHARACTERS = 900
_MAX_CONTACTS = 20
_MOST_ITEMS = 1_000
"""Updates in one call: Meta batches up to 1,000.
Source: https://developers.facebook.com/docs/graph-api/webhooks/getting-started"""
_OLDEST = datetime(2009, 1, 1, tzinfo=UTC)
_SILENT = frozenset({"request_welcome"})  # kinds of messages without content: an opened chat
_SILENT_UNSUPPORTED = frozenset({"poll_update", "pin", "unpin", "keep_in_chat"})
"""The same for kinds that the Cloud API marks as unsupported."""
_NEW_NUMBER = frozenset({"user_changed_number", "customer_changed_number"})
_ACCOUNT_FIELDS = frozenset(
    {"account_alerts", "account_review_update", "account_update", "phone_number_quality_update"}
)
"""Notifications about the business's permissions.
Source: https://developers.facebook.com/docs/whatsapp/cloud-api/webhooks/components"""


def object_in(raw: Raw, key: str) -> Raw:
    """Return an object field, or an empty object."""
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def list_in(raw: Raw, key: str) -> Sequence[object]:
    """Return a list field, or an empty list."""
    value = raw.get(key)
    return value if isinstance(value, list) else ()


def objects_in(raw: Raw, key: str) -> list[Raw]:
    """Return the objects in a list field."""
    return [item for item in list_in(raw, key) if isinstance(item, dict)]


def text_in(raw: Raw, key: str) -> str:
    """Return a text field. An integer counts as a text."""
    value = raw.get(key)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def number_in(raw: Raw, key: str) -> float | None:
    """Return a finite number field, also from a text, or None."""
    value = raw.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


class Unreadable(Exception):
    """A message that cannot be read."""


class IdChange(Struct, frozen=True):
    """A person's number or user id changed from `old` to `new`."""

    old: str
    new: str


class DeliveryFailure(Struct, frozen=True):
    """Our message `id` was not delivered. `code` and `reason` are the error's, or 0 and empty."""

    id: str
    code: int = 0
    reason: str = ""


class Remark(Struct, frozen=True):
    """A line for the log. A warning may need a person."""

    text: str
    level: Literal["DEBUG", "WARNING"] = "DEBUG"


class BrokenItem(Struct, frozen=True):
    """An unreadable item, and the reason."""

    raw: object
    reason: str


Item = IncomingMessage | IdChange | DeliveryFailure | Remark | BrokenItem


class _Context(Struct, frozen=True):
    """The data shared by all messages of one change. `people` are the contacts by each of their
    ids, `only` the contact if there is exactly one. `ours` are the ids of the business number."""

    people: Mapping[str, Raw]
    only: Raw | None
    ours: frozenset[str]
    now: datetime


def read(document: object, phone_number_id: str, now: datetime) -> list[Item]:
    """Return the items of a call, in order. `now` (aware) replaces missing times and provides the
    time zone. Items beyond the largest batch become one `BrokenItem`."""
    if not isinstance(document, dict):
        return [BrokenItem(document, "not an object")]
    if not isinstance(document.get("entry"), list):
        return [BrokenItem(document, "no entries")]
    items = iterate_items(document, phone_number_id, now)
    found = list(islice(items, _MOST_ITEMS))
    if next(items, None) is not None:
        found.append(BrokenItem(document, f"more than {_MOST_ITEMS:,} items in one call"))
    return found


def iterate_items(document: Raw, phone_number_id: str, now: datetime) -> Iterator[Item]:
    for entry in list_in(document, "entry"):
        if not isinstance(entry, dict):
            yield BrokenItem(entry, "an entry that is not an object")
            continue
        for change in list_in(entry, "changes"):
            if isinstance(change, dict):
                yield from read_change(change, phone_number_id, now)
            else:
                yield BrokenItem(change, "a change that is not an object")


def read_change(change: Raw, phone_number_id: str, now: datetime) -> Iterator[Item]:
    field, value = text_in(change, "field"), object_in(change, "value")
    metadata = object_in(value, "metadata")
    if field in _ACCOUNT_FIELDS:
        shown = one_line(json.dumps(value), _DETAIL_CHARACTERS)
        yield Remark(f"Meta sent {field} (see the WhatsApp Manager): {shown}", level="WARNING")
        return
    if field not in ("messages", "calls"):
        yield Remark(f"ignored a notification about {one_line(field) or 'nothing'}")
        return
    if text_in(metadata, "phone_number_id") != phone_number_id:
        yield Remark("ignored a notification for another number")
        return
    shown = re.sub(r"[^0-9]+", "", text_in(metadata, "display_phone_number"))
    ours = frozenset(filter(None, (shown, phone_number_id)))
    contacts = objects_in(value, "contacts")
    people = {id: one for one in reversed(contacts) for id in ids_of(one)}
    only = contacts[0] if len(contacts) == 1 else None
    context = _Context(people, only, ours, now)
    if field == "calls":
        yield from (parse_call(call, context) for call in objects_in(value, "calls"))
        return
    for message in list_in(value, "messages"):
        yield from read_message(message, context)
    for status in list_in(value, "statuses"):
        yield parse_status(status)
    for error in objects_in(value, "errors"):
        code = one_line(text_in(error, "code")) or "no code"
        yield Remark(f"Meta reports {describe_error(error)} ({code})", level="WARNING")


def read_message(message: object, context: _Context) -> Iterator[Item]:
    """Yield the items of one message, or `BrokenItem` and a note if it cannot be read."""
    if not isinstance(message, dict):
        yield BrokenItem(message, "a message that is not an object")
        return
    try:
        items = list(parse_message(message, context))
    except Exception as error:  # noqa: BLE001 - the boundary: one message must not stop the others
        reason = str(error) if isinstance(error, Unreadable) else type(error).__name__
        items = [BrokenItem(message, reason), *note_unreadable(message, context)]
    yield from items


def note_unreadable(message: Raw, context: _Context) -> Iterator[Item]:
    """Yield a note in place of a private message, so that its sender gets an answer, unless the
    sender is unclear. A missing id is replaced by a hash of the content, which Meta repeats."""
    try:
        person = person_of(message, context)
    except Unreadable:
        return
    if "group_id" in message or context.ours.intersection(person.ids):
        return
    id = text_in(message, "id")
    if not is_id(id):
        id = f"unreadable-{sha256(json.dumps(message).encode()).hexdigest()[:32]}"
    yield IncomingMessage(id, person, parse_time(message, context.now), notes=(UNREADABLE,))


def person_of(message: Raw, context: _Context) -> Person:
    """Return the sender of a message. Names and further ids are in the contact with one of its ids.

    A contact without them is another person, unless the message itself has no sender. Raises
    `Unreadable` if there is no sender at all."""
    own = [
        normalize_id(text_in(message, key))
        for key in ("from", "from_user_id", "from_parent_user_id")
    ]
    ids = [id for id in own if is_person(id)]
    contact = next((context.people[id] for id in ids if id in context.people), None)
    if contact is None and not any(own):
        contact = context.only
    ids += ids_of(contact or {})
    if not ids:
        raise Unreadable("its sender is missing")
    profile = object_in(contact or {}, "profile")
    name = one_line(text_in(profile, "name")) or one_line(text_in(profile, "username"))
    return Person(tuple(sorted(dict.fromkeys(ids), key=lambda id: not is_number(id))), name)


def ids_of(contact: Raw) -> list[str]:
    known = (normalize_id(text_in(contact, key)) for key in ("wa_id", "user_id", "parent_user_id"))
    return [id for id in known if is_person(id)]


def normalize_id(text: str) -> str:
    return id_of(text.strip())


def parse_message(message: Raw, context: _Context) -> Iterator[Item]:
    kind = text_in(message, "type")
    if kind == "system":
        yield from parse_system(message)
        return
    if text_in(message, "group_id"):
        yield Remark("ignored a group message")
        return
    unsupported = text_in(object_in(message, "unsupported"), "type")
    if kind in _SILENT or unsupported in _SILENT_UNSUPPORTED:
        yield Remark(f"ignored a message of kind {kind}")
        return
    person = person_of(message, context)
    if context.ours.intersection(person.ids):
        yield Remark("ignored our own message")
        return
    match kind:
        case "edit":
            edit = object_in(message, "edit")
            original = require_id(edit, "original_message_id")
            shared = {"id": message.get("id"), "timestamp": message.get("timestamp")}
            said = parse_incoming({**object_in(edit, "message"), **shared}, person, context)
            # Its quote repeats the original's, with an id that is not always valid.
            yield replace(said, edits=original, quote=None)
        case "revoke":
            original = require_id(object_in(message, "revoke"), "original_message_id")
            yield replace(make_bare(message, person, context), deletes=original)
        case "reaction":
            bare = make_bare(message, person, context)
            yield parse_reaction(object_in(message, "reaction"), bare)
        case _:
            yield parse_incoming(message, person, context)


def parse_reaction(reaction: Raw, bare: IncomingMessage) -> IncomingMessage:
    """Return a wish to keep a message, or its withdrawal (the removed reaction is not included), or
    a note without an answer."""
    emoji, id = one_line(text_in(reaction, "emoji"), 20), text_in(reaction, "message_id")
    if emoji and not asks_to_keep([emoji]):
        notes = (f"reaction to an earlier message: {emoji}",)
        return replace(bare, notes=notes, unanswered=True)
    wish = KEEP if emoji else NO_LONGER
    return replace(bare, text=wish, quote=Quote(id if is_id(id) else ""), unanswered=True)


def make_bare(message: Raw, person: Person, context: _Context) -> IncomingMessage:
    """Return a message without its content."""
    return IncomingMessage(require_id(message, "id"), person, parse_time(message, context.now))


def parse_incoming(message: Raw, person: Person, context: _Context) -> IncomingMessage:
    around = object_in(message, "context")
    quoted, quote = text_in(around, "id"), None
    if is_id(quoted):
        author = normalize_id(text_in(around, "from"))
        quote = Quote(quoted, OURS if author in context.ours else "")
    return replace(
        add_content(message, make_bare(message, person, context)),
        quote=quote,
        forwarded=around.get("forwarded") is True or around.get("frequently_forwarded") is True,
    )


def add_content(message: Raw, bare: IncomingMessage) -> IncomingMessage:
    """Add the content of a message, which is never empty."""
    kind = text_in(message, "type") or next((kind for kind in _READ if kind in message), "")
    inner = object_in(message, kind)
    said = replace(bare, text=text_in(inner, "text"))
    match kind:
        case "text":
            said = replace(bare, text=text_in(inner, "body"))
        case "location":
            said = replace(bare, notes=describe_location(inner))
        case "contacts":
            cards = objects_in(message, "contacts")[:_MAX_CONTACTS]
            said = replace(bare, notes=tuple(map(describe_card, cards)))
        case "button":
            said = replace(said, button=text_in(inner, "payload"))
        case "interactive":
            said = parse_interactive(inner, bare)
        case "order":
            said = replace(said, notes=describe_order(inner))
        case _ if kind in _KINDS:
            said = add_media(inner, kind, bare)
    if kind in _READ and (said.text.strip() or said.media or said.notes):
        return said
    return replace(said, notes=(describe_unknown(message, inner, kind),))


def describe_unknown(message: Raw, inner: Raw, kind: str) -> str:
    """Return the note for unreadable content."""
    named = text_in(object_in(message, "unsupported"), "type") or text_in(inner, "type") or kind
    errors = objects_in(message, "errors")
    reason = error_text(errors[0]) if errors else ""
    shown = one_line(named).replace("_", " ") or "unknown"
    return format_note("a message of a kind that nanobot cannot read", shown, reason)


def parse_interactive(inner: Raw, bare: IncomingMessage) -> IncomingMessage:
    """Read a choice, or the answers to a form as JSON. Source of the second:
    https://developers.facebook.com/docs/whatsapp/flows/reference/responsemsgwebhook"""
    if form := object_in(inner, "nfm_reply"):
        answers = text_in(form, "response_json") or json.dumps(form, ensure_ascii=False)
        note = format_note("answers to a form", text_in(form, "name"), answers)
        return replace(bare, notes=(note,))
    reply = object_in(inner, "button_reply") or object_in(inner, "list_reply")
    about = text_in(reply, "description")
    notes = (format_note("described there as", about),) if about else ()
    return replace(bare, text=text_in(reply, "title"), notes=notes, button=text_in(reply, "id"))


def parse_call(call: Raw, context: _Context) -> Item:
    """Read the end of a call, which comes once per call. Source:
    https://developers.facebook.com/docs/whatsapp/cloud-api/calling/user-initiated-calls"""
    event, direction = text_in(call, "event"), text_in(call, "direction")
    if event != "terminate" or direction == "BUSINESS_INITIATED":
        return Remark(f"a call: {one_line(event)}")
    ours = context.ours.intersection((normalize_id(text_in(call, "from")),))
    try:
        person = person_of({**call, "from": call.get("to")} if ours else call, context)
        bare = make_bare(call, person, context)
    except Unreadable as error:
        return BrokenItem(call, f"a call: {error}")
    answered = text_in(call, "status").upper() == "COMPLETED"
    note = "a voice call" if answered else "a missed voice call: nanobot cannot answer calls"
    return replace(bare, notes=(note,), unanswered=True)


def add_media(inner: Raw, kind: str, bare: IncomingMessage) -> IncomingMessage:
    media, caption = parse_media(inner, _KINDS[kind]), text_in(inner, "caption")
    notes = ("sticker",) if kind == "sticker" else ()
    if media is None and caption.strip():
        notes = (f"{kind}: could not be fetched",)
    return replace(bare, text=caption, media=media, notes=notes)


def parse_media(inner: Raw, kind: MediaKind) -> Media | None:
    id = text_in(inner, "id")
    if not _MEDIA_ID.fullmatch(id):
        return None
    mime = one_line(text_in(inner, "mime_type").partition(";")[0]).lower()
    if kind == "audio" and inner.get("voice") is True:
        kind = "voice"
    elif kind == "document" and mime in _PICTURES:
        kind = "image"
    size = number_in(inner, "file_size") or 0.0
    return Media(id, kind, mime, one_line(text_in(inner, "filename")), max(0, int(size)))


def describe_location(inner: Raw) -> tuple[str, ...]:
    latitude, longitude = number_in(inner, "latitude"), number_in(inner, "longitude")
    if latitude is None or longitude is None:
        return ()
    place = ", ".join(f"{n:.6f}".rstrip("0").rstrip(".") for n in (latitude, longitude))
    about = (text_in(inner, key) for key in ("name", "address", "url"))
    return (format_note("location", place, *about),)


def describe_order(order: Raw) -> tuple[str, ...]:
    items = objects_in(order, "product_items")
    return (format_note("order", json.dumps(items, ensure_ascii=False)),) if items else ()


def describe_card(card: Raw) -> str:
    name, org = object_in(card, "name"), object_in(card, "org")
    shown = text_in(name, "formatted_name") or " ".join(
        filter(None, (text_in(name, "first_name"), text_in(name, "last_name")))
    )
    phones, mails = objects_in(card, "phones")[:5], objects_in(card, "emails")[:5]
    numbers = [text_in(one, "phone") or text_in(one, "wa_id") for one in phones]
    addresses = [text_in(one, "email") for one in mails]
    return format_note("contact", shown, text_in(org, "company"), *numbers, *addresses)


def format_note(kind: str, *details: str) -> str:
    """Return `kind: detail, detail`, or `kind` without details."""
    known = ", ".join(filter(None, (one_line(detail, _DETAIL_CHARACTERS) for detail in details)))
    return f"{kind}: {known}" if known else kind


def parse_system(message: Raw) -> Iterator[Item]:
    """Read a message of WhatsApp itself. Only a change of someone's number or id is relevant."""
    system = object_in(message, "system")
    kind = one_line(text_in(system, "type")) or "unknown"
    pairs = [
        (text_in(system, "previous_user_id"), text_in(system, "user_id")),
        (text_in(system, "previous_parent_user_id"), text_in(system, "parent_user_id")),
    ]
    if kind in _NEW_NUMBER:
        old = text_in(message, "from") or text_in(system, "customer")
        pairs.insert(0, (old, text_in(system, "wa_id") or text_in(system, "new_wa_id")))
    for old, new in ((normalize_id(old), normalize_id(new)) for old, new in pairs):
        if is_person(old) and is_person(new) and old != new:
            yield IdChange(old, new)
    yield Remark(f"a system message of kind {kind}")


def require_id(raw: Raw, key: str) -> str:
    id = text_in(raw, key)
    if not is_id(id):
        raise Unreadable("a message without an id")
    return id


def parse_time(raw: Raw, now: datetime) -> datetime:
    """Return the time it was sent, or `now` if that is missing or impossible."""
    seconds = number_in(raw, "timestamp") or 0.0
    seconds = seconds / 1000 if seconds > 1e11 else seconds
    try:
        at = datetime.fromtimestamp(seconds, now.tzinfo)
    except (ValueError, OverflowError, OSError):
        return now
    return at if _OLDEST < at <= now + timedelta(days=1) else now


def parse_status(status: object) -> Item:
    """Read the status of our message. Only a failure is relevant, mostly because the recipient had
    not written for 24 hours."""
    if not isinstance(status, dict):
        return BrokenItem(status, "not an object")
    state, id = text_in(status, "status"), text_in(status, "id")
    if not state or not id:
        return BrokenItem(status, "a status without a state or an id")
    if state != "failed":
        return Remark(f"our message was {one_line(state)}")
    error = next(iter(objects_in(status, "errors")), {})
    code = int(number_in(error, "code") or 0)
    return DeliveryFailure(id, code, describe_error(error) if error else "")


def error_text(error: Raw) -> str:
    """Return Meta's text for an error, preferably the details."""
    details = text_in(object_in(error, "error_data"), "details") or text_in(error, "details")
    return details or text_in(error, "message") or text_in(error, "title")


def describe_error(error: Raw) -> str:
    return one_line(error_text(error) or "an error", 300).rstrip(".")
