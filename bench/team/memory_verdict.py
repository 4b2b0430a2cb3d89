"""Invariants of a team's shared folder after `bench.team.memory`, and the record of its messages.

Every mark has its scope and its source: `bobd4` is Bob's fourth fact for Dream, `c` is for
consolidation, `h` a line that was typed by hand."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from dulwich.objects import Blob, Commit
from dulwich.repo import Repo

from bench.team.model import MARK
from bench.transcript import faults_of_transcript
from nanobot.clock import SystemClock
from nanobot.memory.documents import TRACKED
from nanobot.memory.git import repositories
from nanobot.memory.history import HistoryLog
from nanobot.memory.version import CommitMessage
from nanobot.security.paths import Root

GROUP = "all"
MARKS = re.compile(r"\b(ann|bob|all)([cdh])(\d+)\b")


@dataclass(frozen=True, slots=True)
class ScopeMemory:
    """A memory, and its conversation `session` of `user` in `chat`."""

    name: str
    user: int
    chat: int
    session: str

    @property
    def prefix(self) -> str:
        """Prefix of its files in the workspace."""
        return "" if self.name == "owner" else f"{self.name}/"

    def folder(self, shared: Path) -> Path:
        """Return the folder of its files."""
        return shared / "workspace" / self.prefix

    def has(self, path: str) -> bool:
        """Check whether a file of the shared folder is only for this memory."""
        stem = self.session.replace(":", "_")
        places = (f"sessions/{stem}.", f"sessions/archive/{stem}/", f"workspace/{self.name}/")
        return path.startswith(places)


SCOPES = {
    "ann": ScopeMemory("owner", 1, 1, "telegram:1"),
    "bob": ScopeMemory("people/telegram_2", 2, 2, "telegram:2"),
    GROUP: ScopeMemory("groups/telegram_-3", 1, -3, "telegram:-3"),
}


@dataclass
class MemoryRecord:
    """The stated and typed facts by mark, the forgotten ones, and the messages by scope.

    `erased` is a word of all chats. `kept` is its remainder in the workers' indexes and the
    database's tables at the end."""

    facts: dict[str, str] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    said: dict[str, list[str]] = field(default_factory=dict)
    erased: str = ""
    kept: str = ""


def faults_of_memory(shared: Path, told: MemoryRecord) -> list[str]:
    """Return all faults. No worker runs."""
    return [
        *_of_the_facts(shared, told),
        *_of_the_scopes(shared),
        *_of_the_versions(shared),
        *_of_the_history(shared),
        *_of_the_conversations(shared, told),
        *_of_what_was_erased(shared, told),
        *(f"{path} was left" for path in shared.rglob("*.nanobot-tmp")),
    ]


def _of_the_facts(shared: Path, told: MemoryRecord) -> Iterator[str]:
    """Check that each fact and each typed line is there once, and no forgotten one."""
    for scope, where in SCOPES.items():
        memory = where.folder(shared) / "memory"
        texts = [path.read_text() for path in [*memory.glob("*.md"), memory / "history.jsonl"]]
        found = Counter[str]()
        for path in (memory / "MEMORY.md", where.folder(shared) / "USER.md", memory / "retired.md"):
            lines = path.read_text().splitlines() if path.exists() else []
            for line in lines:
                found.update({match[0] for match in MARKS.finditer(line)})
        for mark in told.facts:
            wanted = int(mark.startswith(scope) and mark not in told.forgotten)
            if found[mark] != wanted:
                yield f"{mark} stands {found[mark]} times in the memory of {scope}, not {wanted}"
        for mark in told.forgotten:
            if mark.startswith(scope) and any(re.search(rf"\b{mark}\b", text) for text in texts):
                yield f"{mark} was forgotten and stands in a file of {scope}"


def _of_the_scopes(shared: Path) -> Iterator[str]:
    """Check that no text of a scope is in a file of another one."""
    for path in shared.rglob("*"):
        inside = str(path.relative_to(shared))
        if not path.is_file() or ".git/" in inside:
            continue
        owner = next((name for name, one in SCOPES.items() if one.has(inside)), "ann")
        yield from _foreign(inside, path.read_bytes(), owner)


def _foreign(place: str, content: bytes, owner: str) -> Iterator[str]:
    names = {match[1] for match in MARKS.finditer(content.decode("utf-8", "replace"))}
    if names - {owner}:
        yield f"{place}, which is of {owner}, holds what is of {names - {owner}}"


def _of_the_versions(shared: Path) -> Iterator[str]:
    """Check that every object is complete and of its scope, numbers count up, and the last version
    equals the file."""
    found = repositories(shared / "state")
    if len(found) != len(SCOPES):
        yield f"versions are of {sorted(found)} alone"
    for prefix, path in found.items():
        if shutil.which("git"):
            checking = subprocess.run(
                ("git", "-C", str(path), "fsck", "--strict", "--full"),
                check=False,
                capture_output=True,
                text=True,
            )
            if checking.returncode:
                yield f"{path.name}: {checking.stderr}"
        if (path / "refs/heads/prepared").exists():
            yield f"{path.name} has an open write"
        owner = next((name for name, one in SCOPES.items() if one.prefix == prefix), prefix)
        with Repo(str(path)) as repo:
            for identity in repo.object_store:
                made = repo.object_store[identity]
                made.check()
                if isinstance(made, Blob | Commit):
                    yield from _foreign(f"{prefix} {identity!r}", made.as_raw_string(), owner)
            head = repo[repo.head()]
            numbers = [
                CommitMessage.parse(step.commit.message.decode()).number
                for step in repo.get_walker()
            ]
            if any(newer <= older for newer, older in pairwise(numbers)):
                yield f"{prefix}: versions are {numbers}"
            assert isinstance(head, Commit)
            yield from _of_what_stands(shared, prefix, repo, head)


def _of_what_stands(shared: Path, prefix: str, repo: Repo, head: Commit) -> Iterator[str]:
    from dulwich.object_store import iter_tree_contents

    versions = {
        entry.path.decode(): repo[entry.sha].as_raw_string()
        for entry in iter_tree_contents(repo.object_store, head.tree)
        if entry.path and entry.sha
    }
    for name in TRACKED:
        path = shared / "workspace" / prefix / name
        stands = path.read_bytes() if path.exists() else None
        if versions.get(f"{prefix}{name}") != stands:
            yield f"{prefix}{name} is not what its last version has"


def _of_the_history(shared: Path) -> Iterator[str]:
    """Check that cursors count up, and ranges join."""
    for scope, where in SCOPES.items():
        root = Root(shared / "workspace")
        entries = HistoryLog(root, SystemClock(), prefix=where.prefix).entries()
        if [one.cursor for one in entries] != list(range(1, len(entries) + 1)):
            yield f"{scope}: cursors are {[one.cursor for one in entries]}"
        if any(newer.first != older.last + 1 for older, newer in pairwise(entries)):
            yield f"{scope}: ranges are {[(one.first, one.last) for one in entries]}"


def _of_the_conversations(shared: Path, told: MemoryRecord) -> Iterable[str]:
    for scope, where in SCOPES.items():
        said = told.said.get(scope, [])
        yield from faults_of_transcript(shared, where.session, MARK, said)


def _of_what_was_erased(shared: Path, told: MemoryRecord) -> Iterator[str]:
    """Check that the erased word is in no file, index, table or version."""
    if not told.erased:
        return
    if told.erased in told.kept:
        yield f"{told.erased} was erased and an index or a table has it: {told.kept}"
    for path in shared.rglob("*"):
        if path.is_file() and told.erased.encode() in path.read_bytes():
            yield f"{told.erased} was erased and is in {path.relative_to(shared)}"
    for path in repositories(shared / "state").values():
        with Repo(str(path)) as repo:
            for identity in repo.object_store:
                if told.erased.encode() in repo.object_store[identity].as_raw_string():
                    yield f"{told.erased} was erased and is in {identity!r} of {path.name}"
