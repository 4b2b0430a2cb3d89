"""What a version is, and what it says about itself: the message of its commit, there and back.

The message is a subject for people (`[Dream] learned two things`), a blank line, and two trailers:
the number of the `Version`, and the rest of its `Change` as JSON. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct, ValidationError, convert, field, to_builtins
from msgspec.structs import replace

from nanobot.memory.documents import OTHER_SCOPE, TRACKED
from nanobot.memory.line_changes import Operation

Author = Literal["start", "consolidate", "dream", "agent", "you", "restore", "forget", "sync"]
"""`you` is the person: their editor, and what they confirm or ask for by a command. `start` is
no one: the files as they were when their versions began."""

TAGS: dict[Author, str] = {author: f"[{author.title()}]" for author in get_args(Author)}
"""How the subject line of a version begins: `[Dream]`."""


class Change(Struct, frozen=True, omit_defaults=True):
    """One change of a long-term file.

    `summary` is a line for people. `session` and `turn` are where an agent's own edit was made,
    `cursors` the history entries that a learned change rests on, `operations` the lines it
    concerns, each with the cursor behind it where there is one. Changes of one scope with the same
    `run` (not empty) are one version to people: shown together and undone together. `merged` says,
    on the last change of a sync, up to which number another device's versions are merged.
    """

    author: Author = "you"
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
        return self.change.author

    @property
    def summary(self) -> str:
        return self.change.summary

    @property
    def paths(self) -> tuple[str, ...]:
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
        change = self.change
        subject = f"{TAGS[change.author]} {' '.join(change.summary.split())}".rstrip()
        rest = json.dumps(to_builtins(replace(change, summary="")), ensure_ascii=False)
        return f"{subject[:_SUBJECT_LENGTH]}\n\nVersion: {self.number}\nChange: {rest}\n"

    @classmethod
    def parse(cls, text: str) -> CommitMessage:
        """What a message says. One that nanobot did not write is the person's."""
        subject, _, rest = text.partition("\n")
        match = _SUBJECT.match(subject)
        summary, author = (match[2], _AUTHORS.get(match[1], "you")) if match else (subject, "you")
        trailers = dict(line.partition(": ")[::2] for line in rest.split("\n"))
        try:
            change = convert(json.loads(trailers.get("Change", "{}")), Change)
        except (ValidationError, ValueError, RecursionError):
            change = Change()
        number = trailers.get("Version", "").strip()
        return cls(
            replace(change, author=author, summary=summary),
            int(number) if number.isdecimal() else 0,
        )

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
