"""What was forgotten and must not come back: `memory/forgotten.jsonl` of a scope.

One line for each `/forget`: which messages and history entries were retracted, by their numbers,
and the words of each forgotten fact as salted hashes, by which the same fact is known again in
other words. So the file names nothing that it hides. (Hashes of words withstand a glance, not a
determined search; `/forget --erase` is for that.)

What a person says after they had it forgotten is said anew: pass its time and it is not hidden.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from nanobot.errors import WriteConflict
from nanobot.memory.text.wording import Fact, covers, parts, words
from nanobot.messages import Message
from nanobot.security.paths import Root
from nanobot.session.records import JsonValue, decode_fields, encode_fields, moment, natural

FORGOTTEN = "memory/forgotten.jsonl"

_LIMIT = 10_000_000


@dataclass(frozen=True, slots=True)
class HashedFact:
    """A fact whose words are hashes."""

    words: frozenset[str]
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Record:
    """One `/forget`. `messages` maps a session's key to the seqs that were retracted."""

    when: datetime
    salt: bytes
    facts: tuple[HashedFact, ...] = ()
    messages: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    entries: tuple[int, ...] = ()

    @classmethod
    def made(
        cls,
        when: datetime,
        salt: bytes,
        facts: Iterable[Fact],
        messages: Mapping[str, Sequence[int]],
        entries: Iterable[int],
    ) -> Record:
        """The record of facts that are still in clear."""
        hashed = [HashedFact(_hashes(salt, fact.words), _hashes(salt, fact.keys)) for fact in facts]
        numbers = {key: tuple(sorted(seqs)) for key, seqs in messages.items()}
        return cls(when, salt, tuple(hashed), numbers, tuple(sorted(entries)))

    def hides(self, text: str) -> bool:
        """Whether `text` states one of the facts."""
        for part in parts(text):
            said = _hashes(self.salt, words(part))
            if any(covers(fact.words, fact.keys, said) for fact in self.facts):
                return True
        return False


class Forgotten:
    """What is forgotten in one scope; `root` is its folder. Reads cost one system call."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._reading = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._records: tuple[Record, ...] = ()

    def hides_message(self, session: str, message: Message) -> bool:
        """Whether a message was retracted as evidence. What was said later, in a conversation that
        began anew under the same name, has the number of a forgotten message and is not it."""
        said_at = message.timestamp
        return any(
            message.seq in record.messages.get(session, ())
            for record in self.records()
            if said_at is None or said_at <= record.when
        )

    def hides_entry(self, cursor: int) -> bool:
        """Whether the history entry said nothing but what was forgotten."""
        return any(cursor in record.entries for record in self.records())

    def hides_line(self, line: str, said_at: datetime | None = None) -> bool:
        """Whether a line states what was forgotten.

        With `said_at`, the time of the newest evidence for it, only what was forgotten after that.
        """
        return any(
            record.hides(line)
            for record in self.records()
            if said_at is None or said_at <= record.when
        )

    def add(self, record: Record) -> None:
        """Keep one more, durably."""
        place = self._root.place(FORGOTTEN)
        line = encode_fields(_as_json(record)).encode()
        while True:
            current = place.read_bytes(_LIMIT)
            try:
                place.write_bytes((current or b"") + line, expected=current)
            except WriteConflict:  # another one came first
                continue
            return

    def records(self) -> tuple[Record, ...]:
        """All of them, oldest first; lines that are none are left out."""
        with self._reading:
            seen = self._root.fingerprint(FORGOTTEN)
            if seen != self._seen:
                content = self._root.place(FORGOTTEN).read_bytes(_LIMIT) or b""
                read = [_record(decode_fields(line) or {}) for line in content.splitlines()]
                self._records = tuple(record for record in read if record is not None)
                self._seen = seen
            return self._records


def _hashes(salt: bytes, found: Iterable[str]) -> frozenset[str]:
    return frozenset(
        hashlib.blake2b(word.encode("utf-8", "replace"), key=salt, digest_size=8).hexdigest()
        for word in found
    )


def _as_json(record: Record) -> dict[str, JsonValue]:
    fields: dict[str, object] = {
        "timestamp": record.when.isoformat(),
        "salt": record.salt.hex(),
        "facts": [
            {"words": sorted(fact.words), "keys": sorted(fact.keys)} for fact in record.facts
        ],
        "messages": {key: list(seqs) for key, seqs in record.messages.items()},
        "entries": list(record.entries),
    }
    parsed: dict[str, JsonValue] = json.loads(json.dumps(fields))
    return parsed


def _record(fields: Mapping[str, JsonValue]) -> Record | None:
    when = moment(fields.get("timestamp"))
    try:
        salt = bytes.fromhex(str(fields.get("salt")))
    except ValueError:
        return None
    if when is None or not salt:
        return None
    facts, messages = fields.get("facts"), fields.get("messages")
    return Record(
        when,
        salt,
        tuple(_fact(item) for item in facts) if isinstance(facts, list) else (),
        {key: _numbers(seqs) for key, seqs in messages.items()}
        if isinstance(messages, dict)
        else {},
        _numbers(fields.get("entries")),
    )


def _fact(value: JsonValue) -> HashedFact:
    found = value if isinstance(value, dict) else {}
    return HashedFact(_texts(found.get("words")), _texts(found.get("keys")))


def _texts(value: JsonValue) -> frozenset[str]:
    return frozenset(map(str, value)) if isinstance(value, list) else frozenset()


def _numbers(value: JsonValue) -> tuple[int, ...]:
    return tuple(filter(None, map(natural, value))) if isinstance(value, list) else ()
