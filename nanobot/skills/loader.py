"""Finding skills: those in the workspace, over those that are built in.

What always holds: a workspace skill is `enabled` only while every file in its folder is as it was
when the owner enabled it. What may be read of one is what was hashed in the same moment. The folder
is looked at anew each time, and read again only where something changed. Blocks, shortly unless a
large skill changed; may be used from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from loguru import logger

from nanobot.errors import NanobotError, ToolError
from nanobot.security.names import printable, visible
from nanobot.security.paths import Place, Root
from nanobot.skills import folder as folders
from nanobot.skills.folder import Contents, Fingerprint, Unreadable
from nanobot.skills.frontmatter import NotASkill, parse
from nanobot.skills.needs import Surroundings, lacking
from nanobot.skills.state import Book, StateFile
from nanobot.skills.values import FOLDER, Header, Skill, SkillFile, differences, is_skill_name
from nanobot.tooling.policy import OWNER

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
