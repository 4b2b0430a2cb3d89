"""Finds skills: those in the workspace, then the built-in ones. Checks their requirements and the
owner's record (the document `skills`).

Invariants:

- A workspace skill is `enabled` only while every file in its folder equals the enabled version. Its
  readable content was hashed in the same moment.
- If any detail of the document `skills` is unreadable, nothing is enabled (see `Document`).

The folder is checked each time, but read only after a change. Blocks, briefly unless a large skill
changed. Thread-safe."""

from __future__ import annotations

import json
import os.path
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from loguru import logger
from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from nanobot.bus.state import Document, InvalidDocument, StateStore, decode_versioned
from nanobot.errors import NanobotError, ToolError
from nanobot.programs import find
from nanobot.security.paths import Place, Root
from nanobot.skills.folder import (
    FOLDER,
    MAIN,
    Contents,
    Fingerprint,
    NotASkill,
    Requirements,
    Skill,
    Status,
    compare_files,
    describe_files,
    fingerprint,
    is_skill_name,
    parse,
    read,
    read_main,
    read_packaged,
    skill_of,
)
from nanobot.text import printable
from nanobot.tooling import OWNER

_SYSTEMS = {"darwin": "macOS", "linux": "Linux", "win32": "Windows"}


class SkillEnvironment(Struct, frozen=True):
    """The environment of skills: `which` finds a program as commands would, `environ` has the names
    of the commands' variables, `system` is the operating system."""

    which: Callable[[str], str | None] = find
    environ: Collection[str] = ()
    system: str = sys.platform

    def find_missing(self, wanted: Requirements) -> Iterator[str]:
        """Yield the unmet requirements."""
        if wanted.systems and self.system not in wanted.systems:
            names = " or ".join(_SYSTEMS.get(name, name) for name in wanted.systems)
            yield f"a computer with {names}"
            return
        yield from (name for name in wanted.bins if not self._has(name))
        if wanted.any_bins and not any(map(self._has, wanted.any_bins)):
            yield " or ".join(wanted.any_bins)
        for name in wanted.env:
            if name not in self.environ:
                yield f"${name} (tools.exec.environment)"

    def _has(self, program: str) -> bool:
        # A name with a slash would be a path relative to nanobot's working directory.
        return "/" not in program and self.which(program) is not None


_VERSION = 1


class EnabledSkill(Struct, frozen=True):
    """A workspace skill as it was enabled: the SHA-256 of each file, by path. `everyone`: it serves
    other people too. `since` is an ISO time, for people."""

    files: Mapping[str, str]
    everyone: bool
    since: str


class SkillRecord(Struct, frozen=True):
    """The owner's record: `enabled` workspace skills and `disabled` skills, by name."""

    enabled: Mapping[str, EnabledSkill]
    disabled: frozenset[str]

    def enable(self, name: str, enabled: EnabledSkill | None) -> SkillRecord:
        """Return the record with a skill enabled. Built-in skills need no entry (None)."""
        kept = {**self.enabled, name: enabled} if enabled else self.enabled
        return replace(self, enabled=kept, disabled=self.disabled - {name})

    def disable(self, name: str) -> SkillRecord:
        """Return the record with a skill disabled and its entry removed."""
        kept = {key: one for key, one in self.enabled.items() if key != name}
        return SkillRecord(kept, self.disabled | {name})


def encode_record(record: SkillRecord) -> bytes:
    content = {"version": _VERSION, **to_builtins(record), "disabled": sorted(record.disabled)}
    return json.dumps(content, indent=1).encode("ascii") + b"\n"


def decode_record(content: bytes) -> SkillRecord:
    """Parse the document. Raise `InvalidDocument` or `ValidationError`."""
    record = convert(decode_versioned(content, _VERSION), SkillRecord)
    for name in (*record.enabled, *record.disabled):
        if not is_skill_name(name):
            raise InvalidDocument(f"{name!r:.40} is not a valid name for a skill")
    return record


MOST_SKILLS = 200
"""Folders in the workspace that are read, by name."""

BUILT_IN = Path(__file__).with_name("builtin")


class SkillsLoader:
    """The skills of a home. `store` holds the owner's record, requirements are checked against
    `here`, and the configuration turns off the names in `turned_off`."""

    def __init__(
        self,
        workspace: Root,
        store: StateStore,
        *,
        here: SkillEnvironment | None = None,
        turned_off: Collection[str] = (),
    ) -> None:
        self._workspace = workspace
        self._here = here or SkillEnvironment()
        self._turned_off = frozenset(turned_off)
        self._scans: dict[str, tuple[Fingerprint, Skill]] = {}
        self._warned = ""
        self._lock = threading.RLock()
        self.version = 0
        """Grows when the owner enables or disables a skill."""
        advice = "Enable your skills again with `nanobot skills enable`."
        self.state = Document(
            store, "skills", decode_record, encode_record, SkillRecord({}, frozenset()), advice
        )

    def list(self) -> tuple[Skill, ...]:
        """Return all skills by name. A workspace skill precedes a built-in one of the same name,
        which is used until the other is enabled."""
        return self._judge(self.state.load())

    def _judge(self, record: SkillRecord) -> tuple[Skill, ...]:
        with self._lock:
            found = [self._read_own(place, record) for place in self._list_folders()]
            found += [self._with_status(skill, "enabled", record) for skill in load_built_in()]
        return tuple(sorted(found, key=lambda skill: (skill.name, skill.source != "workspace")))

    def in_use(self, scope: str = OWNER) -> tuple[Skill, ...]:
        """Return the skills for a turn of `scope`, one of each name. Does not wait for the document
        after its first read."""
        chosen: dict[str, Skill] = {}
        for skill in self._judge(self.state.value):
            if skill.is_enabled and (scope == OWNER or skill.everyone):
                chosen.setdefault(skill.name, skill)
        return tuple(chosen.values())

    def find(self, name: str) -> Skill | None:
        """Return the skill with this name, from the workspace or built-in."""
        return next((skill for skill in self.list() if skill.name == name), None)

    def change(self, change: Callable[[SkillRecord], SkillRecord]) -> None:
        """Store the owner's change. Raise `StorageError`."""
        self.state.change(change)
        self.version += 1  # prompts and triggers are rebuilt

    def read(self, skill: Skill, path: str = "") -> bytes:
        """Return a file of an enabled skill, or the Markdown of its SKILL.md, as it was enabled.

        Raise `ToolError` if the file is missing or the skill has changed."""
        name = skill.name
        try:
            contents = self.contents(skill)
        except NotASkill as error:
            raise ToolError(f"the skill {name} can no longer be read") from error
        if skill.source == "workspace":
            enabled = self.state.load().enabled.get(name)
            if enabled is None or compare_files(enabled.files, describe_files(contents)):
                raise ToolError(
                    f"the skill {name} has changed since the owner enabled it, so it is not used",
                    hint=f"The owner can review and enable it with `nanobot skills enable {name}`",
                )
        if not path:
            return parse(read_main(contents))[1].encode()
        if path not in contents:
            known = ", ".join(list(contents)[:20])
            raise ToolError(
                f"the skill {name} has no such file", hint=f"The skill contains: {known}"
            )
        return contents[path]

    def contents(self, skill: Skill) -> Contents:
        """Return the files of a skill, enabled or not. Raise `NotASkill`."""
        if skill.source == "built-in":
            return read_packaged(BUILT_IN / skill.name)
        return read(self.place_of(skill.name))

    def place_of(self, name: str) -> Place:
        return self._workspace.place(f"{FOLDER}/{name}")

    def _list_folders(self) -> tuple[Place, ...]:
        home = self._workspace.place(FOLDER)
        try:
            entries = home.entries()
        except NanobotError as error:
            if not os.path.lexists(home.root.path / FOLDER):
                return ()
            self._warn(f"the workspace's skills cannot be read: {error}")
            return ()
        names = [e.name for e in entries if e.kind == "folder" and not e.name.startswith(".")]
        if len(names) > MOST_SKILLS:
            self._warn(f"only {MOST_SKILLS} of {len(names)} skills are used")
        return tuple(home.child(name) for name in names[:MOST_SKILLS])

    def _read_own(self, place: Place, record: SkillRecord) -> Skill:
        """Return a workspace skill with its status from the record."""
        name = place.names[-1]
        if not is_skill_name(name):
            problem = "a skill's name can contain only ASCII letters, digits, dots, -, and _"
            return Skill(printable(name), "workspace", "broken", problem=problem)
        mark = fingerprint(place)
        known = self._scans.get(name)
        if known is None or known[0] != mark:
            known = mark, skill_of(name, "workspace", lambda: read(place), place.relative)
            self._scans[name] = known  # parsed again only after a change
        skill, enabled = known[1], record.enabled.get(name)
        if enabled is None:
            return self._with_status(skill, "new", record)
        skill = replace(skill, everyone=enabled.everyone)
        changes = compare_files(enabled.files, skill.files)
        return self._with_status(skill, "changed" if changes else "enabled", record, changes)

    def _with_status(
        self, skill: Skill, status: Status, record: SkillRecord, changes: tuple[str, ...] = ()
    ) -> Skill:
        """Return a skill with its status and unmet requirements. A broken skill stays as it is."""
        if skill.status == "broken":
            return skill
        if skill.name in self._turned_off or skill.name in record.disabled:
            status, changes = "disabled", ()
        missing = tuple(self._here.find_missing(skill.header.requires))
        return replace(skill, status=status, changes=changes, missing=missing)

    def _warn(self, problem: str) -> None:
        """Log a problem once, because the folder is checked with every message."""
        if problem != self._warned:
            self._warned = problem
            logger.warning("{}", problem)


@cache
def load_built_in() -> Sequence[Skill]:
    folders = sorted(path.parent for path in BUILT_IN.glob(f"*/{MAIN}"))
    found = (skill_of(path.name, "built-in", partial(read_packaged, path)) for path in folders)
    return [replace(skill, everyone=True) for skill in found]
