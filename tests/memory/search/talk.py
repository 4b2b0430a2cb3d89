"""A home with sessions, history and notes in their stored form, and an index over it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zlib import crc32

from nanobot.clock import Clock
from nanobot.io import FileOps
from nanobot.memory.search import Embedder, Query, SearchResult, Sources
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.search.vectors import VectorWorker
from nanobot.messages import Message, Role
from nanobot.session.archive import archive_messages
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.records import SUFFIX, JsonValue, Mark, Metadata, Retraction, encode, stem_of
from nanobot.testing.clock import FakeClock
from tests.files import read_file

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


def message(
    seq: int, text: str, role: Role = "user", *, name: str = "", turn: str = "", day: int = 0,
    origin: str = "",
) -> Message:  # fmt: skip
    """Return a message of the minute `seq`, `day` days after the start."""
    moment = START + timedelta(days=day, minutes=seq)
    return Message(role, text, moment, seq, name=name, turn_id=turn, origin=origin)


class Home:
    """Files in the form in which nanobot writes them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sessions = path / "sessions"
        self.memory = path / "workspace" / "memory"
        self.library = path / "workspace" / "library"
        self.sessions.mkdir(parents=True)
        self.memory.mkdir(parents=True)
        self.people: dict[str, Path] = {}

    @property
    def database(self) -> Path:
        return self.path / "state" / "index.db"

    def file(self, key: str) -> Path:
        return self.sessions / f"{stem_of(key)}{SUFFIX}"

    def say(
        self, key: str, *messages: Message, metadata: Mapping[str, JsonValue] | None = None
    ) -> None:
        """Append to a session. A new one begins with its metadata."""
        path = self.file(key)
        lines = "".join(map(encode, messages))
        if not path.exists() or metadata is not None:
            lines = encode(Metadata(key, START, START, 0, 1, metadata)) + lines
        with path.open("a") as file:
            file.write(lines)

    def retract(self, key: str, turn: str, first: int, last: int) -> None:
        """Remove messages from a session, as `/undo` does."""
        with self.file(key).open("a") as file:
            file.write(encode(Retraction(turn, first, last, START)))

    def mark(self, key: str, seq: int, *, kept: bool = True) -> None:
        """Mark a message to keep, or no longer."""
        with self.file(key).open("a") as file:
            file.write(encode(Mark(seq, kept, "7", "/note", START)))

    def archive(self, key: str, up_to: int) -> None:
        """Move consolidated messages to the archive, as the session's writer does."""
        folder = self.sessions / "archive" / stem_of(key)
        archive_messages(FileOps(), self.file(key), folder, Metadata(key, START, START, up_to, 1))

    def remember(
        self, cursor: int, summary: str, *, session: str = "", first: int = 0, last: int = 0,
        facts: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Append a history entry of the owner."""
        entry = {
            "cursor": cursor,
            "timestamp": START.isoformat(),
            "type": "consolidation",
            "session": session,
            "range": [first, last],
            "summary": summary,
            "key_facts": list(facts),
            "operations": [],
            "origin": [],
        }
        with (self.memory / "history.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def scopes(self) -> list[tuple[str, Path]]:
        return [("owner", self.memory), *self.people.items()]

    def index(
        self, clock: Clock | None = None, embedder: Embedder | None = None,
        path: Path | None = None, patience: float = 10.0, worker: VectorWorker | None = None,
    ) -> MemoryIndex:  # fmt: skip
        """Return an index over everything. Messages on `cli` are the owner's, others have
        scopes."""
        sources = Sources(
            SessionCatalogue(self.sessions, FakeClock()), scope_of, self.scopes, self.library
        )
        return MemoryIndex(
            path or self.database, sources, clock or FakeClock(START), embedder, worker,
            patience=patience,
        )  # fmt: skip


def scope_of(key: str, metadata: Mapping[str, JsonValue]) -> str:
    """Return the owner's scope for `cli`, the sender's if metadata has one, otherwise the
    chat's."""
    channel, _, chat = key.partition(":")
    return "owner" if channel == "cli" else f"people/{channel}_{metadata.get('sender', chat)}"


def ids(result: SearchResult) -> list[str]:
    """Return the ids of the hits, best first."""
    return [hit.passage.id for hit in result.hits]


def id_of(document: str, text: str) -> str:
    """Return the id of a passage of an editable file."""
    return f"{document}:{crc32(text.encode()):08x}"


async def find(index: MemoryIndex, text: str, *scopes: str) -> list[str]:
    """Return the ids of hits that contain a word of `text`, best first, by default for the owner.

    (Neighbours of such a passage are found as well, but lower.)"""
    result = await index.search(Query(text, scopes or ("owner",), limit=50))
    words = text.lower().split()
    return [hit.passage.id for hit in result.hits
            if any(word in hit.passage.text.lower() for word in words)]  # fmt: skip


def everything(folder: Path) -> bytes:
    """Return all bytes of all files under a folder."""
    found = b""
    for path in folder.rglob("*"):
        with suppress(IsADirectoryError):
            found += read_file(path)
    return found
