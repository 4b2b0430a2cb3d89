"""Phase 1, extract: what the model is shown, and what it found, parsed from whatever it said. Pure.

The files come with the age of each line, the entries numbered from 0. Nothing that comes back is
trusted to have the right shape: what cannot be read is left out, and an answer without any of the
known keys is no answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nanobot.memory.dream.entries import Entry
from nanobot.memory.store.guard import bare
from nanobot.providers.failures import items, mapping, string

LONG_TERM, PERSON, MANNER = "memory/MEMORY.md", "USER.md", "SOUL.md"
FILES = (LONG_TERM, PERSON, MANNER)

AGE_MARK = "  ← "
_MARK = re.compile(r"\s*←\s*\d+\s*d\s*$")
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")
_LONGEST_FACT = 500
"""Characters; a fact is a sentence."""

Kind = Literal["add", "replace", "obsolete"]
_KINDS: Mapping[str, tuple[Kind, str]] = {
    "user_updates": ("add", PERSON),
    "memory_updates": ("add", LONG_TERM),
    "soul_updates": ("add", MANNER),
    "contradictions": ("replace", ""),
    "obsolete": ("obsolete", ""),
}


@dataclass(frozen=True, slots=True)
class Item:
    """Something the model found.

    `text` is the new fact, for an obsolete one the line that goes; `replaces` the line that a
    contradicting fact takes the place of. `path` is empty where that line decides. `entry` is the
    number the model gave, None where it gave none that exists. `quote` are words of a line of the
    person's that says it.
    """

    kind: Kind
    text: str
    path: str = ""
    replaces: str = ""
    entry: int | None = None
    quote: str = ""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What phase 1 found, and the numbers of the entries it read through."""

    items: tuple[Item, ...] = ()
    processed: frozenset[int] = frozenset()


def question(
    files: Mapping[str, str], ages: Mapping[str, Mapping[str, int]], entries: Sequence[Entry]
) -> str:
    """The message that shows `files` (text by path) with `ages` (days by line), and the batch."""
    parts = ["## Current files"]
    for path, text in files.items():
        parts.append(f"### {path}\n\n{aged(text, ages.get(path, {})) or '(empty)'}")
    parts.append("## New entries")
    parts += [entry.shown(number) for number, entry in enumerate(entries)]
    return "\n\n".join(parts)


def aged(text: str, ages: Mapping[str, int]) -> str:
    """`text` with the age in days behind each line that has one."""
    lines = []
    for line in text.strip().splitlines():
        days = ages.get(line, ages.get(line.strip()))
        lines.append(line if days is None else f"{line}{AGE_MARK}{days} d")
    return "\n".join(lines)


def parse(answer: str, count: int) -> Extraction | None:
    """What the model found in `count` entries; None where its answer is none."""
    found = json_object(answer, {*_KINDS, "processed_entries"})
    if found is None:
        return None
    collected = [item for key in _KINDS for item in _items(key, found.get(key), count)]
    return Extraction(tuple(collected), _processed(found, count))


def json_object(answer: str, keys: set[str]) -> Mapping[str, object] | None:
    """The first JSON object in `answer` that has one of `keys`, whatever stands around it."""
    for text in (answer, _TRAILING_COMMA.sub("", answer)):
        for candidate in _objects(text):
            if keys & candidate.keys():
                return candidate
    return None


def one_line(text: str) -> str:
    """`text` as one line without an age mark, of bounded length."""
    return _MARK.sub("", " ".join(text.split()))[:_LONGEST_FACT].rstrip()


def _objects(text: str) -> Iterator[Mapping[str, object]]:
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            if found := mapping(value):
                yield found
        start = text.find("{", end)


def _items(key: str, value: object, count: int) -> Iterator[Item]:
    kind, path = _KINDS[key]
    for raw in items(value) if isinstance(value, list) else [value]:
        fields = {"text": raw} if isinstance(raw, str) else mapping(raw)
        quote = one_line(string(fields.get("quote")))
        text = one_line(string(fields.get("text"))) or quote
        if bare(text).strip("#-*_ "):
            replaces = one_line(string(fields.get("replaces")) or string(fields.get("old")))
            yield Item(kind, text, path, replaces, _number(fields.get("entry"), count), quote)


def _processed(found: Mapping[str, object], count: int) -> frozenset[int]:
    listed = found.get("processed_entries")
    if not isinstance(listed, list):
        # Not said: an answer to a question about all of them is about all of them.
        return frozenset(range(count))
    numbers = (_number(value, count) for value in listed)
    return frozenset(number for number in numbers if number is not None)


def _number(value: object, count: int) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value.strip()[:9])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < count else None
