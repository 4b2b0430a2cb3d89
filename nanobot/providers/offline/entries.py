"""The entries that a Dream is shown, and the facts that each states in so many words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nanobot.providers.offline.grammar import third_person
from nanobot.providers.offline.intents import Remember, Statement, TakeNote
from nanobot.providers.offline.prompt import STAMP
from nanobot.providers.offline.statements import is_lasting
from nanobot.providers.offline.summarise import dated
from nanobot.providers.offline.understand import clean, is_question, understand
from nanobot.providers.offline.words import terms

_ENTRY = re.compile(
    r"^\[(?P<number>\d{1,6})\] (?:\[(?P<when>\d{4}-\d\d-\d\d[^\]\n]{0,30})\] ?)?"
    r"(?P<head>[^\n]*)$",
    re.MULTILINE,
)
_FOREIGN = re.compile(r"[(\[](?:from|origin:?) [^)\]\n]{1,300}[)\]]|^from \S+", re.IGNORECASE)
_BULLET = re.compile(r"^\s*[-*]\s+(?P<text>\S.*)$")
_SAID = re.compile(r"The user said: “(?P<said>[^”\n]{3,400})”|用户说：“(?P<zh>[^”\n]{2,400})”")
_SPOKEN = re.compile(r"^\s*(?:\[[^\]\n]{1,40}\] ?)?USER(?: \[[^\]\n]{0,200}\])?: (?P<text>\S.*)$")
_FIRST_PERSON = re.compile(r"\b(?:i|i'm|i've|my|me|we|our)\b|我|咱", re.IGNORECASE)
_MOST_FACTS = 60


@dataclass(frozen=True, slots=True)
class Entry:
    """One numbered entry; `when` is its date as text, `head` its first line, `body` the rest."""

    number: int
    when: str
    head: str
    body: str

    @property
    def is_foreign(self) -> bool:
        """Whether it is marked as made from what somebody else wrote."""
        return _FOREIGN.search(self.head) is not None


def entries_of(text: str) -> list[Entry]:
    """The entries, by the numbers that stand before them."""
    marks: list[re.Match[str]] = []
    for mark in _ENTRY.finditer(text):
        if int(mark["number"]) == len(marks):  # a line of an entry may look like another entry
            marks.append(mark)
    ends = [*(mark.start() for mark in marks[1:]), len(text)][: len(marks)]
    return [
        Entry(int(mark["number"]), (mark["when"] or "")[:10], mark["head"], text[mark.end() : end])
        for mark, end in zip(marks, ends, strict=True)
    ]


def facts_of(entry: Entry) -> list[str]:
    """What an entry states that may last, each once, in the third person, dates resolved."""
    found = (dated(fact, entry.when) for fact in _stated(entry))
    return list(dict.fromkeys(found))[:_MOST_FACTS]


def _stated(entry: Entry) -> Iterator[str]:
    for line in entry.body.splitlines():
        if spoken := _SPOKEN.match(line):
            yield from _from_speech(spoken["text"])
        elif bullet := _BULLET.match(line):
            yield from _from_line(bullet["text"].strip())
    if not entry.is_foreign:
        for said in _SAID.finditer(f"{entry.head}\n{entry.body}"):
            yield from _from_speech(said["said"] or said["zh"])


def _from_line(line: str) -> Iterator[str]:
    """A note in the person's own words, which begins with its time, or a key fact."""
    note = STAMP.sub("", line)
    if note.startswith("(from "):  # of what somebody else wrote
        return
    if note != line or _FIRST_PERSON.search(line):
        yield from _from_speech(note)
    elif not is_question(line) and len(terms(line)) > 1:
        yield clean(line)


def _from_speech(text: str) -> Iterator[str]:
    for wish in understand(text):
        intent = wish.intent
        if isinstance(intent, Remember):
            yield third_person(intent.statement)
        elif isinstance(intent, Statement | TakeNote) and is_lasting(intent.text):
            yield third_person(clean(intent.text))
