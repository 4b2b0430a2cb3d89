"""What of phase 1 may become a memory. Pure.

A model that read a web page may say what the page told it to, and may say that it comes from an
entry which never saw that page. So each item is held against the raw messages behind its entry,
together with everything foreign that this run has read. What nothing of the person's own supports
is held back until the owner confirms it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nanobot.memory.dream.entries import Entry
from nanobot.memory.dream.phase1 import LONG_TERM, MANNER, PERSON, Item, Kind
from nanobot.memory.dream.words import shared
from nanobot.memory.grounds.grounds import Grounds
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
    """A fact that waits for the owner's word. `old` is the line that it would replace."""

    path: str
    line: str
    origins: tuple[str, ...] = ()
    old: str = ""
    section: str = ""
    cursor: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """What phase 1 comes to."""

    updates: tuple[Update, ...] = ()
    held: tuple[Held, ...] = ()


def foreign_of(entries: Iterable[Entry]) -> Grounds:
    """Everything that came from elsewhere, and nothing of the person's own."""
    foreign = Grounds()
    for entry in entries:
        foreign = foreign.plus(Grounds(frozenset(), entry.grounds.untrusted))
    return foreign


def judge(
    items: Sequence[Item],
    entries: Sequence[Entry],
    files: Mapping[str, str],
    foreign: Grounds,
    *,
    owner: bool,
) -> Judgement:
    """Sort `items` of one question about `entries`.

    `files` are the texts that the model was shown. How the agent behaves is the owner's to say;
    another person's wish about it is a fact about them.
    """
    updates: dict[Update, None] = {}
    held: dict[Held, None] = {}
    for item in items:
        wanted = _located(item, files, owner=owner)
        if wanted is None:
            continue
        entry = _behind(item, entries)
        wanted = replace(wanted, cursor=entry.cursor)
        if _supports(entry, foreign, wanted):
            updates[wanted] = None
        elif wanted.text:
            origins = entry.origins or ("unknown",)
            held[Held(wanted.path, wanted.text, origins, wanted.target, "", entry.cursor)] = None
    return Judgement(tuple(updates), tuple(held))


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


def _supports(entry: Entry, foreign: Grounds, update: Update) -> bool:
    grounds = entry.grounds.plus(foreign)
    if update.kind == "obsolete":
        return grounds.mentions(update.target)
    if update.kind == "replace" and grounds.supports_change(update.target, update.text):
        return True
    return grounds.supports(update.text)
