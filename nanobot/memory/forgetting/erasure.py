"""What an erasure would touch, what it did, and what it cannot reach: values and their texts.
Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nanobot.memory.forgetting.forget import ForgetPlan
from nanobot.memory.forgetting.holdings import Holding, Kind
from nanobot.memory.forgetting.needle import ERASED
from nanobot.session.records import JsonValue

LEFT_ALONE = {
    Kind.CONFIGURATION: "your settings, which I do not change: edit it yourself",
    Kind.REPOSITORY: "your own git repository, which I do not rewrite",
}
"""Kinds of files that are reported and never changed, with the reason."""

BEYOND = (
    "what links in my home lead to, unless it is a folder of my own",
    "backups that were made, snapshots of this disk, and blocks of it that no file uses any more",
    "what the model's provider was sent and may keep",
    "the chat platforms' own copies of the conversations",
    "other devices and git remotes that this memory was synced with",
    "text inside compressed files and pictures, and the text in other words",
    "text that is no UTF-8, or written as addresses (%20), web pages (&amp;) and mails (=20) do",
    "where WhatsApp is linked, what it sent last week (encoded, in its folder's sent.jsonl)",
)
"""Where no erasure of a home reaches."""

_BY_ADDRESS = "it is in the id of a chat or person, by which I know who talks to me, and stays"
_TRY_AGAIN = "it could not be taken out of this file; try again"
_MAYBE_ADDRESS = f"if it is in the id of a chat or person, it stays; otherwise {_TRY_AGAIN}"
_WITH_ADDRESSES = {Kind.CONVERSATION, Kind.ARCHIVE, Kind.HISTORY, Kind.JOURNAL, Kind.INDEX}
_IN_ADDRESS = re.compile(rf"(?:^|/)(?:sessions/|(?:people|groups)/[^/]*{re.escape(ERASED)})")

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class ErasePlan:
    """What `/forget --erase` would change. `query` is the text as it was given; it is kept nowhere
    but in this value."""

    query: str
    holdings: tuple[Holding, ...]
    forgets: ForgetPlan

    @property
    def is_empty(self) -> bool:
        """Whether no file holds the text and nothing remembered says it."""
        return not self.holdings and self.forgets.is_empty

    @property
    def text(self) -> str:
        """For people: how much it is, by kind of file; never the text itself."""
        if self.is_empty:
            return "This text stands nowhere in my files."
        lines = [f"To be erased, in {_count(len(self._changing), 'file')} of all memories:"]
        lines += _by_kind(self._changing)
        if not self.forgets.is_empty:
            lines.append(f"Also forgotten, as with /forget: {self.forgets.counts}.")
        if left := _reasons(self.holdings):
            lines += ["This stays and has to be changed by hand:", *_items(left)]
        return "\n".join([*lines, "This cannot be undone. It does not reach:", *_items(BEYOND)])

    def as_json(self) -> dict[str, JsonValue]:
        """For machines."""
        return {
            "found": not self.is_empty,
            "files": _files(self._changing),
            "by_hand": list(_reasons(self.holdings)),
            "forgets": self.forgets.counts,
            "beyond_reach": list(BEYOND),
        }

    @property
    def _changing(self) -> list[Holding]:
        return [one for one in self.holdings if one.count > 0 and one.kind not in LEFT_ALONE]


@dataclass(frozen=True, slots=True)
class EraseReport:
    """What an erasure changed (`before`), and what still holds the text (`left`)."""

    before: tuple[Holding, ...]
    left: tuple[Holding, ...]

    @property
    def is_complete(self) -> bool:
        """Whether no file of the home holds the text any more."""
        return not self.left

    @property
    def text(self) -> str:
        """For people; never the text itself."""
        gone = {one.path for one in self.before} - {one.path for one in self.left}
        lines = [f"Erased from {_count(len(gone), 'file')}; {ERASED} stands in its place."]
        if self.is_complete:
            lines.append("I looked at every byte of every file in my home: none holds it any more.")
        else:
            lines += ["It still stands here:", *_items(self._reasons)]
        return "\n".join([*lines, "This does not reach:", *_items(BEYOND)])

    def as_json(self) -> dict[str, JsonValue]:
        """For machines."""
        return {
            "complete": self.is_complete,
            "files": _files(self.before),
            "left": list(self._reasons),
            "beyond_reach": list(BEYOND),
        }

    @property
    def _reasons(self) -> list[str]:
        return _reasons(self.left, _TRY_AGAIN)


def _by_kind(holdings: Iterable[Holding]) -> list[str]:
    files, places = Counter[str](), Counter[str]()
    for one in holdings:
        files[one.kind] += 1
        places[one.kind] += one.count
    return [
        f"- {kind}: {_count(places[kind], 'place')} in {_count(number, 'file')}"
        for kind, number in files.items()
    ]


def _files(holdings: Sequence[Holding]) -> list[JsonValue]:
    return [{"path": one.shown, "kind": str(one.kind), "places": one.count} for one in holdings]


def _reasons(holdings: Sequence[Holding], otherwise: str = "") -> list[str]:
    """The files that stay, each with the reason; `otherwise` is the one for all others."""
    reasons = [(one.shown, _reason(one) or _otherwise(one, otherwise)) for one in holdings]
    lines = [f"{shown}: {reason}" for shown, reason in reasons if reason]
    more = len(lines) - _SHOWN
    return [*lines[:_SHOWN], *([f"and {more} more files"] if more > 0 else [])]


def _reason(one: Holding) -> str:
    """Why an erasure does not change a file; empty where it does."""
    if one.count < 0:
        return "it cannot be read"
    if one.kind in LEFT_ALONE:
        return LEFT_ALONE[one.kind]
    if one.in_name and _IN_ADDRESS.search(one.shown):
        return _BY_ADDRESS
    if one.in_name:
        return f"its name or its folder's says it ({one.kind}): rename it"
    if not one.is_text and one.kind in {Kind.WORKSPACE, Kind.OTHER}:
        return "it is no text file: delete it if you can do without"
    return ""


def _otherwise(one: Holding, reason: str) -> str:
    return _MAYBE_ADDRESS if reason and one.kind in _WITH_ADDRESSES else reason


def _items(lines: Iterable[str]) -> list[str]:
    return [f"- {line}" for line in lines]


def _count(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"
