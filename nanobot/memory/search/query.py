"""A search, step by step: read the question, find candidates, rank them, and complete the best.

Scopes are checked at every search: only streams in the query's scopes have candidates, and the
neighbours of a hit are of the same stream."""

from __future__ import annotations

import json
import sqlite3
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from datetime import date, datetime, timedelta
from heapq import nlargest
from typing import Any, NamedTuple
from zlib import crc32

from msgspec.structs import replace

from nanobot.memory.analysis import expressions, stem_word
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.history import NUMBER_LIMIT
from nanobot.memory.languages import ENGLISH
from nanobot.memory.search import Hit, IndexStats, Passage, Query, SearchResult, Source
from nanobot.memory.search.birthday import find_birthdays, names_birthday
from nanobot.memory.search.database import STREAM_BITS, TURN, Vectors, changes, mean_length
from nanobot.memory.search.lending import lend
from nanobot.memory.search.ranking import (
    MEANING_FLOWS,
    NEIGHBOURS,
    ParsedQuestion,
    RankCandidate,
    Ranking,
    Segments,
    fuse,
    heirs,
    matches,
    parse,
    rank,
    reach,
    reply_matches,
    turn_of,
)
from nanobot.memory.spelling import is_hidden, respell
from nanobot.session.records import JsonValue

_BEST = 120
"""Number of the most promising passages that give and pass on score. Twice as many find almost
nothing more, even among ten times as many messages."""

_MEANT = 60
"""Number of near passages that pass score to neighbours that no word found. The others are less
similar to the question, and lift nothing among the best."""

_RANKED = 1_000  # maximum passages ranked by bm25, at some microseconds each
_RESPELLED = 3  # maximum unknown words that are searched in other spellings, 5 to 15 ms each
_STEMMED = 2  # languages in which these are stemmed
_BESIDE = 4  # maximum passages on either side of a hit, from the turns that score flows to

_PREFIX: dict[Source, str] = {
    "message": "m", "history": "h", "note": "n", "memory": "f", "library": "l",
}  # fmt: skip
_PERSON = ("memory", "USER.md")
_COLUMNS = "SELECT seq, moment, role, speaker, origin, place, turn, first, last, text, kept"
_TEXTS = (
    "(SELECT passage.*, coalesce(original, c0) AS text FROM passage JOIN words_content USING (id))"
)
"""As `passage_text`, read from the table behind `words`: faster for many rows."""

_OF_TURNS = (
    "SELECT passage.id FROM json_each(?)"
    " CROSS JOIN passage ON passage.id >= value AND passage.id < value + ?"
)
_CANDIDATES = (
    "SELECT passage.id, segment, role, speaker, moment, asks, kept, news FROM json_each(?)"
    " CROSS JOIN passage ON passage.id >= value AND passage.id < value + ?"
    " WHERE moment >= ? AND moment < ?"
)


class ReadableStream(NamedTuple):
    """A stream that the query may read."""

    id: int
    source: Source
    key: str
    scope: str
    languages: Sequence[str]

    @property
    def is_numbered(self) -> bool:
        """True if the numbers of its passages are stable, because no person edits it."""
        return self.source == "message" or (self.source == "history" and self.key == self.scope)

    def may_answer(self, query: Query) -> bool:
        """Return True if the source and the session of a query don't exclude the stream."""
        is_session = not query.session or (self.source, self.key) == ("message", query.session)
        return is_session and query.source in ("", self.source)

    @property
    def prefix(self) -> str:
        """Beginning of its passages' ids."""
        match self.source:
            case "message" | "library":
                name = self.key
            case "history" if self.is_numbered:
                name = self.scope
            case _:
                name = f"{self.scope}:{self.key.removesuffix('.md')}"
        return f"{_PREFIX[self.source]}:{name}:"

    def passage_id(self, seq: int, text: str) -> str:
        """Return the id of a passage, the same after every rebuild: its number, or in files that
        people edit a checksum of the text."""
        if self.is_numbered:
            return f"{self.prefix}{seq}"
        return f"{self.prefix}{crc32(text.encode()):08x}"


Streams = Mapping[int, ReadableStream]


class PreparedQuery(NamedTuple):
    """A parsed query: the `streams` that may answer it, the `lenders` of further words for their
    messages, and the `question`. `days` are the moments that limit
    the passages, if any. `version` is that of the index, and `has_vectors` is True if passages have
    vectors."""

    query: Query
    today: date
    streams: Streams
    lenders: Set[int]
    question: ParsedQuestion
    days: tuple[str, str] | None
    has_vectors: bool
    version: tuple[int, int]


class WordRanking(NamedTuple):
    """The results for a query's words: the passages with `own` score, those `found` to rank with
    them, and their ranking."""

    own: Set[int]
    found: dict[int, RankCandidate]
    ranked: Ranking


class Search:
    """Runs queries against the index. `scope_of` returns the scope of a session and is called each
    time."""

    def __init__(
        self,
        db: sqlite3.Connection,
        scope_of: Callable[[str, Mapping[str, JsonValue]], str],
        vectors: Vectors,
    ) -> None:
        self.db, self._scope_of = db, scope_of
        self.vectors = vectors
        self._known = Segments((), ())
        self._version = (-1, -1)

    def prepare(self, query: Query, today: date) -> PreparedQuery:
        """Parse a query, and find the streams that may answer it."""
        version, readable = changes(self.db), self._list_streams(query.scopes)
        streams = {id: one for id, one in readable.items() if one.may_answer(query)}
        lenders = {id for id, one in readable.items() if one.source == "history"}
        days = _days(query) if query.since or query.until else None
        names = self._load_names(streams)
        languages = {one: None for stream in streams.values() for one in stream.languages}
        question = parse(query.text, names, today, query.role, tuple(languages))
        if names_birthday(query.text):
            born = find_birthdays(self._facts_of_person(readable), today, question.languages)
            question = replace(question, spans=(*question.spans, *born))
        has_vectors = self.vectors.has_any()
        return PreparedQuery(query, today, streams, lenders, question, days, has_vectors, version)

    def _facts_of_person(self, readable: Streams) -> list[str]:
        """Return the facts about the person who asks, without their headings."""
        own = [id for id, stream in readable.items() if (stream.source, stream.key) == _PERSON]
        rows = self.db.execute(
            "SELECT text FROM passage_text WHERE stream IN (SELECT value FROM json_each(?))"
            " ORDER BY seq",
            (json.dumps(own),),
        )
        return [text.rpartition("\n")[2] for (text,) in rows]

    def by_words(self, asked: PreparedQuery) -> WordRanking:
        """Return the results for the words of a query, to show or to fuse with the near
        passages."""
        words = lend(self.db, self._rank_words(asked), asked.lenders, asked.streams.keys())
        known, own = self._load_segments(), matches(asked.question, words)
        segments, replies = known.scores(words), reply_matches(words)
        best = own | replies
        if not asked.query.role:
            best = known.select_promising(best, segments, _BEST)
        own = {id: score for id, score in own.items() if id in best}
        found = self._load_candidates(heirs(best) | self._select_of_days(asked), asked, best)
        mean = mean_length(self.db)
        ranked = rank(asked.question, found, own, segments, replies, mean_length=mean)
        return WordRanking(own.keys(), found, ranked)

    def answer(
        self,
        asked: PreparedQuery,
        words: WordRanking | None = None,
        near: Sequence[tuple[int, float]] = (),
    ) -> SearchResult:
        """Return the results. `near` are the passages nearest to the question, with their cosines,
        best first, and `words` is the result of `by_words`. If the index has changed since
        `prepare`, the words are looked up again."""
        if asked.version != changes(self.db):
            asked, words = self.prepare(asked.query, asked.today), None
        query, (own, found, ranked) = asked.query, words or self.by_words(asked)
        likeness = [scale_cosines(near, asked.streams)]
        if meant := matches(asked.question, likeness):
            new = reach(nlargest(_MEANT, meant, key=meant.__getitem__)) | set(map(turn_of, meant))
            new |= reach(own) | meant.keys()
            found = found | self._load_candidates(new - found.keys(), asked, meant)
            replies = reply_matches(likeness)
            by_meaning = rank(asked.question, found, meant, {}, replies, MEANING_FLOWS)
            ranked = fuse(ranked, by_meaning)
        if query.role:
            ranked = [item for item in ranked if found[item[0]].role == query.role]
        end = query.skip + max(query.limit, 0)
        hits = self._complete_hits(asked.streams, ranked[query.skip : end], found)
        terms = tuple(word for word in asked.question.words if not is_hidden(word))
        return SearchResult(tuple(hits), terms, max(0, len(ranked) - end))

    def around(self, id: str, scopes: tuple[str, ...], before: int, after: int) -> list[Passage]:
        """Return a passage and its neighbours, or [] if it is not in `scopes`."""
        prefix, number = id[: id.rfind(":") + 1], id.rpartition(":")[2]
        streams = self._list_streams(scopes).values()
        stream = next((one for one in streams if one.prefix == prefix), None)
        if stream is None:
            return []
        if stream.is_numbered:
            known = number.isdecimal() and len(number) < len(str(NUMBER_LIMIT))
            every = self._load_passages(stream, "seq = ?", int(number)) if known else []
        else:
            every = self._load_passages(stream, "seq > ? ORDER BY seq", 0)
        here = next((one for one in every if one.id == id), None)
        if here is None:
            return []
        earlier, later = self._load_neighbours(stream, here.seq, max(before, 0), max(after, 0))
        return [*earlier, here, *later]

    def stats(self) -> IndexStats:
        rows = self.db.execute(
            "SELECT source, count(*) FROM passage JOIN stream ON stream.id = passage.stream"
            " GROUP BY source"
        )
        counts = dict(rows.fetchall())
        return IndexStats(
            messages=counts.get("message", 0),
            history=counts.get("history", 0),
            notes=counts.get("note", 0),
            library=counts.get("library", 0),
            vectors=self.vectors.count(),
            facts=counts.get("memory", 0),
        )

    def _load_names(self, streams: Streams) -> set[str]:
        """Return the names of the speakers in `streams`."""
        rows = self.db.execute("SELECT stream, name FROM speaker")
        return {name for stream, name in rows if stream in streams}

    def _list_streams(self, scopes: Sequence[str]) -> dict[int, ReadableStream]:
        """Return the streams in `scopes`, with USER.md and SOUL.md only of the first one, which
        asks."""
        found = {}
        rows = self.db.execute("SELECT id, source, key, scope, languages, metadata FROM stream")
        for id, source, key, scope, languages, metadata in rows:
            owner = self._scope_of(key, json.loads(metadata)) if source == "message" else scope
            if source == "memory" and key != LONG_TERM and owner not in scopes[:1]:
                continue  # the identity and manner of others
            if owner in scopes:
                found[id] = ReadableStream(id, source, key, owner, languages.split())
        return found

    def _rank_words(self, asked: PreparedQuery) -> list[dict[int, float]]:
        """Return for each word the passages with it, or with other spellings if there are none,
        and their bm25, positive, the rarest word first.

        If ranking all words would take long, the most frequent ones are left out. If a word is in
        too many passages, only the last ones count."""
        matching, days = self._match_within(asked), asked.days or ()
        asked_in, languages = asked.question.asked_in, asked.question.languages
        queries = {word: [*expressions(word, asked_in, languages)] for word in asked.question.words}

        def holding(word: str, score: str) -> dict[int, float]:
            """Return the passages with a word, by the first of its expressions that matches."""
            found: dict[int, float] = {}
            for expression, is_last_resort in queries[word]:
                if not (found and is_last_resort):
                    rows = self.db.execute(
                        f"SELECT rowid, {score} {matching} ORDER BY rowid DESC LIMIT {_RANKED}",
                        [expression, *days],
                    )
                    found = dict(rows.fetchall()) | found
            return found

        def count(word: str) -> int:
            if len(queries[word]) > 1:
                return len(holding(word, "0"))
            counting = f"SELECT count(*) FROM (SELECT 1 {matching} LIMIT {_RANKED})"  # noqa: S608
            return int(self.db.execute(counting, [queries[word][0][0], *days]).fetchone()[0])

        counts = {word: count(word) for word in asked.question.words}
        others = respell_unknown(asked.question, counts)
        queries |= others
        counts |= {word: count(word) for word in others}
        kept: list[dict[int, float]] = []
        for word in sorted(counts, key=lambda word: (counts[word], word)):
            if kept and sum(map(len, kept)) + counts[word] > _RANKED:
                break  # a word in every tenth message adds little to the others
            kept.append(holding(word, "-bm25(words)"))
        return kept

    @staticmethod
    def _match_within(asked: PreparedQuery) -> str:
        """Return the clauses of SQL for the passages in the streams and days of a query that match
        an expression. The parameters are the expression and the days."""
        streams = sorted(asked.streams.keys() | asked.lenders)
        where = f"(words.rowid >> {STREAM_BITS}) IN ({','.join(map(str, streams))})"
        if streams and streams[-1] - streams[0] == len(streams) - 1:  # one range, which is faster
            first, end = streams[0] << STREAM_BITS, (streams[-1] + 1) << STREAM_BITS
            where = f"words.rowid BETWEEN {first} AND {end - 1}"
        if asked.days:
            dated = "SELECT 1 FROM passage WHERE id = words.rowid AND moment >= ? AND moment < ?"
            lent = "SELECT 1 FROM lent WHERE id = words.rowid"  # to a message, which has a moment
            where += f" AND (EXISTS ({dated}) OR EXISTS ({lent}))"
        return f"FROM words WHERE words MATCH ? AND {where}"

    def _select_of_days(self, asked: PreparedQuery) -> set[int]:
        """Return passages of the days that a question names, which may lack its words."""
        found = set[int]()
        for span in asked.question.days:
            until = span.last + timedelta(days=1)
            rows = self.db.execute(
                "SELECT id FROM passage WHERE moment >= ? AND moment < ? LIMIT ?",
                (str(span.first), str(until), _RANKED),
            )
            found.update(id for (id,) in rows if id >> STREAM_BITS in asked.streams)
        return found

    def _load_candidates(
        self, ids: Collection[int], asked: PreparedQuery, matching: Collection[int] = ()
    ) -> dict[int, RankCandidate]:
        """Return the ranking data of passages that pass the filter by date. It includes all replies
        in the turns of the `matching` ones, or if the question is about the agent's words, of all.
        """
        turns = set(map(turn_of, ids if asked.question.is_about_agent else matching))
        parts = [(values, size) for values, size in ((ids, 1), (turns, TURN)) if values]
        return {
            row[0]: RankCandidate(*row)
            for values, size in parts
            for row in self.db.execute(
                _CANDIDATES, (json.dumps(sorted(values)), size, *_days(asked.query))
            )
        }

    def _load_segments(self) -> Segments:
        """Return the segments, cached until the index changes."""
        if (version := changes(self.db)) != self._version:
            ids, sizes = array("q"), array("q")
            for id, size in self.db.execute(
                "SELECT segment, count(*) FROM passage WHERE segment > 0 AND id % ? = 0"
                " GROUP BY segment",
                (TURN,),
            ):
                ids.append(id)
                sizes.append(size)
            self._known, self._version = Segments(ids, sizes), version
        return self._known

    def _complete_hits(
        self, streams: Streams, best: Ranking, found: Mapping[int, RankCandidate]
    ) -> Iterator[Hit]:
        """Yield passages for people, each with its neighbours in the talk. The neighbours of tool
        output are the talk in which the tool was called."""
        rows = self.db.execute(
            f"{_COLUMNS}, id, segment FROM {_TEXTS} WHERE id IN ({_OF_TURNS}) ORDER BY id",
            (json.dumps(list(reach(dict(best)))), TURN),
        )
        passages, segments = dict[int, Passage](), defaultdict[int, list[int]](list)
        for row in rows:
            id, segment = row[-2:]
            passages[id] = make_passage(streams[id >> STREAM_BITS], row[:-2])
            segments[segment].append(id)
        for id, score in best:
            near, turn = segments[found[id].segment], turn_of(id)
            at = bisect_left(near, id)
            first = bisect_left(near, turn + NEIGHBOURS[0] * TURN)
            end = bisect_left(near, turn + (NEIGHBOURS[-1] + 1) * TURN)
            before = [passages[other] for other in near[max(first, at - _BESIDE) : at]]
            after = [passages[other] for other in near[at + 1 : min(end, at + 1 + _BESIDE)]]
            if not found[id].segment:
                stream, talk, seq = streams[id >> STREAM_BITS], "AND segment > 0", passages[id].seq
                before, after = self._load_neighbours(stream, seq, _BESIDE, _BESIDE, talk)
            yield Hit(passages[id], score, tuple(before), tuple(after))

    def _load_neighbours(
        self, stream: ReadableStream, seq: int, before: int, after: int, also: str = ""
    ) -> tuple[list[Passage], list[Passage]]:
        """Return so many passages before and after `seq` in its stream, in order."""
        earlier = self._load_passages(
            stream, f"seq < ? {also} ORDER BY seq DESC LIMIT ?", seq, before
        )
        later = self._load_passages(stream, f"seq > ? {also} ORDER BY seq LIMIT ?", seq, after)
        return earlier[::-1], later

    def _load_passages(self, stream: ReadableStream, where: str, *values: int) -> list[Passage]:
        rows = self.db.execute(
            f"{_COLUMNS} FROM passage_text WHERE stream = ? AND {where}", (stream.id, *values)
        )
        return [make_passage(stream, row) for row in rows]


def respell_unknown(
    question: ParsedQuestion, counts: Mapping[str, int]
) -> dict[str, list[tuple[str, bool]]]:
    """Return the queries, like `expressions`, for other spellings of words that nothing matches.
    Stems in other languages than English are the last resort."""
    folded = [stem_word(word, "") for word in question.words]
    unknown = [at for at, word in enumerate(question.words) if not counts[word]]
    found = dict[str, list[tuple[str, bool]]]()
    for at in unknown[:_RESPELLED]:
        if others := respell(folded, at):
            found[question.words[at]] = queries = [(_any_of(others), False)]
            if stems := _stems(others, question):
                queries.append((stems, True))
    return found


def _stems(words: Sequence[str], question: ParsedQuestion) -> str:
    languages = [language for language in question.asked_in if language != ENGLISH]
    return _any_of({stem_word(one, language) for language in languages[:_STEMMED] for one in words})


def _any_of(terms: Iterable[str]) -> str:
    return " OR ".join(f'"{term}"' for term in terms)


def scale_cosines(near: Sequence[tuple[int, float]], streams: Streams) -> dict[int, float]:
    """Return the passages in `streams` with a likeness from 0 to 1: how far a cosine is above the
    last one."""
    here = [(id, cosine) for id, cosine in near if id >> STREAM_BITS in streams]
    if not here:
        return {}
    top = here[0][1]
    last = min(here[-1][1], top - 1e-9)
    return {id: (cosine - last) / (top - last) for id, cosine in here}


def make_passage(stream: ReadableStream, row: Sequence[Any]) -> Passage:
    seq, moment, role, speaker, origin, place, session, first, last, text, kept = row
    if stream.source == "message":
        session, place = stream.key, f"{stream.key} #{seq}"
    elif last:
        place = f"{place} ({session} #{first}-{last})"
    return Passage(
        id=stream.passage_id(seq, text),
        source=stream.source,
        scope=stream.scope,
        session=session,
        seq=seq,
        role=role,
        speaker=speaker,
        when=datetime.fromisoformat(moment) if moment else None,
        text=text,
        origin=origin,
        place=place,
        kept=bool(kept),
    )


def _days(query: Query) -> tuple[str, str]:
    """Return the moments that a passage must be between. A passage without a moment passes only if
    no day is given."""
    until = (query.until + timedelta(days=1)).isoformat() if query.until else "9999"
    return query.since.isoformat() if query.since else "0" if query.until else "", until
