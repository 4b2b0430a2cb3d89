"""How people and groups are named.

An id is a bare number (`15557770000`), or what the platform gives where it keeps the number to
itself: a LID (`888@lid`) or the Cloud API's user id (`US.134912`). Groups are `1203…@g.us`, and in
the Cloud API some other long word. On the wire of a linked device all of them are JIDs, where
numbers end in `@s.whatsapp.net`.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\+?([0-9]{5,20})(?::[0-9]+)?(?:@(?:s\.whatsapp\.net|c\.us))?", re.ASCII)
_DEVICE = re.compile(r"([0-9]+)(?::[0-9]+)?(@(?:hosted\.)?lid)", re.ASCII)
_ID = re.compile(r"[!-~]{1,512}")
_PERSON = re.compile(
    r"[0-9]{5,20}|[0-9]{1,20}@(?:hosted\.)?lid|[A-Z]{2}\.[A-Za-z0-9.]{1,128}", re.ASCII
)
_GROUP = re.compile(r"[0-9-]{5,64}@g\.us|[A-Za-z0-9_=-]{20,256}", re.ASCII)
_SERVER = "@s.whatsapp.net"


def id_of(jid: str) -> str:
    """The id that a JID is of, without the device. LIDs and groups stay as they are, and so does
    what is no JID at all."""
    if number := _NUMBER.fullmatch(jid):
        return number[1]
    if lid := _DEVICE.fullmatch(jid):
        return f"{lid[1]}{lid[2]}"
    return jid


def jid_of(id: str) -> str:
    """The JID of an id."""
    number = _NUMBER.fullmatch(id)
    return f"{number[1]}{_SERVER}" if number else id


def is_id(id: str) -> bool:
    """Whether this can be an id at all, of a person, a group or a message: visible ASCII."""
    return _ID.fullmatch(id) is not None


def is_number(id: str) -> bool:
    """Whether an id (see `id_of`) is a bare number."""
    return id.isascii() and id.isdigit()


def is_group(id: str) -> bool:
    """Whether an id is of the form that those of groups have."""
    return not is_person(id) and _GROUP.fullmatch(id) is not None


def is_person(id: str) -> bool:
    """Whether an id (see `id_of`) is of the form that those of people have."""
    return _PERSON.fullmatch(id) is not None


def kind_of(id: str) -> str:
    """What kind of id it is; somebody has one of a kind at a time. `number`, `lid`, `user` and
    `parent` (the Cloud API's `US.134912` and `US.ENT.5678`), …"""
    if is_number(id):
        return "number"
    return id.partition("@")[2] or ("parent" if id.count(".") > 1 else "user")
