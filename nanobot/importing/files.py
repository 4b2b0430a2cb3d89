"""The home of the other program, the transfer of each file in it, and the report about that.

The other home is only read. Links are not followed, except the home or the workspace itself. Pipes
and devices are never opened. Every file is handled once and listed in the report. An unreadable
file is noted there, and the import continues."""

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
    """The outcome for one file (or link, or folder) of the other home.

    `taken`: it is at `target`, byte for byte; `converted`: its content is; `left`: nanobot has no
    place for it, or it cannot be read, and `note` may give the reason. `source` and `target` are
    paths within the homes, and `count` is the number of understood messages or jobs."""

    kind: Kind
    source: str
    outcome: Outcome
    target: str = ""
    note: str = ""
    count: int = 0


class ImportReport(Struct):
    """Report of an import from `source` to `target`, which grows on the way. `changes` are
    sentences about differences, `todo` about a person's tasks. `file` is its path in the new home,
    and `command` the beginning of a command for that home."""

    source: str
    target: str
    file: str
    command: str = "nanobot"
    done: bool = False
    items: list[ImportItem] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)

    def add_change(self, text: str) -> None:
        """Report a difference, once."""
        if text not in self.changes:
            self.changes.append(text)

    def add_todo(self, text: str) -> None:
        """Report a person's task, once. Commands in it are for the new home."""
        text = _COMMAND.sub(lambda _: self.command, text)
        if text not in self.todo:
            self.todo.append(text)

    def as_json(self) -> Mapping[str, object]:
        report: Mapping[str, object] = to_builtins(self)
        return report

    def rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield kind, number of files, outcome and place."""
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
        """Return a sentence for each file with a note."""
        named = (one for one in self.items if one.note)
        return [f"{printable(one.source)}: {printable(one.note)}" for one in named]

    def as_markdown(self) -> bytes:
        files = [
            f"{one.source}: {_OUTCOMES[one.outcome]}"
            + (f", as {one.target}" if one.target else "")
            + (f" ({one.note})" if one.note else "")
            for one in self.items
        ]
        text = (
            f"# Import\n\nReport of the import from {printable(self.source)} by `nanobot import`.\n"
        )
        for title, lines in (("To do", self.todo), ("Changes", self.changes), ("Files", files)):
            text += f"\n## {title}\n\n" + "".join(f"- {printable(line)}\n" for line in lines)
        return text.encode()


CONFIG = "config.json"
ASIDE = ".before-import"
"""Suffix for the name of a home that the new one replaces."""
_LARGEST_SETTINGS = 4 << 20
"""Bytes. No person or agent writes a larger configuration or list of jobs."""

_OURS = ("config.yaml", "state/journal.db")  # files that only our homes have

_THEIRS = ("workspace", "sessions", "cron", "memory")  # folders of the other program's homes
_PROGRAMS = ("bridge", "bin", "run")
"""Folders that the other program installed for itself, which are ignored."""
_BLOCK = 1 << 20  # bytes read at once
_LONGEST, _DEEPEST = 3_000, 100
"""Bytes and folders of a path, with a margin for the longer path of the new home."""


class ImportFile(Struct, frozen=True):
    """A file in the home or the workspace. `path` begins with `home/` or `workspace/`, `place` is
    its path on the disk. A `problem` is the reason why it is no plain file."""

    path: str
    place: Path
    problem: str = ""


class Source(Struct, frozen=True):
    """A home. `workspace` is None if there is none. `config_problem` is the reason why the
    configuration cannot be used, or empty."""

    home: Path
    workspace: Path | None
    config: Fields
    config_problem: str

    def files(self) -> Iterator[ImportFile]:
        """Yield everything in it except folders, and what the other program installed for
        itself."""

        elsewhere = {self.home / name for name in _PROGRAMS} | {self.workspace}
        yield from walk_files("home", self.home, elsewhere)
        if self.workspace:
            yield from walk_files("workspace", self.workspace, set())


def locate(home: Path, workspace: Path | None, target: Path) -> Source:
    """Return the home at `home`, which may be its config.json. Raise `NanobotError` if it is no
    home of the other program."""
    hint = "Specify the other program's home: `nanobot import FROM`."
    if home.is_file() and home.name == CONFIG:
        home = home.parent
    if not home.is_dir():
        aside = home.with_name(f"{home.name}{ASIDE}")
        if aside.is_dir():  # an import was interrupted between two renames
            hint = f"It may have been moved to {aside}. If so, rename that folder to {home}."
        raise NanobotError(f"there is no folder {home}", hint=hint)
    home, target = home.resolve(), target.resolve()
    config, problem = read_config(home, hint)
    where = find_workspace(home, config, workspace)
    if where and any(one.is_relative_to(where) for one in (Path.home().resolve(), home, target)):
        raise NanobotError(
            f"the workspace {where} contains other data, which would be copied too",
            hint=(
                "Copy nanobot's files (such as AGENTS.md, memory, skills, and sessions) into a "
                "new folder, and use --workspace DIR."
            ),
        )
    return Source(home, where, config, problem)


def read_config(home: Path, hint: str) -> tuple[Fields, str]:
    """Return the configuration, and the reason why it cannot be used. Raise `NanobotError` if this
    is no home of the other program."""
    if (home / CONFIG).is_file():
        try:
            return Fields.read(read_limited(home / CONFIG, _LARGEST_SETTINGS)), ""
        except (NotJson, OSError) as error:
            return Fields({}), str(error)
    if any((home / name).exists() for name in _OURS):
        raise NanobotError(f"{home} is a home of this nanobot, not of HKUDS/nanobot", hint=hint)
    if not any((home / name).is_dir() for name in _THEIRS):
        problem = f"{home} is not a home of HKUDS/nanobot: it has no {CONFIG} and no workspace"
        raise NanobotError(problem, hint=hint)
    return Fields({}), ""


def find_workspace(home: Path, config: Fields, chosen: Path | None) -> Path | None:
    """Return the chosen workspace, else the configured one. A moved home keeps its old path in
    there, so a workspace within the present home is preferred."""
    if chosen is not None:
        if not chosen.is_dir():
            raise NanobotError(f"there is no folder {chosen}")
        return chosen.resolve()
    named = config.inner("agents", "defaults").text("workspace") or "~/.nanobot/workspace"
    _, mark, within = named.partition("/.nanobot/")
    candidates = [home / within, home / "workspace"] if mark else []
    with suppress(NanobotError):  # a user unknown on this machine
        candidates.append(expanduser(named).absolute())
    candidates.append(home / "workspace")
    found = next((path for path in candidates if path.is_dir()), None)
    return found.resolve() if found else None


def walk_files(root: str, folder: Path, skipped: Collection[Path | None]) -> Iterator[ImportFile]:
    """Yield everything below `folder` except folders and `skipped` paths."""
    waiting = [""]  # no recursion, because trees may be deep
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
    """Open a file for reading, without following a link or blocking. Raise `OSError`."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags), "rb")


def read_limited(path: Path, limit: int) -> bytes:
    """Return a file of at most `limit` bytes. Raise `OSError`, also if it is larger."""
    with open_file(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(0, f"it is larger than {limit >> 20} MiB")
    return content


class Transfer:
    """Transfer of `source` to the new home in `folder`. Without a folder everything is read and
    nothing is written."""

    def __init__(self, source: Source, folder: Path | None, report: ImportReport) -> None:
        self._home, self._folder, self._report = source.home, folder, report
        self._left = {found.path: found for found in source.files()}

    def get(self, path: str) -> ImportFile | None:
        """Return a plain file that was not handled so far, or None."""
        found = self._left.get(path)
        return None if found is None or found.problem else found

    def below(self, *folders: str) -> list[ImportFile]:
        """Return the unhandled files in these folders, which end with a slash."""
        found = (found for path, found in self._left.items() if path.startswith(folders))
        return sorted(found, key=lambda one: one.path)

    def read(self, found: ImportFile | None, limit: int = _LARGEST_SETTINGS) -> bytes:
        """Return a file's content, empty if it is missing, too large or unreadable. That is
        reported when it is handled."""
        with suppress(OSError):
            return read_limited(found.place, limit) if found else b""
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
        """Put the outcome for a file, if there is one, into the report."""
        if found:
            del self._left[found.path]
            is_inside = found.place.is_relative_to(self._home)
            shown = found.place.relative_to(self._home) if is_inside else found.place
            item = ImportItem(kind, str(shown), outcome, target, found.problem or why, count)
            self._report.items.append(item)

    def write(self, target: str, pieces: Iterable[bytes]) -> None:
        """Write a new file. Raise `StorageError`, or `OSError` if reading `pieces` does."""
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
        """Remove a file that was written or begun."""
        if self._folder is not None:
            (self._folder / target).unlink(missing_ok=True)
