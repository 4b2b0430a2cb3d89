"""What an import found and does: values, a short table, and a file with every detail. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args

from nanobot.text import printable

Kind = Literal[
    "settings", "conversations", "memory", "jobs", "skills", "workspace files", "media", "other"
]  # fmt: skip
Outcome = Literal["taken", "converted", "kept", "left"]

_COMMAND = re.compile(r"(?<=`)nanobot(?= )")

A_LOCK, A_PROGRAM = "a lock", "a program that the other nanobot installed"
"""Why some files are left, which nobody needs to hear about."""

_COUNTED: Mapping[Kind, tuple[str, str]] = {
    "conversations": ("message", "messages"),
    "memory": ("history entry", "history entries"),
    "jobs": ("job", "jobs"),
}
_OUTCOMES: Mapping[Outcome, str] = {
    "taken": "taken as it is",
    "converted": "converted",
    "kept": "kept among the originals",
    "left": "not copied",
}


@dataclass(frozen=True, slots=True)
class Item:
    """What becomes of one file (or link, or folder) of the other home.

    `taken`: it lies at `target`, byte for byte; `converted`: what it says does; `kept`: nanobot has
    no place for it, and `target` is its copy among the originals; `left`: it is not copied, and
    `note` says why. `source` and `target` are paths within the homes, `size` is in bytes, and
    `count` is how many messages, history entries or jobs were understood in it.
    """

    kind: Kind
    source: str
    outcome: Outcome
    target: str
    note: str
    size: int
    count: int


@dataclass(slots=True)
class Report:
    """All of an import, from `source` to `target`; grows while it goes on. `changes` are sentences
    about what is not as it was, `todo` about what a person has to do; `originals` is the folder of
    untouched copies in the new home, and `command` how a person begins a command for that home."""

    source: str
    target: str
    originals: str
    command: str = "nanobot"
    done: bool = False
    items: list[Item] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)

    def changed(self, text: str) -> None:
        """Something is not as it was; said once."""
        if text not in self.changes:
            self.changes.append(text)

    def ask(self, text: str) -> None:
        """Something that a person has to do; said once. Commands in it are for the new home."""
        text = _COMMAND.sub(lambda _: self.command, text)
        if text not in self.todo:
            self.todo.append(text)

    def as_json(self) -> Mapping[str, object]:
        """For machines."""
        return asdict(self)

    def rows(self) -> Iterator[tuple[str, str, str, str]]:
        """What, how many files, what becomes of them, and where."""
        for kind in get_args(Kind):
            for outcome, told in _OUTCOMES.items():
                items = [one for one in self.items if (one.kind, one.outcome) == (kind, outcome)]
                if not items:
                    continue
                amount = f"{len(items):,} file{'s' * (len(items) != 1)}"
                if (total := sum(one.count for one in items)) and kind in _COUNTED:
                    amount += f", {total:,} {_COUNTED[kind][total != 1]}"
                yield kind, amount, told, self._where(outcome, items)

    def unusual(self) -> list[str]:
        """A sentence for each file that a person should hear about by name."""
        return [
            f"{printable(one.source)}: {printable(one.note)}"
            for one in self.items
            if (one.outcome == "left" or (one.note and one.count))
            and one.note not in (A_LOCK, A_PROGRAM)
        ]

    def as_markdown(self) -> bytes:
        """The report that stays in the new home."""
        text = (
            f"# Import\n\nWhat `nanobot import` made of {printable(self.source)}.\n\n"
            "The files beside this one are untouched copies of what was converted, and of what has"
            " no place in nanobot. They may hold secrets. Delete them when you do not need them any"
            " more.\n"
        )
        for title, texts in (("To do", self.todo), ("Changes", self.changes)):
            if texts:
                text += f"\n## {title}\n\n" + "".join(f"- {printable(one)}\n" for one in texts)
        text += (
            "\n## Files\n\n| what | from | what became of it | to | note |\n|---|---|---|---|---|\n"
        )
        for one in sorted(self.items, key=lambda one: get_args(Kind).index(one.kind)):
            cells = (one.kind, one.source, _OUTCOMES[one.outcome], one.target, one.note)
            text += f"| {' | '.join(printable(cell).replace('|', '/') for cell in cells)} |\n"
        return text.encode()

    def _where(self, outcome: Outcome, items: Sequence[Item]) -> str:
        if outcome in ("left", "kept"):
            return f"{self.originals}/" if outcome == "kept" else ""
        targets = list(dict.fromkeys(one.target for one in items))
        if len(targets) == 1:
            return printable(targets[0])
        tops = {target.rpartition("/")[0] for target in targets}
        shared = next(iter(tops)) if len(tops) == 1 else targets[0].partition("/")[0]
        return f"{printable(shared)}/" if shared else ""
