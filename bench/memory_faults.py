"""Invariants of a home after `bench.crash_memory`, for any kill.

Everything is read from the files, as the next process does."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dulwich.object_store import iter_tree_contents
from dulwich.objects import Commit
from dulwich.repo import Repo

from nanobot.app.base import Base, Models
from nanobot.app.memory import MemoryParts
from nanobot.clock import SystemClock
from nanobot.config.load import load_settings
from nanobot.memory.documents import TRACKED
from nanobot.memory.history import HistoryEntry, HistoryLog, paragraph_of
from nanobot.memory.version import CommitMessage
from nanobot.messages import Message
from nanobot.security.paths import Root
from nanobot.session.records import Mark, Metadata, decode
from nanobot.testing.channel import FakeChannel

KEY = "wire:1"
OLD = 2010
"""Number of messages, already consolidated, in the session at the beginning."""

_MARK = re.compile(r"^- ([muk]\d)\b|^- \d{4}-\d\d-\d\d: ([muk]\d)\b", re.MULTILINE)


def faults_of_memory(home: Path, said: Mapping[str, str]) -> list[str]:
    """Return the broken promises. Each message of `said` must be in the conversation once."""
    entries = HistoryLog(Root(home / "workspace"), SystemClock()).entries()
    return [
        *_of_the_conversation(home, said, entries),
        *_of_the_history(home, entries),
        *_of_the_facts(home),
        *_of_the_versions(home),
        *asyncio.run(_of_the_index(home)),
        *(
            f"a message is set aside in {path.name}"
            for path in (home / "sessions").rglob("*.corrupt*")
            if b'"role"' in path.read_bytes()
        ),
    ]


def _of_the_conversation(
    home: Path, said: Mapping[str, str], entries: list[HistoryEntry]
) -> Iterator[str]:
    """Check that every message is once in the live file or the archive, and every seq in the prompt
    or covered by one entry."""
    live = home / "sessions" / "wire_1.jsonl"
    archived = sorted((home / "sessions" / "archive" / "wire_1").glob("*.jsonl"))
    if not archived:
        yield "nothing was archived"
    seqs, texts, mark, marked = Counter[int](), Counter[str](), 0, False
    for path in (*archived, live):
        for line in path.read_bytes().splitlines():
            record = decode(line)
            if record is None:
                yield f"an unreadable line in {path.name}"
            if isinstance(record, Metadata):
                mark = max(mark, record.last_consolidated)
            marked = marked or (isinstance(record, Mark) and record.kept)
            if isinstance(record, Message):
                seqs[record.seq] += 1
                texts[record.content] += record.role == "user"
    yield from (f"message {seq} stands {n} times" for seq, n in seqs.items() if n > 1)
    yield from (f"{event} was said {texts[t]} times" for event, t in said.items() if texts[t] != 1)
    if not marked:
        yield "no message is marked to keep"
    if sorted(seqs) != list(range(1, len(seqs) + 1)):
        yield "sequence numbers have gaps"
    yield from _of_the_ranges(entries, seqs, mark)


def _of_the_ranges(entries: list[HistoryEntry], seqs: Iterable[int], mark: int) -> Iterator[str]:
    """Check that entries join without a gap, up to the consolidated end of the session."""
    covered = OLD
    for entry in (e for e in entries if e.session == KEY):
        if entry.first != covered + 1:
            yield f"entry {entry.cursor} covers {entry.first}-{entry.last}, after {covered}"
        covered = max(covered, entry.last)
    if mark < covered or any(seq <= mark for seq in seqs if seq > covered):
        yield f"consolidated up to {mark}, entries reach {covered}"


def _of_the_history(home: Path, entries: list[HistoryEntry]) -> Iterator[str]:
    """Check that cursors are unique and rising, with a paragraph for each entry."""
    path = home / "workspace" / "memory" / "history.jsonl"
    cursors = [int(c) for c in re.findall(r'^\{"cursor": ?(\d+)', path.read_text(), re.MULTILINE)]
    if cursors != list(range(1, len(cursors) + 1)) or cursors != [e.cursor for e in entries]:
        yield f"cursors are {cursors}"
    blocks = (path.parent / "HISTORY.md").read_text().split("\n\n")
    shown = Counter(block.strip() for block in blocks if block.strip())
    wanted = Counter(paragraph_of(entry).strip() for entry in entries)
    if shown != wanted:
        yield f"HISTORY.md has too much: {shown - wanted}, lacks: {wanted - shown}"
    unread = [e.cursor for e in entries if e.cursor > _number(path.parent / ".dream_cursor")]
    if len(unread) > 1:
        yield f"Dream did not read {unread}"


def _of_the_facts(home: Path) -> Iterator[str]:
    """Check that each fact is once in a long-term file or among the retired, and effects happened
    at most once."""
    memory = home / "workspace" / "memory"
    files = [memory / "MEMORY.md", home / "workspace" / "USER.md", memory / "retired.md"]
    counts = [
        Counter(a or b for a, b in _MARK.findall(path.read_text())) if path.exists() else Counter()
        for path in files
    ]
    total = sum(counts, Counter[str]())
    wanted = {f"m{number}": 1 for number in range(1, 7)} | {"u2": 1, "u3": 1, "u1": 0, "k1": 0}
    for mark, times in wanted.items():
        if total[mark] != times:
            yield f"fact {mark} stands {[count[mark] for count in counts]} times, not {times}"
    if not counts[2]["u2"]:
        yield "u2 was replaced and is not retired"
    if counts[2]["u3"]:
        yield "u3 was retired"
    notes = "".join(path.read_text() for path in memory.glob("2*.md"))
    if notes.count("n1: ") > 1:
        yield f"note n1 stands {notes.count('n1: ')} times"
    if notes.count("n2: ") > 1:
        yield f"note n2 stands {notes.count('n2: ')} times"
    digest = (memory / "2020-01.md").read_text()
    if not re.fullmatch(r"# 2020-01\n\n- d1 swam, .* \(01-03, 01-05\)\n", digest):
        yield f"the digest of a month is {digest!r}"
    if (memory / "pending.md").exists():
        yield "something waits for confirmation"


def _of_the_versions(home: Path) -> Iterator[str]:
    """Check that every object is complete, numbers count up, the last version is in the workspace,
    and no text of the agent is attributed to the person."""
    with Repo(str(home / "state" / "memory.git")) as repo:
        for name in repo.object_store:
            repo.object_store[name].check()
        commits = list[Commit]()
        head = repo.head()
        while True:
            commit = repo[head]
            assert isinstance(commit, Commit)
            commits.append(commit)
            if not commit.parents:
                break
            head = commit.parents[0]
        before = dict[str, str]()
        for number, commit in enumerate(reversed(commits), 1):
            message = CommitMessage.parse(commit.message.decode())
            if message.number != number:
                yield f"version {number} calls itself {message.number}"
            files = {
                entry.path.decode(): repo[entry.sha].as_raw_string().decode()
                for entry in iter_tree_contents(repo.object_store, commit.tree)
            }
            changed = {path for path in before | files if before.get(path) != files.get(path)}
            for path in changed:
                new = set(files.get(path, "").splitlines()) - set(before.get(path, "").splitlines())
                gone = set(before.get(path, "").splitlines()) - set(
                    files.get(path, "").splitlines()
                )
                foreign = [line for line in new | gone if _MARK.search(line)]
                if message.change.author == "you" and foreign:
                    yield f"version {number} says that the person wrote {foreign}"
            before = files
    standing = {
        path: (home / "workspace" / path).read_text()
        for path in TRACKED
        if (home / "workspace" / path).exists()
    }
    if standing != before:
        differ = [path for path in standing | before if standing.get(path) != before.get(path)]
        yield f"the last version is not what stands in {differ}"
    if (home / "state" / "memory.git" / "refs" / "heads" / "prepared").exists():
        yield "a write is open"


async def _of_the_index(home: Path) -> list[str]:
    """Check that the index equals a new one."""
    base = Base(load_settings(home, {}), None, (FakeChannel("wire"),), admit_everyone=True)
    memory = MemoryParts(base, Models(base, None, None).learner)
    try:
        await memory.index.refresh()
        grown = _passages(home)
        await memory.index.rebuild()
        anew = _passages(home)
    finally:
        await memory.close()
    if grown == anew:
        return []
    return [f"the index has too much: {grown - anew}, lacks: {anew - grown}"]


def _passages(home: Path) -> Counter[tuple[object, ...]]:
    db = sqlite3.connect(home / "state" / "index.db")
    try:
        return Counter(
            db.execute(
                "SELECT source, scope, key, seq, moment, role, speaker, origin, turn, first, last,"
                " words.text FROM passage JOIN stream ON stream.id = passage.stream"
                " JOIN words ON words.rowid = passage.id"
            )
        )
    finally:
        db.close()


def _number(path: Path) -> int:
    return int(path.read_text()) if path.exists() else 0
