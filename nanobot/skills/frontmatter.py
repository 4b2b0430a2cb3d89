"""SKILL.md: YAML between two lines of `---`, then Markdown. Pure.

The format is that of Agent Skills (agentskills.io), read as others write it: requirements may stand
at the top or under `metadata.<agent>`, lists may be texts with commas, and a value with a colon in
it need not be quoted. What is unknown is passed over. Nothing is executed and no type is guessed:
every scalar is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import yaml

from nanobot.skills.values import Header, Requirements

MOST_FRONT = 10_000
"""Characters of front matter."""

_MOST_BRACKETS = 300
"""The parser takes a time that grows with the square of how deep they are nested."""

_AGENTS = ("nanobot", "openclaw", "clawdbot", "clawdis")
"""Whose entries under `metadata` are understood."""

_MOST_DESCRIPTION, _MOST_TEXT, _MOST_ITEMS = 1_024, 200, 40
_PLAIN = re.compile(r"([A-Za-z][\w-]*):[ \t]+(?![\"'\[{|>&*!%#@`])(.*\S)\s*")
_INSTALLERS: Mapping[str, tuple[str, str]] = {
    "apt": ("package", "apt-get install {}"),
    "uv": ("package", "uv tool install {}"),
    "pip": ("package", "pip install {}"),
    "node": ("package", "npm install -g {}"),
    "npm": ("package", "npm install -g {}"),
    "go": ("module", "go install {}"),
    "cargo": ("package", "cargo install {}"),
    "brew": ("formula", "brew install {}"),
}
"""By kind: which field names what is installed, and the command. On Linux the first is best."""

_SYSTEMS = {"macos": "darwin", "windows": "win32"}


class NotASkill(Exception):
    """The text is no SKILL.md; says why."""


def parse(text: str) -> tuple[Header, str]:
    """The header and the Markdown below it. Raises `NotASkill`."""
    front, body = _split(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    fields = _loaded(front)
    description = _text(fields.get("description"), _MOST_DESCRIPTION)
    if not description:
        raise NotASkill("its SKILL.md has no description")
    places = [fields, *_metadata(fields.get("metadata"))]
    header = Header(
        name=_text(fields.get("name")),
        description=description,
        triggers=_first_list(places, "triggers"),
        always=any(_is_true(place.get("always")) for place in places),
        requires=_requirements(places),
        install=_install(places),
        license=_text(fields.get("license")),
        compatibility=_text(fields.get("compatibility"), 500),
    )
    return header, body.strip()


def _split(text: str) -> tuple[str, str]:
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise NotASkill("its SKILL.md does not begin with a line of ---")
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() in {"---", "..."}:
            front = "\n".join(lines[1:number])
            if len(front) > MOST_FRONT:
                raise NotASkill("the front matter of its SKILL.md is too long")
            return front, "\n".join(lines[number + 1 :])
    raise NotASkill("the front matter of its SKILL.md has no end, a line of ---")


def _loaded(front: str) -> Mapping[str, object]:
    try:
        fields = _yaml(front)
    except yaml.YAMLError:
        try:
            fields = _yaml(_quoted(front))
        except yaml.YAMLError as error:
            problem = getattr(error, "problem", "") or "it is not YAML"
            raise NotASkill(f"the front matter of its SKILL.md: {problem}") from error
    if not isinstance(fields, dict):
        raise NotASkill("the front matter of its SKILL.md has no fields")
    return fields


def _yaml(text: str) -> object:
    if text.count("[") + text.count("{") > _MOST_BRACKETS:
        raise yaml.YAMLError("it has too many brackets")
    try:
        # Makes texts, lists and mappings of texts, and nothing else.
        return yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506
    except RecursionError as error:
        raise yaml.YAMLError("it is nested too deeply") from error


def _quoted(front: str) -> str:
    """With every plain value at the top in quotes: `description: Use when: …` is common."""
    lines = (_PLAIN.fullmatch(line) or line for line in front.split("\n"))
    return "\n".join(
        line if isinstance(line, str) else f"{line[1]}: {json.dumps(line[2])}" for line in lines
    )


def _metadata(value: object) -> list[Mapping[str, object]]:
    """`metadata` and what agents keep under their name in it; some write it as JSON in a text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    if not isinstance(value, dict):
        return []
    inner = [value.get(agent) for agent in _AGENTS]
    return [value, *(place for place in inner if isinstance(place, dict))]


def _requirements(places: Sequence[Mapping[str, object]]) -> Requirements:
    wanted = [place["requires"] for place in places if isinstance(place.get("requires"), dict)]
    inner = [place for place in wanted if isinstance(place, dict)]
    systems = _first_list([*inner, *places], "os")
    return Requirements(
        bins=_first_list(inner, "bins"),
        any_bins=_first_list(inner, "anyBins"),
        env=_first_list(inner, "env"),
        systems=tuple(_SYSTEMS.get(name.lower(), name.lower()) for name in systems),
    )


def _install(places: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    given = next((place["install"] for place in places if place.get("install")), None)
    items = given if isinstance(given, list) else [given]
    known: list[tuple[int, str]] = []
    for item in items[:_MOST_ITEMS]:
        if isinstance(item, dict):
            known.append(_step(item))
        elif text := _text(item):
            known.append((0, text))
    return tuple(text for _, text in sorted(known, key=lambda step: step[0]) if text)


def _step(item: Mapping[str, object]) -> tuple[int, str]:
    """How good one entry of an install list is on this system (0 is best), and its command."""
    kind = _text(item.get("kind"))
    if kind in _INSTALLERS:
        field, command = _INSTALLERS[kind]
        if what := _text(item.get(field)):
            return list(_INSTALLERS).index(kind), command.format(what)
    return len(_INSTALLERS), _text(item.get("label"))


def _first_list(places: Sequence[Mapping[str, object]], key: str) -> tuple[str, ...]:
    return next((found for place in places if (found := _list(place.get(key)))), ())


def _list(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list):
        return ()
    return tuple(dict.fromkeys(text for item in items[:_MOST_ITEMS] if (text := _text(item))))


def _is_true(value: object) -> bool:
    """YAML gives texts, JSON in a text gives booleans."""
    return value is True or (isinstance(value, str) and value.lower() in {"true", "yes", "on"})


def _text(value: object, most: int = _MOST_TEXT) -> str:
    """A text on one line; empty for anything else."""
    return " ".join(value.split())[:most].rstrip() if isinstance(value, str) else ""
