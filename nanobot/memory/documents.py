"""The files of a scope that people read: their names, in one place, and the workspace that a new
agent starts with, copied once and never over a file that exists."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import nanobot
from nanobot.errors import StorageError, WriteConflict
from nanobot.security.paths import Root

OTHER_SCOPE = r"(?:people|groups)/(?!\.)[A-Za-z0-9.@+_%-]{1,200}"
"""What a scope other than the owner's is called: a pattern for names that are safe as folders."""

LONG_TERM = "memory/MEMORY.md"
PENDING = "memory/pending.md"
"""Facts that wait to be confirmed."""
RETIRED = "memory/retired.md"
"""Facts that are no longer true."""

PERSONAL = ("USER.md", "SOUL.md")
"""Who the person is, and how the agent is to be with them."""
FACTS = (LONG_TERM, *PERSONAL)
"""The files of what was learned."""
ALL_FACTS = (*FACTS, RETIRED)

BOOTSTRAP = ("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md")
"""What the system prompt holds, in this order."""
RULES = frozenset({*BOOTSTRAP, "HEARTBEAT.md"})
"""Files that decide how the agent behaves, beside memory."""

TRACKED = (*sorted(RULES), LONG_TERM, PENDING, RETIRED)
"""The files that have versions, relative to the scope's folder."""


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


@cache
def _files(source: Path) -> tuple[tuple[str, bytes], ...]:
    """The package's own files, which installers may have made as hard links."""
    return tuple(
        (file.relative_to(source).as_posix(), file.read_bytes())
        for file in sorted(source.rglob("*"))
        if file.is_file() and not file.name.startswith(".")
    )
