"""From one call of Meta's webhook to what it says: pure.

A call holds entries, these hold changes, and a change (its `value`) holds messages, statuses and
errors of one business number. Each of them is read alone: one that cannot be read becomes `Broken`
and takes no other along. Values of another type than documented count as not there, so nothing in
here raises, whatever the document is.

Messages of any other number than ours, and changes that are not about messages (templates, calls,
what was written on the business's own phone), are none of our business and left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import islice
from typing import Any

from nanobot.bus.events import Quote
from nanobot.channel.text import one_line
from nanobot_whatsapp.cloud.content import content_of
from nanobot_whatsapp.cloud.items import Account, Broken, Item, Moved, Remark, Said, Status
from nanobot_whatsapp.cloud.reading import (
    Raw,
    flag_in,
    list_in,
    number_in,
    object_in,
    objects_in,
    text_in,
)
from nanobot_whatsapp.cloud.who import Unreadable, person_of, plain
from nanobot_whatsapp.ids import is_group, is_id, is_person
from nanobot_whatsapp.values import OURS, UNREADABLE, Heard, Person

_OLDEST = datetime(2009, 1, 1, tzinfo=UTC)
_NO_DIGITS = re.compile(r"[^0-9]+")
_MENTION = re.compile(r"@\+?([0-9]{5,20})(?![0-9])", re.ASCII)

_SILENT = frozenset({"request_welcome"})
"""Kinds that say nothing: a chat that was opened."""
_SILENT_ELSEWHERE = frozenset({"poll_update", "pin", "unpin", "keep_in_chat"})
"""The same, of what the Cloud API calls unsupported."""
_MOST_WORDS = 12
_NEW_NUMBER = frozenset({"user_changed_number", "customer_changed_number"})
_FIELD = "messages"
_ACCOUNT = {
    "account_alerts": "an alert",
    "account_review_update": "the review of the account",
    "account_update": "the account",
    "phone_number_quality_update": "the quality of the number",
}
"""Notifications about what the business may do, and how they are called here.
Source: https://developers.facebook.com/docs/whatsapp/cloud-api/webhooks/components"""
_GOOD = frozenset(
    {"APPROVED", "REINSTATE", "RESOLVED", "UNFLAGGED", "UPGRADE", "VERIFIED_ACCOUNT", "NONE"}
)


@dataclass(frozen=True, slots=True)
class _Scene:
    """What all messages of one change have in common. `ours` are the ids of the business number."""

    contacts: Sequence[Raw]
    ours: frozenset[str]
    now: datetime


def read(document: object, phone_number_id: str, now: datetime) -> list[Item]:
    """What a call says, in its order. `now` (aware) stands in for times that are none, and its zone
    is that of all times."""
    if not isinstance(document, dict):
        return [Broken(document, "no object")]
    found: list[Item] = []
    for entry in list_in(document, "entry"):
        if not isinstance(entry, dict):
            found.append(Broken(entry, "an entry that is no object"))
            continue
        for change in list_in(entry, "changes"):
            if isinstance(change, dict):
                found += _change(change, phone_number_id, now)
            else:
                found.append(Broken(change, "a change that is no object"))
    return found or _nothing(document)


def _nothing(document: Raw) -> list[Item]:
    known = isinstance(document.get("entry"), list)
    return [] if known else [Broken(document, "no entries")]


def _change(change: Raw, phone_number_id: str, now: datetime) -> Iterator[Item]:
    field, value = text_in(change, "field"), object_in(change, "value")
    if field in _ACCOUNT:
        yield _account(field, value)
        return
    if field != _FIELD:
        yield Remark(f"a notification about {one_line(field) or 'nothing'} is not used")
        return
    metadata = object_in(value, "metadata")
    if text_in(metadata, "phone_number_id") != phone_number_id:
        yield Remark("a notification for another number is not used")
        return
    shown = _NO_DIGITS.sub("", text_in(metadata, "display_phone_number"))
    ours = frozenset(filter(None, (shown, phone_number_id)))
    scene = _Scene(objects_in(value, "contacts"), ours, now)
    for message in list_in(value, "messages"):
        yield from _guarded(message, scene)
    for status in list_in(value, "statuses"):
        yield _status(status, now) if isinstance(status, dict) else Broken(status, "no object")
    for error in objects_in(value, "errors"):
        code = one_line(text_in(error, "code")) or "no code"
        yield Remark(f"Meta reports {_reason(error)} ({code})", grave=True)


def _account(field: str, value: Raw) -> Account:
    """All short texts in a notification, since Meta adds kinds of them as it goes."""
    words = list(dict.fromkeys(islice(_words(value), _MOST_WORDS)))
    over = bool(_GOOD.intersection(words))
    return Account(f"Meta says about {_ACCOUNT[field]}: {', '.join(words) or 'nothing'}", over)


def _words(value: object, depth: int = 4) -> Iterator[str]:
    if isinstance(value, str):
        yield one_line(value, 100)
    elif isinstance(value, dict | list) and depth:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _words(inner, depth - 1)


def _guarded(message: object, scene: _Scene) -> Iterator[Item]:
    if not isinstance(message, dict):
        yield Broken(message, "a message that is no object")
        return
    try:
        items = list(_message(message, scene))
    except Exception as error:  # noqa: BLE001 - the boundary: one message, whatever is in it
        reason = str(error) if isinstance(error, Unreadable) else type(error).__name__
        items = [Broken(message, reason), *_unreadable(message, scene)]
    yield from items


def _unreadable(message: Raw, scene: _Scene) -> Iterator[Item]:
    """A note in place of a private message, so that whoever wrote it is answered; nothing where it
    is not clear who did. One without an id has one of what it holds, which Meta repeats."""
    try:
        person = person_of(message, scene.contacts)
    except Unreadable:
        return
    if "group_id" in message or scene.ours.intersection(person.ids):
        return
    id = text_in(message, "id")
    if not is_id(id):
        id = f"unreadable-{sha256(json.dumps(message).encode()).hexdigest()[:32]}"
    yield Said(Heard(id, person, _time(message, scene.now), notes=(UNREADABLE,)))


def _message(message: Raw, scene: _Scene) -> Iterator[Item]:
    kind = text_in(message, "type")
    if kind == "system":
        yield from _system(message)
        return
    if kind in _SILENT or _unsupported(message) in _SILENT_ELSEWHERE:
        yield Remark(f"a message of the kind {kind} is not used")
        return
    person = person_of(message, scene.contacts)
    if scene.ours.intersection(person.ids):
        yield Remark("a message of our own is not used")
        return
    match kind:
        case "edit":
            yield _edited(message, person, scene)
        case "revoke":
            original = _id_in(object_in(message, "revoke"), "original_message_id")
            yield _without_words(message, person, scene, deletes=original)
        case "reaction":
            emoji = one_line(text_in(object_in(message, "reaction"), "emoji"), 20)
            if not emoji or text_in(message, "group_id"):  # in groups they are marks for others
                yield Remark("a reaction is not used")
                return
            note = f"reaction to an earlier message: {emoji}"
            yield _without_words(message, person, scene, notes=(note,), unanswered=True)
        case _:
            yield _said(message, person, scene)


def _unsupported(message: Raw) -> str:
    return text_in(object_in(message, "unsupported"), "type")


def _said(message: Raw, person: Person, scene: _Scene) -> Said:
    content = content_of(message)
    context = object_in(message, "context")
    group = text_in(message, "group_id")
    if group and not is_group(group):
        raise Unreadable("a group without an id")
    quote = _quote(context, scene)
    heard = Heard(
        _id_in(message, "id"),
        person,
        _time(message, scene.now),
        group=group,
        text=content.text,
        media=content.media,
        quote=quote,
        forwarded=flag_in(context, "forwarded") or flag_in(context, "frequently_forwarded"),
        notes=content.notes,
    )
    return Said(_in_group(heard, scene) if group else heard, content.button)


def _without_words(message: Raw, person: Person, scene: _Scene, **more: Any) -> Said:
    """What is done to another message; `more` are fields of `Heard`."""
    group = text_in(message, "group_id")
    if group and not is_group(group):
        raise Unreadable("a group without an id")
    at = _time(message, scene.now)
    return Said(Heard(_id_in(message, "id"), person, at, group=group, **more))


def _edited(message: Raw, person: Person, scene: _Scene) -> Said:
    edit = object_in(message, "edit")
    original = _id_in(edit, "original_message_id")
    inner = {**object_in(edit, "message"), "id": message.get("id")}
    for key in ("timestamp", "group_id"):
        inner[key] = message.get(key)
    said = _said(inner, person, scene)
    # What it quotes is what the original quoted, under an id that is not always a real one.
    return replace(said, heard=replace(said.heard, edits=original, quote=None))


def _in_group(heard: Heard, scene: _Scene) -> Heard:
    """Whether it is for us. The Cloud API does not mark mentions: they are an @ and our number."""
    first = _MENTION.match(heard.text.lstrip())
    mentioned = any(number in scene.ours for number in _MENTION.findall(heard.text))
    answered = heard.quote is not None and heard.quote.sender == OURS
    text = heard.text
    if first is not None and first[1] in scene.ours:
        rest = text.lstrip()[first.end() :].lstrip(" ,:\n")
        text = rest or text
    called = mentioned and not heard.forwarded
    return replace(heard, text=text, addressed=called or answered)


def _quote(context: Raw, scene: _Scene) -> Quote | None:
    id = text_in(context, "id")
    if not is_id(id):
        return None
    author = plain(text_in(context, "from"))
    return Quote(id, OURS if author in scene.ours else "")


def _system(message: Raw) -> Iterator[Item]:
    system = object_in(message, "system")
    kind = one_line(text_in(system, "type")) or "unknown"
    pairs = [
        (text_in(system, "previous_user_id"), text_in(system, "user_id")),
        (text_in(system, "previous_parent_user_id"), text_in(system, "parent_user_id")),
    ]
    if kind in _NEW_NUMBER:
        old = text_in(message, "from") or text_in(system, "customer")
        pairs.insert(0, (old, text_in(system, "wa_id") or text_in(system, "new_wa_id")))
    for old, new in ((plain(old), plain(new)) for old, new in pairs):
        if is_person(old) and is_person(new) and old != new:
            yield Moved(old, new)
    yield Remark(f"a system message of the kind {kind}")


def _id_in(raw: Raw, key: str) -> str:
    id = text_in(raw, key)
    if not is_id(id):
        raise Unreadable("a message without an id")
    return id


def _time(raw: Raw, now: datetime) -> datetime:
    """When it was sent; `now` where that is not said, or cannot be."""
    seconds = number_in(raw, "timestamp") or 0.0
    seconds = seconds / 1000 if seconds > 1e11 else seconds
    try:
        at = datetime.fromtimestamp(seconds, now.tzinfo)
    except (ValueError, OverflowError, OSError):
        return now
    return at if _OLDEST < at <= now + timedelta(days=1) else now


def _status(status: Raw, now: datetime) -> Item:
    state, id = text_in(status, "status"), text_in(status, "id")
    if not state or not id:
        return Broken(status, "a status of nothing")
    person = text_in(status, "recipient_id") or text_in(status, "recipient_user_id")
    errors = objects_in(status, "errors")
    if not errors:
        return Status(id, state, plain(person), _time(status, now))
    code = int(number_in(errors[0], "code") or 0)
    return Status(id, state, plain(person), _time(status, now), code, _reason(errors[0]))


def _reason(error: Raw) -> str:
    """What Meta says of an error, the details first."""
    details = text_in(object_in(error, "error_data"), "details")
    said = details or text_in(error, "message") or text_in(error, "title") or "an error"
    return one_line(said, 300).rstrip(".")
