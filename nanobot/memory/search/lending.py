"""The words that facts lend to the messages behind them.

Consolidation words the facts of a conversation in other words than the people did. A history entry
names only its range of messages, so each fact is given to the message of the range that is most
like it. Its words are stored next to the entry, never in the message, and go with either: with the
entry because it owns them (`database`), with the message because they then lead nowhere. They only
help to find the message and are never shown."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from itertools import chain
from math import log

from nanobot.memory.analysis import language_of, prepare_text, tokens
from nanobot.memory.search.database import PLACES, STREAM_BITS, TOOLS_FROM
from nanobot.memory.search.passages import IndexEntry

_MOST_MESSAGES, _MOST_FACTS = 400, 60
"""Maximum messages that are compared with the facts of an entry, the latest, and of its facts."""
_COMPARED = 2_000
_LEAST = 2  # words that a fact and its message must share
_LENT = 0.8
"""Share of the score of a lent word, which is added to that of the message's own word."""

_OF_RANGE = (
    "SELECT seq, text FROM passage_text WHERE stream ="
    " (SELECT id FROM stream WHERE (source, scope, key) = ('message', '', ?))"
    " AND seq BETWEEN ? AND ? AND (role = 'user' OR news) ORDER BY seq DESC LIMIT ?"
)
_LENDERS = (
    "SELECT lent.id, passage.id FROM json_each(?) JOIN lent ON lent.id = value"
    " JOIN passage AS entry ON entry.id = lent.passage"
    " JOIN stream ON (stream.source, stream.scope, stream.key) = ('message', '', entry.turn)"
    " JOIN passage ON passage.stream = stream.id AND passage.seq = lent.seq"
)


def store_lent(
    db: sqlite3.Connection, entries: Iterable[tuple[IndexEntry, tuple[int, str]]], likely: str
) -> None:
    """Store the words that entries of a history lend. Each entry has its id and its stored text,
    and `likely` is their likely language."""
    for entry, (passage, _) in entries:
        if not (entry.lent and entry.last):
            continue
        language = language_of(entry.text, likely)
        at = (entry.turn, entry.first, entry.last, _MOST_MESSAGES)
        grounds = _Grounds(db.execute(_OF_RANGE, at).fetchall(), language)
        id = _last_lent(db, passage)
        for fact in dict.fromkeys(entry.lent[:_MOST_FACTS]):
            if seq := grounds.find(fact):
                id += 1
                db.execute("INSERT INTO lent VALUES (?, ?, ?)", (id, passage, seq))
                text = prepare_text(fact.encode("utf-8", "replace").decode(), language)
                db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (id, text))


def _last_lent(db: sqlite3.Connection, passage: int) -> int:
    """Return the last id of lent words in the stream of `passage`, or the one before the first."""
    base = passage >> STREAM_BITS << STREAM_BITS
    last = "SELECT max(id) FROM lent WHERE id BETWEEN ? AND ?"
    (id,) = db.execute(last, (base + TOOLS_FROM, base + PLACES - 1)).fetchone()
    return int(id or base + TOOLS_FROM)


class _Grounds:
    """The messages of a range, with their numbers, to find the one behind a fact."""

    def __init__(self, messages: Sequence[tuple[int, str]], language: str) -> None:
        self._language = language
        self._said = [(seq, {*tokens(text[:_COMPARED], language)}) for seq, text in messages]
        self._counts = Counter(word for _, words in self._said for word in words)
        self._mean = self._counts.total() / len(messages) if messages else 1.0

    def find(self, fact: str) -> int:
        """Return the number of the message that is most like `fact`, by bm25, or 0."""
        stated, best, found = {*tokens(fact, self._language)}, 0.0, 0
        for seq, words in self._said:
            shared = stated & words
            if len(shared) < _LEAST:
                continue
            score = sum(log(1 + len(self._said) / self._counts[word]) for word in shared)
            score /= 1 + 0.9 * len(words) / self._mean
            if score > best:
                best, found = score, seq
        return found


def lend(
    db: sqlite3.Connection,
    words: list[dict[int, float]],
    lenders: Set[int],
    streams: Set[int],
) -> list[dict[int, float]]:
    """Return the bm25 of passages in `streams`, for each word, with that of the words that were
    lent to them. `lenders` are the streams that may lend."""
    ids = chain.from_iterable(words)
    lent = {id for id in ids if id % PLACES >= TOOLS_FROM and id >> STREAM_BITS in lenders}
    if not lent and lenders <= streams:
        return words
    rows = db.execute(_LENDERS, (json.dumps(sorted(lent)),)) if lent else ()
    messages = {id: message for id, message in rows if message >> STREAM_BITS in streams}
    return [_receive(holding, messages, lent, streams) for holding in words]


def _receive(
    holding: Mapping[int, float],
    messages: Mapping[int, int],
    lent: Collection[int],
    streams: Collection[int],
) -> dict[int, float]:
    """Return the passages with a word, or to which it was lent. Of several lenders the best one
    counts."""
    own = {id: holding[id] for id in holding.keys() - lent if id >> STREAM_BITS in streams}
    received = dict[int, float]()
    for id in holding.keys() & messages.keys():
        received[messages[id]] = max(received.get(messages[id], 0.0), _LENT * holding[id])
    return own | {id: own.get(id, 0.0) + score for id, score in received.items()}
