"""What of a home is in a backup, and which of it has to be taken in one moment. Pure.

Everything is in it but backups themselves, what belongs to a process that runs (locks, sockets),
what is made anew by itself (the search index, the log, caches) and, where it is not wanted, media.
`state/journal.db` is not copied as a file: SQLite does that.

What refers to each other is taken *together*, while the journal stands still and nobody writes
memory: configuration, conversations, memory with its versions, state, what adapters keep. The rest
is taken *apart*, after it: files that are written once (media, spilled results), and the agent's
own working files, of which there may be very many.
"""

from __future__ import annotations

import re
from typing import Literal

Part = Literal["together", "apart", "mixed", "out"]

BACKUPS = "backups"
"""The folder in a home where backups go by default."""
SNAPSHOT = "state/backup"
"""Where what is taken together stands until it is packed."""
JOURNAL = "state/journal.db"
WORKSPACE = "workspace"
MEDIA = "media"
CACHE_TAG = "CACHEDIR.TAG"
"""A folder with this file in it is a cache, says bford.info/cachedir, and is left out if it
`may_be_cache`."""
CACHE_SIGNATURE = b"Signature: 8a477f597d28d172789f06886806bc55"

UNFINISHED = ".restore-under-way.json"
"""In a home whose entries are changing places with those of a backup (see `placing`)."""

_MIXED = {"", "logs", "state", "workspace"}
_TOGETHER = re.compile(
    r"sessions|state/(memory\.git|channels)|workspace/(memory|people|groups)"  # folders
    r"|[^/]+|state/[^/]+\.json|workspace/[^/]+\.md"  # files
)
_LINKED = ("sessions/", "state/memory.git/", "state/channels/")
_OUT = re.compile(
    r"backups|before-restore-[^/]*|\.restoring-[^/]*|\.restore-under-way\.json"
    r"|state/(backup|backup\.lock|gateway\.(lock|sock)|memory\.git\.(lock|syncing))"
    r"|state/index\.db[^/]*|state/journal\.db(-wal|-shm|-journal|\.before-[^/]*)?"
    r"|logs/(?!audit)[^/]*"
)
_NO_CACHE = re.compile(
    r"(sessions|media|spill|logs)(/.*)?|state(/channels(/[^/]+)?|/(?!channels/).*)?"
    r"|workspace(/(memory|people|groups|skills)(/.*)?)?",
    re.DOTALL,
)
_TEMPORARY = re.compile(r"\..*\.nanobot-tmp")


def part_of(path: str, *, folder: bool, media: bool = True) -> Part:
    """Where a path in the home belongs, empty for the home itself; `mixed` is a folder of which
    each entry has to be asked about. What is in a folder that is none of those belongs where that
    folder does."""
    name = path.rpartition("/")[2]
    if _OUT.fullmatch(path) or _TEMPORARY.fullmatch(name) or (path == MEDIA and not media):
        return "out"
    if folder and path in _MIXED:
        return "mixed"
    if folder and "/" not in path and path != "sessions":
        return "apart"
    return "together" if _TOGETHER.fullmatch(path) else "apart"


def may_be_linked(path: str) -> bool:
    """Whether a file that is taken together may have a second name for a while. Where the agent
    has a say, nanobot reads no file that has one; those are small enough to be copied."""
    return path.startswith(_LINKED)


def may_be_cache(path: str) -> bool:
    """Whether a tag can make a folder a cache: not where nanobot itself keeps what lasts, whoever
    puts one there. The workspace's other folders can be one, and what an adapter installed."""
    return not _NO_CACHE.fullmatch(path)


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at `path` (in the home) that says `target` leads to somewhere in the
    workspace, whatever other such links it passes: steps up come first, from a real folder."""
    if not path.startswith("workspace/") or target.startswith("/") or "\0" in target:
        return False
    depth = path.count("/") - 1
    steps = [step for step in target.split("/") if step not in ("", ".")]
    ups = next((number for number, step in enumerate(steps) if step != ".."), len(steps))
    return ups <= depth and ".." not in steps[ups:]
