"""`/forget --erase`: a text leaves every file of the home.

The owner's alone, and for all scopes: it reaches every file. What always holds:

- every file is replaced as a whole, so that a crash leaves it old or new, and erasing again
  finishes what was cut short;
- the text is written nowhere: while it lasts, `state/erasing` says only that an erasure is under
  way. The journal, which holds the command itself, is cleaned last;
- at the end every byte of every file is searched, and what is left is reported.

Messages keep their place: the text in them becomes "[erased]". Files of facts and notes lose the
whole line, and so do their versions. Media files that hold it go, and those that came with a
message that said nothing else.

What an erasure would touch, what it did, and what it cannot reach: values and their texts.
Pure.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from loguru import logger

from nanobot.bus.journal import Journal
from nanobot.clock import Clock
from nanobot.errors import NanobotError, WriteConflict
from nanobot.io import FileOps, replace_file
from nanobot.memory.forgetting import holdings as rewriting
from nanobot.memory.forgetting.forget import ForgetPlan, Forgetter, Occasions, Quiet
from nanobot.memory.forgetting.holdings import Holding, Home, Kind
from nanobot.memory.forgetting.needle import ERASED, Needle, keeping_structure
from nanobot.memory.scopes import OWNER, Memories
from nanobot.memory.text.wording import words
from nanobot.memory.versions.gitstore import GitStore
from nanobot.session.manager import SessionManager
from nanobot.session.records import SUFFIX, JsonValue

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


_PASSES = 3
"""What a turn under way wrote meanwhile is found by the next pass."""

_OWNED = {Kind.JOURNAL, Kind.INDEX, Kind.VERSIONS}
"""Files that others rewrite for us, as a whole."""

_REMOVED = {Kind.MEDIA, Kind.BEFORE}
_OTHERS = {*_OWNED, *_REMOVED, *LEFT_ALONE, Kind.TEMPORARY}
_LINES = {Kind.MEMORY, Kind.NOTE}
"""Files that their own writer refused, because something odd stood beside or instead of them."""

_IN_PLACE = {Kind.LOG, Kind.TYPED}


class Eraser:
    """Plans and carries out erasures in the home that lies at `home`.

    `rebuild_index` must delete the search index and make it anew; `quiet` keeps those who learn
    from writing meanwhile; `occasions` hear when the text has left the memories.
    """

    def __init__(
        self,
        home: Path,
        workspace: Path,
        *,
        sessions: SessionManager,
        journal: Journal,
        memories: Memories,
        versions: GitStore | None,
        forgetter: Forgetter,
        rebuild_index: Callable[[], Awaitable[None]],
        clock: Clock,
        files: FileOps | None = None,
        quiet: Quiet = nullcontext,
        occasions: Occasions | None = None,
    ) -> None:
        self._quiet, self._occasions = quiet, occasions or Occasions()
        self._home = Home(home, workspace)
        self._sessions, self._journal = sessions, journal
        self._memories, self._versions = memories, versions
        self._forgetter, self._rebuild_index = forgetter, rebuild_index
        self._clock, self._files = clock, files or FileOps()
        self._mark = home / "state" / "erasing"
        self._running = asyncio.Lock()

    async def plan(self, text: str) -> ErasePlan:
        """What erasing `text` would change; changes nothing.

        Raises `NanobotError` for a text that is too short to search for.
        """
        needle = Needle(text)
        forgets = await self._what_to_forget(text)
        holdings = await asyncio.to_thread(self._home.holdings, needle)
        return ErasePlan(text, tuple(holdings), forgets)

    async def apply(self, plan: ErasePlan) -> EraseReport:
        """Erase the text of a plan; what else it says is found out anew.

        What refuses keeps nothing else from being erased, and stands in the report; doing it again
        goes on from there. Raises `StorageError` where the disk takes nothing at all.
        """
        return await self._apply(plan.query, forgets=True)

    async def strike(self, text: str) -> EraseReport:
        """Erase a text alone: the conversations that hold it go on without it. Raises like `plan`
        and `apply`."""
        return await self._apply(text, forgets=False)

    async def _apply(self, text: str, *, forgets: bool) -> EraseReport:
        needle = Needle(text)
        async with self._running:
            began = self._clock.now().isoformat(timespec="seconds").encode()
            await asyncio.to_thread(replace_file, self._mark, [began, b"\n"], files=self._files)
            before = await asyncio.to_thread(self._home.holdings, needle)
            if forgets:
                await _trying(needle, self._forget(text))
            async with self._quiet():
                left = await self._erase(needle)
            await asyncio.to_thread(rewriting.remove, self._mark)
        return EraseReport(tuple(before), tuple(left))

    def recover(self) -> bool:
        """For the start, before anything writes: remove what an erasure left behind that was cut
        short. Says whether one was; its text is not known, so it has to be given again. Blocks."""
        if not self._mark.exists():
            return False
        for path, kind in list(self._home.files(lambda _: None)):
            if kind is Kind.TEMPORARY:
                rewriting.remove(path)
        rewriting.remove(self._mark)
        logger.warning("an erasure was cut short: give /forget --erase again to finish it")
        return True

    async def _what_to_forget(self, text: str) -> ForgetPlan:
        """A memory that cannot be read is no reason to erase nothing."""
        if words(text):
            with suppress(NanobotError):
                return await self._forgetter.plan(text, OWNER)
        return ForgetPlan(text, OWNER)

    async def _forget(self, text: str) -> None:
        await self._forgetter.apply(await self._what_to_forget(text))

    async def _erase(self, needle: Needle) -> list[Holding]:
        known = list[Holding]()
        for _ in range(_PASSES):
            broken = await self._erase_conversations(needle)
            await self._erase_memories(needle)
            self._occasions.add()  # before the search: no turn writes it down from then on
            found = await asyncio.to_thread(self._home.holdings, needle)
            ours = [one for one in found if not _is_in_use(one) or one.path in broken]
            await asyncio.to_thread(self._erase_files, needle, ours, known)
            if self._versions is not None:
                rewrite = self._versions.rewrite
                await _trying(needle, asyncio.to_thread(rewrite, needle.redact_version))
            await _trying(needle, self._rebuild_index())
            await _trying(needle, self._journal.reports.erase(needle.redact))
            known = found
            left = await asyncio.to_thread(self._home.holdings, needle)
            if not any(map(_is_ours, left)):
                break
        return left

    async def _erase_conversations(self, needle: Needle) -> set[Path]:
        """Returns the files that are no conversation, so that nobody adds to them."""
        broken = set[Path]()
        for info in await asyncio.to_thread(self._sessions.list_sessions):
            try:
                await asyncio.to_thread(self._remove_media_of, needle, info.key)
                await self._sessions.rewrite(info.key, needle.redact)
            except NanobotError as error:
                _warn(needle, error)
                broken.add(info.path)
        return broken

    def _remove_media_of(self, needle: Needle, key: str) -> None:
        """The files of messages that say nothing but the text; first, since they are not known any
        more once it is gone."""
        for message in self._sessions.read_messages(key):
            if message.media and needle.fills(message.content):
                for name in message.media:
                    rewriting.remove(self._home.folder / "media" / Path(name).name)

    async def _erase_memories(self, needle: Needle) -> None:
        keys = await asyncio.to_thread(self._sessions.keys)
        redact = keeping_structure(needle.redact_plain, frozenset(keys))
        for scope in await asyncio.to_thread(self._memories.existing):
            memory = self._memories.of(scope)
            await _trying(needle, asyncio.to_thread(memory.history.rewrite, redact))
            await _trying(needle, memory.store.rewrite(needle.without_lines))

    def _erase_files(
        self, needle: Needle, holdings: Iterable[Holding], known: Iterable[Holding]
    ) -> None:
        """All that no one else rewrites. A temporary file that was there in the pass before is
        nobody's any more."""
        stale = {one.path for one in known}
        for one in holdings:
            try:
                self._erase_file(needle, one, is_stale=one.path in stale)
            except NanobotError as error:
                _warn(needle, error)

    def _erase_file(self, needle: Needle, one: Holding, *, is_stale: bool) -> None:
        if one.count <= 0:
            return
        if one.kind in _REMOVED or (one.kind is Kind.TEMPORARY and is_stale):
            rewriting.remove(one.path)
        elif one.kind in _IN_PLACE:
            rewriting.cover(one.path, needle)
        elif one.kind is Kind.UNDO:
            rewriting.rewrite_after_header(one.path, needle)
        elif one.is_text and one.kind in _LINES and one.path.suffix == ".md":
            self._rewrite(rewriting.rewrite_lines, one.path, needle)
        elif one.is_text and one.kind not in _OTHERS:
            self._rewrite(rewriting.rewrite_text, one.path, needle)

    def _rewrite(self, rewrite: Callable[[Path, Needle], None], path: Path, needle: Needle) -> None:
        for _ in range(_PASSES):
            try:
                rewrite(path, needle)
            except WriteConflict:  # somebody saved just now
                continue
            return


async def _trying(needle: Needle, work: Awaitable[object]) -> None:
    """What refuses stands in the report: it holds the text at the end."""
    try:
        await work
    except NanobotError as error:
        _warn(needle, error)


def _warn(needle: Needle, error: NanobotError) -> None:
    logger.warning("while erasing: {}", needle.redact_plain(str(error)))


def _is_in_use(one: Holding) -> bool:
    """Whether turns may add lines to the file while we look at it."""
    return one.kind is Kind.CONVERSATION and one.path.suffix == SUFFIX


def _is_ours(one: Holding) -> bool:
    """Whether another pass may remove it."""
    if one.kind in LEFT_ALONE or one.count <= 0:
        return False
    return one.is_text or one.kind in _OWNED | _REMOVED | {Kind.TEMPORARY}
