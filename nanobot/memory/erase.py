"""`/forget --erase`: delete a text from every file of the home, in all scopes.

Only the owner may erase. Stores rewrite their own records, and all other files are replaced one by
one. A crash leaves each file old or new, and erasing again finishes the work. The text itself is
written nowhere. At the end every byte of every file is searched. Remaining occurrences and refusals
are reported.

The text becomes "[erased]" in messages and the person's notes, which keep the rest. Unconfirmed
notes and lines of facts go whole, also from versions. Other wordings are hidden, as by `/forget`.
Compressed or encoded files (git, PDF, pictures, office files) are not decoded."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EIO
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO, Literal

from loguru import logger
from msgspec import Struct

from nanobot import programs
from nanobot.bus.sql_journal import Journal
from nanobot.errors import NanobotError, WriteConflict
from nanobot.io import FileState, replace_file, storage_errors, sync_folder
from nanobot.memory.forget import ForgetPlan, Forgetter, Report, bullet_list
from nanobot.memory.matcher import ERASED, LONGEST, TextMatcher
from nanobot.memory.scopes import OWNER, Memories
from nanobot.session.manager import SessionManager
from nanobot.session.records import SUFFIX, JsonValue
from nanobot.tasks import pace
from nanobot.text import pluralize

BEYOND = (
    "files that links in my home point to, unless the link replaces one of my folders",
    "existing backups, snapshots of this disk, and its unused blocks",
    "copies that the model's provider may keep",
    "copies of the conversations on the chat platforms",
    "other devices and git remotes that this memory was synced with",
    "your own git repositories in the workspace",
    "versions of memory that were set aside (`*.git.damaged-*` in state, `before-restore-*`)",
    "text inside compressed files and images, and the same content in different words",
    "attachments of messages with this text, unless they contain it themselves",
    "text that is not UTF-8, or is encoded for URLs (`%20`), web pages (`&amp;`), or email (`=20`)",
    "if WhatsApp is linked, messages sent in the last week (encoded, in sent.jsonl in its folder)",
)
"""Places that no erasure of a home reaches."""

_BEYOND_IN_TEAM = (
    "logs and caches of workers that are not running",
    "the database's write-ahead logs and dumps, and standbys that have not replayed the logs",
    "copies and snapshots of the shared folder",
)

_PASSES = 3
"""Text that a running turn writes in the meantime is found by the next pass."""

_BLOCK = 256 * 1024
_OVERLAP = 4 * LONGEST

Kind = Literal["store", "text", "log", "removed", "kept"]
"""How a text is removed from a file: by its store, by replacing the file (a log in place), by
deleting the file, or not at all: it is only reported."""

_STORES = (
    "state/journal.db",
    "state/index.",
    "state/catalogue.db",
    "state/memory.git/",
    "state/versions/",
)
_SET_ASIDE = r"\.damaged-|\.moved-to-team"
_COPIES = (
    "media/",
    "state/backup",
    "state/channels/web/uploads/",
    "state/journal.db",
    "state/undo/",
)
_LOGS = ("logs/", "state/cli_history")
_SETTINGS = ("config.yaml", "secrets.env")
"""Paths in the home, or their beginnings. Copies, such as media and undo, are removed as a
whole."""

_OWN = ("logs", "media", "sessions", "spill", "state", "workspace")
"""Nanobot's own folders. Only these may be links (media on another disk) that are followed."""

_NAMED = "its name contains the text: rename it, unless the name is the id of a chat or person"
_DATABASE = re.compile(r".+\.db(-wal|-shm|-journal)?", re.DOTALL)
_TEMPORARY = r"\..+\.tmp|.+\.nanobot-tmp"


class Occurrence(Struct, frozen=True):
    """A file with the text in its content or name, or an unreadable file. `shown` is its path for
    people, without the text. `stays` is the reason if the text remains after an erasure."""

    path: Path
    shown: str
    kind: Kind
    stays: str = ""

    @property
    def changes(self) -> bool:
        return self.kind != "kept"


class Home(Struct, frozen=True):
    """The home folder and its workspace, which may be elsewhere. In a team `folder` is the shared
    one and `own` the worker's."""

    folder: Path
    workspace: Path
    own: Path | None = None

    @property
    def beyond(self) -> tuple[str, ...]:
        return BEYOND if self.own is None else (*BEYOND, *_BEYOND_IN_TEAM)

    @property
    def _bases(self) -> tuple[Path, ...]:
        return (self.folder,) if self.own is None else (self.folder, self.own)

    def _inside(self, path: Path) -> str:
        """Return the path relative to its base folder, or unchanged if it has none."""
        base = next((base for base in self._bases if path.is_relative_to(base)), None)
        return str(path.relative_to(base) if base else path)

    def occurrences(self, matcher: TextMatcher) -> list[Occurrence]:
        """Find all files with the text in their content or name, and all unreadable files."""
        found, unread = list[Occurrence | None](), list[Path]()
        for path in pace(self._files(unread)):
            try:
                found.append(self._occurrence(path, matcher))
            except FileNotFoundError:
                continue
            except OSError:
                unread.append(path)
        for path in unread:
            shown = matcher.redact_plain(self._inside(path))
            found.append(Occurrence(path, shown, "kept", "it cannot be read"))
        return [one for one in found if one]

    def _occurrence(self, path: Path, matcher: TextMatcher) -> Occurrence | None:
        in_text, is_text = search_file(path, matcher)
        kind, name = self._kind_of(path, is_text=is_text), self._inside(path)
        if not is_text and matcher.is_short and kind != "store":
            in_text = False  # any three letters occur somewhere in a photo
        shown = matcher.redact_plain(name)
        if not in_text and shown == name:
            return None
        stays = ""
        if shown != name:
            stays = _NAMED
        elif name in _SETTINGS:
            stays = "your settings: edit the file yourself"
        elif kind == "kept":
            stays = "it is not a text file: delete it if you don't need it"
        return Occurrence(path, shown, kind if in_text else "kept", stays)

    def _files(self, unread: list[Path]) -> Iterator[Path]:
        """Yield every regular file once, except in git's folders. Unreadable folders are added to
        `unread`."""

        def note_unread(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):  # deleted in the meantime
                unread.append(Path(str(error.filename)))

        for top in self._folders():
            for root, folders, names in os.walk(top, onerror=note_unread):
                folders[:] = sorted(name for name in folders if name != ".git")
                for path in (Path(root, name) for name in sorted(names)):
                    try:
                        if stat.S_ISREG(path.lstat().st_mode):
                            yield path
                    except OSError as error:
                        note_unread(error)

    def _folders(self) -> Iterator[Path]:
        """Yield the home, the workspace, and own folders on other disks."""
        known, own = list[Path](), (base / name for base in self._bases for name in _OWN)
        for folder in (*self._bases, self.workspace, *own):
            real = folder.resolve()
            if not any(real.is_relative_to(other) for other in known):
                known.append(real)
                yield folder

    def _kind_of(self, path: Path, *, is_text: bool) -> Kind:
        name = self._inside(path)
        if re.fullmatch(_TEMPORARY, path.name):
            return "removed"
        if name in _SETTINGS:
            return "kept"
        if path.is_relative_to(self.workspace):
            return "text" if is_text else "kept"
        if name.startswith(_STORES) and not re.search(_SET_ASIDE, name):
            return "store"
        if name.startswith(_LOGS):
            return "log"
        return "text" if is_text and not name.startswith(_COPIES) else "removed"


def search_file(path: Path, matcher: TextMatcher) -> tuple[bool, bool]:
    """Return whether a file contains the text, and whether it is a text file that can be
    changed."""
    found, is_text, before = False, True, b""
    with _open_to_search(path) as file:
        block = file.read(_BLOCK)
        while block:
            following = file.read(_BLOCK)
            # Some context on both sides, because a short text has to be a separate word.
            window = before + block + following[:_OVERLAP]
            is_text = is_text and b"\0" not in block
            found = found or matcher.is_in(window.decode("utf-8", "ignore"))
            before, block = block[-4:], following
    return found, is_text


@contextmanager
def _open_to_search(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to read it from its beginning. Raise `OSError`.

    A database is read by another process, because closing it here would drop SQLite's locks."""
    if not _DATABASE.fullmatch(path.name):
        with open(path, "rb", opener=open_without_links) as file:
            yield file
        return
    reader = programs.Launch((programs.program("cat"), "--", str(path.absolute())), {})
    with reader.popen(stdin=DEVNULL, stdout=PIPE) as child:
        assert child.stdout is not None
        yield child.stdout
    if child.returncode:
        path.lstat()  # raises FileNotFoundError if it is gone, as the log of a closed database
        raise OSError(EIO, "cannot be read", str(path))


def erase_from(one: Occurrence, matcher: TextMatcher) -> None:
    """Remove the text from a file that belongs to no store. Raise `StorageError`, or
    `WriteConflict` if another program has just saved. The file is always whole."""
    with storage_errors(one.path), suppress(FileNotFoundError):
        if one.kind == "removed":
            one.path.unlink()
            sync_folder(one.path.parent)
            return
        before = one.path.lstat()
        with open(one.path, "rb", opener=open_without_links) as file:
            content = file.read()
        text = content.decode("utf-8", "surrogateescape")
        if one.kind == "log":  # keeps its length, so no concurrent append is lost
            blotted = matcher.blot(text).encode("utf-8", "surrogateescape")
            with open(one.path, "r+b", opener=open_without_links) as log:
                os.pwrite(log.fileno(), blotted, 0)
                os.fsync(log.fileno())
            return

        def require_unchanged() -> None:
            if FileState.of(one.path.lstat()) != FileState.of(before):
                raise WriteConflict(one.path.name)

        is_json = one.path.suffix in {".json", SUFFIX}
        text = matcher.redact(text) if is_json else matcher.redact_plain(text)
        new = text.encode("utf-8", "surrogateescape")
        if new != content:
            replace_file(one.path, new, stat.S_IMODE(before.st_mode) & 0o777, require_unchanged)


def open_without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def describe_plan(
    found: Sequence[Occurrence], forgets: ForgetPlan, beyond: Sequence[str]
) -> Report:
    """Describe an erasure, without the text itself."""
    files = [one.shown for one in found if one.changes]
    by_hand = [f"{one.shown}: {one.stays}" for one in found if one.stays]
    lines = [
        f"The text will be erased from {pluralize(len(files), 'file')}, across all memories:",
        *bullet_list(files),
    ]
    if not forgets.is_empty:
        lines += ["", f"Other wordings will be forgotten, as with `/forget`: {forgets.counts}."]
    if by_hand:
        lines += ["", "Change these files yourself:", *bullet_list(by_hand)]
    lines += ["", "This can't be undone. The following will not be erased:", *bullet_list(beyond)]
    if is_empty := not found and forgets.is_empty:
        lines = ["My files do not contain this text."]
    data: dict[str, JsonValue] = {"found": not is_empty, "files": [*files], "by_hand": [*by_hand]}
    return Report("\n".join(lines), data | {"forgets": forgets.counts, "beyond_reach": [*beyond]})


def erase_report(
    before: Sequence[Occurrence],
    left: Sequence[Occurrence],
    refused: Sequence[str] = (),
    beyond: Sequence[str] = BEYOND,
) -> Report:
    """Report the changed files (`before`), the files that still hold the text (`left`), and other
    refusals. The erasure is complete if no file in the home holds the text any more."""
    again = "try again, unless the text is part of the id of a chat or person"
    reasons = [*(f"{one.shown}: {one.stays or again}" for one in left), *refused]
    gone = {one.path for one in before} - {one.path for one in left}
    lines = [f"Erased from {pluralize(len(gone), 'file')} and replaced with {ERASED}."]
    if reasons:
        lines += ["The text is still in:", *bullet_list(reasons)]
    else:
        lines.append(
            "I searched every byte of every file in my home. None of them contains the text now."
        )
    lines += ["", "The following was not erased:", *bullet_list(beyond)]
    data: dict[str, JsonValue] = {"complete": not reasons, "files": [one.shown for one in before]}
    return Report("\n".join(lines), data | {"left": [*reasons], "beyond_reach": [*beyond]})


class Eraser:
    """Plans and runs erasures.

    `rebuild_index` must delete the search index and build a new one. `scope_of` returns the scope
    of a conversation. In a team `home` is the shared folder, `own_home` the worker's, and no other
    worker touches them during an erasure."""

    def __init__(
        self,
        home: Path,
        workspace: Path,
        *,
        sessions: SessionManager,
        journal: Journal,
        memories: Memories,
        forgetter: Forgetter,
        rebuild_index: Callable[[], Awaitable[None]],
        scope_of: Callable[[str], str] = lambda _: OWNER,
        own_home: Path | None = None,
    ) -> None:
        self._home = Home(home, workspace, own_home)
        self._sessions, self._journal = sessions, journal
        self._memories, self._forgetter = memories, forgetter
        self._rebuild_index, self._scope_of = rebuild_index, scope_of
        self._running = asyncio.Lock()
        self.notify_others: Callable[[str], None] | None = None
        """In a team: asks the other workers to erase a text from their own files."""

    async def plan(self, text: str) -> Report:
        """Describe the effect on files and memory. Change nothing. Raise `NanobotError` for a text
        that is too short to search for."""
        matcher = TextMatcher(text)
        forgets = ForgetPlan(OWNER)
        with suppress(NanobotError):  # memory is unreadable, or the text has too few words
            forgets = await self._forgetter.plan(text, OWNER)
        occurrences = await asyncio.to_thread(self._home.occurrences, matcher)
        return describe_plan(occurrences, forgets, self._home.beyond)

    async def apply(self, text: str, *, forgets: bool = True) -> Report:
        """Erase a text. With `forgets`, other wordings of it are forgotten too.

        A refusal does not stop the rest. It is in the report, and another erasure retries it. Raise
        like `plan`, and if another worker holds a scope."""
        matcher = TextMatcher(text)
        scopes = await asyncio.to_thread(self._scopes)
        async with self._running, self._memories.holding_each(scopes):
            before = await asyncio.to_thread(self._home.occurrences, matcher)
            sought, hidden = None, ForgetPlan(OWNER)
            with suppress(NanobotError):
                sought = await self._forgetter.seek(text, OWNER) if forgets else None
            async with self._forgetter.pause_learning():
                left, reason = await self._erase(matcher, before)
            with suppress(NanobotError):
                hidden = await self._forgetter.plan_for(sought, OWNER) if sought else hidden
            await _attempt(matcher, self._forgetter.apply(hidden))
        refused = [f"the memory versions: {reason}"] if reason else []
        if self.notify_others is not None:
            self.notify_others(text)
        report = erase_report(before, left, refused, self._home.beyond)
        return Report(report.text, {"found": bool(before) or not hidden.is_empty, **report.data})

    async def erase_own(self, text: str) -> None:
        """Erase a text, which another worker has erased, from this worker's caches and logs. Log
        refusals."""
        matcher = TextMatcher(text)
        self._memories.forgotten += 1
        await asyncio.to_thread(self._scopes)  # reloads conversations that changed
        await _attempt(matcher, self._rebuild_index())
        own = self._home.own or self._home.folder
        found = await asyncio.to_thread(Home(own, own / "workspace").occurrences, matcher)
        await erase_files(matcher, found)

    def _scopes(self) -> set[str]:
        """Return the scopes with memory, versions or conversations."""
        memories = self._memories
        talking = (self._scope_of(info.key) for info in self._sessions.list_sessions())
        return {*memories.list_scopes(), *memories.list_versioned_scopes(), *talking}

    async def _erase(
        self, matcher: TextMatcher, found: Sequence[Occurrence]
    ) -> tuple[Sequence[Occurrence], str]:
        """Return the files that still hold the text after some passes, and why versions may."""
        for again in range(_PASSES):
            await self._rewrite_memory(matcher)
            self._memories.forgotten += 1  # from here on no turn writes the text
            # The first pass skips conversations and temporary files, which turns may be writing.
            await erase_files(matcher, [one for one in found if again or not self._in_use(one)])
            refused = ""
            for scope in await asyncio.to_thread(self._memories.list_versioned_scopes):
                rewrite = self._memories.of(scope).versions.rewrite
                versions = asyncio.to_thread(rewrite, matcher.remove_lines)
                refused = await _attempt(matcher, versions) or refused
            await _attempt(matcher, self._rebuild_index())
            # Last, because the journal holds the command with the text.
            await _attempt(matcher, self._journal.erase(matcher.redact))
            found = await asyncio.to_thread(self._home.occurrences, matcher)
            if not any(one.changes for one in found):  # the rest has to be changed by hand
                break
        return found, refused

    async def _rewrite_memory(self, matcher: TextMatcher) -> None:
        """Rewrite conversations, histories, and files of facts and notes."""
        for info in await asyncio.to_thread(lambda: list(self._sessions.list_sessions())):
            await _attempt(matcher, self._sessions.rewrite(info.key, matcher.redact))
        for scope in await asyncio.to_thread(self._memories.list_scopes):
            memory = self._memories.of(scope)
            history = asyncio.to_thread(memory.history.rewrite, matcher.redact_plain)
            await _attempt(matcher, history)
            await _attempt(matcher, memory.store.rewrite(matcher.remove_lines))

    def _in_use(self, one: Occurrence) -> bool:
        in_session = one.path.parent == self._home.folder / "sessions" and one.path.suffix == SUFFIX
        return in_session or re.fullmatch(_TEMPORARY, one.path.name) is not None


async def erase_files(matcher: TextMatcher, found: Iterable[Occurrence]) -> None:
    """Remove the text from the files that belong to no store."""
    for one in found:
        if one.changes and one.kind != "store":
            await _attempt(matcher, asyncio.to_thread(erase_from, one, matcher))


async def _attempt(matcher: TextMatcher, work: Awaitable[object]) -> str:
    """Await `work` and return the reason if it is refused. The next pass tries again."""
    try:
        await work
    except NanobotError as error:
        refusal = matcher.redact_plain(str(error))
        logger.warning("while erasing: {}", refusal)
        return refusal
    return ""
