"""The format of a skill: a folder with a SKILL.md (YAML between two lines of `---`, then Markdown)
and its other files.

The format is Agent Skills (agentskills.io), with common variations: requirements may be at the top
or under `metadata.<agent>`, lists may be texts with commas, and values with a colon need no quotes.
Unknown fields are ignored. Nothing is executed, and every scalar is text.

The owner enables every file in the folder, so all of it is read. Invariants: links are not followed
and nothing beyond the limits is read. A folder with either is not a skill. The returned bytes are
the hashed bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from nanobot.errors import NanobotError
from nanobot.security.paths import Place
from nanobot.text import escape_invisible, printable

Source = Literal["workspace", "built-in"]

Status = Literal["enabled", "new", "changed", "disabled", "broken"]
"""`new`: not enabled yet. `changed`: a file differs from the enabled version. `disabled`: by the
owner. `broken`: not readable as a skill."""

Kind = Literal["text", "script", "binary"]

FOLDER = "skills"
"""The folder of skills in the workspace."""

MAIN = "SKILL.md"

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"


class SkillFile(Struct, frozen=True):
    """A file of a skill: its path in the folder, size in bytes, SHA-256 in hex, and kind."""

    path: str
    size: int
    digest: str
    kind: Kind


class Requirements(Struct, frozen=True):
    """Requirements of a skill: all `bins`, one of `any_bins` if any, all variables in `env`, and
    one of the operating `systems` (`linux`, `darwin`) if any."""

    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()


class Header(Struct, frozen=True):
    """The front matter of a SKILL.md. `install` has commands or sentences."""

    name: str = ""
    description: str = ""
    triggers: tuple[str, ...] = ()
    always: bool = False
    requires: Requirements = field(default_factory=Requirements)
    install: tuple[str, ...] = ()
    license: str = ""
    compatibility: str = ""


class Skill(Struct, frozen=True):
    """A skill on disk.

    `folder` is its path in the workspace, empty for a built-in skill, which has only text. `body`
    is SKILL.md without front matter. `missing` lists unmet requirements. `problem` is the reason if
    it is broken, `changes` the differences from the enabled version. `everyone`: it also serves
    people other than the owner."""

    name: str
    source: Source
    status: Status
    header: Header = field(default_factory=Header)
    body: str = ""
    folder: str = ""
    files: tuple[SkillFile, ...] = ()
    missing: tuple[str, ...] = ()
    problem: str = ""
    changes: tuple[str, ...] = ()
    everyone: bool = False

    @property
    def is_enabled(self) -> bool:
        return self.status == "enabled"

    @property
    def available(self) -> bool:
        """True if it is enabled and nothing is missing."""
        return self.is_enabled and not self.missing

    @property
    def digest(self) -> str:
        files = sorted((file.path, file.digest) for file in self.files)
        return hashlib.sha256(json.dumps(files).encode()).hexdigest()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the owner before they enable it."""
        found = []
        if self.header.name and self.header.name != self.name:
            found.append(
                f"its {MAIN} calls it {printable(self.header.name)}, but its folder is named "
                f"{self.name}"
            )
        if escape_invisible(text := self.header.description + self.body) != text:
            found.append("it contains invisible characters, which are shown as escapes")
        return tuple(found)


def compare_files(before: Mapping[str, str], files: Iterable[SkillFile]) -> tuple[str, ...]:
    """Return a line for each changed file: `changed: SKILL.md`."""
    now = {file.path: file.digest for file in files}
    lines = [f"changed: {path}" for path in before if path in now and now[path] != before[path]]
    lines += [f"added: {path}" for path in now if path not in before]
    lines += [f"removed: {path}" for path in before if path not in now]
    return tuple(sorted(lines))


def is_skill_name(text: str) -> bool:
    return re.fullmatch(_NAME, text) is not None


MOST_FRONT = 10_000
"""Characters of front matter."""

_MOST_BRACKETS = 300
"""The parser's time is quadratic in the nesting depth."""

_AGENTS = ("nanobot", "openclaw", "clawdbot", "clawdis")
"""Known keys under `metadata`."""

_MOST_DESCRIPTION, _MOST_TEXT, _MOST_ITEMS = 1_024, 200, 40
_FIRST = r"---[ \t]*\n"
_LAST = r"(?m)^(?:---|\.\.\.)[ \t]*$"
_PLAIN = r"(?m)^([A-Za-z][\w-]*):[ \t]+([^\s\"'\[{|>&*!%#@`](?:.*\S)?)[ \t]*$"
"""Takes linear time, like the patterns above."""
_SYSTEMS = {"macos": "darwin", "windows": "win32"}


class NotASkill(Exception):
    """Raised with the reason if a text is not a SKILL.md or a folder is not a skill."""


def parse(text: str) -> tuple[Header, str]:
    """Return the header and the Markdown below it. Raise `NotASkill`."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    first = re.match(_FIRST, text)
    last = re.compile(_LAST).search(text, first.end()) if first else None
    if first is None or last is None or last.start() - first.end() > MOST_FRONT:
        raise NotASkill(
            f"its {MAIN} does not begin with front matter: a line with ---, at most "
            f"{MOST_FRONT:,} characters, and another line with ---"
        )
    fields = parse_yaml(text[first.end() : last.start()])
    description = as_line(fields.get("description"), _MOST_DESCRIPTION)
    if not description:
        raise NotASkill("its SKILL.md has no description")
    places = [fields, *list_metadata(fields.get("metadata"))]
    wanted = [inner for place in places if isinstance(inner := place.get("requires"), dict)]
    systems = map(str.lower, find_first_list([*wanted, *places], "os"))
    # YAML yields texts, JSON in a text yields booleans.
    always = (str(place.get("always")).lower() for place in places)
    header = Header(
        name=as_line(fields.get("name")),
        description=description,
        triggers=find_first_list(places, "triggers"),
        always=not {"true", "yes", "on"}.isdisjoint(always),
        requires=Requirements(
            bins=find_first_list(wanted, "bins"),
            any_bins=find_first_list(wanted, "anyBins"),
            env=find_first_list(wanted, "env"),
            systems=tuple(_SYSTEMS.get(name, name) for name in systems),
        ),
        install=list_install_steps(places),
        license=as_line(fields.get("license")),
        compatibility=as_line(fields.get("compatibility"), 500),
    )
    return header, text[last.end() :].strip()


def parse_yaml(front: str) -> Mapping[str, object]:
    import yaml  # not needed at the start

    # `description: Use when: …` is common, so the second attempt quotes plain top-level values.
    quoted = re.sub(_PLAIN, lambda found: f"{found[1]}: {json.dumps(found[2])}", front)
    problem = "it has too many brackets"
    if front.count("[") + front.count("{") <= _MOST_BRACKETS:  # checked before the slow parser
        problem = "it has no fields"
        for text in (front, quoted):
            try:
                # BaseLoader makes only texts, lists and mappings.
                fields = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506
            except (yaml.YAMLError, RecursionError) as error:
                problem = getattr(error, "problem", "") or "it is not YAML"
                continue
            if isinstance(fields, dict):
                return fields
    raise NotASkill(f"the front matter of its {MAIN} is invalid: {problem}")


def list_metadata(value: object) -> list[Mapping[str, object]]:
    """Return `metadata` and its entries for known agents. It may be JSON in a text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    if not isinstance(value, dict):
        return []
    inner = [value.get(agent) for agent in _AGENTS]
    return [value, *(place for place in inner if isinstance(place, dict))]


def list_install_steps(places: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Return commands or sentences. Steps for machines have a `label` for people."""
    given = next((place["install"] for place in places if place.get("install")), None)
    steps = (given if isinstance(given, list) else [given])[:_MOST_ITEMS]
    texts = (as_line(step.get("label") if isinstance(step, dict) else step) for step in steps)
    return tuple(filter(None, texts))


def find_first_list(places: Sequence[Mapping[str, object]], key: str) -> tuple[str, ...]:
    for place in places:
        value = place.get(key)
        items = value.split(",") if isinstance(value, str) else value
        if isinstance(items, list):
            texts = filter(None, map(as_line, items[:_MOST_ITEMS]))
            if found := tuple(dict.fromkeys(texts)):
                return found
    return ()


def as_line(value: object, most: int = _MOST_TEXT) -> str:
    """Return a text on one line, or an empty text for any other value."""
    return " ".join(value.split())[:most].rstrip() if isinstance(value, str) else ""


MOST_FILES = 500
MOST_BYTES = 20_000_000
"""Of all files of a skill."""
MOST_MAIN = 256_000
"""Bytes of a SKILL.md."""

_SCRIPTS = (
    r"(?is).*\.((ba|c|fi|k|z)?sh|bat|cmd|command|exe|com|ps1|psm1|vbs|scpt|py[cwz]?|[cm]?[jt]sx?|cgi"
    r"|go|jar|lua|php|pl|r|rb|rs|so|tcl|wasm)|(docker|gem|just|make|rake)file"
    r"|(.*/)?scripts/(?!.*\.(md|txt)$).*"
)
"""Paths of executable files."""


Contents = Mapping[str, bytes]
"""The files of a folder by their relative paths."""


def read_main(contents: Contents) -> str:
    """Return the text of SKILL.md, in any case of the name. Raise `NotASkill`."""
    name = min(filter(is_main, contents), default="")
    if not name:
        raise NotASkill(f"it has no {MAIN}")
    if len(contents[name]) > MOST_MAIN:
        raise NotASkill(f"its {name} is too large")
    try:
        return contents[name].decode()
    except UnicodeDecodeError as error:
        raise NotASkill(f"its {name} is not UTF-8") from error


def is_main(path: str) -> bool:
    return path.casefold() == MAIN.casefold()


Fingerprint = tuple[tuple[str, str, int, int], ...]
"""Path, kind, size and change time of each entry. It changes with each ordinary change of a file,
and only saves reading again."""


def fingerprint(folder: Place) -> Fingerprint:
    """Return a value that changes if the folder must be read again."""
    return tuple(
        (place.relative, entry.kind, entry.size, entry.mtime_ns)
        for place, entry in folder.walk_tree(MOST_FILES + 1)
    )


def read(folder: Place) -> Contents:
    """Read the files below `folder`. Raise `NotASkill`."""
    room, skipped = MOST_BYTES, len(folder.names)
    contents: dict[str, bytes] = {}
    try:
        for number, (place, entry) in enumerate(folder.walk_tree(MOST_FILES + 1)):
            path = "/".join(place.names[skipped:])
            if number == MOST_FILES:
                raise NotASkill(f"it has more than {MOST_FILES:,} files")
            shown = printable(path)
            if entry.kind == "link":
                raise NotASkill(f"{shown} is a link, and links are not followed")
            if entry.kind == "other":
                raise NotASkill(f"{shown} is not a regular file")
            if shown != path:
                raise NotASkill(f"{shown} is not a valid file name in a skill")
            if entry.kind == "file":
                content = place.read_bytes(room)
                if content is None:
                    raise NotASkill(f"{path} was just removed")
                room -= len(content)  # the limit is for all files together
                contents[path] = content
    except NanobotError as error:  # a link, no permission, too much
        raise NotASkill(str(error)) from error
    return contents


def read_packaged(folder: Path) -> Contents:
    """Read a folder of the program itself, whose files may be hard links."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def skill_of(name: str, source: Source, read: Callable[[], Contents], folder: str = "") -> Skill:
    """Return a skill from its files: `new` or `broken`."""
    files: tuple[SkillFile, ...] = ()
    try:
        contents = read()
        files = describe_files(contents)
        header, body = parse(read_main(contents))
    except NotASkill as error:
        return Skill(name, source, "broken", folder=folder, files=files, problem=str(error))
    return Skill(name, source, "new", header, body, folder, files)


def describe_files(contents: Contents) -> tuple[SkillFile, ...]:
    """Return the metadata of the files, by path."""
    files: list[SkillFile] = []
    for path, content in sorted(contents.items()):
        kind: Kind = "binary" if b"\0" in content else "text"
        if re.fullmatch(_SCRIPTS, path) or content.startswith(b"#!"):
            kind = "script"  # even without an executable bit
        digest = hashlib.sha256(content).hexdigest()
        files.append(SkillFile(path, len(content), digest, kind))
    return tuple(files)
