"""How much a scope holds, gathered from its files."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from nanobot.errors import ToolError
from nanobot.memory.scopes import Memory
from nanobot.memory.service.views import FileView, Overview
from nanobot.memory.store.notes import day_of
from nanobot.memory.store.reading import FACTS
from nanobot.memory.text.layout import is_heading
from nanobot.memory.versions.gitstore import GitStore
from nanobot.tokens import estimate_tokens

_FOLDER = "memory"


def overview_of(memory: Memory, versions: GitStore | None) -> Overview:
    """What the files say; what Dream, the index and what waits would add is left at 0. Blocks."""
    store = memory.store
    files, trouble = _files(memory, versions)
    latest = versions.log(memory.prefix, 1) if versions else []
    return Overview(
        scope=memory.scope,
        files=files,
        retired=len(store.retired()),
        entries=memory.history.count(),
        notes=_days_with_notes(memory),
        latest_version=latest[0].number if latest else 0,
        trouble=trouble,
    )


def _files(memory: Memory, versions: GitStore | None) -> tuple[tuple[FileView, ...], str]:
    """The files that say anything, and why one could not be read."""
    found, trouble = [], ""
    for path in FACTS:
        try:
            if memory.store.facts(path):
                found.append(_file(memory, versions, path))
        except ToolError as error:
            trouble = error.for_people()
    return tuple(found), trouble


def _file(memory: Memory, versions: GitStore | None, path: str) -> FileView:
    text = memory.store.read(path)
    snapshots = versions.lineage(memory.prefix + path) if versions else iter(())
    latest = next(iter(snapshots), None)
    facts = memory.store.facts(path)
    return FileView(
        path,
        tuple(_under_headings(text, facts)),
        facts=len(facts),
        tokens=estimate_tokens(text),
        changed=latest.version.when if latest else None,
        author=latest.version.author if latest else "",
    )


def _under_headings(text: str, facts: Collection[str]) -> Iterator[str]:
    """The facts in their order, each group after its heading."""
    heading, known = "", set(facts)
    for line in map(str.strip, text.splitlines()):
        if is_heading(line):
            heading = line
        elif line in known:
            if heading:
                yield heading
                heading = ""
            yield line


def _days_with_notes(memory: Memory) -> int:
    folder = memory.root.place(_FOLDER)
    if folder.stat() is None:
        return 0
    return sum(day_of(entry.name) is not None for entry in folder.entries())
