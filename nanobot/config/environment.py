"""What the environment says: `${VAR}` inside values, and `NANOBOT_SECTION__KEY` for one key.

`secrets.env` stands in for variables that the environment lacks; the environment wins.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nanobot.config.document import (
    ENVIRONMENT,
    Document,
    KeyPath,
    Place,
    Value,
    dotted,
    nearest,
    read_own_file,
)

_ENTRY = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)", re.DOTALL)


_BOM = "\ufeff"
"""What some editors put at the beginning of a file."""


def fits(value: str) -> bool:
    """Whether a value can stand on a line: without line breaks of any kind, which would let it say
    more than itself, and invisible characters."""
    return value.isprintable()


def entry_in(line: str) -> tuple[str, str] | None:
    """The name and the value in a line, with `export` before and quotes around taken off; None
    where there are none."""
    found = _ENTRY.fullmatch(line)
    return (found[1], _unquoted(found[2].strip())) if found else None


def entries(text: str) -> dict[str, str]:
    """The values by name."""
    found = map(entry_in, text.removeprefix(_BOM).splitlines())
    return dict(entry for entry in found if entry)


def with_entries(text: str, values: Mapping[str, str]) -> str:
    """`text` with these values in it; other lines stay as they are. Raises `ValueError` for a value
    that does not fit."""
    start = _BOM if text.startswith(_BOM) else ""
    lines = text.removeprefix(_BOM).splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    for name, value in values.items():
        if not fits(value):
            raise ValueError(f"{name} does not fit on a line")
        entries_at = ((at, entry_in(line)) for at, line in enumerate(lines))
        known = (at for at, entry in entries_at if entry and entry[0] == name)
        at = next(known, len(lines))
        lines[at : at + 1] = [f"{name}={_quoted(value)}\n"]
    return start + "".join(lines)


def _quoted(value: str) -> str:
    """A value whose own quotes, or blanks at its ends, are not taken for the file's."""
    if value == value.strip() and _unquoted(value) == value:
        return value
    return f"'{value}'" if '"' in value else f'"{value}"'


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


PREFIX = "NANOBOT_"
HOME = "NANOBOT_HOME"
DEBUG = "NANOBOT_DEBUG"
"""Makes the command line show where an unexpected error came from; no setting, but ours."""

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)\})?")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable and where it was set."""

    value: str
    place: Place


def gather(environ: Mapping[str, str], secrets: Path, document: Document) -> Mapping[str, Variable]:
    """All variables: those of `secrets`, and over them those of the environment."""
    variables = _read_secrets(secrets, document)
    for name, value in environ.items():
        variables[name] = Variable(value, Place(ENVIRONMENT, variable=name))
    return variables


def _read_secrets(path: Path, document: Document) -> dict[str, Variable]:
    """KEY=VALUE lines; `#` begins a comment."""
    text, exposed = read_own_file(path, document) or ("", False)
    variables: dict[str, Variable] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        place = Place(str(path), number)
        if (entry := entry_in(line)) is None:
            document.problem_at(
                place, "", "is not a KEY=VALUE line", "Write NAME=value, one a line."
            )
            continue
        name, value = entry
        if name in variables:
            document.problem_at(place, name, "stands here a second time", "Keep one of the two.")
        elif name == HOME:
            hint = "This file is found through it; set it in the environment."
            document.problem_at(place, name, "cannot be set here", hint)
        else:
            variables[name] = Variable(value, Place(str(path), number, name))
    if exposed and variables:
        hint = f"Make it yours: `chmod 600 {shlex.quote(str(path))}`."
        document.warn_at(Place(str(path)), "", "holds secrets and can be read by other users", hint)
    return variables


def expand(document: Document, variables: Mapping[str, Variable], secrets: Path) -> None:
    """Put variables in place of `${NAME}` in all values, keys excepted; `$${` stands for `${`."""

    def expanded(value: Value, path: KeyPath) -> Value:
        match value:
            case str() if "${" in value:
                return _REFERENCE.sub(lambda match: replacement(match, path), value)
            case list():
                return [expanded(item, (*path, index)) for index, item in enumerate(value)]
            case dict():
                return {key: expanded(item, (*path, key)) for key, item in value.items()}
        return value

    def replacement(match: re.Match[str], path: KeyPath) -> str:
        if match[0] == "$${":
            return "${"
        document.from_variables.add(path)
        name = match["name"] or ""
        if name in variables:
            return variables[name].value
        message, hint = _unknown_variable(name, variables, secrets)
        document.problem_at(document.place(path), dotted(path), message, hint)
        # Never looked at: the problem stops everything. Not empty, or it would seem left out.
        return "unknown"

    document.values = {key: expanded(value, (key,)) for key, value in document.values.items()}


def _unknown_variable(name: str, known: Iterable[str], secrets: Path) -> tuple[str, str]:
    if not name:
        hint = "Write ${NAME} with letters, digits and '_', or $${ for the characters ${."
        return "'${' begins no variable's name", hint
    near = nearest(name, known)
    start = f"Did you mean {near}? Otherwise set" if near else "Set"
    hint = f"{start} it in the environment, or add a line {name}=… to {secrets}."
    return f"the variable {name} is not set", hint


def variable_for(path: Sequence[str]) -> str:
    """The variable that overrides the key at `path`."""
    return PREFIX + "__".join(path).upper()


def override(
    document: Document, variables: Mapping[str, Variable], known: Iterable[Sequence[str]]
) -> None:
    """Put the values of NANOBOT_… variables over the document's.

    `known` are the keys there are; beneath `channels` and `owner` any is let through, as channels
    are open to adapters and have keys of their own, which are checked later.
    """
    paths: dict[str, Sequence[str]] = {variable_for(path): path for path in known}
    for name in sorted(variables):
        if not name.startswith(PREFIX) or name in (HOME, DEBUG):
            continue
        place = variables[name].place
        if path := paths.get(name) or _channel_path(name):
            from nanobot.config.yamltext import parse_override  # brings PyYAML: rarely needed

            value = parse_override(variables[name].value, place, tuple(path), document)
            document.override(path, value, place)
        else:
            ends = [one.removeprefix(PREFIX) for one in (*paths, HOME)]
            near = nearest(name.removeprefix(PREFIX), ends)
            hint = f"Did you mean {PREFIX}{near}?" if near else "See `nanobot config schema`."
            document.problem_at(place, name, "no key is set by this variable", hint)


def _channel_path(name: str) -> Sequence[str]:
    path = name.removeprefix(PREFIX).lower().split("__")
    fits = len(path) > 2 if path[0] == "channels" else path[0] == "owner" and len(path) == 2
    return path if fits and all(path) else ()
