"""The lines that may be forgotten beside those of the long-term files, and taking lines out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from nanobot.errors import WriteConflict
from nanobot.memory.change import Change
from nanobot.memory.scopes import Memory
from nanobot.memory.store.store import PENDING, MemoryStore
from nanobot.memory.text.blocks import blocks_of
from nanobot.memory.text.layout import split
from nanobot.memory.text.lines import Operation
from nanobot.memory.why.explainer import PATHS, Line

_NOTE = re.compile(r"\d{4}-\d{2}-\d{2}\.md")


def entries_of(memory: Memory) -> Iterator[Line]:
    """The entries of daily notes and of what waits to be confirmed, each with all its lines."""
    folder = memory.root.place("memory")
    paths = [PENDING] if folder.stat() else []
    paths += (
        [f"memory/{entry.name}" for entry in folder.entries() if _NOTE.fullmatch(entry.name)]
        if paths
        else []
    )
    for path in paths:
        number = 1
        for block in blocks_of(memory.store.read(path)):
            if block.strip() and not block.startswith("#"):
                yield Line(path, number, block.rstrip())
            number += block.count("\n")


async def take_out(
    memory: Memory, lines: Iterable[Line]
) -> tuple[tuple[int, ...], tuple[Line, ...]]:
    """Take lines out of their files; the versions that this made, and those that did go."""
    by_path = defaultdict[str, list[Line]](list)
    for line in lines:
        by_path[line.path].append(line)
    versions, gone = list[int](), list[Line]()
    for path, wanted in by_path.items():
        texts = {line.text for line in wanted}
        before = _standing(memory.store, path)
        versions.append(await _taken_out(memory.store, path, texts))
        went = (texts & before) - _standing(memory.store, path)
        gone += [line for line in wanted if line.text in went]
    return tuple(filter(None, versions)), tuple(gone)


async def _taken_out(store: MemoryStore, path: str, texts: Collection[str]) -> int:
    """The version of the file without them, 0 where there is none."""
    number = f"{len(texts)} line{'' if len(texts) == 1 else 's'}"
    change = Change("forget", f"forgot {number}")
    if path in PATHS:
        operations = [Operation(old=text) for text in sorted(texts)]
        return (await store.apply(path, operations, change))[0]
    while True:
        # Not by operations: entries may have lines in common.
        text = store.read(path)
        left = "".join(block for block in blocks_of(text) if block.rstrip() not in texts)
        with suppress(WriteConflict):  # an editor saved just now
            return await store.replace(path, left, expected=text, change=change)


def _standing(store: MemoryStore, path: str) -> set[str]:
    text = store.read(path)
    return {line.rstrip() for line in (split(text) if path in PATHS else blocks_of(text))}
