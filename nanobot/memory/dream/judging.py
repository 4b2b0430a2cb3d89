"""What of phase 1 may become a memory. Pure.

A model that read a web page may say what the page told it to, and may say that it comes from an
entry which never saw that page. So where any of the entries that it was asked about was touched by
foreign content, whatever it words itself is held back until the owner confirms it. What it quotes,
a line that the person wrote, code copies whole, and that is taken in as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nanobot.errors import ToolError
from nanobot.memory.dream.entries import Entry
from nanobot.memory.dream.phase1 import LONG_TERM, MANNER, PERSON, Item, Kind
from nanobot.memory.dream.words import shared
from nanobot.memory.grounds.quoting import quotation
from nanobot.memory.store.guard import bare, fact_lines, standing
from nanobot.memory.text.layout import lines_of
from nanobot.memory.text.similar import most_similar


@dataclass(frozen=True, slots=True)
class Update:
    """Something that goes into the file at `path`.

    `text` is the new fact, without a bullet, empty for an obsolete one. `target` is the line, just
    as it stands in the file, that is replaced or obsolete. `cursor` is the history entry behind it.
    """

    kind: Kind
    path: str
    text: str = ""
    target: str = ""
    cursor: int = 0

    def shown(self) -> str:
        """The update as phase 2 reads it."""
        if self.kind == "obsolete":
            return f"obsolete: {self.target.strip()}"
        instead = f" (instead of: {self.target.strip()})" if self.kind == "replace" else ""
        return f"{self.kind}: {self.text}{instead}"


@dataclass(frozen=True, slots=True)
class Held:
    """A fact that waits for the owner's word. `old` is the line that it would replace; where `line`
    is empty, it would go."""

    path: str
    line: str
    origins: tuple[str, ...] = ()
    old: str = ""
    section: str = ""
    cursor: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """What phase 1 comes to. `quoted` updates are lines of the person's, and go in word for
    word."""

    updates: tuple[Update, ...] = ()
    held: tuple[Held, ...] = ()
    quoted: tuple[Update, ...] = ()


def judge(
    items: Sequence[Item], entries: Sequence[Entry], files: Mapping[str, str], *, owner: bool
) -> Judgement:
    """Sort `items` of one question about `entries`.

    `files` are the texts that the model was shown. How the agent behaves is the owner's to say;
    another person's wish about it is a fact about them.
    """
    updates: dict[Update, None] = {}
    held: dict[Held, None] = {}
    quoted: dict[Update, None] = {}
    tainted = any(entry.is_tainted for entry in entries)
    for item in items:
        entry = _behind(item, entries)
        if tainted and (line := _quoted(item, entry)):
            if not any(standing(line, text) for text in files.values()):
                quoted[Update("add", item.path, line, cursor=entry.cursor)] = None
            continue
        wanted = _located(item, files, owner=owner)
        if wanted is None:
            continue
        if not tainted:
            updates[replace(wanted, cursor=entry.cursor)] = None
            continue
        origins = entry.origins or ("unknown",)
        held[Held(wanted.path, wanted.text, origins, wanted.target, "", entry.cursor)] = None
    return Judgement(tuple(updates), tuple(held), tuple(quoted))


def _quoted(item: Item, entry: Entry) -> str:
    """The line of the person's that a new fact quotes, empty where it quotes none. How the agent
    behaves is not decided by what was said once."""
    if item.kind != "add" or item.path == MANNER or not item.quote:
        return ""
    try:
        return quotation(item.quote, entry.said, entry.said_at.date())
    except ToolError:
        return ""


def _located(item: Item, files: Mapping[str, str], *, owner: bool) -> Update | None:
    """The item as an update of a file; None where there is nothing to do."""
    text = bare(item.text)
    if item.kind == "add":
        path = PERSON if item.path == MANNER and not owner else item.path
        stands = any(standing(text, files.get(path, "")) for path in files)
        return None if stands else Update("add", path, text)
    path, target = _found(item.text if item.kind == "obsolete" else item.replaces, files)
    if item.kind == "obsolete":
        return Update("obsolete", path, "", target) if target else None
    if not target:
        return _located(replace(item, kind="add", path=LONG_TERM), files, owner=owner)
    if standing(text, files[path]):
        return None if bare(target) == text else Update("obsolete", path, "", target)
    return Update("replace", path, text, target)


def _found(line: str, files: Mapping[str, str]) -> tuple[str, str]:
    for path, text in files.items():
        if line and (found := standing(line, text)):
            return path, found
    facts = {fact: path for path, text in files.items() for fact in _facts(text)}
    near = most_similar(line, facts, 0.8) if line else ""
    return facts.get(near, ""), near


def _facts(text: str) -> Iterator[str]:
    """The facts of a file, each as it stands there."""
    return (line for line, _ in lines_of(text) if fact_lines(line))


def _behind(item: Item, entries: Sequence[Entry]) -> Entry:
    """The entry that an item comes from: the one named, else the one that shares most with it."""
    if item.entry is not None and item.entry < len(entries):
        return entries[item.entry]
    return max(entries, key=lambda entry: shared(item.text, entry.text))
