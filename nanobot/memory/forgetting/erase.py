"""`/forget --erase`: a text leaves every file of the home.

The owner's alone, and for all scopes: it reaches every file. Each store parses its records and
writes them again without the text; the files that belong to no store are rewritten one by one.
Invariants:

- every file is replaced as a whole, so that a crash leaves it old or new, and erasing again
  finishes what was cut short;
- the text is written nowhere: while it lasts, `state/erasing` says only that an erasure is under
  way. The journal, which holds the command itself, is cleaned last;
- at the end every byte of every file is searched, and what is left is reported.

Messages keep their place: the text in them becomes "[erased]". Files of facts and notes lose the
whole line, and so do their versions. Media files that hold it go, and those that came with a
message that said nothing else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loguru import logger

from nanobot.bus.journal import Journal
from nanobot.clock import Clock
from nanobot.errors import NanobotError, WriteConflict
from nanobot.io import FileOps, replace_file
from nanobot.memory.forgetting.forget import ForgetPlan, Forgetter
from nanobot.memory.forgetting.matcher import ERASED, TextMatcher
from nanobot.memory.forgetting.occurrences import (
    LEFT_ALONE,
    Home,
    Kind,
    Occurrence,
    remove,
    take_out,
)
from nanobot.memory.scopes import OWNER, Memories
from nanobot.memory.text.wording import words
from nanobot.memory.versions.gitstore import GitStore
from nanobot.session.manager import SessionManager
from nanobot.session.records import SUFFIX, JsonValue
from nanobot.text import counted

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

_PASSES = 3
"""What a turn under way wrote meanwhile is found by the next pass."""

_SHOWN = 20
_IN_ADDRESS = re.compile(rf"(?:^|/)(?:sessions/|(?:people|groups)/[^/]*{re.escape(ERASED)})")


@dataclass(frozen=True, slots=True)
class ErasePlan:
    """What `/forget --erase` would change. `query` is the text as it was given; it is kept nowhere
    but in this value."""

    query: str
    occurrences: tuple[Occurrence, ...]
    forgets: ForgetPlan

    @property
    def is_empty(self) -> bool:
        """Whether no file holds the text and nothing remembered says it."""
        return not self.occurrences and self.forgets.is_empty

    @property
    def text(self) -> str:
        """For people: which files; never the text itself."""
        if self.is_empty:
            return "This text stands nowhere in my files."
        changing = [one.shown for one in self.occurrences if one.can_be_cleaned]
        lines = [
            f"To be erased from {counted(len(changing), 'file')} of all memories:",
            *_items(changing),
        ]
        if not self.forgets.is_empty:
            lines.append(f"Also forgotten, as with /forget: {self.forgets.counts}.")
        if left := _reasons(self.occurrences):
            lines += ["This stays and has to be changed by hand:", *_items(left)]
        return "\n".join([*lines, "This cannot be undone. It does not reach:", *_items(BEYOND)])

    def as_json(self) -> dict[str, JsonValue]:
        """For machines."""
        return {
            "found": not self.is_empty,
            "files": [one.shown for one in self.occurrences if one.can_be_cleaned],
            "by_hand": list(_reasons(self.occurrences)),
            "forgets": self.forgets.counts,
            "beyond_reach": list(BEYOND),
        }


@dataclass(frozen=True, slots=True)
class EraseReport:
    """What an erasure changed (`before`), and what still holds the text (`left`)."""

    before: tuple[Occurrence, ...]
    left: tuple[Occurrence, ...]

    @property
    def is_complete(self) -> bool:
        """Whether no file of the home holds the text any more."""
        return not self.left

    @property
    def text(self) -> str:
        """For people; never the text itself."""
        gone = {one.path for one in self.before} - {one.path for one in self.left}
        lines = [f"Erased from {counted(len(gone), 'file')}; {ERASED} stands in its place."]
        if self.is_complete:
            lines.append("I looked at every byte of every file in my home: none holds it any more.")
        else:
            lines += ["It still stands here:", *_items(_reasons(self.left, afterwards=True))]
        return "\n".join([*lines, "This does not reach:", *_items(BEYOND)])

    def as_json(self) -> dict[str, JsonValue]:
        """For machines."""
        return {
            "complete": self.is_complete,
            "files": [one.shown for one in self.before],
            "left": list(_reasons(self.left, afterwards=True)),
            "beyond_reach": list(BEYOND),
        }


class Eraser:
    """Plans and carries out erasures in the home that lies at `home`.

    `rebuild_index` must delete the search index and build a new one.
    """

    def __init__(
        self,
        home: Path,
        workspace: Path,
        *,
        sessions: SessionManager,
        journal: Journal,
        memories: Memories,
        versions: GitStore,
        forgetter: Forgetter,
        rebuild_index: Callable[[], Awaitable[None]],
        clock: Clock,
        files: FileOps | None = None,
    ) -> None:
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
        matcher = TextMatcher(text)
        forgets = await self._what_to_forget(text)
        occurrences = await asyncio.to_thread(self._home.occurrences, matcher)
        return ErasePlan(text, tuple(occurrences), forgets)

    async def apply(self, text: str, *, forgets: bool = True) -> EraseReport:
        """Erase a text; with `forgets` also what says it in other words is forgotten, otherwise the
        conversations that hold it go on without it.

        What refuses keeps nothing else from being erased, and stands in the report; doing it again
        goes on from there. Raises like `plan`, and `StorageError` where the disk takes nothing.
        """
        matcher = TextMatcher(text)
        async with self._running:
            began = self._clock.now().isoformat(timespec="seconds").encode()
            await asyncio.to_thread(replace_file, self._mark, [began, b"\n"], files=self._files)
            before = await asyncio.to_thread(self._home.occurrences, matcher)
            if forgets:
                plan = await self._what_to_forget(text)
                await _trying(matcher, self._forgetter.apply(plan))
            async with self._forgetter.pause_learning():
                left = await self._erase(matcher)
            await asyncio.to_thread(remove, self._mark)
        return EraseReport(tuple(before), tuple(left))

    def recover(self) -> bool:
        """For the start, before anything writes: remove what an erasure left behind that was cut
        short. Says whether one was; its text is not known, so it has to be given again. Blocks."""
        if not self._mark.exists():
            return False
        for path, kind in list(self._home.files(lambda _: None)):
            if kind is Kind.TEMPORARY:
                remove(path)
        remove(self._mark)
        logger.warning("an erasure was cut short: give /forget --erase again to finish it")
        return True

    async def _what_to_forget(self, text: str) -> ForgetPlan:
        """A memory that cannot be read is no reason to erase nothing."""
        if words(text):
            with suppress(NanobotError):
                return await self._forgetter.plan(text, OWNER)
        return ForgetPlan(text, OWNER)

    async def _erase(self, matcher: TextMatcher) -> list[Occurrence]:
        """What still holds the text after some passes."""
        known = set[Path]()
        for _ in range(_PASSES):
            broken = await self._erase_conversations(matcher)
            await self._erase_memories(matcher)
            self._memories.forgotten += 1  # before the search: no turn writes it down from then on
            found = await asyncio.to_thread(self._home.occurrences, matcher)
            await asyncio.to_thread(self._erase_files, matcher, found, known | broken)
            rewrite = asyncio.to_thread(self._versions.rewrite, matcher.without_lines)
            await _trying(matcher, rewrite)
            await _trying(matcher, self._rebuild_index())
            await _trying(matcher, self._journal.reports.erase(matcher.redact))
            known = {one.path for one in found}
            left = await asyncio.to_thread(self._home.occurrences, matcher)
            if not any(one.can_be_cleaned for one in left):
                break
        return left

    async def _erase_conversations(self, matcher: TextMatcher) -> set[Path]:
        """Returns the files that are no valid conversations, so that no turn adds to them."""
        broken = set[Path]()
        for info in await asyncio.to_thread(self._sessions.list_sessions):
            try:
                await asyncio.to_thread(self._remove_media_of, matcher, info.key)
                await self._sessions.rewrite(info.key, matcher.redact)
            except NanobotError as error:
                _warn(matcher, error)
                broken.add(info.path)
        return broken

    def _remove_media_of(self, matcher: TextMatcher, key: str) -> None:
        """The files of messages that say nothing but the text; first, since they are not known any
        more once it is gone."""
        for message in self._sessions.read_messages(key):
            if message.media and matcher.fills(message.content):
                for name in message.media:
                    remove(self._home.folder / "media" / Path(name).name)

    async def _erase_memories(self, matcher: TextMatcher) -> None:
        for scope in await asyncio.to_thread(self._memories.existing):
            memory = self._memories.of(scope)
            await _trying(matcher, asyncio.to_thread(memory.history.rewrite, matcher.redact_plain))
            await _trying(matcher, memory.store.rewrite(matcher.without_lines))

    def _erase_files(
        self, matcher: TextMatcher, found: Iterable[Occurrence], unused: set[Path]
    ) -> None:
        """All that belongs to no store. Turns may add lines to conversations and temporary files,
        unless they are `unused`: broken, or found by the pass before."""
        for one in found:
            in_use = one.kind is Kind.TEMPORARY or (
                one.kind is Kind.CONVERSATION and one.path.suffix == SUFFIX
            )
            if not one.can_be_cleaned or one.kind is Kind.STORE:
                continue
            if in_use and one.path not in unused:
                continue
            for _ in range(_PASSES):
                try:
                    take_out(one, matcher)
                except WriteConflict:  # somebody saved just now
                    continue
                except NanobotError as error:
                    _warn(matcher, error)
                break


async def _trying(matcher: TextMatcher, work: Awaitable[object]) -> None:
    """What refuses stands in the report: it holds the text at the end."""
    try:
        await work
    except NanobotError as error:
        _warn(matcher, error)


def _warn(matcher: TextMatcher, error: NanobotError) -> None:
    logger.warning("while erasing: {}", matcher.redact_plain(str(error)))


def _reasons(found: Sequence[Occurrence], *, afterwards: bool = False) -> list[str]:
    """The files that stay, each with the reason; `afterwards` all of them."""
    again = "if it is in the id of a chat or person, it stays; otherwise try again"
    reasons = [(one.shown, _reason(one) or (again if afterwards else "")) for one in found]
    return [f"{shown}: {reason}" for shown, reason in reasons if reason]


def _reason(one: Occurrence) -> str:
    """Why an erasure does not change a file; empty where it does."""
    if not one.is_readable:
        return "it cannot be read"
    if one.kind in LEFT_ALONE:
        return LEFT_ALONE[one.kind]
    if one.in_name and _IN_ADDRESS.search(one.shown):
        return "it is in the id of a chat or person, by which I know who talks to me, and stays"
    if one.in_name:
        return "its name or its folder's says it: rename it"
    if not one.is_text and one.kind is Kind.TEXT:
        return "it is no text file: delete it if you can do without"
    return ""


def _items(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _SHOWN
    return [f"- {line}" for line in (*lines[:_SHOWN], *([f"and {more} more"] if more > 0 else []))]
