"""`state/skills.json`: which skills the owner enabled, in exactly which form, and which they do not
want.

Invariant: a file that cannot be read in every detail enables nothing (see `StateDocument`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from nanobot.security.documents import StateDocument, UnfitDocument, versioned_object
from nanobot.skills.values import is_skill_name

VERSION = 1


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


class StateFile(StateDocument[Book]):
    """The file at `path`. One writer, the owner of the home."""

    def __init__(self, path: Path) -> None:
        advice = "Enable your skills again with `nanobot skills enable`."
        super().__init__(path, _decoded, _encoded, Book(), advice)

    @property
    def book(self) -> Book:
        """What it holds; an empty book where there is none or none that can be used."""
        return self.load()


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
    """Raises `UnfitDocument`."""
    top = versioned_object(content, VERSION)
    enabled, disabled = top.get("enabled"), top.get("disabled")
    if not isinstance(enabled, dict) or not isinstance(disabled, list):
        raise UnfitDocument("it has no lists of what is enabled and disabled")
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
    raise UnfitDocument("an entry is not as it was written")


def _name(value: object) -> str:
    if not isinstance(value, str) or not is_skill_name(value):
        raise UnfitDocument(f"{value!r:.40} is no name of a skill")
    return value
