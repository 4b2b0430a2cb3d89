"""The home of the other program, what becomes of each file in it, and the report about that.

The other home is only read. Links are not followed, except where the home or the workspace itself
is one; pipes and devices are never opened. Every file is handled once and listed in the report;
what cannot be read is noted there, and the import continues.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal, get_args

from msgspec import Struct, field, to_builtins

from nanobot.errors import NanobotError
from nanobot.importing.foreign import Fields, NotJson
from nanobot.io import make_folder, storage_errors, write_all
from nanobot.text import expanduser, pluralize, printable

Kind = Literal[
    "settings", "conversations", "memory", "jobs", "skills", "workspace files", "media", "other"
]  # fmt: skip
Outcome = Literal["taken", "converted", "left"]

_COMMAND = re.compile(r"(?<=`)nanobot(?= )")
_COUNTED: Mapping[Kind, str] = {"conversations": "message", "jobs": "job"}
_OUTCOMES: Mapping[Outcome, str] = {
    "taken": "copied unchanged",
    "converted": "converted",
    "left": "left in the old home",
}


class ImportItem(Struct, frozen=True):
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


class ImportReport(Struct):
    """All of an import, from `source` to `target`; grows while it goes on. `changes` are sentences
    about what is not as it was, `todo` about what a person has to do; `file` is where it stays in
    the new home, and `command` how a person begins a command for that home."""

    source: str
    target: str
    file: str
    command: str = "nanobot"
    done: bool = False
    items: list[ImportItem] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)

    def add_change(self, text: str) -> None:
        """Something is not as it was; said once."""
        if text not in self.changes:
            self.changes.append(text)

    def add_todo(self, text: str) -> None:
        """Something that a person has to do; said once. Commands in it are for the new home."""
        text = _COMMAND.sub(lambda _: self.command, text)
        if text not in self.todo:
            self.todo.append(text)

    def as_json(self) -> Mapping[str, object]:
        report: Mapping[str, object] = to_builtins(self)
        return report

    def rows(self) -> Iterator[tuple[str, str, str, str]]:
        """What, how many files, what becomes of them, and where."""
        for kind in get_args(Kind):
            for outcome, shown in _OUTCOMES.items():
                items = [one for one in self.items if (one.kind, one.outcome) == (kind, outcome)]
                if not items:
                    continue
                amount = pluralize(len(items), "file")
                if total := sum(one.count for one in items):
                    amount += f", {pluralize(total, _COUNTED[kind])}"
                shared = os.path.commonpath([one.target for one in items])
                yield kind, amount, shown, printable(shared)

    def unusual(self) -> list[str]:
        """A sentence for each file that a person should hear about by name."""
        named = (one for one in self.items if one.note)
        return [f"{printable(one.source)}: {printable(one.note)}" for one in named]

    def as_markdown(self) -> bytes:
        files = [
            f"{one.source}: {_OUTCOMES[one.outcome]}"
            + (f", as {one.target}" if one.target else "")
            + (f" ({one.note})" if one.note else "")
            for one in self.items
        ]
        text = f"# Import\n\nReport of `nanobot import` from {printable(self.source)}.\n"
        for title, lines in (("To do", self.todo), ("Changes", self.changes), ("Files", files)):
            text += f"\n## {title}\n\n" + "".join(f"- {printable(line)}\n" for line in lines)
        return text.encode()


CONFIG = "config.json"
ASIDE = ".before-import"
"""What is added to the name of a home in whose place the new one comes."""
_LARGEST_SETTINGS = 4 << 20
"""Bytes of a configuration or a list of jobs beyond which no person and no agent wrote it."""

_OURS = ("config.yaml", "state/journal.db")
"""What only a home of ours has."""

_THEIRS = ("workspace", "sessions", "cron", "memory")
_PROGRAMS = ("bridge", "bin", "run")
"""What the other program installed for itself; not looked at."""
_BLOCK = 1 << 20
_LONGEST, _DEEPEST = 3_000, 100
"""Bytes and folders of a path; the new home has to have room for more in front of it."""


class ImportFile(Struct, frozen=True):
    """A name below the home or the workspace. `path` begins with `home/` or `workspace/`, `place`
    is where it is on the disk. A `problem` says why it is no plain file."""

    path: str
    place: Path
    problem: str = ""


class Source(Struct, frozen=True):
    """A home. `workspace` is None where there is none. `config_problem` says why the configuration
    cannot be used, empty where it can."""

    home: Path
    workspace: Path | None
    config: Fields
    config_problem: str

    def files(self) -> Iterator[ImportFile]:
        """Everything in it but folders, and what the other program installed for itself."""

        elsewhere = {self.home / name for name in _PROGRAMS} | {self.workspace}
        yield from _walk("home", self.home, elsewhere)
        if self.workspace:
            yield from _walk("workspace", self.workspace, set())


def locate(home: Path, workspace: Path | None, target: Path) -> Source:
    """What lies at `home`; a config.json stands for its folder. Raises `NanobotError` where that is
    no home of the other program."""
    hint = "Give the home of the other program: `nanobot import FROM`."
    if home.is_file() and home.name == CONFIG:
        home = home.parent
    if not home.is_dir():
        aside = home.with_name(f"{home.name}{ASIDE}")
        if aside.is_dir():  # an import was cut short between two renames
            hint = f"It may be {aside} now. Rename it to {home}."
        raise NanobotError(f"there is no folder {home}", hint=hint)
    home, target = home.resolve(), target.resolve()
    config, problem = _read_config(home, hint)
    where = _workspace(home, config, workspace)
    if where and any(one.is_relative_to(where) for one in (Path.home().resolve(), home, target)):
        raise NanobotError(
            f"the workspace {where} contains other data, which would be copied too",
            hint=(
                "Copy nanobot's files (such as AGENTS.md, memory, skills, and sessions) into a "
                "new folder, and use --workspace DIR."
            ),
        )
    return Source(home, where, config, problem)


def _read_config(home: Path, hint: str) -> tuple[Fields, str]:
    """Return the configuration, and why it cannot be used. Raises `NanobotError` if this is no home
    of the other program."""
    if (home / CONFIG).is_file():
        try:
            return Fields.read(_content_of(home / CONFIG, _LARGEST_SETTINGS)), ""
        except (NotJson, OSError) as error:
            return Fields({}), str(error)
    if any((home / name).exists() for name in _OURS):
        raise NanobotError(f"{home} is already a home of this nanobot", hint=hint)
    if not any((home / name).is_dir() for name in _THEIRS):
        problem = f"{home} is not a home of HKUDS/nanobot: it has no {CONFIG} and no workspace"
        raise NanobotError(problem, hint=hint)
    return Fields({}), ""


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


def _walk(root: str, folder: Path, skipped: Collection[Path | None]) -> Iterator[ImportFile]:
    """Everything below `folder` but folders themselves, and what is `skipped`."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            entries = list(os.scandir(folder / prefix))
        except OSError as error:
            yield ImportFile(f"{root}/{prefix}".rstrip("/"), folder / prefix, str(error.strerror))
            continue
        for entry in entries:
            path, problem = f"{prefix}{entry.name}", ""
            if folder / path in skipped:
                continue
            if len(os.fsencode(path)) > _LONGEST or path.count("/") > _DEEPEST:
                problem = "its path is too long"
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(f"{path}/")
                continue
            elif not entry.is_file(follow_symlinks=False):
                problem = "it is a link or a special file"
            yield ImportFile(f"{root}/{path}", folder / path, problem)


def open_file(path: Path) -> BinaryIO:
    """A file for reading; neither followed if it is a link, nor waited for. Raises `OSError`."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags), "rb")


def _content_of(path: Path, limit: int) -> bytes:
    """A file of at most `limit` bytes. Raises `OSError`, also where it is larger."""
    with open_file(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(0, f"it is larger than {limit >> 20} MiB")
    return content


class Transfer:
    """Takes what is in `source` to the new home in `folder`; with none everything is read and
    nothing is written."""

    def __init__(self, source: Source, folder: Path | None, report: ImportReport) -> None:
        self._home, self._folder, self._report = source.home, folder, report
        self._left = {found.path: found for found in source.files()}

    def get(self, path: str) -> ImportFile | None:
        """A plain file that was not dealt with yet."""
        found = self._left.get(path)
        return None if found is None or found.problem else found

    def below(self, *folders: str) -> list[ImportFile]:
        """What was not dealt with yet in these folders, which end with a slash."""
        found = (found for path, found in self._left.items() if path.startswith(folders))
        return sorted(found, key=lambda one: one.path)

    def read(self, found: ImportFile | None, limit: int = _LARGEST_SETTINGS) -> bytes:
        """A file's content; empty where there is none, where it is larger, and where it cannot be
        read: that is told once it is dealt with."""
        with suppress(OSError):
            return _content_of(found.place, limit) if found else b""
        return b""

    def copy(self, kind: Kind, found: ImportFile, target: str) -> None:
        try:
            with open_file(found.place) as file:
                self.write(target, iter(lambda: file.read(_BLOCK), b""))
                if self._folder and os.fstat(file.fileno()).st_mode & stat.S_IXUSR:
                    (self._folder / target).chmod(0o700)
        except OSError as error:
            self.remove(target)
            self.record(kind, found, "left", why=f"it cannot be read: {error.strerror}")
        else:
            self.record(kind, found, "taken", target)

    def record(
        self,
        kind: Kind,
        found: ImportFile | None,
        outcome: Outcome,
        target: str = "",
        *,
        why: str = "",
        count: int = 0,
    ) -> None:
        """Put what became of a file, if there is one, into the report."""
        if found:
            del self._left[found.path]
            is_inside = found.place.is_relative_to(self._home)
            shown = found.place.relative_to(self._home) if is_inside else found.place
            item = ImportItem(kind, str(shown), outcome, target, found.problem or why, count)
            self._report.items.append(item)

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
