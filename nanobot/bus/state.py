"""Small named documents of a home, such as the access list: the port `StateStore`, and the typed
`Document`.

The contract of every implementation of the port:

- A document changes by compare-and-swap: a write names the revision that it replaces.
- A method that returns has made its change durable. After an unknown outcome the whole change can
  be repeated, because the revision shows whether it happened.
- An unusable document is never dropped. It is set aside for a person.
- `StorageError` means that nothing was changed.

The methods block, and any thread of the process that owns the home may call them. This module names
no file, thread or database, so another store changes nothing else."""

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
"""Each failed try means that another worker of a team has made a change."""


class InvalidDocument(Exception):
    """A document is not in the form that this version writes. The text gives the reason."""


class Stored(Struct, frozen=True):
    """A stored document. `revision` counts its changes from 1."""

    content: bytes
    revision: int


class StateStore(Protocol):
    """The documents of one home."""

    def read(self, name: str) -> Stored | None:
        """Return the document, or None if it is missing. Raise `StorageError`."""
        ...

    def write(self, name: str, content: bytes, expected: int) -> int:
        """Replace revision `expected` (0: none) with `content`. Return the new revision. Raise
        `WriteConflict` if another revision is stored, and `StorageError`."""
        ...

    def set_aside(self, name: str) -> str:
        """Move the document aside for a person to inspect. Return its new place. On `StorageError`
        it is still in its old place."""
        ...


def decode_versioned(content: bytes, version: int) -> dict[str, object]:
    """Return the JSON object in a document of this version. Raise `InvalidDocument`."""
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
    """The document `name`. If it is not stored, its value is `empty`.

    Invariant: a document that cannot be read completely is not used. It is set aside, never
    overwritten, and reported once. `decode` raises `InvalidDocument` or `ValidationError`. `advice`
    tells the owner how to proceed then."""

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
        """The problem found when it was read, and the remedy. Empty if there was none."""

    @property
    def value(self) -> T:
        """The cached value, for the event loop. It blocks only before the first read. In a team
        another worker may have changed it since, so each worker calls `load` regularly. Raises
        `StorageError`."""
        return self._value if self._revision >= 0 else self.load()

    def load(self) -> T:
        """Return the value, decoded again after a change. Block. Raise `StorageError`."""
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
        """Replace the value unconditionally. Raise `StorageError`."""
        self.change(lambda _: value)

    def change(self, change: Callable[[T], T]) -> T:
        """Change the value durably and return it. Call `change` again after a concurrent change. On
        `StorageError`, or an exception of `change`, nothing has changed."""
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
