"""What a version is, and what it says about itself: the message of its commit, there and back.

The message is a subject for people (`[Dream] learned two things`), a blank line, and trailers that
git tools read as well: `Version`, `Session`, `Turn`, `Run`, `History` (cursors),
`Operation` (JSON, one a line) and, on versions made by a sync, `Known` (another device, and up to
which of its versions it is merged here). Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from nanobot.memory.documents import OTHER_SCOPE, TRACKED
from nanobot.memory.lines import Operation

Author = Literal["start", "consolidate", "dream", "agent", "you", "restore", "forget", "sync"]
"""`you` is the person: their editor, and what they confirm or ask for by a command. `start` is
no one: the files as they were when their versions began."""

TAGS: dict[Author, str] = {author: f"[{author.title()}]" for author in get_args(Author)}
"""How the subject line of a version begins: `[Dream]`."""


class Change(Struct, frozen=True):
    """One change of a long-term file.

    `summary` is a line for people. `session` and `turn` are where an agent's own edit was made,
    `cursors` the history entries that a learned change rests on, `operations` the lines it
    concerns, each with the cursor behind it where there is one. Changes of one scope with the same
    `run` (not empty) are one version to people: shown together and undone together. `merged` says,
    on the last change of a sync, up to which number another device's versions are merged.
    """

    author: Author
    summary: str = ""
    session: str = ""
    turn: str = ""
    cursors: tuple[int, ...] = ()
    operations: tuple[Operation, ...] = ()
    run: str = ""
    merged: Mapping[str, int] = field(default_factory=dict)


class Version(Struct, frozen=True):
    """One change of long-term files. `commit` is its id in hex, `when` is aware. `blobs` has the id
    of the new content of each file that it changed, empty if the file went."""

    number: int
    commit: str
    when: datetime
    change: Change
    blobs: Mapping[str, str]

    @property
    def author(self) -> Author:
        """Who made it."""
        return self.change.author

    @property
    def summary(self) -> str:
        """What it did, in a line for people."""
        return self.change.summary

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that it changed."""
        return tuple(self.blobs)


class VersionSnapshot(Struct, frozen=True):
    """What a version made of one file; an absent file has the text ""."""

    version: Version
    before: str
    after: str


class Revert(Struct, frozen=True):
    """The texts that undo a change. `expected` is the present content, empty for no file.

    A file in which part of the change cannot be undone is not in `texts`; `conflicts` says why.
    """

    texts: Mapping[str, str]
    expected: Mapping[str, str]
    conflicts: tuple[str, ...] = ()


_PATH = re.compile(rf"({OTHER_SCOPE}/)?(.+)", re.DOTALL)


def scope_of(path: str) -> str | None:
    """The prefix of the scope whose tracked file `path` is; None for a file of no scope."""
    match = _PATH.fullmatch(path)
    return match[1] or "" if match and match[2] in TRACKED else None


_SUBJECT = re.compile(r"(\[\w+\]) ?(.*)")
_AUTHORS = {tag: author for author, tag in TAGS.items()}
_SUBJECT_LENGTH = 500


class CommitMessage(Struct, frozen=True):
    """The message of a version. The number is 0 in a commit that nanobot did not make."""

    change: Change
    number: int = 0

    @property
    def text(self) -> str:
        """The whole message."""
        change = self.change
        subject = f"{TAGS[change.author]} {' '.join(change.summary.split())}".rstrip()
        trailers = [
            ("Version", str(self.number)),
            ("Session", change.session),
            ("Turn", change.turn),
            ("Run", change.run),
            ("History", ", ".join(map(str, change.cursors))),
        ]
        steps = (json.dumps(to_builtins(step), ensure_ascii=False) for step in change.operations)
        trailers += [("Operation", step) for step in steps]
        trailers += [("Known", f"{device} {number}") for device, number in change.merged.items()]
        lines = [f"{name}: {value}".replace("\n", " ") for name, value in trailers if value]
        return "\n".join([subject[:_SUBJECT_LENGTH], "", *lines, ""])

    @classmethod
    def parse(cls, text: str) -> CommitMessage:
        """What a message says. One that nanobot did not write is the person's."""
        subject, _, rest = text.partition("\n")
        match = _SUBJECT.match(subject)
        lines = (line.partition(": ") for line in rest.split("\n"))
        trailers = [(name, value.strip()) for name, separator, value in lines if separator]
        first = dict(reversed(trailers))

        def values(name: str) -> Iterator[str]:
            return (value for key, value in trailers if key == name)

        known = (value.rpartition(" ") for value in values("Known"))
        change = Change(
            _AUTHORS.get(match[1], "you") if match else "you",
            summary=match[2] if match else subject,
            session=first.get("Session", ""),
            turn=first.get("Turn", ""),
            run=first.get("Run", ""),
            cursors=_numbers(first.get("History", "")),
            operations=tuple(filter(None, map(_operation, values("Operation")))),
            merged={device: int(number) for device, _, number in known if number.isdecimal()},
        )
        number = next(iter(_numbers(first.get("Version", ""))), 0)
        return cls(change, number)

    def redacted(self, redact: Callable[[str], str]) -> CommitMessage:
        """This message with every text that a person could have said put through `redact`."""
        change = self.change
        operations = (
            replace(step, old=redact(step.old), new=redact(step.new), section=redact(step.section))
            for step in change.operations
        )
        changed = replace(
            change,
            summary=redact(change.summary),
            session=redact(change.session),
            turn=redact(change.turn),
            operations=tuple(step for step in operations if step.old or step.new),
        )
        return replace(self, change=changed)


def _operation(value: str) -> Operation | None:
    try:
        return Operation.from_json(json.loads(value))
    except (ValueError, RecursionError):
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(", ") if part.isdecimal())
