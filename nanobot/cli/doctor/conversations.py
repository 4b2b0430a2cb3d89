"""The conversations: whether each can be read; and what was set aside because it could not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from loguru import logger

from nanobot.cli.doctor.finding import Case, Finding
from nanobot.errors import StorageError

_ASIDE = re.compile(r"\.(?:corrupt|broken|damaged)(?:-|$)")
_WHERE = ("state", "sessions", "workspace/memory", "workspace/people", "workspace/groups")
_PASSED_BY = frozenset({"node_modules", "objects", "undo", "pack"})
"""Folders with thousands of files, none of which is ever set aside."""

_SHOWN = 5


def check_conversations(case: Case) -> Iterator[Finding]:
    """Read each conversation as the next message in it would."""
    folder = case.home / "sessions"
    if not folder.is_dir():
        return
    complaints: list[str] = []
    sink = logger.add(lambda said: complaints.append(said.record["message"]), level="WARNING")
    try:
        count, unreadable = _read_all(folder, case)
    finally:
        logger.remove(sink)
    for error in unreadable[:_SHOWN]:
        yield Finding("conversations", "fail", str(error), error.hint)
    if complaints:
        hint = "What can be read is used, and the lines stay in the file for you to look at."
        yield Finding("conversations", "warn", "\n".join(complaints[:_SHOWN]), hint)
    yield Finding("conversations", "ok", f"{count} can be read")


def _read_all(folder: Path, case: Case) -> tuple[int, list[StorageError]]:
    from nanobot.session.catalogue import key_in
    from nanobot.session.files import FileOps
    from nanobot.session.jsonl_store import SessionFolder
    from nanobot.session.records import SUFFIX, key_of

    sessions, now = SessionFolder(folder, FileOps()), case.clock.now()
    count, unreadable = 0, []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            sessions.read(key_in(path) or key_of(path.stem), path, now)
            count += 1
        except StorageError as error:
            unreadable.append(error)
    return count, unreadable


def check_set_aside(case: Case) -> Iterator[Finding]:
    """Files that nanobot could not read and moved away, which a person should know of."""
    found = sorted(path for name in _WHERE for path in _aside_in(case.home / name))
    if not found:
        return
    shown = "\n".join(str(path.relative_to(case.home)) for path in found[:_SHOWN])
    more = f"\nand {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    one = len(found) == 1
    text = f"{len(found)} {'file was' if one else 'files were'} unreadable once:\n{shown}{more}"
    hint = "See whether something in there is worth saving, then delete it."
    yield Finding("set aside", "warn", text, hint)


def _aside_in(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        aside = [name for name in (*folders, *files) if _ASIDE.search(name)]
        yield from (Path(place, name) for name in aside)
        folders[:] = [name for name in folders if name not in _PASSED_BY and name not in aside]
