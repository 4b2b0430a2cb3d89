"""Reading the index: which streams may be read, and rows as passages."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from nanobot.memory.history.entries import MOST
from nanobot.memory.index.ranking import Candidate
from nanobot.memory.index.schema import ASKS, ENDS_ASKING, STREAM_BITS, TOOLS_FROM
from nanobot.memory.index.values import Passage, Source
from nanobot.memory.store.reading import LONG_TERM
from nanobot.session.records import JsonValue

_LETTER: dict[Source, str] = {
    "message": "m",
    "history": "h",
    "note": "n",
    "memory": "f",
    "library": "l",
}
_SOURCE = {letter: source for source, letter in _LETTER.items()}
_PASSAGE = (
    "SELECT passage.id, segment, seq, moment, role, speaker, origin, place, turn, first, last,"
    " coalesce(original, words.text) FROM passage JOIN words ON words.rowid = passage.id"
)
_IS_TALK = f"(passage.id & {2 * TOOLS_FROM - 1}) <= {TOOLS_FROM}"


@dataclass(frozen=True, slots=True)
class Readable:
    """A stream that may be read."""

    id: int
    source: Source
    key: str
    scope: str

    def passage_id(self, seq: int) -> str:
        """The id of a passage, the same after every rebuild."""
        name = {"message": self.key, "history": self.scope, "library": self.key}.get(self.source)
        if name is None:
            name = f"{self.scope}:{self.key.removesuffix('.md')}"
        return f"{_LETTER[self.source]}:{name}:{seq}"


class Rows:
    """Questions to the tables. `scope_of` gives the scope of a session, asked each time."""

    def __init__(
        self,
        db: sqlite3.Connection,
        scope_of: Callable[[str, Mapping[str, JsonValue]], str],
    ) -> None:
        self._db, self._scope_of = db, scope_of

    def streams(self, scopes: Sequence[str]) -> dict[int, Readable]:
        """The streams in `scopes`, by number. Of all but the first, which asks, it is not to see
        who they are and what manner they like: no USER.md, no SOUL.md."""
        allowed = set(scopes)
        found = {}
        for id, source, key, scope, metadata in self._db.execute(
            "SELECT id, source, key, scope, metadata FROM stream"
        ):
            session = source == "message"
            owner = self._scope_of(key, json.loads(metadata)) if session else scope
            if source == "memory" and key != LONG_TERM and scope not in scopes[:1]:
                continue
            if owner in allowed:
                found[id] = Readable(id, cast("Source", source), key, owner)
        return found

    def speakers(self, streams: Mapping[int, Readable]) -> set[str]:
        """Names of people who speak in `streams`."""
        rows = self._db.execute("SELECT stream, name FROM speaker")
        names = {name for stream, name in rows if stream in streams}
        return names - {"user", "assistant", "tool"}

    def candidates(self, ids: Iterable[int]) -> dict[int, Candidate]:
        """What ranking needs of those of `ids` that exist."""
        rows = self._db.execute(
            "SELECT id, segment, role, speaker, moment, flags & ?, flags & ?, seq FROM passage"
            " WHERE id IN (SELECT value FROM json_each(?))",
            (ASKS, ENDS_ASKING, json.dumps(list(ids))),
        )
        return {row[0]: Candidate._make(row) for row in rows}

    def texts(self, ids: Iterable[int]) -> dict[int, str]:
        """The texts of passages, as they were written."""
        return dict(
            self._db.execute(
                "SELECT passage.id, coalesce(original, words.text) FROM passage"
                " JOIN words ON words.rowid = passage.id"
                " WHERE passage.id IN (SELECT value FROM json_each(?))",
                (json.dumps(list(ids)),),
            ).fetchall()
        )

    def summed_up(self, ids: Iterable[int]) -> list[tuple[int, str, int, int]]:
        """Of history entries: id, session, and the first and last seq that they sum up."""
        return self._db.execute(
            "SELECT id, turn, first, last FROM passage"
            " WHERE last > 0 AND id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        ).fetchall()

    def passages(
        self, streams: Mapping[int, Readable], ids: Iterable[int]
    ) -> dict[int, tuple[int, Passage]]:
        """Those of `ids` that exist and lie in `streams`, each after its segment."""
        rows = self._db.execute(
            f"{_PASSAGE} WHERE passage.id IN (SELECT value FROM json_each(?))",  # noqa: S608
            (json.dumps(list(ids)),),
        )
        inside = ((row, streams.get(row[0] >> STREAM_BITS)) for row in rows)
        return {row[0]: (row[1], _passage(stream, row)) for row, stream in inside if stream}

    def beside(
        self, stream: Readable, seq: int, steps: int, *, before: bool, talk_only: bool = False
    ) -> tuple[Passage, ...]:
        """Up to `steps` passages before or after `seq` in its stream, in order."""
        talk = f"AND {_IS_TALK}" if talk_only else ""
        order, sign = ("DESC", "<") if before else ("ASC", ">")
        rows = self._db.execute(
            f"{_PASSAGE} WHERE stream = ? AND seq {sign} ? {talk} ORDER BY seq {order} LIMIT ?",
            (stream.id, seq, steps),
        ).fetchall()
        found = [_passage(stream, row) for row in rows]
        return tuple(reversed(found) if before else found)

    def located(self, id: str, streams: Mapping[int, Readable]) -> tuple[Readable, int] | None:
        """The stream and number that the id of a passage names, if it lies in `streams`."""
        letter, _, rest = id.partition(":")
        name, _, number = rest.rpartition(":")
        source = _SOURCE.get(letter)
        if source is None or not number.isdecimal() or len(number) >= len(str(MOST)):
            return None
        wanted = f"{letter}:{name}:{int(number)}"
        for stream in streams.values():
            if stream.source == source and stream.passage_id(int(number)) == wanted:
                return stream, int(number)
        return None

    def at(self, stream: Readable, seq: int) -> Passage | None:
        """The passage with this number in a stream."""
        row = self._db.execute(
            f"{_PASSAGE} WHERE stream = ? AND seq = ?", (stream.id, seq)
        ).fetchone()
        return _passage(stream, row) if row else None


_Row = tuple[int, int, int, str, str, str, str, str, str, int, int, str]


def _passage(stream: Readable, row: _Row) -> Passage:
    _, _, seq, moment, role, speaker, origin, place, turn, first, last, text = row
    session = stream.key
    match stream.source:
        case "message":
            place = f"{stream.key} #{seq}"
        case "history":
            session = turn
            place = f"{place} ({turn} #{first}-{last})" if last else place
        case _:
            session = ""
    return Passage(
        id=stream.passage_id(seq),
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
    )
