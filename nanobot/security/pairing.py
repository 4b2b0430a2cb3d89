"""What pairing adds to the owner's lists: who was let in, who asked to be, and which wrong codes
were tried; the document `access`.

Invariant: the document is bounded, however many strangers write. Within an hour it takes one
request of each person or group, and so many in all; older ones go. A code holds for ten minutes,
once; it has eight characters that are hard to mistake for each other and hard to guess. A document
that cannot be read in every detail lets nobody in (see `Document`)."""

from __future__ import annotations

import json
import math
import secrets
import shlex
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct, convert, field
from msgspec.structs import asdict, replace

from nanobot.bus.state import Document, InvalidDocument, StateStore, versioned_object
from nanobot.text import printable, shorten

Kind = Literal["person", "group"]
KINDS: tuple[Kind, ...] = ("person", "group")
Key = tuple[str, Kind, str]
"""Channel, kind and id: what everything here is found by."""

CODE_SECONDS = 600.0
REQUEST_SECONDS = 3_600.0
MOST_REQUESTS = 50
"""Requests of people, and as many again of groups, within `REQUEST_SECONDS`."""
MOST_WRONG = 10
"""Wrong codes within `CODE_SECONDS`; no code is looked at after that."""

_MOST_NAME, _MOST_ID = 40, 200
_Moment = Annotated[datetime, Meta(tz=True)]


class Peer(Struct, frozen=True):
    channel: str
    kind: Kind
    id: str
    name: str

    @property
    def key(self) -> Key:
        return self.channel, self.kind, self.id


class PairingRequest(Peer, frozen=True):
    """A request to be let in: `code` is what its owner has to be told, empty where none is valid.
    `chat_id` and `thread_id` are where it was made."""

    chat_id: str
    code: str
    at: _Moment
    thread_id: str = ""

    def code_seconds(self, now: datetime) -> float:
        """Seconds for which the code still holds; 0 where it does not."""
        return max(0.0, CODE_SECONDS - age(self.at, now)) if self.code else 0.0


class Grant(Peer, frozen=True):
    """Somebody who was let in, and when. An owner is a person."""

    since: _Moment
    owner: bool = False


class AccessState(Struct, frozen=True):
    """The document `access`. Every change makes a new one."""

    grants: Mapping[Key, Grant] = field(default_factory=dict)
    requests: Mapping[Key, PairingRequest] = field(default_factory=dict)
    wrong: tuple[datetime, ...] = ()

    def at(self, now: datetime) -> AccessState:
        """Without what is too old to count."""
        return AccessState(
            self.grants,
            {k: one for k, one in self.requests.items() if age(one.at, now) < REQUEST_SECONDS},
            tuple(moment for moment in self.wrong if age(moment, now) < CODE_SECONDS),
        )

    def has_room(self, kind: Kind) -> bool:
        """Whether one more request is taken."""
        return sum(one.kind == kind for one in self.requests.values()) < MOST_REQUESTS

    def with_grant(self, grant: Grant) -> AccessState:
        """With somebody let in; a code of theirs is used up."""
        used = {k: replace(one, code="") for k, one in self.requests.items() if k == grant.key}
        grants = {**self.grants, grant.key: grant}
        return replace(self, grants=grants, requests={**self.requests, **used})


def age(moment: datetime, now: datetime) -> float:
    """Seconds since a moment; without end where the clock was set back, and nobody can tell."""
    return (now - moment).total_seconds() if moment <= now else math.inf


def usable_id(text: str) -> bool:
    """Whether somebody with this id can be let in: `*` would mean everyone."""
    return 0 < len(text) <= _MOST_ID and text != "*"


def clean_name(name: str) -> str:
    """What a stranger calls themselves, so that it is safe to show: one short line, without
    characters that are invisible, change the direction of writing, or end a code span."""
    shown = "".join(" " if c.isspace() else c for c in name[: _MOST_NAME * 4])
    shown = "".join(c for c in shown if c == " " or unicodedata.category(c)[0] not in "CZ")
    return shorten(shown.replace("`", "'"), _MOST_NAME)


def address(one: Peer) -> str:
    """What somebody is called in commands: `telegram:7`, on one line whatever the id is."""
    return printable(f"{one.channel}:{one.id}").replace("`", "'")


def shell_argument(one: Peer) -> str:
    """The address as it is typed into a shell, so that a strange id is nothing but an id there."""
    return shlex.quote(address(one))


def label(one: Peer) -> str:
    """Name and address, for people. Neither can end its code span, so a name cannot pretend to be
    more than a name, and is no Markdown."""
    return f"`{one.name}` (`{address(one)}`)" if one.name else f"`{address(one)}`"


ALPHABET = "23456789BCDFGHJKMNPQRSTVWXYZ"
"""No 0 and O, no 1, I and L, and no vowels, so that no code is a word."""

LENGTH = 8
"""Characters of a code: 38 bits, of which a guesser gets to try ten codes in ten minutes."""


def new_code() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def as_code(text: str) -> str:
    """`text` as a code, as people write it: in small letters, with spaces or dashes. Empty where it
    cannot be one."""
    code = "".join(text.replace("-", " ").split()).upper()
    return code if len(code) == LENGTH and set(code) <= set(ALPHABET) else ""


VERSION = 1

_ADVICE = (
    "Until this is fixed, only the people in config.yaml have access. Approve the others "
    "again with `nanobot pair approve`, or stop nanobot, save a correct file as "
    "state/access.json, and start it again."
)


def access_document(store: StateStore) -> Document[AccessState]:
    return Document(store, "access", _decoded, _encoded, AccessState(), _ADVICE)


class _File(Struct):
    approved: list[Grant]
    requests: list[PairingRequest]
    wrong_codes: list[_Moment]


def _encoded(state: AccessState) -> bytes:
    content = {
        "version": VERSION,
        "approved": [asdict(one) for one in state.grants.values()],
        "requests": [asdict(one) for one in state.requests.values()],
        "wrong_codes": state.wrong,
    }
    return json.dumps(content, indent=1, default=datetime.isoformat).encode("ascii") + b"\n"


def _decoded(content: bytes) -> AccessState:
    """Raises `InvalidDocument` and `ValidationError`."""
    file = convert(versioned_object(content, VERSION), _File)
    if not all(usable_id(one.id) for one in (*file.approved, *file.requests)):
        raise InvalidDocument("an entry has an invalid id")
    if any(one.owner and one.kind == "group" for one in file.approved):
        raise InvalidDocument("it has a group as the owner")
    grants = {one.key: replace(one, name=clean_name(one.name)) for one in file.approved}
    requests = {
        one.key: replace(one, name=clean_name(one.name), code=as_code(one.code))
        for one in file.requests
    }
    return AccessState(grants, requests, tuple(file.wrong_codes))
