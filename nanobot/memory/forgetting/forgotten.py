"""What was forgotten and must not come back: `memory/forgotten.jsonl` of a scope.

One line for each `/forget`: which messages and history entries were retracted, by their numbers,
and the words of each forgotten fact as salted hashes, by which the same fact is known again in
other words. So the file names nothing that it hides. (Hashes of words withstand a glance, not a
determined search; `/forget --erase` is for that.)

What a person says again after they had it forgotten is not hidden, where its time is passed.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from nanobot.errors import WriteConflict
from nanobot.io import FileState, json_line
from nanobot.memory.text.wording import Fact, covers, parts, words
from nanobot.messages import Message
from nanobot.security.paths import Root

FORGOTTEN = "memory/forgotten.jsonl"

_LIMIT = 10_000_000


@dataclass(frozen=True, slots=True)
class Record:
    """One `/forget`. The words of `facts` are hashes; `messages` maps a session's key to the seqs
    that were retracted."""

    when: datetime
    salt: bytes
    facts: tuple[Fact, ...] = ()
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
        hashed = (Fact(_hashes(salt, fact.words), _hashes(salt, fact.keys)) for fact in facts)
        numbers = {key: tuple(sorted(seqs)) for key, seqs in messages.items()}
        return cls(when, salt, tuple(hashed), numbers, tuple(sorted(entries)))

    @classmethod
    def parse(cls, line: bytes) -> Record:
        """The record on a line. Raises `ValueError`, `LookupError`, `TypeError` or
        `AttributeError` for a line that holds none."""
        fields = json.loads(line)
        when, salt = datetime.fromisoformat(fields["timestamp"]), bytes.fromhex(fields["salt"])
        return cls(
            when if when.tzinfo else when.astimezone(),
            salt,
            tuple(Fact(frozenset(f["words"]), frozenset(f["keys"])) for f in fields["facts"]),
            {key: tuple(seqs) for key, seqs in fields["messages"].items()},
            tuple(fields["entries"]),
        )

    @property
    def line(self) -> bytes:
        """The record as a line of the file."""
        facts = [{"words": sorted(fact.words), "keys": sorted(fact.keys)} for fact in self.facts]
        fields = {
            "timestamp": self.when.isoformat(),
            "salt": self.salt.hex(),
            "facts": facts,
            "messages": self.messages,
            "entries": self.entries,
        }
        return f"{json_line(fields)}\n".encode()

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
        self._seen: FileState | None = None
        self._records: tuple[Record, ...] = ()

    def hides_message(self, session: str, message: Message) -> bool:
        """Whether a message was retracted as evidence. What was said later, in a new
        conversation of the same name, has the number of a forgotten message and is not it."""
        records = self._since(message.timestamp)
        return any(message.seq in record.messages.get(session, ()) for record in records)

    def hides_entry(self, cursor: int) -> bool:
        """Whether the history entry said nothing but what was forgotten."""
        return any(cursor in record.entries for record in self._since(None))

    def hides_line(self, line: str, said_at: datetime | None = None) -> bool:
        """Whether a line states what was forgotten.

        With `said_at`, the time of the newest evidence for it, only what was forgotten after that.
        """
        return any(record.hides(line) for record in self._since(said_at))

    def add(self, record: Record) -> None:
        """Keep one more, durably."""
        place = self._root.place(FORGOTTEN)
        while True:
            current = place.read_bytes(_LIMIT)
            with suppress(WriteConflict):  # another one came first
                place.write_bytes((current or b"") + record.line, expected=current)
                return

    def _since(self, moment: datetime | None) -> list[Record]:
        """What was forgotten since then; lines that hold no record are left out."""
        with self._reading:
            seen = self._root.fingerprint(FORGOTTEN)
            if seen != self._seen:
                content = self._root.place(FORGOTTEN).read_bytes(_LIMIT) or b""
                read = list[Record]()
                for line in content.splitlines():
                    with suppress(
                        ValueError, LookupError, TypeError, AttributeError, RecursionError
                    ):
                        read.append(Record.parse(line))
                self._records, self._seen = tuple(read), seen
            return [one for one in self._records if moment is None or moment <= one.when]


def _hashes(salt: bytes, found: Iterable[str]) -> frozenset[str]:
    return frozenset(
        hashlib.blake2b(word.encode("utf-8", "replace"), key=salt, digest_size=8).hexdigest()
        for word in found
    )
