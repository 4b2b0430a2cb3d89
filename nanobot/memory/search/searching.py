"""A search, step by step: read the question, find candidates, rank, and dress up the best.

Scopes are resolved here and now: only streams in the query's scopes give candidates, and all that
stands around a hit is of the same stream.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from difflib import get_close_matches
from heapq import nlargest

from nanobot.memory.search.passages import match_any, words_of
from nanobot.memory.search.question import Question, names_time, parse
from nanobot.memory.search.ranking import NEIGHBOURS, Segments, Summary, favour, rank, reach
from nanobot.memory.search.tables import STREAM_BITS, Candidate, Readable, Rows
from nanobot.memory.search.values import Hit, Passage, Query, SearchResult

_BEST = 120
"""How many of the passages that match give and pass on score. More did not find more."""

_RANKED = 1_000
"""How many passages are ranked by bm25 at most; it takes some microseconds each."""

_READ = 100
"""How many of the ranked are read for words of time."""

_SUMMARIES = 20
_BESIDE = 2
_NEAR = 5


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question with the streams it may be answered from."""

    query: Query
    question: Question
    streams: Mapping[int, Readable]


class Search:
    """Runs queries against the index."""

    def __init__(self, db: sqlite3.Connection, rows: Rows) -> None:
        self._db, self._rows = db, rows
        self._known = Segments((), ())
        self._version = (-1, -1)

    def prepare(self, query: Query, today: date) -> Prepared:
        """Read the question and find what may be searched."""
        streams = {
            id: stream
            for id, stream in self._rows.streams(query.scopes).items()
            if query.source in ("", stream.source) and _in_session(stream, query.session)
        }
        return Prepared(query, parse(query.text, self._rows.speakers(streams), today), streams)

    def find(self, prepared: Prepared, meant: Mapping[int, float] | None = None) -> SearchResult:
        """The answer. `meant` has the likeness, 0 to 1, of passages close in meaning."""
        question = prepared.question
        words = self._telling(prepared)
        own = self._matching(prepared, list(words))
        best = max(own.values(), default=1.0)
        for id, likeness in (meant or {}).items():
            own[id] = own.get(id, 0.0) + best * likeness
        if not own:
            return SearchResult((), question.words, self._near(prepared))
        found = self._rows.candidates(reach(list(own)))
        if prepared.query.since or prepared.query.until:
            found = {id: item for id, item in found.items() if _within(item, prepared.query)}
        ranked = rank(
            question,
            found,
            own,
            self._segments().scores(words.values()),
            self._summaries(prepared, own, found),
        )
        if prepared.query.role:
            role = prepared.query.role
            ranked = [item for item in ranked if found[item[0]].role == role]
        if question.asks_when:
            read = max(_READ, prepared.query.limit)
            texts = self._rows.texts(id for id, _ in ranked[:read])
            timed = frozenset(id for id, text in texts.items() if names_time(text))
            ranked = favour(ranked[:read], timed) + ranked[read:]
        return self._dressed(prepared, ranked[: max(prepared.query.limit, 0)])

    def around(self, id: str, scopes: tuple[str, ...], before: int, after: int) -> list[Passage]:
        """A passage and what stands beside it; [] where `scopes` do not have it."""
        found = self._rows.located(id, self._rows.streams(scopes))
        here = self._rows.at(*found) if found else None
        if found is None or here is None:
            return []
        stream, seq = found
        return [
            *self._rows.beside(stream, seq, max(before, 0), before=True),
            here,
            *self._rows.beside(stream, seq, max(after, 0), before=False),
        ]

    def _telling(self, prepared: Prepared) -> dict[str, list[int]]:
        """The words, each with the passages that hold it, rarest first.

        The most frequent ones are left out where all together would take long to rank: a word that
        stands in every tenth message of tens of thousands says little besides the others.
        """
        where = _only(prepared.streams, "rowid")
        holding = {}
        for word in prepared.question.words:
            rows = self._db.execute(
                f"SELECT rowid FROM words WHERE words MATCH ?{where} ORDER BY rowid DESC LIMIT ?",  # noqa: S608
                (match_any([word]), _RANKED + 1),
            )
            holding[word] = [row[0] for row in rows]
        telling: dict[str, list[int]] = {}
        total = 0
        for word in sorted(holding, key=lambda word: (len(holding[word]), word)):
            total += len(holding[word])
            if telling and total > _RANKED:
                break
            telling[word] = holding[word]
        return telling

    def _matching(self, prepared: Prepared, words: list[str]) -> dict[int, float]:
        """The best passages by bm25, positive; more of a role where one is asked for.

        Of a word in more passages than can be ranked in time, the last ones are.
        """
        query = prepared.query
        if not words or not prepared.streams:
            return {}
        where, values = _conditions(prepared)
        found: list[tuple[float, int]] = []
        for role in {"", query.role}:
            also = " AND passage.role = ?" if role else ""
            joined = role or query.since or query.until
            rows = self._db.execute(
                "SELECT -bm25(words), words.rowid FROM words"  # noqa: S608 - the parts are ours
                + (" JOIN passage ON passage.id = words.rowid" if joined else "")
                + f" WHERE words MATCH ?{where}{also} ORDER BY words.rowid DESC LIMIT {_RANKED}",
                [match_any(words), *values, *([role] if role else [])],
            )
            found += nlargest(_BEST, rows)
        return {id: score for score, id in found}

    def _segments(self) -> Segments:
        """The segments there are, kept until the index changes."""
        version = (self._db.execute("PRAGMA data_version").fetchone()[0], self._db.total_changes)
        if version != self._version:
            ids, sizes = array("q"), array("q")
            for id, size in self._db.execute("SELECT id, passages FROM segment ORDER BY id"):
                ids.append(id)
                sizes.append(size)
            self._known = Segments(ids, sizes)
            self._version = version
        return self._known

    def _summaries(
        self, prepared: Prepared, own: Mapping[int, float], found: Mapping[int, Candidate]
    ) -> list[Summary]:
        """The history entries among the hits, with the messages found in what they sum up."""
        streams = prepared.streams
        entries = [id for id in own if streams[id >> STREAM_BITS].source == "history"]
        if not entries:
            return []
        sessions = {s.key: s.id for s in streams.values() if s.source == "message"}
        talk: dict[int, list[tuple[int, int]]] = {}
        for id, item in found.items():
            talk.setdefault(id >> STREAM_BITS, []).append((item.seq, id))
        best = sorted(entries, key=lambda id: -own[id])[:_SUMMARIES]
        summaries = []
        for entry, session, first, last in self._rows.summed_up(best):
            said = talk.get(sessions.get(session, 0), [])
            members = tuple(id for seq, id in said if first <= seq <= last)
            summaries.append(Summary(own[entry], members))
        return summaries

    def _dressed(self, prepared: Prepared, ranked: list[tuple[int, float]]) -> SearchResult:
        """The hits as people see them, each with what was said before and after."""
        wanted = {id + step for id, _ in ranked for step in (0, *NEIGHBOURS)}
        passages = self._rows.passages(prepared.streams, wanted)
        hits = []
        for id, score in ranked:
            segment, passage = passages[id]
            if passage.role == "tool":
                before, after = self._around_output(prepared.streams[id >> STREAM_BITS], passage)
            else:
                beside = (passages.get(id + step, (0, passage)) for step in NEIGHBOURS)
                near = [found for other, found in beside if other == segment]
                before = tuple(found for found in near if found.seq < passage.seq)
                after = tuple(found for found in near if found.seq > passage.seq)
            hits.append(Hit(passage, score, before, after))
        words = prepared.question.words
        return SearchResult(tuple(hits), words, () if hits else self._near(prepared))

    def _around_output(
        self, stream: Readable, passage: Passage
    ) -> tuple[tuple[Passage, ...], tuple[Passage, ...]]:
        """The talk in which a tool was called."""
        before, after = (
            self._rows.beside(stream, passage.seq, _BESIDE, before=back, talk_only=True)
            for back in (True, False)
        )
        return before, after

    def _near(self, prepared: Prepared) -> tuple[str, ...]:
        """Words that are there, in what may be searched, and resemble those looked for."""
        near: dict[str, None] = {}
        for word in prepared.question.words:
            start = word[: max(1, min(3, len(word) - 1))]
            rows = self._db.execute(
                "SELECT term FROM vocabulary WHERE term >= ? AND term < ? LIMIT 2000",
                (start, start + "\U0010ffff"),
            )
            for term in get_close_matches(word, [row[0] for row in rows], _NEAR, 0.6):
                if spelled := self._spelled(term, prepared):
                    near[spelled] = None
        return tuple(near)[:_NEAR]

    def _spelled(self, term: str, prepared: Prepared) -> str:
        """How a word, of which the index has the stem, stands in what may be searched."""
        where, values = _conditions(prepared)
        row = self._db.execute(
            f"SELECT words.text FROM words JOIN passage ON passage.id = words.rowid"  # noqa: S608
            f" WHERE words MATCH ?{where} LIMIT 1",
            [f'"{term}"', *values],
        ).fetchone()
        spelled = words_of(row[0]) if row else []
        stem = term[: max(2, len(term) - 1)]
        return next((word for word in spelled if word.startswith(stem)), "")


def _in_session(stream: Readable, session: str) -> bool:
    return not session or (stream.source == "message" and stream.key == session)


def _conditions(prepared: Prepared) -> tuple[str, list[str]]:
    """What the database filters by, over `words` and, where dates are asked for, `passage`."""
    query = prepared.query
    where, values = _only(prepared.streams, "words.rowid"), list[str]()
    if query.since:
        where += " AND passage.moment >= ?"
        values.append(query.since.isoformat())
    if query.until:
        where += " AND passage.moment < ? AND passage.moment != ''"
        values.append((query.until + timedelta(days=1)).isoformat())
    return where, values


def _only(streams: Mapping[int, Readable], row: str) -> str:
    if len(streams) == 1:
        first = next(iter(streams)) << STREAM_BITS
        return f" AND {row} BETWEEN {first} AND {first + (1 << STREAM_BITS) - 1}"
    return f" AND ({row} >> {STREAM_BITS}) IN ({','.join(map(str, streams))})"


def _within(found: Candidate, query: Query) -> bool:
    """Whether a neighbour of a hit passes the filter by date, as the hit itself did."""
    day = found.moment[:10]
    first = query.since.isoformat() if query.since else ""
    last = query.until.isoformat() if query.until else "9999"
    return day != "" and first <= day <= last
