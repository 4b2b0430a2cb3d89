"""The home of the other program, what becomes of each file in it, and the report about that.

The other home is only read. Links are not followed, except where the home or the workspace itself
is one; pipes and devices are never opened. Every file is handled once and listed in the report;
what cannot be read is noted there, and the import continues.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal, get_args

from msgspec import Struct, field, to_builtins

from nanobot.agent.media import FOLDER, kept_name
from nanobot.errors import NanobotError
from nanobot.importing.foreign import Fields, NotJson
from nanobot.io import make_folder, storage_errors, write_all
from nanobot.memory.documents import RULES
from nanobot.text import counted, expanduser, printable

Kind = Literal[
    "settings", "conversations", "memory", "jobs", "skills", "workspace files", "media", "other"
]  # fmt: skip
Outcome = Literal["taken", "converted", "left"]

_COMMAND = re.compile(r"(?<=`)nanobot(?= )")
_COUNTED: Mapping[Kind, tuple[str, str]] = {
    "conversations": ("message", "messages"),
    "jobs": ("job", "jobs"),
}
_OUTCOMES: Mapping[Outcome, str] = {
    "taken": "taken as it is",
    "converted": "converted",
    "left": "stays in the old home",
}


class Item(Struct, frozen=True):
    """What becomes of one file (or link, or folder) of the other home.

    `taken`: it lies at `target`, byte for byte; `converted`: what it says does; `left`: nanobot has
    no place for it, or it cannot be read, and `note` may say why. `source` and `target` are paths
    within the homes, and `count` is how many messages or jobs were understood.
    """

    kind: Kind
    source: str
    outcome: Outcome
    target: str = ""
    note: str = ""
    count: int = 0


class Report(Struct):
    """All of an import, from `source` to `target`; grows while it goes on. `changes` are sentences
    about what is not as it was, `todo` about what a person has to do; `file` is where it stays in
    the new home, and `command` how a person begins a command for that home."""

    source: str
    target: str
    file: str
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
        report: Mapping[str, object] = to_builtins(self)
        return report

    def rows(self) -> Iterator[tuple[str, str, str, str]]:
        """What, how many files, what becomes of them, and where."""
        for kind in get_args(Kind):
            for outcome, told in _OUTCOMES.items():
                items = [one for one in self.items if (one.kind, one.outcome) == (kind, outcome)]
                if not items:
                    continue
                amount = counted(len(items), "file")
                if (total := sum(one.count for one in items)) and kind in _COUNTED:
                    amount += f", {counted(total, *_COUNTED[kind])}"
                shared = os.path.commonpath([one.target for one in items])
                yield kind, amount, told, printable(shared)

    def unusual(self) -> list[str]:
        """A sentence for each file that a person should hear about by name."""
        named = (one for one in self.items if one.note)
        return [f"{printable(one.source)}: {printable(one.note)}" for one in named]

    def as_markdown(self) -> bytes:
        """The report that stays in the new home."""
        text = f"# Import\n\nWhat `nanobot import` made of {printable(self.source)}.\n"
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


CONFIG = "config.json"
ASIDE = ".before-import"
"""What is added to the name of a home in whose place the new one comes."""
LARGEST_SETTINGS = 4 << 20
"""Bytes of a configuration or a list of jobs beyond which no person and no agent wrote it."""

OUR_MARKS = ("config.yaml", "state/journal.db")
"""What only a home of ours has."""

_PARTS = (*RULES, "memory", "skills", "sessions", "cron", "prompts")
"""What in a workspace is nanobot's own."""

_THEIRS = ("workspace", "sessions", "cron", "memory")
_PROGRAMS = ("bridge", "bin", "run")
"""What the other program installed for itself; not looked at."""
_BLOCK = 1 << 20
_LONGEST, _DEEPEST = 3_000, 100
"""Bytes and folders of a path; the new home has to have room for more in front of it."""

Root = Literal["home", "workspace"]


class Found(Struct, frozen=True):
    """A name somewhere below a root: its `path` within it, its `place` on the disk, how it is
    `shown` to people, and the size of a file in bytes. Where `problem` is not empty it is no plain
    file, and that says what it is."""

    root: Root
    path: str
    place: Path
    shown: str
    size: int = 0
    problem: str = ""


class Source(Struct, frozen=True):
    """A home. `workspace` is None where there is none; `whole` is false where the workspace holds
    the home, or much else: then only what nanobot knows is taken from it. `config_problem` says
    why the configuration cannot be used, empty where it can."""

    home: Path
    workspace: Path | None
    whole: bool
    config: Fields
    config_problem: str


def locate(home: Path, workspace: Path | None, target: Path) -> Source:
    """What lies at `home`; a config.json stands for its folder. Raises `NanobotError` where that is
    no home of the other program."""
    hint = "Name the home of the other program: `nanobot import FROM`."
    if home.is_file() and home.name == CONFIG:
        home = home.parent
    if not home.is_dir():
        aside = home.with_name(f"{home.name}{ASIDE}")
        if aside.is_dir():  # an import was cut short between two renames
            hint = f"It may be {aside} now: rename that to {home}."
        raise NanobotError(f"there is no folder {home}", hint=hint)
    home, target = home.resolve(), target.resolve()
    config, problem = Fields({}), ""
    if (home / CONFIG).is_file():
        try:
            config = Fields.read(read_small(home / CONFIG))
        except NotJson as error:
            problem = str(error)
        except OSError as error:
            problem = f"it cannot be read: {reason(error)}"
    elif any((home / name).exists() for name in OUR_MARKS):
        raise NanobotError(f"{home} is a home of this nanobot already", hint=hint)
    elif not any((home / name).is_dir() for name in _THEIRS):
        raise NanobotError(
            f"{home} is not a home of HKUDS/nanobot: it has no {CONFIG} and no workspace", hint=hint
        )
    where = _workspace(home, config, workspace)
    # Not all of it where it holds one of the homes, or is the person's own folder.
    whole = where not in (None, Path("/"), Path.home().resolve()) and not (
        where and (home.is_relative_to(where) or target.is_relative_to(where))
    )
    return Source(home, where, whole, config, problem)


def _workspace(home: Path, config: Fields, chosen: Path | None) -> Path | None:
    """The workspace: the one chosen, else what the configuration names. A home that was moved keeps
    its old path in there, so one within the home at hand is preferred."""
    if chosen is not None:
        if not chosen.is_dir():
            raise NanobotError(f"there is no folder {chosen}")
        return chosen.resolve()
    named = config.inner("agents", "defaults").text("workspace") or "~/.nanobot/workspace"
    _, mark, within = named.partition("/.nanobot/")
    candidates = [home / within, home / "workspace"] if mark else []
    with suppress(NanobotError):  # the folder of a user that this machine does not have
        candidates.append(expanduser(named).absolute())
    candidates.append(home / "workspace")
    found = next((path for path in candidates if path.is_dir()), None)
    return found.resolve() if found else None


def _walk(source: Source, root: Root, folder: Path, skip: Callable[[str], bool]) -> Iterator[Found]:
    """Everything below `folder`, folders themselves left out, save the paths that `skip` names."""
    waiting = [""]

    def found(path: str, size: int = 0, problem: str = "") -> Found:
        place = folder / path
        is_inside = place.is_relative_to(source.home)
        shown = place.relative_to(source.home) if is_inside else place
        return Found(root, path, place, str(shown), size, problem)

    while waiting:
        prefix = waiting.pop()
        try:
            with os.scandir(folder / prefix) as entries:
                for entry in entries:
                    path = f"{prefix}{entry.name}"
                    if skip(path):
                        continue
                    if len(os.fsencode(path)) > _LONGEST or path.count("/") > _DEEPEST:
                        yield found(path, problem="its path is too long")
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{path}/")
                    elif entry.is_file(follow_symlinks=False):
                        yield found(path, entry.stat(follow_symlinks=False).st_size)
                    else:
                        yield found(path, problem="it is a link or no regular file")
        except OSError as error:
            yield found(prefix.rstrip("/") or ".", problem=reason(error))


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A regular file for reading. Raises `OSError`, also where it is anything else."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "it is not a regular file")
        yield file


def read_small(path: Path, limit: int = LARGEST_SETTINGS) -> bytes:
    """A file of at most `limit` bytes. Raises `OSError`, also where it is larger."""
    with opened(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(0, f"it is larger than {limit >> 20} MiB")
    return content


def reason(error: OSError) -> str:
    """What went wrong, in a few words."""
    if error.errno == errno.ELOOP:
        return "it is a link, and links are not followed"
    return (error.strerror or str(error)).lower()


class Transfer:
    """Takes what is in `source` to the new home in `folder`; with none everything is read and
    nothing is written."""

    def __init__(self, source: Source, folder: Path | None, report: Report) -> None:
        self._folder, self._report = folder, report
        # What comes twice, as the workspace holds the home, is the workspace's.
        places = {found.place: found for found in _everything(source)}
        self._left = {(found.root, found.path): found for found in places.values()}

    def get(self, root: Root, path: str) -> Found | None:
        """A plain file that was not dealt with yet."""
        found = self._left.get((root, path))
        return None if found is None or found.problem else found

    def below(self, root: Root, folder: str = "") -> list[Found]:
        """What was not dealt with yet of a root, or of a folder in it."""
        prefix = f"{folder}/" if folder else ""
        found = (f for f in self._left.values() if f.root == root and f.path.startswith(prefix))
        return sorted(found, key=lambda one: one.path)

    def read(self, found: Found | None, limit: int = LARGEST_SETTINGS) -> bytes:
        """A file's content; empty where there is none, where it is larger, and where it cannot be
        read: that is told once it is dealt with."""
        with suppress(OSError):
            return read_small(found.place, limit) if found is not None else b""
        return b""

    def take(self, kind: Kind, found: Found, target: str) -> None:
        """Copy a file to `target`."""
        if found.problem:
            self.leave(kind, found, found.problem)
            return
        try:
            with opened(found.place) as file:
                if self._folder:
                    self.write(target, iter(lambda: file.read(_BLOCK), b""))
                    if os.fstat(file.fileno()).st_mode & stat.S_IXUSR:
                        (self._folder / target).chmod(0o700)
        except OSError as error:
            self.remove(target)
            self.leave(kind, found, error)
        else:
            self._done(found, Item(kind, found.shown, "taken", target))

    def take_media(self, found: Found) -> str:
        """Copy a file that came with a message; its path in the new home, empty where it cannot be
        read."""
        try:
            data = read_small(found.place, found.size)
        except OSError as error:
            self.leave("media", found, error)
            return ""
        target = f"{FOLDER}/{kept_name(data, '', found.path)}"
        if self._folder and not (self._folder / target).exists():
            self.write(target, [data])
        self._done(found, Item("media", found.shown, "taken", target))
        return target

    def converted(
        self, kind: Kind, found: Found | None, target: str, note: str = "", count: int = 0
    ) -> None:
        """Note that a file's content, if there is one, is at `target` in another form."""
        if found:
            item = Item(kind, found.shown, "converted", target, note, count)
            self._done(found, item)

    def leave(self, kind: Kind, found: Found, why: str | OSError = "") -> None:
        """Note that something is not taken."""
        note = why if isinstance(why, str) else f"it cannot be read: {reason(why)}"
        self._done(found, Item(kind, found.shown, "left", "", note))

    def write(self, target: str, pieces: Iterable[bytes]) -> None:
        """Write a new file. Raises `StorageError`, and `OSError` where reading `pieces` does."""
        if self._folder is None:
            for _ in pieces:
                pass
            return
        path = self._folder / target
        with storage_errors(path):
            make_folder(path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
        try:
            for piece in pieces:
                with storage_errors(path):
                    write_all(descriptor, piece)
        finally:
            os.close(descriptor)

    def remove(self, target: str) -> None:
        """Take back a file that was written, or begun."""
        if self._folder is not None:
            (self._folder / target).unlink(missing_ok=True)

    def _done(self, found: Found, item: Item) -> None:
        del self._left[found.root, found.path]
        self._report.items.append(item)


def _everything(source: Source) -> Iterator[Found]:
    workspace = source.workspace
    yield from _walk(
        source,
        "home",
        source.home,
        lambda path: path in _PROGRAMS or (source.whole and source.home / path == workspace),
    )
    if workspace is not None:
        skip = (lambda _: False) if source.whole else _is_no_part
        yield from _walk(source, "workspace", workspace, skip)


def _is_no_part(path: str) -> bool:
    """Whether something in a workspace is not nanobot's own."""
    return path.partition("/")[0] not in _PARTS
