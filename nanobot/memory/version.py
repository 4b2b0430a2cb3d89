"""A version of memory, and its commit message, which is written and parsed here. Pure.

The message is a subject for people (`[Dream] learned two things`), a blank line, and two trailers:
the number of the `Version`, and the rest of its `Change` as JSON."""

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
"""`you` is the person: their editor, command or approval. `start` marks the initial files."""

TAGS: dict[Author, str] = {author: f"[{author.title()}]" for author in get_args(Author)}
"""Beginning of a version's subject line, as `[Dream]`."""

CONFIRMED = "confirmed"
"""First word of the summary of a version with facts that the person accepted."""


class Change(Struct, frozen=True, omit_defaults=True):
    """One change of a long-term file.

    `summary` is a line for people. `session` and `turn` identify an agent's own edit. `cursors` are
    the history entries behind a learned change, and `operations` its lines, each with the cursor
    behind it if there is one. Changes of one scope with the same non-empty `run` are one version to
    people: shown and undone together. `merged` is set on the last change of a sync, and has the
    number up to which each other device's versions are merged."""

    author: Author = "you"
    summary: str = ""
    session: str = ""
    turn: str = ""
    cursors: tuple[int, ...] = ()
    operations: tuple[Operation, ...] = ()
    run: str = ""
    merged: Mapping[str, int] = field(default_factory=dict)


class Version(Struct, frozen=True):
    """One change of long-term files. `commit` is its hex id, `when` is aware. `blobs` has the id of
    each changed file's new content, empty for a removed file."""

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
    """The content of one file before and after a version. An absent file has the text ""."""

    version: Version
    before: str
    after: str


class Revert(Struct, frozen=True):
    """The texts that undo a change. `expected` is the current content, empty for no file.

    A file in which part of the change cannot be undone is not in `texts`. `conflicts` explains
    why."""

    texts: Mapping[str, str]
    expected: Mapping[str, str]
    conflicts: tuple[str, ...] = ()


_PATH = rf"(?s)({OTHER_SCOPE}/)?(.+)"


def scope_of(path: str) -> str | None:
    """Return the prefix of the scope that has the tracked file `path`, or None for no such file."""
    match = re.fullmatch(_PATH, path)
    return match[1] or "" if match and match[2] in TRACKED else None


_SUBJECT = r"(\[\w+\]) ?(.*)"
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
        """Parse a message. A message that nanobot did not write counts as the person's."""
        subject, _, rest = text.partition("\n")
        match = re.match(_SUBJECT, subject)
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

    def redact(self, redact: Callable[[str], str]) -> CommitMessage:
        """Return this message with all text that may quote a person passed through `redact`."""
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
