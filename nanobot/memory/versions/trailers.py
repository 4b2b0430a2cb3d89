"""What a version says about itself: the message of its commit, there and back. Pure.

A subject for people (`[Dream] learned two things`), a blank line, and trailers that git tools read
as well: `Version`, `Scope`, `Session`, `Turn`, `Run`, `History` (cursors), `Operation` (JSON, one a
line) and, on versions made by a sync, `Known` (the newest version of each other device that is
merged here).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from nanobot.memory.change import TAGS, Author, Change
from nanobot.memory.text.lines import Operation

_SUBJECT = re.compile(r"\[(\w+)\] ?(.*)")
_AUTHORS: dict[str, Author] = {tag.strip("[]"): author for author, tag in TAGS.items()}
_SUBJECT_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Message:
    """The message of a version; `known` is device to version number.

    `scope` is the prefix of the scope that it concerns, empty for the owner's.
    """

    change: Change
    number: int = 0
    scope: str = ""
    known: Mapping[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The whole message."""
        subject = f"{TAGS[self.change.author]} {_one_line(self.change.summary)}".rstrip()
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
        change = Change(
            author,
            summary=match[2] if match else subject,
            session=_first(fields, "Session"),
            turn=_first(fields, "Turn"),
            run=_first(fields, "Run"),
            cursors=_numbers(_first(fields, "History")),
            operations=tuple(_operations(fields.get("Operation", []))),
        )
        known = (value.rpartition(" ") for value in fields.get("Known", []))
        return cls(
            change,
            number=next(iter(_numbers(_first(fields, "Version"))), 0),
            scope=_first(fields, "Scope"),
            known={device: int(number) for device, _, number in known if number.isdecimal()},
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
            yield f"Session: {_one_line(change.session)}"
        if change.turn:
            yield f"Turn: {_one_line(change.turn)}"
        if change.run:
            yield f"Run: {_one_line(change.run)}"
        if change.cursors:
            yield f"History: {', '.join(map(str, change.cursors))}"
        for step in change.operations:
            yield f"Operation: {json.dumps(step.as_json(), ensure_ascii=False)}"
        for device, number in sorted(self.known.items()):
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


def _one_line(text: str) -> str:
    return " ".join(text.split())
