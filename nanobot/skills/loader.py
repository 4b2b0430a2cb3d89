"""What a skill lacks here, and how to get it. Pure but for the look-ups that it is given.

`state/skills.json`: which skills the owner enabled, in exactly which form, and which they do not
want.

Invariant: a file that cannot be read in every detail enables nothing (see `StateDocument`).

Finding skills: those in the workspace, over those that are built in.

What always holds: a workspace skill is `enabled` only while every file in its folder is as it was
when the owner enabled it. What may be read of one is what was hashed in the same moment. The folder
is looked at anew each time, and read again only where something changed. Blocks, shortly unless a
large skill changed; may be used from several threads.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from loguru import logger

from nanobot.errors import NanobotError, ToolError
from nanobot.security.documents import StateDocument, UnfitDocument, versioned_object
from nanobot.security.names import printable, visible
from nanobot.security.paths import Place, Root
from nanobot.skills import folder as folders
from nanobot.skills.folder import (
    FOLDER,
    Contents,
    Fingerprint,
    Header,
    NotASkill,
    Skill,
    SkillFile,
    Unreadable,
    differences,
    is_skill_name,
    parse,
)
from nanobot.tooling.policy import OWNER

_SYSTEMS = {"darwin": "macOS", "linux": "Linux", "win32": "Windows"}
_MOST_HINT = 120


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is there: `which` finds a program by its name as commands would, `environ` gives the
    names of the variables that commands see, `system` is the operating system."""

    which: Callable[[str], str | None] = shutil.which
    environ: Callable[[], Collection[str]] = tuple
    system: str = sys.platform


def lacking(header: Header, here: Surroundings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a skill needs and does not find, and how to get that: a line each."""
    wanted = header.requires
    if wanted.systems and here.system not in wanted.systems:
        names = " or ".join(_SYSTEMS.get(name, name) for name in wanted.systems)
        return (f"a computer with {names}",), ()
    missing = [name for name in wanted.bins if not _found(name, here)]
    if wanted.any_bins and not any(_found(name, here) for name in wanted.any_bins):
        missing.append(" or ".join(wanted.any_bins))
    hints = [header.install[0][:_MOST_HINT]] if missing and header.install else []
    if missing and not hints:
        hints.append(f"a package that brings {missing[0]}")
    known = here.environ()
    for name in wanted.env:
        if name not in known:
            missing.append(f"${name}")
            hints.append(f"set {name} under tools.exec.environment")
    return tuple(missing), tuple(hints)


def _found(name: str, here: Surroundings) -> bool:
    # A name with a slash would be looked for as a path, relative to wherever nanobot runs.
    return "/" not in name and here.which(name) is not None


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


MOST_SKILLS = 200
"""Folders in the workspace that are looked at, by name."""

BUILT_IN = Path(__file__).with_name("builtin")


@dataclass(frozen=True, slots=True)
class _Scan:
    """What a folder held when it was read; `problem` where it is no skill."""

    files: tuple[SkillFile, ...] = ()
    header: Header = field(default_factory=Header)
    body: str = ""
    problem: str = ""


class SkillsLoader:
    """The skills of a home. `state` is the file that holds what the owner enabled, `here` what
    requirements are compared with, `unwanted` are names that the configuration turns off."""

    def __init__(
        self,
        workspace: Root,
        state: Path,
        *,
        builtin: Path = BUILT_IN,
        here: Surroundings | None = None,
        unwanted: Collection[str] = (),
    ) -> None:
        self._workspace, self._builtin = workspace, builtin
        self._here = here or Surroundings()
        self._unwanted = frozenset(unwanted)
        self._scans: dict[str, tuple[Fingerprint, _Scan]] = {}
        self._packaged: Mapping[str, _Scan] | None = None
        self._warned = ""
        self._lock = threading.RLock()
        self.state = StateFile(state)

    def list(self) -> tuple[Skill, ...]:
        """All there are, by name; one in the workspace stands before a built-in one of the same
        name, which is in use as long as the other is not enabled."""
        with self._lock:
            found = [self._own(place, self.state.book) for place in self._folders()]
            found += [self._packed(name, scan) for name, scan in self._shipped().items()]
        return tuple(sorted(found, key=lambda skill: (skill.name, skill.source != "workspace")))

    def in_use(self, scope: str = OWNER) -> tuple[Skill, ...]:
        """Those that the model may have when it answers for `scope`, one of each name."""
        chosen: dict[str, Skill] = {}
        for skill in self.list():
            if skill.enabled and (scope == OWNER or skill.everyone):
                chosen.setdefault(skill.name, skill)
        return tuple(chosen.values())

    def find(self, name: str) -> Skill | None:
        """The skill that the owner means by `name`: the one in the workspace, else a built-in."""
        return next((skill for skill in self.list() if skill.name == name), None)

    def read(self, skill: Skill, path: str = "") -> bytes:
        """A file of an enabled skill, or the Markdown of its SKILL.md, as it was enabled.

        Raises `ToolError` where there is no such file, or where the skill was changed since.
        """
        contents = self._contents(skill, path)
        if not path:
            return parse(contents.main)[1].encode()
        if path not in contents.kept:
            known = ", ".join(file.path for file in skill.files[:20])
            raise ToolError(f"the skill {skill.name} has no file of that name", hint=f"Is: {known}")
        return contents.kept[path]

    def place_of(self, name: str) -> Place:
        """Where the skill `name` is in the workspace, or would be."""
        return self._workspace.place(f"{FOLDER}/{name}")

    def _contents(self, skill: Skill, path: str) -> Contents:
        if skill.source == "built-in":
            return folders.read_packaged(self._builtin / skill.name)
        enabled = self.state.book.enabled.get(skill.name)
        try:
            contents = folders.read(self.place_of(skill.name), lambda name: name == path)
        except Unreadable as error:
            raise ToolError(f"the skill {skill.name} cannot be read any more") from error
        if enabled is None or contents.digests != enabled.files:
            raise ToolError(
                f"the skill {skill.name} was changed since the owner enabled it and is not used",
                hint=f"They can look at it and enable it with `nanobot skills enable {skill.name}`",
            )
        return contents

    def _folders(self) -> tuple[Place, ...]:
        home = self._workspace.place(FOLDER)
        try:
            if home.stat() is None:
                return ()
            entries = home.entries()
        except NanobotError as error:
            self._warn(f"the skills of the workspace cannot be read: {error}")
            return ()
        names = [e.name for e in entries if e.kind == "folder" and not e.name.startswith(".")]
        if len(names) > MOST_SKILLS:
            self._warn(f"only {MOST_SKILLS} of {len(names)} skills are looked at")
        return tuple(home.child(name) for name in names[:MOST_SKILLS])

    def _own(self, place: Place, book: Book) -> Skill:
        """A skill of the workspace, judged by what the owner enabled."""
        name = place.names[-1]
        if not is_skill_name(name):
            problem = "skills are named with ASCII letters, digits and - _ ."
            return Skill(printable(name), "workspace", "broken", problem=problem)
        scan = self._scanned(place)
        enabled = book.enabled.get(name)
        found = Skill(
            name, "workspace", "new", scan.header, scan.body, place.relative, scan.files,
            warnings=_warnings(name, scan), problem=scan.problem,
            everyone=enabled is not None and enabled.everyone,
        )  # fmt: skip
        if scan.problem:
            return replace(found, status="broken")
        found = self._complete(found)
        if self._is_unwanted(name, book):
            return replace(found, status="disabled")
        if enabled is None:
            return found
        if changes := differences(enabled.files, scan.files):
            return replace(found, status="changed", changes=changes)
        return replace(found, status="enabled")

    def _packed(self, name: str, scan: _Scan) -> Skill:
        unwanted = self._is_unwanted(name, self.state.book)
        found = Skill(
            name, "built-in", "disabled" if unwanted else "enabled", scan.header, scan.body,
            files=scan.files, everyone=True,
        )  # fmt: skip
        return self._complete(found)

    def _complete(self, skill: Skill) -> Skill:
        missing, install = lacking(skill.header, self._here)
        return replace(skill, missing=missing, install=install)

    def _is_unwanted(self, name: str, book: Book) -> bool:
        return name in self._unwanted or name in book.disabled

    def _scanned(self, place: Place) -> _Scan:
        """The folder as it is now, read again only where its fingerprint differs."""
        name, mark = place.names[-1], folders.fingerprint(place)
        known = self._scans.get(name)
        if known is not None and known[0] == mark:
            return known[1]
        scan = _scan_of(partial(folders.read, place))
        self._scans[name] = mark, scan
        return scan

    def _shipped(self) -> Mapping[str, _Scan]:
        if self._packaged is None:
            places = sorted(path for path in self._builtin.iterdir() if path.is_dir())
            self._packaged = {
                path.name: _scan_of(partial(folders.read_packaged, path))
                for path in places
                if is_skill_name(path.name)
            }
        return self._packaged

    def _warn(self, problem: str) -> None:
        """Said once: the folder is looked at with every message."""
        if problem != self._warned:
            self._warned = problem
            logger.warning("{}", problem)


def _scan_of(read: Callable[[], Contents]) -> _Scan:
    files: tuple[SkillFile, ...] = ()
    try:
        contents = read()
        files = contents.files
        header, body = parse(contents.main)
    except (Unreadable, NotASkill) as error:
        return _Scan(files, problem=str(error))
    return _Scan(files, header, body)


def _warnings(name: str, scan: _Scan) -> tuple[str, ...]:
    """What the owner should know before they enable it."""
    told = []
    if scan.header.name and scan.header.name != name:
        told.append(f"it calls itself {printable(scan.header.name)}; here it is {name}")
    if visible(text := scan.header.description + scan.body) != text:
        told.append("it holds characters that cannot be seen; they are shown as escapes")
    return tuple(told)
