"""The documents of a home in memory: a second implementation of the port `StateStore`."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from nanobot.bus.state import Stored
from nanobot.errors import StorageError, WriteConflict


@dataclass
class MemoryState:
    """`refuses`: writes fail as on a broken disk. `aside` holds the documents that were set aside,
    by name. `is_far`: like a database, which may not block an event loop."""

    documents: dict[str, Stored] = field(default_factory=dict)
    aside: dict[str, bytes] = field(default_factory=dict)
    refuses: bool = False
    is_far: bool = False

    def put(self, name: str, content: bytes | str) -> None:
        """Store a document unconditionally, like another program."""
        content = content.encode() if isinstance(content, str) else content
        self.documents[name] = Stored(content, self.revision(name) + 1)

    def text(self, name: str) -> str:
        """Return a stored document."""
        return self.documents[name].content.decode()

    def revision(self, name: str) -> int:
        stored = self.documents.get(name)
        return stored.revision if stored else 0

    def read(self, name: str) -> Stored | None:
        if self.is_far:
            with contextlib.suppress(RuntimeError):
                raise AssertionError(f"{name} is read on {asyncio.get_running_loop()}")
        return self.documents.get(name)

    def write(self, name: str, content: bytes, expected: int) -> int:
        self.read(name)
        self._expect_room(name)
        if self.revision(name) != expected:
            raise WriteConflict(name)
        self.documents[name] = Stored(content, expected + 1)
        return expected + 1

    def set_aside(self, name: str) -> str:
        self._expect_room(name)
        number = 1 + sum(one.startswith(f"{name}.") for one in self.aside)
        aside = f"{name}.json.broken-{number}"
        self.aside[aside] = self.documents.pop(name).content
        return aside

    def _expect_room(self, name: str) -> None:
        if self.refuses:
            raise StorageError(name, "the disk is full")
