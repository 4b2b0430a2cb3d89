"""What of a folder is held fast while a command may write in it. Pure.

A path that is `locked` cannot be changed and one that is `hidden` cannot be seen either. All
folders above such a path are `pinned`: they cannot be renamed or replaced, for whoever moves a
folder away can put another one, with whatever in it, in its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Layout(NamedTuple):
    """Paths relative to the folder, upper ones first; the folder itself is in none."""

    pinned: tuple[str, ...]
    locked: tuple[str, ...]
    hidden: tuple[str, ...]


def layout(locked: Iterable[str], hidden: Iterable[str]) -> Layout:
    """What to hold fast for these. What lies below something hidden needs nothing more, nor does
    what is locked below something locked."""
    out_of_sight = _topmost({path.rstrip("/") for path in hidden}, set())
    fast = _topmost({path.rstrip("/") for path in locked}, out_of_sight)
    special = out_of_sight | fast
    above = {folder for path in special for folder in parents(path)}
    inner = {folder for folder in above if folder not in special and not _below(folder, fast)}
    return Layout(_ordered(inner), _ordered(fast), _ordered(out_of_sight))


def parents(path: str) -> list[str]:
    """The folders above a path: `a` and `a/b` for `a/b/c`."""
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(1, len(names))]


def _topmost(paths: set[str], others: set[str]) -> set[str]:
    covering = paths | others
    return {path for path in paths - others if not _below(path, covering)}


def _below(path: str, tops: set[str]) -> bool:
    return any(parent in tops for parent in parents(path))


def _ordered(paths: set[str]) -> tuple[str, ...]:
    return tuple(sorted(paths, key=lambda path: (path.count("/"), path)))
