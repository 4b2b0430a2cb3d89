"""Small named documents of a home, such as who was let in: the port `StateStore`, and `Document`,
which is one of them with its type.

The contract of every implementation of the port:

- A document changes by compare-and-swap: a write names the revision that it replaces.
- A method that returns has made its change durable. After an unknown outcome the whole change can
  be made again: the revision tells whether it happened.
- A document is never dropped because it cannot be used: it is set aside where a person finds it.
- `StorageError` means that nothing was changed.

The methods block; any thread of the process that owns the home may call them. Nothing here names a
file, a thread or a database, so that another store needs no change elsewhere.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from loguru import logger
from msgspec import Struct, ValidationError

from nanobot.errors import StorageError, WriteConflict

T = TypeVar("T")

DOCUMENTS = ("access", "approvals", "dialects", "dream", "facts", "jobs", "mcp", "skills", "usage")
"""The documents of a home, by name."""

_TRIES = 20
"""Each that is in vain, another worker of a team has made a change."""


class InvalidDocument(Exception):
    """A document is not what this version writes; the text says why."""


class Stored(Struct, frozen=True):
    """A document as it is stored; `revision` counts its changes, from 1 on."""

    content: bytes
    revision: int


class StateStore(Protocol):
    """The documents of one home."""

    def read(self, name: str) -> Stored | None:
        """The document, if there is one. Raises `StorageError`."""
        ...

    def write(self, name: str, content: bytes, expected: int) -> int:
        """Put `content` in place of revision `expected` (0: of none); its own revision. Raises
        `WriteConflict` where another revision is stored, and `StorageError`."""
        ...

    def set_aside(self, name: str) -> str:
        """Keep the document where a person can look at it, and go on without; says where it is.
        Raises `StorageError`: it is in its place then."""
        ...


def versioned_object(content: bytes, version: int) -> dict[str, object]:
    """The JSON object in a document that says to be of this version. Raises `InvalidDocument`."""
    try:
        top = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidDocument("it is not JSON") from None
    if not isinstance(top, dict):
        raise InvalidDocument("it is not a JSON object")
    found = top.get("version")
    if found != version or isinstance(found, bool):
        raise InvalidDocument(
            f"it has version {found!r:.20}, but this nanobot supports version {version}"
        )
    return top


class Document(Generic[T]):
    """The document `name`, which need not be stored: then it is `empty`.

    Invariant: a document that cannot be read in every detail is not used. It is set aside, never
    written over, and one error says so. `decode` raises `InvalidDocument` or `ValidationError`.
    `advice` tells the owner what to do then.
    """

    def __init__(
        self,
        store: StateStore,
        name: str,
        decode: Callable[[bytes], T],
        encode: Callable[[T], bytes],
        empty: T,
        advice: str = "",
    ) -> None:
        self._store, self.name, self._advice = store, name, advice
        self._decode, self._encode, self._empty = decode, encode, empty
        self._value: T = empty
        self._revision = -1
        self._stuck = False
        self._using = threading.RLock()
        self.problem = ""
        """What was wrong with it when it was read, and what to do; empty where nothing was."""

    @property
    def known(self) -> T:
        """Its value as it was read or changed here last, for the event loop: blocks only where it
        was never read. Of a home that is the value; of a team another worker may have changed it
        since, so each worker calls `load` now and then. Raises `StorageError`."""
        return self._value if self._revision >= 0 else self.load()

    def load(self) -> T:
        """Its value, decoded again where somebody else changed it. Blocks. Raises
        `StorageError`."""
        with self._using:
            stored = self._store.read(self.name)
            revision = stored.revision if stored else 0
            if self._stuck or revision == self._revision:
                return self._value
            problem = ""
            try:
                self._value = self._decode(stored.content) if stored else self._empty
            except ValidationError as error:
                problem = f"it has an unexpected form: {error}"
            except (InvalidDocument, RecursionError) as error:
                problem = str(error) or "it is nested too deeply"
            self._revision = revision
            if problem:
                self._set_aside(problem)
            return self._value

    def save(self, value: T) -> None:
        """Put a value in place, whatever was there. Raises `StorageError`."""
        self.change(lambda _: value)

    def change(self, change: Callable[[T], T]) -> T:
        """Carry out a change durably; the value afterwards. `change` is called again on what
        somebody else wrote meanwhile. Raises `StorageError`, and what `change` raises: nothing has
        changed then."""
        with self._using:
            for _ in range(_TRIES):
                value = self.load()
                changed = change(value)
                if changed == value:
                    return value
                if self._stuck:
                    self._set_aside("it could not be used")
                try:
                    content = self._encode(changed)
                    self._revision = self._store.write(self.name, content, self._revision)
                except WriteConflict:
                    continue
                self._value = changed
                return changed
        raise StorageError(self.name, "another process keeps changing it", hint="Try again.")

    def _set_aside(self, reason: str) -> None:
        stuck, self._stuck = self._stuck, True
        try:
            kept = f"It is kept as {self._store.set_aside(self.name)}."
        except StorageError as error:
            if stuck:
                raise
            kept = f"It could not be moved away: {error}"
        else:
            self._stuck, self._revision = False, 0
        if not stuck:
            self.problem = (
                f"The document {self.name!r} is not used: {reason}. {kept} {self._advice}"
            )
            logger.error("{}", self.problem)
