"""Search over all conversations and memories. The class to use is `index.MemoryIndex`.

This module has the inputs and results of a search, and the interfaces that the index needs.

Ids are stable: the same passage has the same id after every rebuild, so that a person or a model
can name it tomorrow. `m:<session key>:<seq>` is a message, `h:<scope>:<cursor>` a history entry,
`h:<scope>:memory/HISTORY:<sum>` a paragraph of that file without an entry,
`n:<scope>:<date>:<sum>` a paragraph of a daily note or, with a month for a date, of its digest,
`f:<scope>:<path>:<sum>` a passage of a file of memory, `l:<path>:<sum>` one of the library (the
path is relative to the library). The sum is a checksum of the passage's text: after edits around
the text, the id still names that text or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct, field

from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.records import JsonValue

Source = Literal["message", "history", "note", "memory", "library"]

OWN_FILE = "file"
"""The origin of what stands in a file that somebody put beside the files of memory."""


class Query(Struct, frozen=True):
    """A question to the index; empty fields do not filter.

    `scopes` are the names of the scopes that may be read, the one that asks first, and nothing
    outside them is ever returned. `since` and `until` are inclusive dates, compared with a
    passage's own civil date; a passage without a date passes only where neither is given. `limit`
    is the number of hits, after the `skip` best.
    """

    text: str
    scopes: tuple[str, ...]
    session: str = ""
    since: date | None = None
    until: date | None = None
    role: str = ""
    source: Source | Literal[""] = ""
    limit: int = 10
    skip: int = 0


class Passage(Struct, frozen=True):
    """A piece of what is remembered.

    `seq` is the message's number, the history entry's cursor, or the passage's place in its note or
    document. `role` is empty for what is no message; `speaker` is the sender's name where one is
    known, else the role. `origin` is the message's (empty: their own words, or the model's), and
    `place` says where it stands in a way a person can follow: `telegram:1 #120`, `history 42`,
    `2026-03-10.md:3`, `USER.md:12`, `library/book.pdf p. 3`; for a fact that is not to be taken for
    true also why. `kept`: the person marked it to keep.
    """

    id: str
    source: Source
    scope: str
    session: str
    seq: int
    role: str
    speaker: str
    when: datetime | None
    text: str
    origin: str
    place: str
    kept: bool = False


class Hit(Struct, frozen=True):
    """A passage found, with up to four passages of the same conversation on either side."""

    passage: Passage
    score: float
    before: tuple[Passage, ...] = ()
    after: tuple[Passage, ...] = ()


class SearchResult(Struct, frozen=True):
    """The hits, best first, the words looked for, and how many weaker hits are `left`."""

    hits: tuple[Hit, ...]
    terms: tuple[str, ...]
    left: int = 0


class IndexStats(Struct, frozen=True):
    """How many passages of each source are indexed, and how many of them have vectors; `trouble` is
    why no more get one at the moment."""

    messages: int
    history: int
    notes: int
    library: int
    vectors: int
    facts: int = 0
    trouble: str = ""


class Embedder(Protocol):
    """Turns texts into vectors of one length, so that near meanings have a high cosine."""

    name: str
    """Names the model; vectors of another name are dropped and made again."""

    async def embed(self, texts: Sequence[str], *, question: bool = False) -> list[list[float]]:
        """One vector for each text, in order; the texts are passages, or each is a `question`.
        Raises a NanobotError where it cannot; after trouble that may pass, it tries again first,
        unless they are questions."""
        ...

    async def close(self) -> None:
        """Release what it holds; a later call may take it again."""
        ...


class Sources(Struct, frozen=True):
    """Where the text lies. The index only ever reads these.

    `sessions` are the conversations; `scope_of` gives the scope of a session by its key
    and metadata and is asked at every search; `memories` lists each scope with its memory folder
    (the one that holds `history.jsonl` and the daily notes; the long-term files lie there and
    beside it, and `template` is what they say before anything was learned); `library` is the folder
    of documents, which belongs to the owner.
    """

    sessions: SessionCatalogue
    scope_of: Callable[[str, Mapping[str, JsonValue]], str]
    memories: Callable[[], Sequence[tuple[str, Path]]] = tuple
    library: Path | None = None
    template: Mapping[str, str] = field(default_factory=dict)
