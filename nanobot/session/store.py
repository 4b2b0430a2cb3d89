"""Where conversations are kept: the port `SessionStore`, which `SessionManager` works on.

The contract of every implementation:

- Lines of one conversation are stored in the order in which they are appended, each whole or not at
  all, and never twice: `restore` adds exactly those that are missing.
- A future of `append` is done once its lines are durable. What cannot be stored is kept and tried
  again; only `close` gives up.
- `archive` and `rewrite` never meet a write of the same conversation, and can be repeated after
  any failure.
- A line that cannot be read is skipped with a warning, stays as it is, and costs nothing else.
- `StorageError` means that nothing was changed.

Methods that are not coroutines block and may be called from any thread, but for `append`,
`is_current`, `is_idle`, `mark_stale` and `retry`: those belong to the event loop. Nothing here
names a file or a thread, so that another store needs no change elsewhere.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from nanobot.messages import Message
from nanobot.session.records import JsonValue, Metadata
from nanobot.session.session import Contents

Redact = Callable[[str], str]
"""Gives back a line, without its newline, as it may stay; the same line where all of it may."""


class SessionInfo(Struct, frozen=True):
    """A session at a glance. `place` is where it is kept, `size` what that takes in bytes without
    the archive, `preview` its last message.

    `epoch_seq` and `last_consolidated` are as in `Session`, and `last_seq` is that of the last
    message, as far as a quick look tells (else 0); `metadata` is as `SessionStore.metadata_of`
    gives it.
    """

    key: str
    created_at: datetime
    updated_at: datetime
    size: int
    preview: str
    place: str
    epoch_seq: int = 0
    last_consolidated: int = 0
    last_seq: int = 0
    metadata: Mapping[str, Any] = {}


class SessionStore(Protocol):
    """The conversations of one home."""

    async def read(self, key: str) -> Contents | None:
        """What is stored of a conversation, an empty one where nothing is; None where it was
        appended to meanwhile. Raises `StorageError` where it cannot be read; it is left as it
        is."""

    def is_current(self, key: str) -> bool:
        """Whether nobody else changed a conversation since it was read; quick."""

    def is_idle(self, key: str) -> bool:
        """Whether nothing is under way for a conversation: all that was appended is durable."""

    def mark_stale(self, key: str) -> None:
        """What was read last was not used: the conversation is not current."""

    def expire(self) -> None:
        """Make the next `sessions` look at the files again, regardless of `within`. Quick."""

    def append(self, key: str, lines: str) -> Future[None]:
        """Add whole lines. The future holds a `StorageError` where `close` gave up. Raises
        `RuntimeError` after `close`."""

    async def restore(self, key: str, lines: str) -> None:
        """Make sure that lines are stored, durably: those that are missing are appended. For the
        start, before anything is read. Raises `StorageError`."""

    async def archive(self, key: str, header: Metadata) -> None:
        """Put away the messages that `header` calls consolidated, once all that was appended is
        durable; `header` then says what is left. Raises `StorageError`."""

    async def set_aside(self, key: str, aside: Metadata, left: Metadata) -> None:
        """Store all of a conversation under the key of `aside`, once all that was appended is
        durable, and leave an empty one with the header `left`. Raises `StorageError`; doing it
        again loses nothing."""

    async def set_damaged_aside(self, key: str) -> None:
        """Rename the unreadable file of a conversation, to keep it. Raises `StorageError`."""

    async def rewrite(self, key: str, redact: Redact) -> int:
        """Pass every line through `redact`, archived ones too, once all that was appended is
        durable; how many changed. Raises `StorageError`; doing it again finishes what was left."""

    def drop_archive(self, key: str) -> None:
        """Remove what was archived of a conversation, but for what says how far that went. Raises
        `StorageError`."""

    def messages(self, key: str, first: int, last: int | None) -> Iterator[Message]:
        """All messages from seq `first` to `last`: archived, sealed and retracted ones as well, and
        those that are not durable yet. Raises `UnknownSession`, naming the nearest key, where there
        is no trace of the conversation."""

    def window(self, key: str, first: int, last: int | None, holding: str = "") -> list[Message]:
        """Those of `messages` that were not retracted, and which of them are marked to keep. Some
        that do not hold the casefolded words `holding` may be left out. Raises as it does."""

    def epochs(self, key: str, first: int, last: int) -> list[int]:
        """The seqs from `first` to `last` behind which `/new` began another conversation. Raises as
        `messages` does."""

    def metadata_of(self, key: str) -> Mapping[str, JsonValue]:
        """The small facts that are stored of a conversation, if any; also those that are not
        durable yet. Raises `StorageError`."""

    def sessions(
        self, *, sealed: bool = False, holding: str = "", within: float = 0.0
    ) -> Iterator[SessionInfo]:
        """All conversations, the one used last first; also one of which nothing is durable yet.
        With `sealed` only those of which something before the newest epoch is not consolidated.
        Some that do not hold the casefolded words `holding`, as they are stored, may be left out.
        What others than this store changed less than `within` seconds ago may be missing.
        Blocks before it returns; each is worked out when it is asked for."""

    def count(self) -> int:
        """How many conversations there are."""

    def retry(self) -> None:
        """Try at once to store what was refused."""

    async def close(self) -> None:
        """Store everything that was appended; what is still refused is given up."""
