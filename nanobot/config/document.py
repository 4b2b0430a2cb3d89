"""A configuration as written: its values, their places, and its problems.

Scalars stay the text that a person wrote. The field that takes a scalar decides its meaning, so
`timestamps: off` is the word off, `allow_from: [+4915]` keeps its plus and `0123` its zero; YAML's
own guesses would turn these into False, 4915 and 83.

Problems are collected and reported together. Only the first problem of each key at each place is
kept, because its consequences would only confuse."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from nanobot.errors import ConfigError
from nanobot.validation import Checked, KeyPath, examine, format_key

C = TypeVar("C", bound=Checked)

ENVIRONMENT = "environment"
"""Replaces the file name for values from the process environment."""

Value = str | list["Value"] | dict[str, "Value"] | None
"""None: a key without a value, which gets its default."""


class ConfigPlace(Struct, frozen=True):
    """Place of a value. `line` is 1-based, 0 for the file as a whole.

    `variable` names the environment variable that supplied it as an override."""

    file: str
    line: int = 0
    variable: str = ""


class ConfigErrors(ConfigError):
    """All problems. File, line, key and hint are the first one's. The text lists all."""

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        first = problems[0]
        super().__init__("", file=first.file, line=first.line, key=first.key, hint=first.hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))

    def for_people(self) -> str:
        """Return every problem, followed by its fix."""
        return "\n".join(problem.for_people() for problem in self.problems)


class ConfigDocument:
    """Values of a configuration, the places of its keys by path, and its problems, which keep
    nanobot from starting, and warnings, which do not. `home` is nanobot's own folder. `texts`
    replace the files in it by name, if given."""

    def __init__(
        self, file: str, home: Path = Path(), texts: Mapping[str, str] | None = None
    ) -> None:
        self.home, self.texts = home, texts
        self.values: dict[str, Value] = {}
        self.places: dict[KeyPath, ConfigPlace] = {(): ConfigPlace(file)}
        self.spans: dict[KeyPath, tuple[int, int]] = {}
        """Positions of texts in a file: start and end."""
        self.from_variables: set[KeyPath] = set()
        """Texts that contain a reference to a variable."""
        self.warnings: tuple[str, ...] = ()
        self._problems: dict[tuple[str, int, str], ConfigError] = {}
        self.is_broken = False
        """True if a file cannot be used, so that its missing keys are not reported as well."""

    def get(self, path: KeyPath) -> Value:
        """Return the value at `path`, or None."""
        found: Value = self.values
        for step in path:
            if isinstance(found, dict) and isinstance(step, str):
                found = found.get(step)
            elif isinstance(found, list) and isinstance(step, int) and step < len(found):
                found = found[step]
            else:
                return None
        return found

    def section(self, path: KeyPath) -> dict[str, Value]:
        """Return the section at `path`, empty if missing. A value in its place is a problem."""
        value = self.get(path)
        if isinstance(value, dict):
            return value
        if value is not None:
            hint = f"Write `{path[-1]}:`, with its keys on indented lines below it."
            self.problem(path, "must be a section with keys", hint)
        return {}

    def check(
        self,
        model: type[C],
        section: Mapping[str, Value],
        path: KeyPath,
        also_known: Sequence[str] = (),
    ) -> C | None:
        """Return `section`, which is at `path`, as a `model`, or None if it has problems.

        `also_known` are keys of the section that another model checks."""
        made, faults = examine(model, drop_empty(dict(section)), self.home, also_known)
        for fault in faults:
            where = (*path, *fault.key)
            self.problem(where, fault.message, fault.hint, is_doubtful=fault.is_doubtful)
        return made

    def place(self, path: KeyPath) -> ConfigPlace:
        """Return the place of the key at `path`, or of the section that lacks it."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path]

    def override(self, path: Sequence[str], value: Value, place: ConfigPlace) -> None:
        """Put `value` at `path`, and create missing sections on the way. A text in place of a
        section is kept, because it is reported as an error."""
        section = self.values
        for key in path[:-1]:
            inner = section.get(key)
            if inner is None:
                inner = section[key] = {}
            if not isinstance(inner, dict):
                return
            section = inner
        section[path[-1]] = value
        where = tuple(path)
        self.places = {key: at for key, at in self.places.items() if key[: len(where)] != where}
        self.places[where] = place

    def problem(
        self, path: KeyPath, message: str, hint: str = "", *, is_doubtful: bool = False
    ) -> None:
        """Record a problem with the key at `path`. A doubtful one is only a warning."""
        place = self.place(path)
        note = self.warn_at if is_doubtful else self.problem_at
        note(place, label(place, path), message, hint)

    def problem_at(self, place: ConfigPlace, key: str, message: str, hint: str = "") -> None:
        """Record a problem with `key`, dotted as in `model.name`."""
        error = ConfigError(message, file=place.file, line=place.line, key=key, hint=hint)
        self._problems.setdefault((place.file, place.line, key), error)

    def file_problem(self, place: ConfigPlace, message: str, hint: str, key: str = "") -> None:
        """Record that a file cannot be used."""
        self.problem_at(place, key, message, hint)
        self.is_broken = True

    def warn_at(self, place: ConfigPlace, key: str, message: str, hint: str) -> None:
        """Record something that works but should be fixed."""
        error = ConfigError(message, file=place.file, line=place.line, key=key)
        self.warnings += (f"{error}. {hint}",)

    def raise_if_any(self) -> None:
        """Raise `ConfigErrors` for all problems, if any. Problems of files come first."""

        def order(error: ConfigError) -> tuple[bool, str, int]:
            return error.file == ENVIRONMENT, error.file, error.line

        if problems := sorted(self._problems.values(), key=order):
            raise ConfigErrors(problems)


def drop_empty(value: Value) -> Any:
    """Return a value without keys that have no value."""
    if isinstance(value, list):
        return [drop_empty(item) for item in value]
    if isinstance(value, dict):
        return {key: drop_empty(item) for key, item in value.items() if item is not None}
    return value


def label(place: ConfigPlace, path: KeyPath) -> str:
    """Return the key at `path` as its writer knows it: dotted, or the variable that supplied it
    followed by the path within its value."""
    if not place.variable:
        return format_key(path)
    inner = format_key(path[place.variable.count("__") + 1 :])
    return f"{place.variable}{'.' if inner and inner[0] != '[' else ''}{inner}"


LARGEST = 1 << 20
"""Bytes. No person writes a larger file."""

_UNFIT = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]"
"""Invalid in a person's text: control characters, and bytes that are not UTF-8."""


def read_own_file(path: Path, document: ConfigDocument) -> tuple[str, bool] | None:
    """Return the text of a file, and whether users other than its owner may read it. None if it is
    absent, or unusable, which is recorded as a problem."""
    file, line, raw, exposed = str(path), 0, None, False
    message, hint = "is not a regular file of at most 1 MiB", "Move it away."
    try:
        if document.texts is not None:
            raw = document.texts[path.name].encode("utf-8", "surrogatepass")
        else:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as opened:
                status, me = os.fstat(opened.fileno()), os.geteuid()
                if status.st_uid not in (0, me, path.parent.stat().st_uid):
                    message = f"belongs to user {status.st_uid}, who can change it at any time"
                    own = f"If you wrote it, run `sudo chown {me} {shlex.quote(file)}`."
                    document.file_problem(
                        ConfigPlace(file), message, f"{own} Otherwise, move it away."
                    )
                    return None
                raw = opened.read(LARGEST + 1) if stat.S_ISREG(status.st_mode) else None
                exposed = bool(status.st_mode & 0o077)
    except (FileNotFoundError, KeyError):
        return None
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        hint = "Check NANOBOT_HOME, the path, and the disk."
        if isinstance(error, PermissionError):
            own = f"Run `chmod 600 {shlex.quote(file)}`"
            hint = f"{own}, or run nanobot as its owner."
    if raw is not None and len(raw) <= LARGEST:
        text = raw.decode("utf-8-sig", "surrogateescape")
        wrong = re.search(_UNFIT, text)
        if wrong is None:
            return text, exposed
        line = text.count("\n", 0, wrong.start()) + 1
        message, hint = "is not UTF-8 text", "Type the line again, and save the file as UTF-8."
    document.file_problem(ConfigPlace(file, line), message, hint)
    return None
