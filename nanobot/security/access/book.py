"""Who was let in, who asked to be, and which wrong codes were tried: values, and what changes them.

What always holds: a book is bounded, however many strangers write. Within an hour it takes one
request of each person or group, and so many in all; older ones go. A code holds for ten minutes,
once. Neither a clock that is set back nor a computer that slept makes a code live longer.

What people are told about access. A stranger learns that this is a private nanobot, no more.
"""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from nanobot.errors import NanobotError
from nanobot.security.names import printable

Kind = Literal["person", "group"]
Key = tuple[str, Kind, str]
"""Channel, kind and id: what everything here is found by."""

CODE_SECONDS = 600.0
REQUEST_SECONDS = 3_600.0
MOST_REQUESTS = 50
"""Requests of people, and as many again of groups, within `REQUEST_SECONDS`."""
MOST_WRONG = 10
"""Wrong codes within `CODE_SECONDS`; no code is looked at after that."""

_MOST_NAME, _MOST_ID = 40, 200


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: as the calendar has it, and by a clock that only runs forward."""

    civil: datetime
    seconds: float

    def age(self, now: Moment) -> float:
        """Seconds since then; by the clock that saw more of them, should they disagree."""
        return max(now.seconds - self.seconds, (now.civil - self.civil).total_seconds())


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to be let in: `code` is what its owner has to be told, empty where none is valid.
    `chat_id` and `thread_id` are where it was made."""

    channel: str
    kind: Kind
    id: str
    name: str
    chat_id: str
    code: str
    at: Moment
    thread_id: str = ""
    used: bool = False

    @property
    def key(self) -> Key:
        """What it is found by."""
        return self.channel, self.kind, self.id

    def code_seconds(self, now: Moment) -> float:
        """Seconds for which the code still holds; 0 where it does not."""
        return 0.0 if self.used or not self.code else max(0.0, CODE_SECONDS - self.at.age(now))


@dataclass(frozen=True, slots=True)
class Known:
    """A person or a group that was let in, and when. An owner is a person."""

    channel: str
    kind: Kind
    id: str
    name: str
    since: datetime
    owner: bool = False

    @property
    def key(self) -> Key:
        """What it is found by."""
        return self.channel, self.kind, self.id


@dataclass(frozen=True, slots=True)
class Book:
    """All of it. Every change makes a new one."""

    known: Mapping[Key, Known] = field(default_factory=dict)
    asked: Mapping[Key, Asked] = field(default_factory=dict)
    wrong: tuple[Moment, ...] = ()

    def at(self, now: Moment) -> Book:
        """Without what is too old to count."""
        return Book(
            self.known,
            {k: one for k, one in self.asked.items() if one.at.age(now) < REQUEST_SECONDS},
            tuple(moment for moment in self.wrong if moment.age(now) < CODE_SECONDS),
        )

    def has_room(self, kind: Kind) -> bool:
        """Whether one more request is taken."""
        return sum(one.kind == kind for one in self.asked.values()) < MOST_REQUESTS

    def with_request(self, asked: Asked) -> Book:
        """With one more request."""
        return replace(self, asked={**self.asked, asked.key: asked})

    def without_request(self, key: Key) -> Book:
        """Without a request, unless it has led to something."""
        kept = {k: one for k, one in self.asked.items() if k != key or one.used}
        return replace(self, asked=kept)

    def letting_in(self, known: Known) -> Book:
        """With somebody let in; a code of theirs is used up."""
        used = {k: replace(one, used=True) for k, one in self.asked.items() if k == known.key}
        known_now = {**self.known, known.key: known}
        return replace(self, known=known_now, asked={**self.asked, **used})

    def without(self, key: Key) -> Book:
        """With somebody shut out again."""
        return replace(self, known={k: one for k, one in self.known.items() if k != key})

    def with_wrong_code(self, now: Moment) -> Book:
        """With one more wrong code tried."""
        return replace(self, wrong=(*self.wrong, now))

    def as_others_left(self, theirs: Book, before: Book) -> Book:
        """With what somebody else changed in the file, which said `before` and now says `theirs`:
        who was let in, and what those who asked are called. What was noted since stays."""
        asked = {}
        for key, one in self.asked.items():
            if before.asked.get(key) != one:
                asked[key] = one
            elif key in theirs.asked:
                asked[key] = replace(one, name=theirs.asked[key].name)
        return Book(theirs.known, asked, self.wrong)

    @property
    def locked(self) -> bool:
        """Whether too many wrong codes were tried."""
        return len(self.wrong) >= MOST_WRONG


def usable_id(text: str) -> bool:
    """Whether somebody with this id can be let in: `*` would mean everyone."""
    return 0 < len(text) <= _MOST_ID and text != "*"


def tidy_name(name: str) -> str:
    """What a stranger calls themselves, so that it is safe to show: one short line, without
    characters that are invisible, change the direction of writing, or end a code span."""
    shown = "".join(" " if c.isspace() else c for c in name[: _MOST_NAME * 4])
    shown = "".join(c for c in shown if c == " " or unicodedata.category(c)[0] not in "CZ")
    shown = " ".join(shown.replace("`", "'").split())
    return shown if len(shown) <= _MOST_NAME else f"{shown[: _MOST_NAME - 1]}…"


def alike(name: str) -> str:
    """The same for names that look the same but for case, width, marks and spaces."""
    letters = unicodedata.normalize("NFKD", name).casefold()
    return "".join(c for c in letters if c.isalnum())


def address(one: Asked | Known) -> str:
    """What somebody is called in commands: `telegram:7`, on one line whatever the id is."""
    return printable(f"{one.channel}:{one.id}").replace("`", "'")


def argument(one: Asked | Known) -> str:
    """The address as it is typed into a shell, so that a strange id is nothing but an id there."""
    return shlex.quote(address(one))


def who(one: Asked | Known) -> str:
    """Name and address, for people. Neither can end its code span, so a name cannot pretend to be
    more than a name, and is no Markdown."""
    return f"`{one.name}` (`{address(one)}`)" if one.name else f"`{address(one)}`"


def greeting(kind: Kind, code: str) -> str:
    """What a stranger, or a group, is answered."""
    if kind == "group":
        return (
            "This is a private nanobot, and this group is not on its list. Its owner can let"
            f" everyone in this group talk to it, within ten minutes: send me `/pair {code}` in"
            f" private, or run `nanobot pair approve {code}`."
        )
    return (
        f"This is a private nanobot. Your pairing code: `{code}` (it holds for ten minutes).\n"
        f"Its owner lets you in with `nanobot pair approve {code}`"
        " (and `--owner` if that is you)."
    )


def not_a_code() -> NanobotError:
    """What was given looks like no code."""
    return NanobotError(
        "this is not a pairing code",
        hint="A code has eight letters and digits; an id is written as CHANNEL:ID.",
    )


def wrong_code() -> NanobotError:
    """Nobody was given this code, or it was long ago."""
    return NanobotError(
        "no open request has this code",
        hint="Look for a typing mistake. A code holds for ten minutes and works once.",
    )


def locked(seconds: float) -> NanobotError:
    """Too many wrong codes; `seconds` until the next one may be tried."""
    minutes = max(1, round(seconds / 60))
    return NanobotError(
        "too many wrong codes were tried, so no code is taken for now",
        hint=f"Try again in {minutes} min. By its id (CHANNEL:ID) a request can be approved at"
        " once.",
    )


def used(asked: Asked) -> NanobotError:
    """The code has let somebody in."""
    return NanobotError(f"this code was used already, for {who(asked)}")


def expired(asked: Asked) -> NanobotError:
    """The code is too old; the request can still be approved by its id."""
    return NanobotError(
        f"this code, of {who(asked)}, is older than ten minutes",
        hint=f"If you are sure who that is, approve `{address(asked)}` instead of the code. An hour"
        " after the last one they get a new code when they write.",
    )


def nobody_asked(id: str) -> NanobotError:
    """No request has this address."""
    return NanobotError(
        f"nobody with the id {printable(id)} has asked within the hour",
        hint="They have to write to me first, or stand in `allow_from` in config.yaml.",
    )


def no_owner(group: Asked | Known) -> NanobotError:
    """A group was to be made the owner."""
    return NanobotError(f"{who(group)} is a group, and only a person can be the owner")


def owner_stays(owner: Known) -> NanobotError:
    """An owner was to be shut out where only others may be."""
    return NanobotError(
        f"{who(owner)} is the owner",
        hint=f"Only the terminal can take that back: `nanobot pair revoke {argument(owner)}`",
    )


def not_paired(address: str, *, configured: bool) -> NanobotError:
    """Pairing has nothing to take back; `configured`: config.yaml has."""
    return NanobotError(
        f"{printable(address)} was not let in by pairing",
        hint="config.yaml lets them in: change it there." if configured else "",
    )
