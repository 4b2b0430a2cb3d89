"""`/forget --erase`: a text leaves every file of the home.

The owner's alone, and for all scopes: it reaches every file. Each store parses its records and
writes them again without the text; the files that belong to no store are rewritten one by one.
Invariants:

- every file is replaced as a whole, so that a crash leaves it old or new, and erasing again
  finishes what was cut short; a log, which is added to all the time, is overwritten in place;
- the text is written nowhere: while it lasts, `state/erasing` says only that an erasure is under
  way. The journal, which holds the command itself, is cleaned last;
- at the end every byte of every file is searched, and what is left is reported, as is what refused.

Messages keep their place: the text in them becomes "[erased]". Files of facts and notes lose the
whole line, and so do their versions. Media files that hold it go, and those that came with a
message that said nothing else; so does what undo would put back.

Of links only those are followed that stand for a folder of nanobot's own (its media on another
disk), and what is compressed or encoded (git, PDF, pictures, office files) holds its text in a form
that is not recognised.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from loguru import logger
from msgspec import Struct

from nanobot.bus.journal import Journal
from nanobot.clock import Clock
from nanobot.errors import NanobotError, WriteConflict
from nanobot.io import FileState, replace_file, storage_errors, sync_folder
from nanobot.memory.forget import ForgetPlan, Forgetter
from nanobot.memory.gitstore import GitStore
from nanobot.memory.matcher import ERASED, LONGEST, TextMatcher
from nanobot.memory.scopes import OWNER, Memories
from nanobot.memory.wording import words
from nanobot.session.manager import SessionManager
from nanobot.session.records import SUFFIX, JsonValue
from nanobot.text import counted

BEYOND = (
    "what links in my home lead to, unless it is a folder of my own",
    "backups that were made, snapshots of this disk, and blocks of it that no file uses any more",
    "what the model's provider was sent and may keep",
    "the chat platforms' own copies of the conversations",
    "other devices and git remotes that this memory was synced with",
    "git repositories of your own in the workspace",
    "text inside compressed files and pictures, and the text in other words",
    "text that is no UTF-8, or written as addresses (%20), web pages (&amp;) and mails (=20) do",
    "where WhatsApp is linked, what it sent last week (encoded, in its folder's sent.jsonl)",
)
"""Where no erasure of a home reaches."""

_PASSES = 3
"""What a turn under way wrote meanwhile is found by the next pass."""

_SHOWN = 20
_BLOCK = 256 * 1024
_OVERLAP = 4 * LONGEST

Kind = Literal["store", "text", "log", "removed", "temporary", "settings"]
"""How a text is taken out of a file: the store that it belongs to writes it again; it is replaced,
in a log in place; the file goes, a temporary one once it is no longer in use. Settings are reported
and never changed."""

_AT_HOME: tuple[tuple[str, Kind], ...] = (
    ("state/journal.db.before-", "removed"),
    ("state/journal.db", "store"),
    ("state/index.db", "store"),
    ("state/memory.git/", "store"),
    ("state/undo/", "removed"),
    ("state/backup", "temporary"),
    ("state/cli_history", "log"),
    ("logs/", "log"),
    ("media/", "removed"),
    ("config.yaml", "settings"),
    ("secrets.env", "settings"),
)
"""What a path in the home begins with; the first that fits counts."""

_OWN = ("logs", "media", "sessions", "spill", "state", "workspace")
"""Folders of nanobot's own; any of them may be a link to another disk."""

_OLD_VERSIONS = ("state/memory.git.damaged-*", "before-restore-*/state/memory.git*")
_CLOSED = "versions that were set aside, which I cannot look into: delete it if you can do without"

_TEMPORARY = re.compile(r"\..+\.tmp|.+\.nanobot-tmp")
_IN_ADDRESS = re.compile(rf"(?:^|/)(?:sessions/|(?:people|groups)/[^/]*{re.escape(ERASED)})")


class Occurrence(Struct, frozen=True):
    """A file that holds the text or has it in its name, or one that cannot be read.

    `shown` is its path for people, without the text. `changes` says that an erasure changes it,
    `stays` why the text is in it, or in its name, afterwards; empty where it is not.
    """

    path: Path
    shown: str
    kind: Kind
    changes: bool = False
    stays: str = ""


class Home(Struct, frozen=True):
    """The folder of a nanobot, and its workspace, which may lie elsewhere."""

    folder: Path
    workspace: Path

    def occurrences(self, matcher: TextMatcher) -> list[Occurrence]:
        """All files that hold the text, or have it in their name, and what cannot be looked into:
        what could not be read, and versions that are in use no more."""
        found, unread = list[Occurrence](), list[Path]()
        for path, kind in self.files(unread.append):
            try:
                in_text, is_text = _search(path, matcher)
            except FileNotFoundError:
                continue
            except OSError:
                unread.append(path)
                continue
            if not is_text and matcher.is_short and kind in {"removed", "text"}:
                in_text = False  # any three letters stand somewhere in a photo
            name = self._shown(path)
            if in_text or matcher.is_in(name):
                shown = matcher.redact_plain(name)
                stays = _stays(shown, kind, in_name=shown != name, is_text=is_text)
                changes = in_text and kind != "settings" and (is_text or kind != "text")
                found.append(Occurrence(path, shown, kind, changes, stays))
        closed = [(path, "it cannot be read") for path in unread]
        versions = (path for pattern in _OLD_VERSIONS for path in self.folder.glob(pattern))
        closed += [(path, _CLOSED) for path in sorted(versions) if path.is_dir()]
        for path, reason in closed:
            shown = matcher.redact_plain(self._shown(path))
            found.append(Occurrence(path, shown, "text", stays=reason))
        return found

    def files(self, on_unread: Callable[[Path], None]) -> Iterator[tuple[Path, Kind]]:
        """Every regular file but those of git; each once. `on_unread` is told of what cannot be
        looked into."""

        def refused(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):  # gone meanwhile
                on_unread(Path(str(error.filename)))

        for top in self._folders():
            for root, folders, names in os.walk(top, onerror=refused):
                folders[:] = sorted(name for name in folders if name != ".git")
                for path in (Path(root, name) for name in sorted(names)):
                    try:
                        if stat.S_ISREG(path.lstat().st_mode):
                            yield path, self._kind_of(path)
                    except OSError as error:
                        refused(error)

    def _folders(self) -> Iterator[Path]:
        """The home, the workspace, and the folders of its own that lie elsewhere."""
        known = list[Path]()
        for folder in (self.folder, self.workspace, *(self.folder / name for name in _OWN)):
            real = folder.resolve()
            if not any(real.is_relative_to(other) for other in known):
                known.append(real)
                yield folder

    def _kind_of(self, path: Path) -> Kind:
        if _TEMPORARY.fullmatch(path.name):
            return "temporary"
        if path.is_relative_to(self.workspace):
            return "text"
        name = str(path.relative_to(self.folder))
        return next((kind for start, kind in _AT_HOME if name.startswith(start)), "text")

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self.folder) if path.is_relative_to(self.folder) else path)


def _stays(shown: str, kind: Kind, *, in_name: bool, is_text: bool) -> str:
    """Why an erasure does not change a file; empty where it does."""
    if kind == "settings":
        return "your settings, which I do not change: edit it yourself"
    if in_name and _IN_ADDRESS.search(shown):
        return "it is in the id of a chat or person, by which I know who talks to me, and stays"
    if in_name:
        return "its name or its folder's says it: rename it"
    if kind == "text" and not is_text:
        return "it is no text file: delete it if you can do without"
    return ""


def _search(path: Path, matcher: TextMatcher) -> tuple[bool, bool]:
    """Whether a file holds the text, and whether it is a text that can be changed."""
    found, is_text, kept = False, True, b""
    with open(path, "rb", opener=_without_links) as file:
        block = file.read(_BLOCK)
        while block:
            is_text = is_text and b"\0" not in block
            data, following = kept + block, file.read(_BLOCK)
            found = found or matcher.is_in_bytes(data, is_first=not kept, is_last=not following)
            kept, block = data[-_OVERLAP:], following
    return found, is_text


def take_out(one: Occurrence, matcher: TextMatcher) -> None:
    """Take the text out of a file that belongs to no store.

    Raises `StorageError` or, where another program saved just now, `WriteConflict`; the file is
    whole.
    """
    if one.kind in {"removed", "temporary"}:
        _remove(one.path)
        return
    with storage_errors(one.path), suppress(FileNotFoundError):
        before = one.path.lstat()
        with open(one.path, "rb", opener=_without_links) as file:
            text = file.read().decode("utf-8", "surrogateescape")

        def unchanged() -> None:
            if FileState.of(one.path.lstat()) != FileState.of(before):
                raise WriteConflict(one.path.name)

        new = _without_text(one, text, matcher)
        content = new.encode("utf-8", "surrogateescape")
        if new == text:
            return
        if one.kind == "log":  # its length stays, so nothing that is added meanwhile is lost
            with open(one.path, "r+b", opener=_without_links) as log:
                os.pwrite(log.fileno(), content, 0)
                os.fsync(log.fileno())
        else:
            replace_file(one.path, content, stat.S_IMODE(before.st_mode) & 0o777, unchanged)


def _without_text(one: Occurrence, text: str, matcher: TextMatcher) -> str:
    if one.kind == "log":
        return matcher.blot(text)
    structured = one.path.suffix in {".json", SUFFIX}
    return matcher.redact(text) if structured else matcher.redact_plain(text)


def _remove(path: Path) -> None:
    """Delete a file, durably."""
    with storage_errors(path), suppress(FileNotFoundError):
        path.unlink()
        sync_folder(path.parent)


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


class ErasePlan(Struct, frozen=True):
    """What `/forget --erase` would change."""

    occurrences: tuple[Occurrence, ...]
    forgets: ForgetPlan

    @property
    def is_empty(self) -> bool:
        """Whether no file holds the text and nothing remembered says it."""
        return not self.occurrences and self.forgets.is_empty

    @property
    def _changing(self) -> list[str]:
        return [one.shown for one in self.occurrences if one.changes]

    @property
    def _by_hand(self) -> list[str]:
        return [f"{one.shown}: {one.stays}" for one in self.occurrences if one.stays]

    @property
    def text(self) -> str:
        """For people: which files; never the text itself."""
        if self.is_empty:
            return "This text stands nowhere in my files."
        count = counted(len(self._changing), "file")
        lines = [f"To be erased from {count} of all memories:", *_items(self._changing)]
        if not self.forgets.is_empty:
            lines.append(f"Also forgotten, as with /forget: {self.forgets.counts}.")
        if self._by_hand:
            lines += ["This stays and has to be changed by hand:", *_items(self._by_hand)]
        return "\n".join([*lines, "This cannot be undone. It does not reach:", *_items(BEYOND)])

    def as_json(self) -> dict[str, JsonValue]:
        """For machines."""
        return {
            "found": not self.is_empty,
            "files": list[JsonValue](self._changing),
            "by_hand": list[JsonValue](self._by_hand),
            "forgets": self.forgets.counts,
            "beyond_reach": list(BEYOND),
        }


class EraseReport(Struct, frozen=True):
    """What an erasure changed (`before`), what still holds the text (`left`), and why the versions
    of memory refused to be rewritten, empty where they did not."""

    before: tuple[Occurrence, ...]
    left: tuple[Occurrence, ...]
    refused: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether nothing in the home holds the text any more."""
        return not self.left and not self.refused

    @property
    def _reasons(self) -> list[str]:
        again = "if it is in the id of a chat or person, it stays; otherwise try again"
        reasons = [f"{one.shown}: {one.stays or again}" for one in self.left]
        return [*reasons, *([f"the versions of memory: {self.refused}"] if self.refused else [])]

    @property
    def text(self) -> str:
        """For people; never the text itself."""
        gone = {one.path for one in self.before} - {one.path for one in self.left}
        lines = [f"Erased from {counted(len(gone), 'file')}; {ERASED} stands in its place."]
        if self.is_complete:
            lines.append("I looked at every byte of every file in my home: none holds it any more.")
        else:
            lines += ["It still stands here:", *_items(self._reasons)]
        return "\n".join([*lines, "This does not reach:", *_items(BEYOND)])

    def as_json(self) -> dict[str, JsonValue]:
        """For machines."""
        return {
            "complete": self.is_complete,
            "files": [one.shown for one in self.before],
            "left": list[JsonValue](self._reasons),
            "beyond_reach": list(BEYOND),
        }


def _items(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _SHOWN
    return [f"- {line}" for line in (*lines[:_SHOWN], *([f"and {more} more"] if more > 0 else []))]


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
    ) -> None:
        self._home = Home(home, workspace)
        self._sessions, self._journal = sessions, journal
        self._memories, self._versions = memories, versions
        self._forgetter, self._rebuild_index = forgetter, rebuild_index
        self._clock = clock
        self._mark = home / "state" / "erasing"
        self._running = asyncio.Lock()

    async def plan(self, text: str) -> ErasePlan:
        """What erasing `text` would change; changes nothing.

        Raises `NanobotError` for a text that is too short to search for.
        """
        matcher = TextMatcher(text)
        forgets = await self._what_to_forget(text)
        occurrences = await asyncio.to_thread(self._home.occurrences, matcher)
        return ErasePlan(tuple(occurrences), forgets)

    async def apply(self, text: str, *, forgets: bool = True) -> EraseReport:
        """Erase a text; with `forgets` also what says it in other words is forgotten, otherwise the
        conversations that hold it go on without it.

        What refuses keeps nothing else from being erased, and stands in the report; doing it again
        goes on from there. Raises like `plan`, and `StorageError` where the disk takes nothing.
        """
        matcher = TextMatcher(text)
        async with self._running:
            began = self._clock.now().isoformat(timespec="seconds").encode()
            await asyncio.to_thread(replace_file, self._mark, [began, b"\n"])
            before = await asyncio.to_thread(self._home.occurrences, matcher)
            if forgets:
                plan = await self._what_to_forget(text)
                await _trying(matcher, self._forgetter.apply(plan))
            async with self._forgetter.pause_learning():
                left, refused = await self._erase(matcher)
            await asyncio.to_thread(_remove, self._mark)
        return EraseReport(tuple(before), tuple(left), refused)

    def recover(self) -> bool:
        """For the start, before anything writes: remove what an erasure left behind that was cut
        short. Says whether one was; its text is not known, so it has to be given again. Blocks."""
        if not self._mark.exists():
            return False
        for path, kind in list(self._home.files(lambda _: None)):
            if kind == "temporary":
                _remove(path)
        _remove(self._mark)
        logger.warning("an erasure was cut short: give /forget --erase again to finish it")
        return True

    async def _what_to_forget(self, text: str) -> ForgetPlan:
        """A memory that cannot be read is no reason to erase nothing."""
        if words(text):
            with suppress(NanobotError):
                return await self._forgetter.plan(text, OWNER)
        return ForgetPlan(text, OWNER)

    async def _erase(self, matcher: TextMatcher) -> tuple[list[Occurrence], str]:
        """What still holds the text after some passes, and why the versions of memory may."""
        known = set[Path]()
        for _ in range(_PASSES):
            broken = await self._erase_conversations(matcher)
            for scope in await asyncio.to_thread(self._memories.existing):
                memory = self._memories.of(scope)
                history = asyncio.to_thread(memory.history.rewrite, matcher.redact_plain)
                await _trying(matcher, history)
                await _trying(matcher, memory.store.rewrite(matcher.without_lines))
            self._memories.forgotten += 1  # before the search: no turn writes it down from then on
            found = await asyncio.to_thread(self._home.occurrences, matcher)
            await self._erase_files(matcher, found, known | broken)
            rewrite = asyncio.to_thread(self._versions.rewrite, matcher.without_lines)
            refused = await _trying(matcher, rewrite)
            await _trying(matcher, self._rebuild_index())
            await _trying(matcher, self._journal.erase(matcher.redact))
            known = {one.path for one in found}
            left = await asyncio.to_thread(self._home.occurrences, matcher)
            if not any(one.changes for one in left):
                break
        return left, refused

    async def _erase_conversations(self, matcher: TextMatcher) -> set[Path]:
        """Returns the files that are no valid conversations, so that no turn adds to them."""
        broken = set[Path]()
        for info in await asyncio.to_thread(self._sessions.list_sessions):
            media = asyncio.to_thread(self._remove_media_of, matcher, info.key)
            if await _trying(matcher, media) or await _trying(
                matcher, self._sessions.rewrite(info.key, matcher.redact)
            ):
                broken.add(Path(info.place))
        return broken

    def _remove_media_of(self, matcher: TextMatcher, key: str) -> None:
        """The files of messages that say nothing but the text; first, since they are not known any
        more once it is gone."""
        for message in self._sessions.read_messages(key):
            if message.media and matcher.fills(message.content):
                for name in message.media:
                    _remove(self._home.folder / "media" / Path(name).name)

    async def _erase_files(
        self, matcher: TextMatcher, found: Sequence[Occurrence], unused: Collection[Path]
    ) -> None:
        """All that belongs to no store. Turns may add lines to conversations and temporary files,
        unless they are `unused`: broken, or found by the pass before."""
        sessions = self._home.folder / "sessions"
        for one in found:
            is_session = one.path.parent == sessions and one.path.suffix == SUFFIX
            in_use = (one.kind == "temporary" or is_session) and one.path not in unused
            if one.changes and one.kind != "store" and not in_use:
                await _trying(matcher, asyncio.to_thread(take_out, one, matcher))


async def _trying(matcher: TextMatcher, work: Awaitable[object]) -> str:
    """Do `work`; why it was refused. The next pass tries again."""
    try:
        await work
    except NanobotError as error:
        refusal = matcher.redact_plain(str(error))
        logger.warning("while erasing: {}", refusal)
        return refusal
    return ""
