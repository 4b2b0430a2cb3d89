"""Who was let in, who asked to be, and which wrong codes were tried: values, and what changes them.

What always holds: a book is bounded, however many strangers write. Within an hour it takes one
request of each person or group, and so many in all; older ones go. A code holds for ten minutes,
once. Neither a clock that is set back nor a computer that slept makes a code live longer.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

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
