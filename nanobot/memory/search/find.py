"""Search for messages as people type: all words, also their beginnings, the newest message first.

The full-text table holds stems, so the beginning of a word may be longer than its stem (`runn` for
`running`). If the words as typed find nothing, shorter beginnings are looked up, and their texts
must contain the words. Retracted messages are not in the table. The scope of a conversation is
checked for each hit, because most conversations have none."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from nanobot.memory.analysis import (
    content_words,
    cut_window,
    language_of,
    outline,
    word_forms,
    words_of,
)
from nanobot.memory.search.database import STREAM_BITS
from nanobot.memory.spelling import spell_code
from nanobot.session.records import JsonValue
from nanobot.session.titles import strip_markdown

_SNIPPET = 160
"""Characters."""
_MOST_WORDS, _LONGEST = 12, 400
_MOST_CHECKED = 2_000
"""Maximum texts that are read to look for the beginning of a word."""
_FILE = r"\[([^\[\]\n]+), kept as media/[0-9a-f]{32}\.[a-z0-9]{1,8}(?:; [^\]\n]*)?\]"

_MATCHES = (
    "SELECT words.rowid FROM words JOIN passage ON passage.id = words.rowid"
    " WHERE words MATCH ? AND role IN ('user', 'assistant') ORDER BY moment DESC, words.rowid DESC"
)
_FOUND = (
    "SELECT seq, moment, role, speaker, origin, text FROM passage_text WHERE passage_text.id = ?"
)

ScopeOf = Callable[[str, Mapping[str, JsonValue]], str]


class FoundMessage(NamedTuple):
    """A message with the searched words. `snippet` is the part of its text with most of them, and
    `marks` are their places in it. `at` is in ISO format."""

    key: str
    scope: str
    seq: int
    at: str
    role: str
    speaker: str
    origin: str
    snippet: str
    marks: Sequence[tuple[int, int]]


def find_messages(
    db: sqlite3.Connection, scope_of: ScopeOf, text: str, scope: str, limit: int
) -> list[FoundMessage]:
    """Return the newest messages in conversations of `scope` (empty: of all) with all words of
    `text`."""
    known = {one for row in db.execute("SELECT DISTINCT languages FROM stream") for one in row}
    languages = tuple(dict.fromkeys(" ".join(sorted(known)).split()))
    language = language_of(text[:_LONGEST])
    words = words_of(text[:_LONGEST], language)[:_MOST_WORDS]
    words = content_words(words, language)
    if not words or limit < 1:
        return []
    searched, keys = _Readable(db, scope_of, scope), [outline(word) for word in words]
    exact = " AND ".join(f"({_as_typed(word, language, languages)})" for word in words)
    if found := list(islice(searched.hits(exact, words), limit)):
        return found
    begun = " AND ".join(f'"{_stem_of(word)}" *' for word in words)
    return list(islice(searched.hits(begun, words, keys), limit))


def _as_typed(word: str, language: str, languages: tuple[str, ...]) -> str:
    """Return a query for a word in any form, and for words that begin with it."""
    forms = word_forms(word, (language,), languages).forms
    typed = (*forms, *spell_code(word))
    return " OR ".join(dict.fromkeys([*(f'"{one}"' for one in typed), f'"{forms[0]}" *']))


def _stem_of(word: str) -> str:
    """Return the part of a word that is surely in its stem."""
    return word[: max(3, len(word) * 5 // 9)]


class _Readable:
    """The messages that may be found, by their scope."""

    def __init__(self, db: sqlite3.Connection, scope_of: ScopeOf, scope: str) -> None:
        self._db, self._scope_of, self._scope = db, scope_of, scope
        self._streams: dict[int, tuple[str, str]] = {}

    def hits(
        self, query: str, words: Sequence[str], keys: Sequence[str] = ()
    ) -> Iterator[FoundMessage]:
        """Yield the matches of a query. Each text must contain the `keys` without case and
        accents."""
        rows = self._db.execute(_MATCHES, (query,))
        checked = islice(rows, _MOST_CHECKED) if keys else rows
        for (id,) in checked:
            key, scope = self._stream(id >> STREAM_BITS)
            if self._scope not in ("", scope):
                continue
            for seq, moment, role, speaker, origin, text in self._db.execute(_FOUND, (id,)):
                plain = outline(text) if keys else ""
                if all(one in plain for one in keys):
                    snippet, marks = make_snippet(text, words)
                    yield FoundMessage(
                        key, scope, seq, moment, role, speaker, origin, snippet, marks
                    )

    def _stream(self, id: int) -> tuple[str, str]:
        """Return the key and the scope of a conversation."""
        if id not in self._streams:
            query = "SELECT key, metadata FROM stream WHERE id = ?"
            key, metadata = self._db.execute(query, (id,)).fetchone()
            self._streams[id] = key, self._scope_of(key, json.loads(metadata))
        return self._streams[id]


def make_snippet(text: str, words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Return the part of a text with most of the words in one line, and the places of the words."""
    text = " ".join(re.sub(_FILE, r"\1", text).split())
    snippet = strip_markdown(cut_window(text, _SNIPPET, words))
    marks, low = list[tuple[int, int]](), snippet.lower()
    if len(low) != len(snippet):  # as for İ
        return snippet, marks
    for word in words:
        part = next((one for one in (word, _stem_of(word)) if one in low), "")
        begin = low.find(part) if part else -1
        while begin >= 0:
            marks.append((begin, begin + len(part)))
            begin = low.find(part, begin + len(part))
    return snippet, sorted(marks)
