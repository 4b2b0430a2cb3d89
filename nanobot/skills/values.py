"""What a skill is: a folder with a SKILL.md, what it needs, and whether it may be used. Plain
values."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Source = Literal["workspace", "built-in"]

Status = Literal["enabled", "new", "changed", "disabled", "broken"]
"""`new`: the owner has not enabled it yet. `changed`: a file is no longer as it was when they did.
`disabled`: they do not want it. `broken`: it cannot be read as a skill."""

Kind = Literal["text", "script", "binary"]

FOLDER = "skills"
"""Where skills lie in the workspace."""

MAIN = "SKILL.md"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A file of a skill: its path in the folder, size in bytes, SHA-256 in hex, and whether it is
    something to run."""

    path: str
    size: int
    digest: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Requirements:
    """What must be there: all `bins`, one of `any_bins` if there are any, all names in `env`, and
    one of the operating `systems` (`linux`, `darwin`) if there are any."""

    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Header:
    """What the front matter of a SKILL.md says. `install` are commands or sentences, the one that
    suits best first."""

    name: str = ""
    description: str = ""
    triggers: tuple[str, ...] = ()
    always: bool = False
    requires: Requirements = field(default_factory=Requirements)
    install: tuple[str, ...] = ()
    license: str = ""
    compatibility: str = ""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill as it was found.

    `folder` is how tools name its folder: in the workspace, or empty for a built-in one, which has
    only text. `body` is SKILL.md without its front matter. `missing` says what it needs and does
    not find, `install` how to get that. `problem` is why it is broken, `changes` what differs from
    what was enabled. `everyone`: it also serves people other than the owner.
    """

    name: str
    source: Source
    status: Status
    header: Header = field(default_factory=Header)
    body: str = ""
    folder: str = ""
    files: tuple[SkillFile, ...] = ()
    missing: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    problem: str = ""
    changes: tuple[str, ...] = ()
    everyone: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """What it does and when to use it, on one line."""
        return self.header.description

    @property
    def triggers(self) -> tuple[str, ...]:
        """Words of a person that call for it."""
        return self.header.triggers

    @property
    def always(self) -> bool:
        """Whether its text stands in the prompt."""
        return self.header.always

    @property
    def enabled(self) -> bool:
        """Whether the model may have it."""
        return self.status == "enabled"

    @property
    def available(self) -> bool:
        """Whether it can be used now: it is enabled, and nothing is missing."""
        return self.enabled and not self.missing

    @property
    def digest(self) -> str:
        """The same for the same files: their names and contents."""
        return digest_of({file.path: file.digest for file in self.files})


def digest_of(files: Mapping[str, str]) -> str:
    """One digest of a folder, from those of its files by path."""
    return hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()


def differences(before: Mapping[str, str], files: Iterable[SkillFile]) -> tuple[str, ...]:
    """What is no longer as it was, a line for each file: `changed: SKILL.md`."""
    now = {file.path: file.digest for file in files}
    told = [f"changed: {path}" for path in before if path in now and now[path] != before[path]]
    told += [f"added: {path}" for path in now if path not in before]
    told += [f"removed: {path}" for path in before if path not in now]
    return tuple(sorted(told))


def is_skill_name(text: str) -> bool:
    """Whether a skill can be called this."""
    return _NAME.fullmatch(text) is not None


def is_skill_file(path: str) -> bool:
    """Whether `path`, relative to the owner's workspace, lies where skills do: what is written
    there decides future behaviour."""
    return path.partition("/")[0].casefold() == FOLDER
