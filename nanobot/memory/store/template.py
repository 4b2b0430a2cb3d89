"""The workspace that a new agent starts with, copied once and never over a file that exists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import nanobot
from nanobot.errors import StorageError, WriteConflict
from nanobot.security.paths import Root


def template_folder() -> Path:
    """Where the template lies: inside the installed package, or beside it in a checkout."""
    package = Path(nanobot.__file__).parent
    for folder in (package / "workspace_template", package.parent / "workspace"):
        if (folder / "AGENTS.md").is_file():
            return folder
    raise StorageError(
        package / "workspace_template", "it is missing", hint="Install nanobot again."
    )


def load_template(source: Path) -> Mapping[str, str]:
    """The text of each file of the template, by its path in the workspace."""
    return {path: content.decode() for path, content in _files(source)}


def install_template(source: Path, workspace: Path) -> tuple[str, ...]:
    """Copy what is missing; return the paths of the files that were made. Raises `StorageError`."""
    target = Root(workspace)
    target.create()
    for name in ("memory", "skills"):
        Root(workspace / name).create()
    made = []
    for path, content in _files(source):
        place = target.place(path)
        if place.stat() is not None:
            continue
        try:
            place.write_bytes(content, expected=None)
        except WriteConflict:
            continue  # someone made it just now
        made.append(path)
    return tuple(made)


def _files(source: Path) -> Iterator[tuple[str, bytes]]:
    # The package's own files, which installers may have made as hard links.
    for file in sorted(source.rglob("*")):
        if file.is_file() and not file.name.startswith("."):
            yield file.relative_to(source).as_posix(), file.read_bytes()
