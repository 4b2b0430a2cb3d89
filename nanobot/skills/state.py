"""`state/skills.json`: which skills the owner enabled, in exactly which form, and which they do not
want.

What always holds: a file that cannot be read in every detail enables nothing. It is kept under
another name, never changed and never written over. Blocks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from loguru import logger

from nanobot.errors import NanobotError, StorageError, ToolError
from nanobot.security.paths import Root
from nanobot.skills.values import is_skill_name

VERSION = 1
_LIMIT = 20_000_000


@dataclass(frozen=True, slots=True)
class Enabled:
    """A workspace skill as the owner enabled it: the SHA-256 of each file, by path. `everyone`: it
    serves other people too. `since` is an ISO time, for people."""

    files: Mapping[str, str]
    everyone: bool = False
    since: str = ""


@dataclass(frozen=True, slots=True)
class Book:
    """All of it: `enabled` are workspace skills, `disabled` any skills, by name."""

    enabled: Mapping[str, Enabled] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()

    def enabling(self, name: str, enabled: Enabled | None) -> Book:
        """With a skill enabled; None for a built-in one, which needs no record."""
        kept = {**self.enabled, name: enabled} if enabled else self.enabled
        return replace(self, enabled=kept, disabled=self.disabled - {name})

    def disabling(self, name: str) -> Book:
        """With a skill disabled; what was enabled has to be enabled again."""
        kept = {key: one for key, one in self.enabled.items() if key != name}
        return Book(kept, self.disabled | {name})


class _Unfit(Exception):
    """The file is not what this version writes; the text says why."""


class StateFile:
    """The file at `path`; it need not exist. One writer, the owner of the home."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = Root(path.parent, name="home").place(path.name)
        self._book: Book | None = None
        self._stuck = False
        self.trouble = ""
        """What was wrong with it when it was read; empty where nothing was."""

    @property
    def book(self) -> Book:
        """What it holds; an empty book where there is none or none that can be used."""
        if self._book is None:
            self._book = self._load()
        return self._book

    def save(self, book: Book) -> None:
        """Put `book` in place, durably and as a whole. Raises `StorageError`."""
        if self._stuck and os.path.lexists(self._path):
            raise StorageError(
                self._path, "what stands there is not ours", hint="Move it away and start again."
            )
        try:
            self._place.root.create()
            self._place.write_bytes(_encoded(book))
        except ToolError as error:  # somebody put something else there
            raise StorageError(self._path, str(error)) from error
        self._book = book

    def _load(self) -> Book:
        try:
            content = self._place.read_bytes(_LIMIT)
            return Book() if content is None else _decoded(content)
        except _Unfit as error:
            self._set_aside(str(error))
        except NanobotError as error:
            self._set_aside(f"it cannot be read ({error})")
        return Book()

    def _set_aside(self, reason: str) -> None:
        names = (self._path.with_name(f"{self._path.name}.broken-{n}") for n in count(1))
        aside = next(name for name in names if not os.path.lexists(name))
        try:
            self._path.rename(aside)
            kept = f"It is kept as {aside.name}."
        except OSError as error:
            self._stuck = True
            kept = f"It could not be moved away: {error.strerror}."
        mend = "Enable your skills again with `nanobot skills enable`."
        self.trouble = f"{self._path} is not used: {reason}. {kept} {mend}"
        logger.error("{}", self.trouble)


def _encoded(book: Book) -> bytes:
    content = {
        "version": VERSION,
        "enabled": {
            name: {"everyone": one.everyone, "since": one.since, "files": dict(one.files)}
            for name, one in book.enabled.items()
        },
        "disabled": sorted(book.disabled),
    }
    return json.dumps(content, indent=1).encode("ascii") + b"\n"


def _decoded(content: bytes) -> Book:
    """Raises `_Unfit`."""
    try:
        top = json.loads(content)
    except (ValueError, RecursionError):
        raise _Unfit("it is not JSON") from None
    if not isinstance(top, dict):
        raise _Unfit("it is not a JSON object")
    version = top.get("version")
    if version != VERSION or isinstance(version, bool):
        raise _Unfit(f"it is of version {version!r:.20}, and this nanobot knows version {VERSION}")
    enabled, disabled = top.get("enabled"), top.get("disabled")
    if not isinstance(enabled, dict) or not isinstance(disabled, list):
        raise _Unfit("it has no lists of what is enabled and disabled")
    return Book(
        {_name(name): _enabled(item) for name, item in enabled.items()},
        frozenset(map(_name, disabled)),
    )


def _enabled(item: object) -> Enabled:
    if isinstance(item, dict):
        files, everyone, since = item.get("files"), item.get("everyone"), item.get("since")
        if (
            isinstance(files, dict)
            and all(isinstance(digest, str) for digest in files.values())
            and isinstance(everyone, bool)
            and isinstance(since, str)
        ):
            return Enabled(files, everyone, since)
    raise _Unfit("an entry is not as it was written")


def _name(value: object) -> str:
    if not isinstance(value, str) or not is_skill_name(value):
        raise _Unfit(f"{value!r:.40} is no name of a skill")
    return value
