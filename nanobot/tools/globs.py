"""Glob patterns: `*`, `?`, `[…]` within a name, `**` over folders, `{a,b}` choices. Pure.

A pattern without a slash matches names at any depth, as people mean it. Matching takes time linear
in the names of the path for each name of the pattern, whatever the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from nanobot.errors import ToolError

_CHOICE = re.compile(r"\{([^{}]*)\}")
_MAX_PATTERN, _MAX_CHOICES = 300, 64


def compile_glob(pattern: str) -> Callable[[Sequence[str]], bool]:
    """A test for the names of a relative path. Raises `ToolError` for a useless pattern."""
    if not pattern.strip() or len(pattern) > _MAX_PATTERN:
        raise ToolError("the pattern is empty or too long; an example is **/*.md")
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ToolError("the pattern is relative to path and cannot leave it; use path instead")
    choices = [_names(choice) for choice in _expanded(pattern)]
    return lambda names: any(_matches(choice, names) for choice in choices)


def _expanded(pattern: str) -> list[str]:
    waiting, done = [pattern], []
    while waiting:
        current = waiting.pop()
        if (choice := _CHOICE.search(current)) is None:
            done.append(current)
            continue
        before, after = current[: choice.start()], current[choice.end() :]
        waiting += [f"{before}{middle}{after}" for middle in choice[1].split(",")]
        if len(waiting) + len(done) > _MAX_CHOICES:
            raise ToolError("the pattern has too many {a,b} choices")
    return done


def _names(pattern: str) -> list[str]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    return ["**", *names] if "/" not in pattern else names


def _matches(pattern: Sequence[str], names: Sequence[str]) -> bool:
    # reached[i]: the pattern so far can have matched the first i names.
    reached = [True] + [False] * len(names)
    for part in pattern:
        if part == "**":
            first = reached.index(True) if True in reached else len(reached)
            reached = [index >= first for index in range(len(reached))]
        else:
            reached = [False] + [
                before and fnmatchcase(name, part)
                for before, name in zip(reached, names, strict=False)
            ]
    return reached[-1]
