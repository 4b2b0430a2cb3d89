"""The context that `docker build` sends: the files of a folder without those in `.dockerignore`."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of `.dockerignore`: its pattern, and whether matches are included again (`!`)."""

    pattern: re.Pattern[str]
    taken: bool
    text: str


def rules_of(text: str) -> tuple[Rule, ...]:
    """Return the rules of a `.dockerignore`. A later one wins."""
    rules = []
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        taken = line.startswith("!")
        name = line.removeprefix("!").strip().strip("/")
        rules.append(Rule(re.compile(_expression(name)), taken, name))
    return tuple(rules)


def is_ignored(path: str, rules: Sequence[Rule]) -> bool:
    """Check whether `path`, relative to the context, or a folder above it is ignored."""
    parents = [str(parent) for parent in PurePosixPath(path).parents if str(parent) != "."]
    ignored = False
    for rule in rules:
        if any(rule.pattern.fullmatch(name) for name in (path, *parents)):
            ignored = not rule.taken
    return ignored


def _expression(pattern: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]*\])", pattern)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(
        known.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts
    )


class Context:
    """The folder from which an image is built."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignore = folder / ".dockerignore"
        self._rules = rules_of(ignore.read_text()) if ignore.exists() else ()

    def below(self, name: str) -> list[PurePosixPath]:
        """Return all files and links at or below `name`, relative to the folder and sorted.

        Raise FileNotFoundError if there are none."""
        name = str(PurePosixPath(name.strip("/") or "."))
        start = self.folder / name
        if start.is_dir() and not start.is_symlink():
            found = sorted(self._walk(start))
        else:
            found = [PurePosixPath(name)] if start.exists() and not self._is_left_out(name) else []
        if not found:
            raise FileNotFoundError(f"{name} is not in the build context, or is excluded from it")
        return found

    def _walk(self, start: Path) -> Iterator[PurePosixPath]:
        for folder, folders, files in os.walk(start):
            here = PurePosixPath(folder).relative_to(self.folder)
            folders[:] = [name for name in folders if self._may_hold(str(here / name))]
            for name in files:
                is_plain = stat.S_IFMT(os.lstat(f"{folder}/{name}").st_mode) in _COPIED
                if is_plain and not self._is_left_out(str(here / name)):
                    yield here / name

    def _is_left_out(self, path: str) -> bool:
        return is_ignored(path, self._rules)

    def _may_hold(self, folder: str) -> bool:
        """Check whether a file in a folder may be sent."""
        again = any(rule.taken and rule.text.startswith(f"{folder}/") for rule in self._rules)
        return again or not self._is_left_out(folder)


_COPIED = (stat.S_IFREG, stat.S_IFLNK)
