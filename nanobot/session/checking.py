"""Reading all conversations of a home, for whoever looks whether they can be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nanobot.errors import StorageError
from nanobot.io import FileOps
from nanobot.session.jsonl_store import SessionFolder


@dataclass(frozen=True, slots=True)
class Checked:
    """A conversation that was read: `messages` it has, or why it cannot be used."""

    key: str
    messages: int = 0
    error: StorageError | None = None


def conversations_in(folder: Path, now: datetime, *, archive: bool) -> Iterator[Checked]:
    """Read each conversation in `folder` as the next message in it would; with `archive` all of its
    messages are counted, else those of its file."""
    sessions = SessionFolder(folder, FileOps())
    for key in sorted(sessions.keys()):
        try:
            contents, _ = sessions.read(key, sessions.file_of(key), now)
            messages = sessions.messages(key, b"", 1, None) if archive else contents.messages
            yield Checked(key, sum(1 for _ in messages))
        except StorageError as error:
            yield Checked(key, error=error)
