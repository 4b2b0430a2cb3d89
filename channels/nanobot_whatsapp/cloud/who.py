"""Who wrote a message.

Meta names people by number (`from`, `wa_id`), and by ids of its own that do not show the number
(`US.1349…`; `US.ENT.1181…` for a group of businesses). Older calls have the number alone; for
people who hide theirs there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

from nanobot.channel.text import one_line
from nanobot_whatsapp.cloud.reading import Raw, object_in, text_in
from nanobot_whatsapp.ids import id_of, is_number, is_person
from nanobot_whatsapp.values import Person


class Unreadable(Exception):
    """A message that cannot be read."""


def person_of(message: Raw, contacts: Sequence[Raw]) -> Person:
    """Who wrote a message. Names and further ids stand in the contact that has one of its ids.

    A contact that has none of them is somebody else's, unless the message itself names nobody.
    Raises `Unreadable` where nobody is named at all.
    """
    own = [plain(text_in(message, key)) for key in ("from", "from_user_id", "from_parent_user_id")]
    ids = [id for id in own if is_person(id)]
    contact = next((one for one in contacts if set(_ids_of(one)) & set(ids)), None)
    if contact is None and not any(own) and len(contacts) == 1:
        contact = contacts[0]
    ids += _ids_of(contact or {})
    if not ids:
        raise Unreadable("nobody is named as its sender")
    profile = object_in(contact or {}, "profile")
    name = one_line(text_in(profile, "name")) or one_line(text_in(profile, "username"))
    in_order = sorted(dict.fromkeys(ids), key=lambda id: not is_number(id))
    return Person(tuple(in_order), name)


def _ids_of(contact: Raw) -> list[str]:
    known = (plain(text_in(contact, key)) for key in ("wa_id", "user_id", "parent_user_id"))
    return [id for id in known if is_person(id)]


def plain(id: str) -> str:
    """An id as it is used here: numbers are bare."""
    return id_of(id.strip())
