"""The document `access`: grants by pairing, pending requests, and wrong codes.

Invariant: the size of the document is limited, however many strangers write. Within an hour it
takes one request of each person or group, up to a maximum; older ones are dropped. A code works
once, within ten minutes. Its eight characters are hard to confuse and hard to guess. If any detail
of the document is unreadable, it grants nothing (see `Document`)."""

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

from nanobot.bus.state import Document, InvalidDocument, StateStore, decode_versioned
from nanobot.text import printable, shorten

Kind = Literal["person", "group"]
KINDS: tuple[Kind, ...] = ("person", "group")
Key = tuple[str, Kind, str]
"""Channel, kind and id, the key of all entries."""

CODE_SECONDS = 600.0
REQUEST_SECONDS = 3_600.0
MOST_REQUESTS = 50
"""Requests of people within `REQUEST_SECONDS`, and as many of groups."""
MOST_WRONG = 10
"""Wrong codes within `CODE_SECONDS`. After that, all codes are rejected."""

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
    """A request for access. `code` is its pairing code, empty if none is valid. `chat_id` and
    `thread_id` are its chat."""

    chat_id: str
    code: str
    at: _Moment
    thread_id: str = ""

    def code_seconds(self, now: datetime) -> float:
        """Return the remaining seconds of the code, or 0."""
        return max(0.0, CODE_SECONDS - age(self.at, now)) if self.code else 0.0


class Grant(Peer, frozen=True):
    """A person or group with access, and since when. An owner is a person."""

    since: _Moment
    owner: bool = False


class AccessState(Struct, frozen=True):
    """The document `access`. Immutable."""

    grants: Mapping[Key, Grant] = field(default_factory=dict)
    requests: Mapping[Key, PairingRequest] = field(default_factory=dict)
    wrong: tuple[datetime, ...] = ()

    def at(self, now: datetime) -> AccessState:
        """Return the state without expired entries."""
        return AccessState(
            self.grants,
            {k: one for k, one in self.requests.items() if age(one.at, now) < REQUEST_SECONDS},
            tuple(moment for moment in self.wrong if age(moment, now) < CODE_SECONDS),
        )

    def has_room(self, kind: Kind) -> bool:
        """Check whether one more request fits."""
        return sum(one.kind == kind for one in self.requests.values()) < MOST_REQUESTS

    def with_grant(self, grant: Grant) -> AccessState:
        """Return the state with a grant. It uses up the code."""
        used = {k: replace(one, code="") for k, one in self.requests.items() if k == grant.key}
        grants = {**self.grants, grant.key: grant}
        return replace(self, grants=grants, requests={**self.requests, **used})


def age(moment: datetime, now: datetime) -> float:
    """Return the seconds since a moment, or infinity if the clock was set back."""
    return (now - moment).total_seconds() if moment <= now else math.inf


def is_usable_id(text: str) -> bool:
    """Check whether this id can get access. `*` would mean everyone."""
    return 0 < len(text) <= _MOST_ID and text != "*"


def clean_name(name: str) -> str:
    """Return a stranger's name, safe to show: one short line, without characters that are
    invisible, change the writing direction, or end a code span."""
    shown = "".join(" " if c.isspace() else c for c in name[: _MOST_NAME * 4])
    shown = "".join(c for c in shown if c == " " or unicodedata.category(c)[0] not in "CZ")
    return shorten(shown.replace("`", "'"), _MOST_NAME)


def address(one: Peer) -> str:
    """Return the address for commands: `telegram:7`, on one line for any id."""
    return printable(f"{one.channel}:{one.id}").replace("`", "'")


def shell_argument(one: Peer) -> str:
    """Return the address quoted for a shell."""
    return shlex.quote(address(one))


def label(one: Peer) -> str:
    """Return name and address for people. Neither can end its code span or act as Markdown."""
    return f"`{one.name}` (`{address(one)}`)" if one.name else f"`{address(one)}`"


ALPHABET = "23456789BCDFGHJKMNPQRSTVWXYZ"
"""Without 0, O, 1, I, L and vowels, so that no code is a word."""

LENGTH = 8
"""Characters of a code: 38 bits, with ten guesses in ten minutes."""


def new_code() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def as_code(text: str) -> str:
    """Normalize a typed code (lower case, spaces, dashes). Return an empty text if it is
    invalid."""
    code = "".join(text.replace("-", " ").split()).upper()
    return code if len(code) == LENGTH and set(code) <= set(ALPHABET) else ""


VERSION = 1

_ADVICE = (
    "Until this is fixed, only the people in config.yaml have access. Approve the others "
    "again with `nanobot pair approve`, or stop nanobot, save a correct file as "
    "state/access.json, and start nanobot again."
)


def access_document(store: StateStore) -> Document[AccessState]:
    return Document(store, "access", decode_access, encode_access, AccessState(), _ADVICE)


class _File(Struct):
    approved: list[Grant]
    requests: list[PairingRequest]
    wrong_codes: list[_Moment]


def encode_access(state: AccessState) -> bytes:
    content = {
        "version": VERSION,
        "approved": [asdict(one) for one in state.grants.values()],
        "requests": [asdict(one) for one in state.requests.values()],
        "wrong_codes": state.wrong,
    }
    return json.dumps(content, indent=1, default=datetime.isoformat).encode("ascii") + b"\n"


def decode_access(content: bytes) -> AccessState:
    """Parse the document. Raise `InvalidDocument` or `ValidationError`."""
    file = convert(decode_versioned(content, VERSION), _File)
    if not all(is_usable_id(one.id) for one in (*file.approved, *file.requests)):
        raise InvalidDocument("an entry has an invalid id")
    if any(one.owner and one.kind == "group" for one in file.approved):
        raise InvalidDocument("it lists a group as the owner")
    grants = {one.key: replace(one, name=clean_name(one.name)) for one in file.approved}
    requests = {
        one.key: replace(one, name=clean_name(one.name), code=as_code(one.code))
        for one in file.requests
    }
    return AccessState(grants, requests, tuple(file.wrong_codes))
