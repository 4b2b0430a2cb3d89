"""Update the index from the files.

A stream is read if the state of one of its files has changed, within one transaction, so that a
search sees all of a conversation's move to the archive or nothing of it. A file that cannot be read
is reported once and does not affect the others.

The lines are compared with the index by a hash: the equal ones at the start stay, even if they have
moved, and the rest is indexed again. So all changes of a file (lines added, archived, saved by an
editor, erased, cut, retracted) take the same path. Known lines of a session's live file are skipped
if lines were only added. A line whose number is not above all before may be a copy, such as a crash
during archiving leaves. It is not indexed twice."""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple, TypeVar
from zlib import crc32

from loguru import logger

from nanobot.bus.sqlite import storable, transaction
from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError
from nanobot.memory.analysis import distinct_words, language_of, prepare_text
from nanobot.memory.history import NUMBER_LIMIT
from nanobot.memory.search import Sources
from nanobot.memory.search.database import PLACES, STREAM_BITS, TOOLS_FROM, TURN
from nanobot.memory.search.lending import store_lent
from nanobot.memory.search.passages import (
    Files,
    IndexEntry,
    Name,
    SessionReader,
    SourceFile,
    checksum,
    line_hash,
    lines_of,
    streams,
)
from nanobot.session.catalogue import Changes, SessionChange
from nanobot.session.jsonl_reader import amendments, amendments_in
from nanobot.session.records import Epoch, Mark, Retraction
from nanobot.tasks import pace

T = TypeVar("T")

PAUSE = timedelta(hours=1)
"""A longer silence ends a segment."""

SEGMENT_MOST = 60
"""Maximum turns of a segment."""

_SHORTLY = 3
_COMPARED = 1_000
_LEAST_NEWS, _NEWS = 4, 0.5
"""A reply says something new if so many of its content words, and this share of them, are not in
the last messages of the person. Only the beginning of long texts is compared."""

_BATCH = 256
_TOGETHER, _SMALL = 1 << 20, 1 << 16
"""Bytes of the sessions that are read in one transaction, and of a file that is read at once."""

_SESSIONS = "SELECT key, files FROM stream WHERE source = 'message' AND scope = ''"
_STREAM = "SELECT id, files, position, languages FROM stream WHERE (source, scope, key) = (?, ?, ?)"
# Not an upsert: its savepoint would write out the words of each session in the transaction.
_NEW_STREAM = "INSERT INTO stream (source, scope, key) VALUES (?, ?, ?)"

_PASSAGE = (
    "INSERT INTO passage (id, stream, segment, seq, moment, role, asks, hash, first, last,"
    " original, speaker, origin, turn, place, news)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


_APART = ("history", "memory")  # sources whose passages are segments of their own
_SKIPPED = (NanobotError, OSError, ValueError, OverflowError)


class _Position(NamedTuple):
    """How far a session was read: the highest number, the bytes of the live file and their
    checksum, and the number of lines about other lines."""

    number: int = 0
    read: int = 0
    mark: int = 0
    amendments: int = 0


Lines = Iterable[tuple[int, bytes | IndexEntry]]
"""The content of a stream, each with its hash: lines of a session, or passages."""


class IndexIngest:
    """Updates `db` from the files of `sources`, until it `is_closing`."""

    def __init__(
        self,
        db: sqlite3.Connection,
        sources: Sources,
        clock: Clock,
        is_closing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._db, self._sources, self._clock = db, sources, clock
        self._is_closing = is_closing
        self._reported: set[Name] = set()

    def refresh(self, within: float = 0.0) -> None:
        """Read the changed files. A list of the sessions from the last `within` seconds is reused.
        Raise `sqlite3.Error`."""
        try:
            self._refresh_sessions(within)
        except StorageError as error:
            self._report(("message", "", ""), error)
        rows = self._db.execute(
            "SELECT source, scope, key, files FROM stream WHERE source != 'message'"
        )
        indexed: dict[Name, str] = {tuple(name): files for *name, files in rows}
        for stream in self._pace(streams(self._sources, self._clock.now().tzinfo)):
            if indexed.pop(stream.name, None) != render_stamps(stream.files):
                self._update(stream.name, stream.files, stream.entries)
        self._remove(indexed)

    def _refresh_sessions(self, within: float) -> None:
        mark = self._db.execute("SELECT value FROM setting WHERE name = 'sessions'").fetchone()
        changes = self._sources.sessions.changes(mark[0] if mark else "", within)
        known = self._load_known(changes)
        is_done = True
        for batch in self._select_changed(changes.sessions, known):
            is_done = self._update_sessions(batch) and is_done
        if changes.is_whole:
            self._remove([("message", "", key) for key in known])
        if is_done and (changes.sessions or changes.is_whole):
            new = "INSERT OR REPLACE INTO setting VALUES ('sessions', ?)"
            with suppress(sqlite3.OperationalError):  # another process writes; it only saves time
                self._db.execute(new, (changes.mark,))

    def _load_known(self, changes: Changes) -> dict[str, str]:
        """Return the stamps of the indexed sessions by key, or only of the changed sessions."""
        if changes.is_whole:
            return dict(self._db.execute(_SESSIONS))
        some = " AND key IN (SELECT value FROM json_each(?))"
        keys = json.dumps([storable(key) for key, _ in changes.sessions])
        return dict(self._db.execute(_SESSIONS + some, (keys,)))

    def _select_changed(
        self, sessions: Sequence[SessionChange], known: dict[str, str]
    ) -> Iterator[list[tuple[Name, Files]]]:
        """Yield the `sessions` whose stamps differ from the `known` ones, in batches that keep a
        transaction short. Remove all sessions from `known`."""
        batch, size = list[tuple[Name, Files]](), 0
        for key, found in self._pace(sessions):
            name: Name = ("message", "", storable(key))
            folder, total = self._sources.sessions.folder, sum(state.size for _, state in found)
            files = tuple(SourceFile(folder, path, state) for path, state in found)
            if known.pop(name[2], None) == render_stamps(files):
                continue
            if batch and size + total > _TOGETHER:
                yield batch
                batch, size = [], 0
            batch.append((name, files))
            size += total
        if batch:
            yield batch

    def _remove(self, names: Collection[Name]) -> None:
        if names:
            gone = "DELETE FROM stream WHERE (source, scope, key) = (?, ?, ?)"
            with transaction(self._db):
                self._db.executemany(gone, names)

    def _update_sessions(self, batch: Sequence[tuple[Name, Files]]) -> bool:
        """Read sessions in one transaction, or one by one if one of them fails. Return False if one
        must be read again."""
        if len(batch) > 1:
            with suppress(*_SKIPPED), transaction(self._db):
                for name, files in self._pace(batch):
                    self._take_session(name, files)
                return True
        return [self._update(name, files) for name, files in batch].count(False) == 0

    def _update(
        self, name: Name, files: Files, read: Callable[[], Iterable[IndexEntry]] = tuple
    ) -> bool:
        """Read a stream. Return False if it must be read again. A stream with a value that the
        database can't store is also skipped."""
        try:
            # Reading a document is slow, so the database is not locked yet.
            entries = [*self._pace(read())]
            with transaction(self._db):
                if name[0] == "message":
                    self._take_session(name, files)
                else:
                    id, _, _, languages = self._get_or_create(name)
                    lines = ((entry.hash, entry) for entry in self._pace(entries))
                    new, apart = self._new_entries(id, lines, SessionReader()), name[0] in _APART
                    languages = self._append(id, new, languages, apart=apart)
                    stamps = (render_stamps(files), languages, id)
                    self._db.execute(
                        "UPDATE stream SET files = ?, languages = ? WHERE id = ?", stamps
                    )
        except FileNotFoundError:  # it has just moved: the next refresh finds it
            return False
        except _SKIPPED as error:
            self._report(name, error)
            return False
        return True

    def _pace(self, items: Iterable[T]) -> Iterator[T]:
        """Yield as `pace` does. Raise `sqlite3.Error` once the index is closing."""
        for item in pace(items):
            if self._is_closing():
                raise sqlite3.InterfaceError("the index is closing")
            yield item

    def _report(self, name: Name, error: Exception) -> None:
        if name not in self._reported:
            self._reported.add(name)
            logger.warning("{} {} is not searched: {}", name[0], name[2], error)

    def _take_session(self, name: Name, files: Files) -> None:
        """Read a session: only the new lines of its live file if nothing else has changed since the
        last time, or all of it."""
        id, before, position, languages = self._get_or_create(name)
        stamps = render_stamps(files)
        if not before and len(files) == 1 and files[0].state.size <= _SMALL:  # read it once
            lines = [*lines_of(files[0])]
            about = amendments_in(lines)
            self._take_lines(id, [lines], stamps, _Position(), about, languages)
            if about:
                self._amend(id, about)
            return
        about = [one for file in files for one in amendments(file.folder / file.name)]
        known = _Position(*json.loads(position))
        has_grown = known.number and len(about) == known.amendments
        has_grown = has_grown and before.split("\n")[:-1] == stamps.split("\n")[:-1]
        if has_grown and checksum(files[-1], known.read) == known.mark:
            new = self._pace(lines_of(files[-1], known.read))
            if not self._take_lines(id, [new], stamps, known, about, languages):
                self._take_session(name, files)  # all of it: the position is reset
            return
        whole = (self._pace(lines_of(file)) for file in files)
        self._take_lines(id, whole, stamps, _Position(), about, languages)
        self._amend(id, about)

    def _get_or_create(self, name: Name) -> tuple[int, str, str, str]:
        """Return the id, the stamps, the position, and the languages of a stream."""
        found: tuple[int, str, str, str] | None = self._db.execute(_STREAM, name).fetchone()
        if found is None:
            self._db.execute(_NEW_STREAM, name)
            found = self._db.execute(_STREAM, name).fetchone()
            assert found is not None
        return found

    def _amend(self, id: int, about: Sequence[Epoch | Retraction | Mark]) -> None:
        """Delete the retracted passages, and mark the kept ones."""
        self._db.execute("UPDATE passage SET kept = 0 WHERE stream = ? AND kept", (id,))
        for one in about:
            if isinstance(one, Retraction):
                first, last = min(one.first, NUMBER_LIMIT), min(one.last, NUMBER_LIMIT)
                self._db.execute(
                    "DELETE FROM passage WHERE stream = ? AND seq BETWEEN ? AND ?"
                    " AND ? IN ('', turn)",
                    (id, first, last, storable(one.turn_id)),
                )
            elif isinstance(one, Mark):
                self._db.execute(
                    "UPDATE passage SET kept = ? WHERE stream = ? AND seq = ?",
                    (one.kept, id, min(one.seq, NUMBER_LIMIT)),
                )

    def _take_lines(
        self,
        id: int,
        files: Iterable[Iterable[bytes]],
        stamps: str,
        known: _Position,
        about: Sequence[Epoch | Retraction | Mark],
        languages: str,
    ) -> bool:
        """Read the lines of files after the `known` position. Return False if their numbers are
        not in order: then they must be read again together with those before them."""
        gone = [one for one in about if isinstance(one, Retraction)]
        reader, in_order = SessionReader(known.number, gone), True
        number, read, mark, _ = known

        def lines() -> Lines:
            nonlocal number, read, mark, in_order
            for file in files:
                read, mark = known.read, known.mark
                for raw in file:
                    yield line_hash(raw), raw
                    in_order = in_order and reader.number >= number + (b'"_type"' not in raw)
                    number = max(number, reader.number)
                    read, mark = read + len(raw), crc32(raw, mark)

        new = self._new_entries(id, lines(), reader, known.number)
        languages = self._append(id, new, languages)
        position = json.dumps(_Position(number if in_order else 0, read, mark, len(about)))
        self._db.execute(
            "UPDATE stream SET files = ?, position = ?, languages = ?,"
            " metadata = coalesce(?, metadata) WHERE id = ?",
            (stamps, position, languages, reader.metadata, id),
        )
        return in_order

    def _new_entries(
        self, stream: int, lines: Lines, reader: SessionReader, after: int = 0
    ) -> Iterator[IndexEntry]:
        """Yield the entries to index after the number `after`. The index is cut at the first
        difference. Known lines of a session are not parsed. In other streams, the first line with a
        number counts."""
        rows = self._db.execute(
            "SELECT seq, hash, id FROM passage WHERE stream = ? AND seq > ? ORDER BY seq, id",
            (stream, after),
        )
        last, row, seen = after, rows.fetchone(), set[int]()

        def cut() -> None:
            rows.close()
            if row:
                at = (stream, row[0], row[2])
                self._db.execute("DELETE FROM passage WHERE stream = ? AND (seq, id) >= (?, ?)", at)

        def is_copy(entry: IndexEntry) -> bool:
            at = (stream, entry.seq, entry.hash)
            found = "SELECT 1 FROM passage WHERE stream = ? AND seq = ? AND hash = ?"
            return entry.hash in seen or self._db.execute(found, at).fetchone() is not None

        for hash, line in lines:
            if row and row[1] == hash:
                last = reader.number = row[0]
                row = rows.fetchone()
                continue
            entry = reader.entry(line, hash) if isinstance(line, bytes) else line
            if entry and (entry.seq > last or (line is not entry and not is_copy(entry))):
                cut()
                last, row = max(last, entry.seq), None
                seen.add(entry.hash)
                yield entry
        cut()

    def _append(
        self, stream: int, entries: Iterator[IndexEntry], languages: str, *, apart: bool = False
    ) -> str:
        """Add `entries` at the end of the stream. `apart`: each is its own segment. `languages` are
        the stream's, the latest first. Return its languages afterwards."""
        tail = None
        while batch := list(islice(entries, _BATCH)):
            # Not earlier: the first entry may delete passages at the end.
            tail = tail or _Tail(self._db, stream)
            seen = dict.fromkeys(languages.split() or self._latest_language())
            likely = next(iter(seen), "")
            passages, words, speakers = [], [], set[str]()
            for entry in batch:
                id, segment = tail.next(entry, apart)
                language = language_of(entry.text, likely)
                seen[language] = None
                # The agent may answer in another language, which does not predict the next one.
                likely = likely if entry.role in ("assistant", "tool") else language
                text = entry.text
                whole = text if text.isascii() else text.encode("utf-8", "replace").decode()
                spelled = prepare_text(whole, language)
                original = None if spelled == whole else whole
                words.append((id, spelled))
                texts = (entry.speaker, entry.origin, entry.turn, entry.place)
                speaker, *others = map(storable, texts)
                speakers.add(speaker)
                passages.append((
                    id, stream, segment, entry.seq, entry.moment, entry.role, entry.asks,
                    entry.hash, entry.first, entry.last, original, speaker, *others,
                    tail.measure_news(entry, spelled, language),
                ))  # fmt: skip
            languages = " ".join(dict.fromkeys(filter(None, (likely, *seen))))
            self._db.executemany(_PASSAGE, passages)
            self._db.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", words)
            store_lent(self._db, zip(batch, words, strict=True), likely)
            if named := speakers - {"", "user", "assistant", "tool"}:
                new = "INSERT OR IGNORE INTO speaker VALUES (?, ?)"
                self._db.executemany(new, [(stream, name) for name in named])
        return languages

    def _latest_language(self) -> list[str]:
        """Return the latest language of the newest stream."""
        known = "SELECT languages FROM stream WHERE languages > '' ORDER BY id DESC LIMIT 1"
        found = self._db.execute(known).fetchone()
        return str(found[0]).split()[:1] if found else []


class _Tail:
    """The end of a stream: the last ids of talk and tool output, and the open segment."""

    def __init__(self, db: sqlite3.Connection, stream: int) -> None:
        base = stream << STREAM_BITS
        (output,) = db.execute(
            "SELECT max(id) FROM passage WHERE id BETWEEN ? AND ?",
            (base + TOOLS_FROM, base + PLACES - 1),
        ).fetchone()
        talk = db.execute(
            "SELECT id, segment, moment FROM passage WHERE id BETWEEN ? AND ?"
            " ORDER BY id DESC LIMIT 1",
            (base, base + TOOLS_FROM - 1),
        ).fetchone()
        self._output = output or base + TOOLS_FROM
        last: tuple[int, int, str] = talk or (base, 0, "")
        self._talk, self._segment, self._moment = last
        turn, known = self._talk - self._talk % TURN, list[str]()
        for step in reversed(range(_SHORTLY)):
            at = "SELECT text FROM passage_text WHERE id = ?"
            known += [text for (text,) in db.execute(at, (turn - step * TURN,))]
        self._said = deque(map(_compared, known), _SHORTLY)

    def measure_news(self, entry: IndexEntry, spelled: str, language: str) -> int:
        """Return the number of words of a reply that says something new, or 0. `spelled` is its
        stored text."""
        if entry.role == "user":
            self._said.append(_compared(entry.text, language))
        if entry.role != "assistant":
            return 0
        words = _compared(entry.text, language)
        is_news = len(words.difference(*self._said)) >= max(_LEAST_NEWS, _NEWS * len(words))
        return len(spelled.split()) if is_news else 0

    def next(self, entry: IndexEntry, apart: bool) -> tuple[int, int]:
        """Return the id and the segment of the next passage: the open segment, or a new one after a
        pause, or 0 for tool output. A reply at the start of a segment, or beyond a turn's places,
        begins a turn like a person's message."""
        if entry.role == "tool":
            self._output += TURN
            return self._output, 0
        ends = not self._segment or apart or is_pause(self._moment, entry.moment)
        self._moment = entry.moment or self._moment
        self._talk += 1
        if ends or entry.role != "assistant" or self._talk % TURN == 0:
            self._talk = -(-self._talk // TURN) * TURN
            if ends or self._talk - self._segment >= SEGMENT_MOST * TURN:
                self._segment = self._talk
        return self._talk, self._segment


def _compared(text: str, language: str = "") -> set[str]:
    return distinct_words(text[:_COMPARED], language)


def render_stamps(files: Files) -> str:
    """Return the stored form of a stream's files and their states."""
    return "\n".join(
        storable(f"{one.folder}/{one.name} {one.state.inode} {one.state.size} {one.state.modified}")
        for one in files
    )


def is_pause(before: str, now: str) -> bool:
    """Return True if a conversation paused between two moments, in either order."""
    if not before or not now or (before[:13], before[19:]) == (now[:13], now[19:]):
        return False  # most messages are within the same hour
    one, other = datetime.fromisoformat(before), datetime.fromisoformat(now)
    if (one.tzinfo is None) != (other.tzinfo is None):
        return True
    return abs(other - one) > PAUSE  # a platform has its own clock, and cuts times to seconds
