"""Search over all conversations and memories, with the inputs and results of `index.MemoryIndex`.

Ids are stable: a passage keeps its id after every rebuild, so people and models can refer to it
later. `m:<session key>:<seq>` is a message, `h:<scope>:<cursor>` a history entry,
`h:<scope>:memory/HISTORY:<sum>` a paragraph of that file without an entry, `n:<scope>:<date>:<sum>`
a paragraph of a daily note or, with a month for a date, of its digest, `f:<scope>:<path>:<sum>` a
passage of a memory file, `l:<path>:<sum>` a passage of the library (the path is relative to the
library). The sum is a checksum of the passage's text: after edits around the text, the id still
identifies that text or nothing."""

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
"""Origin of text in a file that the person put next to the memory files."""


class Query(Struct, frozen=True):
    """A question to the index. Empty fields do not filter.

    `scopes` are the readable scopes, the asking one first. Nothing outside them is ever returned.
    `since` and `until` are inclusive dates, compared with a passage's civil date. A passage without
    a date passes only if neither is given. `limit` is the number of hits, after the `skip` best."""

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
    """A piece of remembered text.

    `seq` is the message's number, the history entry's cursor, or the position in a note or
    document. `role` is empty unless it is a message. `speaker` is the sender's name if known, else
    the role. `origin` is the message's (empty: the person's own words, or the model's). `place` is
    a location for people: `telegram:1 #120`, `history 42`, `2026-03-10.md:3`, `USER.md:12`,
    `library/book.pdf p. 3`, with the reason if a fact is not to be relied on. `kept` if the person
    marked it to keep."""

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
    """A passage, with up to four passages of the same conversation on either side."""

    passage: Passage
    score: float
    before: tuple[Passage, ...] = ()
    after: tuple[Passage, ...] = ()


class SearchResult(Struct, frozen=True):
    """The hits, best first, the search terms, and how many weaker hits are `left`."""

    hits: tuple[Hit, ...]
    terms: tuple[str, ...]
    left: int = 0


class IndexStats(Struct, frozen=True):
    """Numbers of indexed passages by source, and of those with vectors. `trouble` is the reason why
    embedding is paused."""

    messages: int
    history: int
    notes: int
    library: int
    vectors: int
    facts: int = 0
    trouble: str = ""


class Embedder(Protocol):
    """Turns texts into vectors of one length. Similar meanings have a high cosine."""

    name: str
    """The model's name. Vectors of another name are dropped and computed again."""

    context: int
    """Maximum characters of the message before a person's message that are embedded with it, or
    0."""

    async def embed(self, texts: Sequence[str], *, question: bool = False) -> list[list[float]]:
        """Return a vector for each text, in order. The texts are passages, or each is a `question`.
        Raise NanobotError on failure. Passages are retried first after a temporary failure."""
        ...

    async def close(self) -> None:
        """Release its resources. A later call may acquire them again."""
        ...


class Sources(Struct, frozen=True):
    """The sources of the text, which the index only reads.

    `sessions` are the conversations. `scope_of` returns a session's scope by its key and metadata,
    and is called at every search. `memories` lists each scope with its memory folder, which has
    `history.jsonl`, the daily notes and long-term files. The other long-term files are in its
    parent, and `template` is their initial text. `library` is the folder of documents, which
    belongs to the owner."""

    sessions: SessionCatalogue
    scope_of: Callable[[str, Mapping[str, JsonValue]], str]
    memories: Callable[[], Sequence[tuple[str, Path]]] = tuple
    library: Path | None = None
    template: Mapping[str, str] = field(default_factory=dict)
