"""Identities: the ids of each person, and the id that the core uses.

An id is a bare number (`15557770000`), or the platform's id if it hides the number: a LID
(`888@lid`) or the Cloud API's user id (`US.134912`). Groups are `1203…@g.us`, and in the Cloud API
another long word. A linked device transmits all of them as JIDs, with numbers ending in
`@s.whatsapp.net`.

The same person appears under a number, a LID or a user id, and the known ids may change with each
message. A chat keeps the first id assigned to it, because the conversation and memory depend on it.
Invariants: an id belongs to one person, and no two people share a chat. Numbers are reassigned over
time, so a number with a different account (LID, user id) than before belongs to another person from
then on, who gets a new chat. Permissions of a number are not reassigned: while it is the chat of
its former owner, it does not count as the new owner's id for lists and pairings.

Only admitted people are stored on disk. Some thousands of others are in memory."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain, count
from pathlib import Path

from msgspec import Struct

from nanobot.channel import Sender
from nanobot.channel.documents import StateFile
from nanobot.errors import NanobotError, SendRefused

_NUMBER = re.compile(r"\+?([0-9]{5,20})(?::[0-9]+)?(?:@(?:s\.whatsapp\.net|c\.us))?", re.ASCII)
_DEVICE = re.compile(r"([0-9]+)(?::[0-9]+)?(@(?:hosted\.)?lid)", re.ASCII)
_ID = re.compile(r"[!-~]{1,512}")
_PERSON = re.compile(
    r"[0-9]{5,20}|[0-9]{1,20}@(?:hosted\.)?lid|[A-Z]{2}\.[A-Za-z0-9.]{1,128}", re.ASCII
)
_GROUP = re.compile(r"[0-9-]{5,64}@g\.us|[A-Za-z0-9_=-]{20,256}", re.ASCII)
_SERVER = "@s.whatsapp.net"
_BETWEEN_DIGITS = re.compile(r"[\s+()./-]+")
_PHONE = re.compile(r"[1-9][0-9]{6,14}")

_FILE_NAME = "people.json"
_MAX_PEOPLE = 5_000
"""The number of admitted people, and of others. The person who was silent longest is dropped."""
_MAX_IDS = 12  # the number of ids of a person. The oldest is dropped.


class Person(Struct, frozen=True):
    """A sender. `ids` are all known ids, at least one, with a number first if there is one. `name`
    is self-chosen: for texts, never for decisions."""

    ids: tuple[str, ...]
    name: str = ""


def id_of(jid: str) -> str:
    """Return the id of a JID, without the device. LIDs, groups and other texts stay as they are."""
    if number := _NUMBER.fullmatch(jid):
        return number[1]
    if lid := _DEVICE.fullmatch(jid):
        return f"{lid[1]}{lid[2]}"
    return jid


def jid_of(id: str) -> str:
    """Return the JID of an id."""
    number = _NUMBER.fullmatch(id)
    return f"{number[1]}{_SERVER}" if number else id


def is_id(id: str) -> bool:
    """Return True if the text can be the id of a person, group or message: visible ASCII."""
    return _ID.fullmatch(id) is not None


def is_number(id: str) -> bool:
    """Return True if an id (see `id_of`) is a bare number."""
    return id.isascii() and id.isdigit()


def is_group(id: str) -> bool:
    """Return True if an id has the form of a group's."""
    return not is_person(id) and _GROUP.fullmatch(id) is not None


def is_person(id: str) -> bool:
    """Return True if an id (see `id_of`) has the form of a person's."""
    return _PERSON.fullmatch(id) is not None


def phone_digits(text: str) -> str:
    """Normalize a typed phone number to WhatsApp's form: digits only, the country code first.
    Raises `NanobotError` if it is invalid."""
    digits = _BETWEEN_DIGITS.sub("", text).removeprefix("00")
    if not _PHONE.fullmatch(digits):
        raise NanobotError(
            "that is not a phone number with a country code",
            hint="A number in the United States looks like 15550001111",
        )
    return digits


def kind_of(id: str) -> str:
    """Return the kind of an id. A person has one id of a kind at a time: `number`, `lid`, `user`
    and `parent` (the Cloud API's `US.134912` and `US.ENT.5678`), …"""
    if is_number(id):
        return "number"
    return id.partition("@")[2] or ("parent" if id.count(".") > 1 else "user")


class _Known(Struct, omit_defaults=True):
    """A person. `chats`: the person's chat is last, after those of merged people. `ids`: the latest
    is last. People in the file were admitted."""

    chats: list[str]
    ids: list[str]
    admitted: bool = True

    @property
    def chat(self) -> str:
        return self.chats[-1]

    @property
    def address(self) -> str:
        """The newest number, or else the newest id, or an empty text."""
        numbers = [id for id in self.ids if is_number(id)]
        return next(reversed(numbers or self.ids), "")

    def conflicts_with(self, accounts: Iterable[str]) -> bool:
        """Return True if an account differs from the person's account of the same kind."""
        own = {kind_of(id) for id in self.ids}
        return any(id not in self.ids and kind_of(id) in own for id in accounts)

    def has_only(self, new: str) -> bool:
        """Return True if only this id and numbers are known."""
        return all(id == new or is_number(id) for id in self.ids)


class _File(Struct):
    """The file. The latest writer is last."""

    version: int = 1
    people: list[_Known] = []


class People:
    """The known people. `folder` is the adapter's and exists. Ids may also be JIDs. Raises
    `StorageError` if the file cannot be read. If it is damaged, people whose chat is not their
    number start a new conversation."""

    def __init__(self, folder: Path) -> None:
        self._file = StateFile(folder / _FILE_NAME, _File)
        self._admitted: OrderedDict[str, _Known] = OrderedDict()
        self._others: OrderedDict[str, _Known] = OrderedDict()
        self._by_chat: dict[str, _Known] = {}
        self._by_id: dict[str, _Known] = {}
        for (
            known
        ) in self._file.read().people:  # an id of an earlier person in the file stays theirs
            known.chats = [chat for chat in dict.fromkeys(known.chats) if chat not in self._by_chat]
            if known.chats:
                known.ids = [id for id in dict.fromkeys(known.ids) if id not in self._by_id]
                self._admitted[known.chat] = known
                self._by_chat |= dict.fromkeys(known.chats, known)
                self._by_id |= dict.fromkeys(known.ids, known)
        self._is_written = True

    def chat_of(self, ids: Sequence[str]) -> str:
        """Return the id of the person's chat, which never changes once assigned.

        It is the chat of the person who has one of these ids, or else the number, or else the first
        id. Raises `ValueError` without a valid id."""
        given = list(dict.fromkeys(id_of(id) for id in ids if is_id(id)))
        if not given:
            raise ValueError("a person without an id")
        numbers = [id for id in given if is_number(id)]
        accounts = [id for id in given if not is_number(id)]
        known = self._find_owner(numbers, accounts) or self._create([*numbers, *accounts])
        for id in given:
            self._assign(id, known, newest=bool(accounts))
        self._touch(known)
        return known.chat

    def mark_admitted(self, chat_id: str) -> None:
        """Record that the person was admitted, so that they are saved."""
        known = self._by_chat.get(chat_id)
        if known is not None and not known.admitted:
            del self._others[known.chat]
            known.admitted = True
            self._is_written = False
            self._touch(known)

    def sender(self, person: Person) -> Sender:
        """Return the person as the core's sender. `also` has all other ids, with numbers in each
        form that people use in lists, except ids that are another person's chat.

        Raises `ValueError` without a valid id."""
        known = self._by_chat[self.chat_of(person.ids)]
        own = [id for id in known.ids if self._by_chat.get(id, known) is known]
        forms = dict.fromkeys((known.chat, *own))
        for id in filter(is_number, (known.chat, *own)):
            forms |= {f"+{id}": None, jid_of(id): None}
        return Sender(known.chat, person.name, tuple(form for form in forms if form != known.chat))

    def address(self, chat_id: str) -> str:
        """Return the id to send to: the newest number, or else another id. Groups stay as they are.

        Raises `SendRefused` if it is not a chat of WhatsApp."""
        id = id_of(chat_id)
        known = self._by_chat.get(chat_id) or self._by_chat.get(id) or self._by_id.get(id)
        address = id if known is None else known.address
        if known is None and not (is_group(id) or is_person(id)):
            address = ""
        if address:
            return address
        raise SendRefused(
            f"{chat_id!r} is not a WhatsApp chat",
            hint="Use a phone number with the country code (digits only), or an id from WhatsApp.",
        )

    def change_id(self, old: str, new: str) -> None:
        """Replace a person's id `old` by `new`. Idempotent. If only numbers are known of the former
        owner of `new`, it is the same person. If they have another account, they only lose the id.

        Raises `ValueError` for an invalid id."""
        old, new = id_of(old), id_of(new)
        if not is_id(new):
            raise ValueError("the new id is invalid")
        if old not in self._by_id and new in self._by_id:
            return
        known = self._by_id.get(old) or self._by_chat[self.chat_of([old])]
        other = self._by_id.get(new)
        if other is not None and other is not known and other.has_only(new):
            self._merge(other, known)
        self._assign(new, known, newest=True)
        if old != new:
            self._unassign(old)

    def save(self) -> None:
        """Save pending changes. After a `StorageError` the next call retries."""
        if self._is_written:
            return
        self._file.write(_File(people=list(self._admitted.values())))
        self._is_written = True

    def _find_owner(self, numbers: Iterable[str], accounts: Sequence[str]) -> _Known | None:
        """Return the known person with these ids, or None. Two that turn out to be the same are
        merged. A number with another account no longer belongs to its former owner."""
        by_account = next(filter(None, map(self._by_id.get, accounts)), None)
        by_number = next(filter(None, map(self._by_id.get, numbers)), None)
        if by_number is not None and by_number.conflicts_with(accounts):
            by_number = None
        if by_account is None or by_number is None or by_account is by_number:
            return by_account or by_number
        if by_account.admitted and not by_number.admitted:
            return self._merge(by_number, by_account)
        return self._merge(by_account, by_number)

    def _create(self, ids: Sequence[str]) -> _Known:
        """Create a person. Their number may still be the chat of its former owner."""
        names = chain(ids, (f"{ids[0]}#{number}" for number in count(2)))
        chat = next(name for name in names if name not in self._by_chat)
        known = self._by_chat[chat] = self._others[chat] = _Known(
            chats=[chat], ids=[], admitted=False
        )
        return known

    def _merge(self, other: _Known, known: _Known) -> _Known:
        """Merge `other` into `known`, who is the same person."""
        self._drop(other)
        known.chats = [*other.chats, *known.chats]
        self._by_chat |= dict.fromkeys(other.chats, known)
        for id in reversed(other.ids):
            known.ids.insert(0, id)
            self._by_id[id] = known
        self._mark_changed(known)
        return known

    def _assign(self, id: str, known: _Known, *, newest: bool) -> None:
        """Assign an id to a person. `newest`: it becomes their address."""
        if self._by_id.get(id) is not known:
            self._unassign(id)
            self._by_id[id] = known
        elif not newest or not is_number(id) or known.address == id:
            return
        else:
            known.ids.remove(id)
        known.ids.append(id)
        while len(known.ids) > _MAX_IDS:
            del self._by_id[known.ids.pop(0)]
        self._mark_changed(known)

    def _unassign(self, id: str) -> None:
        """Remove an id from its owner, if any."""
        before = self._by_id.pop(id, None)
        if before is not None:
            before.ids.remove(id)
            self._mark_changed(before)

    def _mark_changed(self, known: _Known) -> None:
        self._is_written = self._is_written and not known.admitted

    def _touch(self, known: _Known) -> None:
        """Make the person the last to be dropped."""
        group = self._admitted if known.admitted else self._others
        group[known.chat] = known
        group.move_to_end(known.chat)
        if len(group) > _MAX_PEOPLE:
            self._drop(next(iter(group.values())))

    def _drop(self, known: _Known) -> None:
        """Forget a person."""
        del (self._admitted if known.admitted else self._others)[known.chat]
        for chat in known.chats:
            del self._by_chat[chat]
        for id in known.ids:
            del self._by_id[id]
        self._mark_changed(known)
