"""Small documents of the home, such as `state/access.json`: values in files of their own.

Invariant: a document that cannot be read in every detail is not used. It is quarantined under
another name, never changed and never written over, and one error says so. What is saved is
durable and replaces the whole file; what somebody else wrote meanwhile can be noticed (`reload`) or
is taken into account (`change`).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Generic, TypeVar

from loguru import logger

from nanobot.errors import NanobotError, StorageError, ToolError, WriteConflict
from nanobot.security.paths import Root

T = TypeVar("T")

_LIMIT = 50_000_000
_TRIES = 3


class UnfitDocument(Exception):
    """A document is not what this version writes; the text says why."""


def versioned_object(content: bytes, version: int) -> dict[str, object]:
    """The JSON object in a document that says to be of this version. Raises `UnfitDocument`."""
    try:
        top = json.loads(content)
    except (ValueError, RecursionError):
        raise UnfitDocument("it is not JSON") from None
    if not isinstance(top, dict):
        raise UnfitDocument("it is not a JSON object")
    found = top.get("version")
    if found != version or isinstance(found, bool):
        raise UnfitDocument(
            f"it is of version {found!r:.20}, and this nanobot knows version {version}"
        )
    return top


class StateDocument(Generic[T]):
    """The document in the file at `path`, which need not exist: then it is `empty`.

    `decode` raises `UnfitDocument`. `advice` tells the owner what to do after a quarantine. A file
    that the system does not let us read is quarantined as well, unless `keep_unreadable`: then
    `load` raises `StorageError`, and nothing is written. Blocks; any thread of the process that
    owns the home may use it.
    """

    def __init__(
        self,
        path: Path,
        decode: Callable[[bytes], T],
        encode: Callable[[T], bytes],
        empty: T,
        advice: str,
        *,
        keep_unreadable: bool = False,
    ) -> None:
        self.path, self._advice, self._keep_unreadable = path, advice, keep_unreadable
        self._decode, self._encode, self._empty = decode, encode, empty
        self._root = Root(path.parent, name="home")
        self._place = self._root.place(path.name)
        self._stuck = False
        self._value: T | None = None
        self._content: bytes | None = None
        self._seen: tuple[int, int, int] | None = None
        self._using = threading.RLock()
        self.trouble = ""
        """What was wrong with it when it was read, and what to do; empty where nothing was."""

    def load(self) -> T:
        """Its value, read again where somebody else changed the file."""
        with self._using:
            seen = self._root.fingerprint(self.path.name)
            if self._value is None or seen != self._seen:
                self._content, self._value = None, self._empty
                self._read()
                self._seen = self._root.fingerprint(self.path.name)
            return self._value

    def reload(self) -> T | None:
        """Its value, if somebody else changed it since it was read or saved; None where nobody did,
        or where it cannot be used."""
        with self._using:
            seen = self._root.fingerprint(self.path.name)
            if seen is None or seen == self._seen:
                return None
            self._seen = seen
            with suppress(UnfitDocument, NanobotError):
                content = self._place.read_bytes(_LIMIT)
                if content is not None:
                    self._value, self._content = self._decode(content), content
                    return self._value
            return None

    def save(self, value: T) -> None:
        """Put a value in place, whatever was there. Raises `StorageError`."""
        with self._using:
            self._write(value, guarded=False)

    def change(self, change: Callable[[T], T]) -> T:
        """Carry out a change durably; the value afterwards. `change` is called again on what
        somebody else wrote meanwhile. Raises `StorageError`, and what `change` raises: nothing has
        changed then."""
        for _ in range(_TRIES):
            with self._using, suppress(WriteConflict):
                value = self.load()
                changed = change(value)
                if changed != value:
                    self._write(changed, guarded=True)
                return changed
        raise StorageError(self.path, "somebody else keeps changing it", hint="Try again.")

    def _read(self) -> None:
        try:
            content = self._place.read_bytes(_LIMIT)
            if content is not None:
                self._value, self._content = self._decode(content), content
        except UnfitDocument as error:
            self._quarantine(str(error))
        except RecursionError:
            self._quarantine("it is nested too deeply")
        except NanobotError as error:
            if self._keep_unreadable:
                self._value = None
                raise StorageError(self.path, str(error), hint="Move it away.") from error
            self._quarantine(f"it cannot be read ({error})")

    def _write(self, value: T, *, guarded: bool) -> None:
        if self._stuck and os.path.lexists(self.path):
            raise StorageError(
                self.path, "what stands there is not ours", hint="Move it away and start again."
            )
        content = self._encode(value)
        try:
            self._root.create()
            if guarded:
                self._place.write_bytes(content, expected=self._content)
            else:
                self._place.write_bytes(content)
        except WriteConflict:
            self._value = None
            raise
        except ToolError as error:  # somebody put something else there
            raise StorageError(self.path, str(error)) from error
        self._content, self._value = content, value
        self._seen = self._root.fingerprint(self.path.name)

    def _quarantine(self, reason: str) -> None:
        names = (self.path.with_name(f"{self.path.name}.broken-{n}") for n in count(1))
        aside = next(name for name in names if not os.path.lexists(name))
        try:
            self.path.rename(aside)
            kept = f"It is kept as {aside.name}."
        except OSError as error:
            self._stuck = True
            kept = f"It could not be moved away: {error.strerror}."
        self.trouble = f"{self.path} is not used: {reason}. {kept} {self._advice}"
        logger.error("{}", self.trouble)
