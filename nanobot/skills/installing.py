"""Copying a skill from a folder of the owner's into the workspace.

What always holds: what is copied is what was shown, file by file, or nothing is enabled. A copy
that is cut short leaves a skill whose files are not those that are enabled, so it is inert. Blocks.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from nanobot.errors import NanobotError
from nanobot.security.paths import Place, Root
from nanobot.skills import folder as folders
from nanobot.skills.folder import Contents, Unreadable
from nanobot.skills.frontmatter import NotASkill, parse
from nanobot.skills.values import MAIN, Header, digest_of, is_skill_name


@dataclass(frozen=True, slots=True)
class Package:
    """A skill outside the workspace: the `name` that it will have, what its SKILL.md says, and
    where its files are. `digest` identifies what was read."""

    name: str
    header: Header
    body: str
    source: Place
    contents: Contents

    @property
    def digest(self) -> str:
        """Of all files."""
        return digest_of(self.contents.digests)


def package_at(path: Path) -> Package:
    """The skill in the folder `path`; a SKILL.md stands for its folder. Raises `NanobotError`."""
    if path.is_file() and path.name.casefold() == MAIN.casefold():
        path = path.parent
    if not path.is_dir():
        raise NanobotError(
            f"{path} is not a folder",
            hint=f"A skill is a folder with a {MAIN}; unpack it first if it came as an archive.",
        )
    source = Root(path, name="skill").place(".")
    try:
        contents = folders.read(source)
        header, body = parse(contents.main)
    except (Unreadable, NotASkill) as error:
        raise NanobotError(f"{path} is not used as a skill: {error}") from error
    name = next((name for name in (header.name, path.name) if is_skill_name(name)), "")
    if not name:
        raise NanobotError(
            f"the skill in {path} has no name that can be used",
            hint="Its folder or `name:` must be of letters, digits, - _ and dots.",
        )
    return Package(name, header, body, source, contents)


def copy(package: Package, target: Place) -> None:
    """Make `target` hold the files of `package` and no others. Raises `NanobotError`."""
    wanted = package.contents.digests
    target.root.create()
    for place, entry in list(target.walk(folders.MOST_FILES)):
        path = "/".join(place.names[len(target.names) :])
        if entry.kind == "file" and path not in wanted:
            place.remove()
    for path in wanted:
        source = package.source.root.place(path)
        content = source.read_bytes(folders.MOST_BYTES)
        if content is None:
            raise NanobotError(f"{source.shown} has just gone; nothing was enabled")
        copied = target.root.place(f"{target.relative}/{path}")
        copied.write_bytes(content)
        _set_executable(copied, executable=_is_executable(source))


def _is_executable(place: Place) -> bool:
    with place.opened(os.O_RDONLY) as descriptor:
        return bool(os.fstat(descriptor).st_mode & stat.S_IXUSR)


def _set_executable(place: Place, *, executable: bool) -> None:
    with place.opened(os.O_RDONLY) as descriptor:
        os.fchmod(descriptor, 0o700 if executable else 0o600)
