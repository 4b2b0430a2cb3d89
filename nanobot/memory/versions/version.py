"""What a version is, and what it says about itself: the message of its commit, there and back.

The message is a subject for people (`[Dream] learned two things`), a blank line, and trailers that
git tools read as well: `Version`, `Scope`, `Session`, `Turn`, `Run`, `History` (cursors),
`Operation` (JSON, one a line) and, on versions made by a sync, `Known` (the newest version of each
other device that is merged here). Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from nanobot.errors import NanobotError
from nanobot.memory.documents import TRACKED
from nanobot.memory.text.lines import Operation

Author = Literal["start", "consolidate", "dream", "agent", "you", "restore", "forget", "sync"]
"""`you` is the person: their editor, and what they confirm or ask for by a command. `start` is
no one: the files as they were when their versions began."""

TAGS: dict[Author, str] = {
    "start": "[Start]",
    "consolidate": "[Consolidate]",
    "dream": "[Dream]",
    "agent": "[Agent]",
    "you": "[You]",
    "restore": "[Restore]",
    "forget": "[Forget]",
    "sync": "[Sync]",
}
"""How the subject line of a version begins."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a long-term file.

    `summary` is a line for people. `session` and `turn` are where an agent's own edit was made,
    `cursors` the history entries that a learned change rests on, `operations` the lines it
    concerns, each with the cursor behind it where there is one. Changes of one scope with the same
    `run` (not empty) are one version to people: shown together and undone together. `known` says of
    each other device (on the last change of a sync) up to which number its versions are merged.
    """

    author: Author
    summary: str = ""
    session: str = ""
    turn: str = ""
    cursors: tuple[int, ...] = ()
    operations: tuple[Operation, ...] = ()
    run: str = ""
    known: Mapping[str, int] = field(default_factory=dict, hash=False)


class UnknownVersion(NanobotError):
    """There is no version with this number in this scope."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"there is no version {number}", hint="`/dream-restore --list` shows the latest."
        )
        self.number = number


@dataclass(frozen=True, slots=True)
class Version:
    """One change of long-term files; `commit` is its id in hex, `when` is aware."""

    number: int
    commit: str
    when: datetime
    author: Author
    summary: str
    paths: tuple[str, ...]
    change: Change


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a version made of one file; an absent file has the text ""."""

    version: Version
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Revert:
    """The texts that undo a change. `expected` is the present content (None: no file).

    A file in which part of the change cannot be undone is not in `texts`; `conflicts` says why.
    """

    texts: Mapping[str, str]
    expected: Mapping[str, str | None]
    conflicts: tuple[str, ...] = ()

    def adding(self, path: str, now: str | None, text: str) -> Revert:
        """With what makes `text` of a file, unless that stands there."""
        if text == (now or ""):
            return self
        return replace(
            self, texts={**self.texts, path: text}, expected={**self.expected, path: now}
        )


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a sync brought: the versions it made here, from these other devices.

    `conflicts` says where two devices changed the same line; what either wrote was kept.
    """

    numbers: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def scope_of(path: str) -> str | None:
    """The prefix of the scope whose tracked file `path` is; None for a file of no scope."""
    for name in TRACKED:
        prefix = path.removesuffix(name)
        if prefix == "":
            return prefix
        parts = prefix.split("/")
        if prefix != path and len(parts) == 3 and parts[0] in {"people", "groups"} and parts[1]:
            return prefix if not parts[2] else None
    return None


_SUBJECT = re.compile(r"\[(\w+)\] ?(.*)")
_AUTHORS: dict[str, Author] = {tag.strip("[]"): author for author, tag in TAGS.items()}
_SUBJECT_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Message:
    """The message of a version; `scope` is the prefix of its scope, empty for the owner's."""

    change: Change
    number: int = 0
    scope: str = ""

    @property
    def text(self) -> str:
        """The whole message."""
        subject = f"{TAGS[self.change.author]} {' '.join(self.change.summary.split())}".rstrip()
        return "\n".join([subject[:_SUBJECT_LENGTH], "", *self._trailers(), ""])

    @classmethod
    def parse(cls, text: str) -> Message:
        """What a message says. One that nanobot did not write is the person's."""
        subject, _, rest = text.partition("\n")
        match = _SUBJECT.match(subject)
        author = _AUTHORS.get(match[1], "you") if match else "you"
        fields: dict[str, list[str]] = {}
        for line in rest.split("\n"):
            name, found, value = line.partition(": ")
            if found:
                fields.setdefault(name, []).append(value.strip())
        known = (value.rpartition(" ") for value in fields.get("Known", []))
        change = Change(
            author,
            summary=match[2] if match else subject,
            session=_first(fields, "Session"),
            turn=_first(fields, "Turn"),
            run=_first(fields, "Run"),
            cursors=_numbers(_first(fields, "History")),
            operations=tuple(_operations(fields.get("Operation", []))),
            known={device: int(number) for device, _, number in known if number.isdecimal()},
        )
        return cls(
            change,
            number=next(iter(_numbers(_first(fields, "Version"))), 0),
            scope=_first(fields, "Scope"),
        )

    def redacted(self, redact: Callable[[str], str]) -> Message:
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

    def _trailers(self) -> Iterator[str]:
        change = self.change
        yield f"Version: {self.number}"
        if self.scope:
            yield f"Scope: {self.scope}"
        if change.session:
            yield f"Session: {' '.join(change.session.split())}"
        if change.turn:
            yield f"Turn: {' '.join(change.turn.split())}"
        if change.run:
            yield f"Run: {' '.join(change.run.split())}"
        if change.cursors:
            yield f"History: {', '.join(map(str, change.cursors))}"
        for step in change.operations:
            yield f"Operation: {json.dumps(step.as_json(), ensure_ascii=False)}"
        for device, number in sorted(change.known.items()):
            yield f"Known: {device} {number}"


def _operations(values: list[str]) -> Iterator[Operation]:
    for value in values:
        try:
            step = Operation.from_json(json.loads(value))
        except (ValueError, RecursionError):
            continue
        if step is not None:
            yield step


def _first(fields: Mapping[str, list[str]], name: str) -> str:
    return next(iter(fields.get(name, [])), "")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(", ") if part.isdecimal())
