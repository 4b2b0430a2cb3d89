"""What is wrong with a configuration, gathered so that all of it is reported at once.

One mistake is reported once: only the first problem of each key at each place is kept, since what
follows from it would only confuse.

Reading the two files of the owner: as UTF-8 text, or as a problem that says what to do.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nanobot.errors import ConfigError

ENVIRONMENT = "environment"
"""Stands for the file where a value came from the environment of the process."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written. `line` is 1-based, 0 for the file as a whole.

    `variable` names the environment variable that supplied it as an override.
    """

    file: str
    line: int = 0
    variable: str = ""


class ConfigErrors(ConfigError):
    """Several problems. File, line, key and hint are the first one's; the text lists them all."""

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        first = problems[0]
        super().__init__("", file=first.file, line=first.line, key=first.key, hint=first.hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))

    def for_people(self) -> str:
        """Every problem with its own fix beneath it."""
        return "\n".join(problem.for_people() for problem in self.problems)


class Findings:
    """Collects problems, which keep nanobot from starting, and warnings, which do not."""

    def __init__(self) -> None:
        self._problems: dict[tuple[str, int, str], ConfigError] = {}
        self._warnings: list[str] = []
        self._broken = False

    def problem(self, place: Place, key: str, message: str, hint: str = "") -> None:
        """Note that something is wrong with `key`, dotted as in `model.name`."""
        error = ConfigError(message, file=place.file, line=place.line, key=key, hint=hint)
        self._problems.setdefault((place.file, place.line, key), error)

    def broken(self, place: Place, message: str, hint: str, key: str = "") -> None:
        """Note that a file is of no use, so that what is missing in it must not be reported too."""
        self.problem(place, key, message, hint)
        self._broken = True

    def raise_if_broken(self) -> None:
        """Raise what was found so far when a file is of no use."""
        if self._broken:
            self.raise_if_any()

    def warn(self, place: Place, key: str, message: str, hint: str) -> None:
        """Note that something should be mended though it works."""
        error = ConfigError(message, file=place.file, line=place.line, key=key)
        self._warnings.append(f"{error}. {hint}")

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._warnings)

    def raise_if_any(self) -> None:
        """Raise what was found, in the order of the files; return when there is nothing."""
        problems = sorted(self._problems.values(), key=_reading_order)
        if len(problems) == 1:
            raise problems[0]
        if problems:
            raise ConfigErrors(problems)


def _reading_order(error: ConfigError) -> tuple[bool, str, int]:
    return error.file == ENVIRONMENT, error.file, error.line


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, or an empty text."""
    from difflib import get_close_matches

    spelled = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(word.lower(), spelled, n=1, cutoff=0.6)
    return spelled[found[0]] if found else ""


def suggestion(word: str, known: Sequence[str]) -> str:
    """A sentence that helps with an unknown word: the nearest one, or all there are."""
    near = nearest(word, known)
    return f"Did you mean '{near}'?" if near else f"Known here: {', '.join(known)}."


LARGEST = 1 << 20
"""Bytes; a file beyond this was not written by a person."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class OwnFile:
    """What a file says. `exposed`: others than the owner may read it."""

    text: str
    exposed: bool


def read_own_file(path: Path, findings: Findings) -> OwnFile | None:
    """The file, or None where it is absent or, as a finding then says, of no use."""
    place = Place(str(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                findings.broken(place, "is not a plain file", "Move it away.")
                return None
            raw = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except PermissionError:
        hint = f"Make it yours: `chmod 600 {shlex.quote(str(path))}`, or run nanobot as the user"
        findings.broken(place, "cannot be read: permission denied", f"{hint} who owns it.")
        return None
    except OSError as error:
        findings.broken(place, *_unreadable(path, error))
        return None
    if len(raw) > LARGEST:
        findings.broken(place, "is larger than 1 MiB", "This is not a configuration.")
        return None
    text = _decoded(raw, place, findings)
    return None if text is None else OwnFile(text, bool(status.st_mode & 0o077))


def exists(path: Path) -> bool:
    """Whether there is anything at `path` that can be reached."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def _unreadable(path: Path, error: OSError) -> tuple[str, str]:
    if isinstance(error, IsADirectoryError):
        return "is a folder, not a file", "Move it away."
    if isinstance(error, NotADirectoryError):
        return f"cannot be read: {path.parent} is not a folder", "Check NANOBOT_HOME."
    return f"cannot be read: {error.strerror}", "Check the path and the disk."


def _decoded(raw: bytes, place: Place, findings: Findings) -> str | None:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        findings.broken(
            Place(place.file, line), "is not UTF-8 text", "Save the file with encoding UTF-8."
        )
        return None
    if control := _CONTROL.search(text):
        line = text.count("\n", 0, control.start()) + 1
        findings.broken(
            Place(place.file, line),
            "holds a control character, which cannot be seen",
            "Delete the line and type it again.",
        )
        return None
    return text
