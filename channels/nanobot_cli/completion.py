"""Completion at the prompt: commands, models, and paths of files to attach (`@notes.txt`).

The menu takes as many rows as it has entries, and none if it is closed. Paths come from an index of
the working directory, which is read with bounded work and without hidden and ignored files."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice, takewhile
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from nanobot.errors import NanobotError
from nanobot.text import clean
from nanobot_cli.conversations import Ask
from nanobot_cli.text import one_line

_MODEL = "/model "
_FILE = re.compile(r"(?:^|(?<=\s))@(?P<word>\"[^\"\n]*|[^\s\"]*)$")
_MENU_ROWS = 10

_MOST_FILES, _MOST_SHOWN = 10_000, 50
_SECONDS, _FRESH_SECONDS = 0.3, 5.0
_HEAVY = frozenset({"node_modules", "__pycache__", "venv", "target"})
_IGNORE_BYTES = 50_000


class ChatPrompt(PromptSession[str]):
    """A prompt whose completion menu fits its entries."""

    @property
    def reserve_space_for_menu(self) -> int:
        """Rows of the text and of the open menu."""
        state = self.default_buffer.complete_state
        if state is None or not state.completions:
            return 0
        rows = min(_MENU_ROWS, len(state.completions))
        return self.default_buffer.document.cursor_position_row + 1 + rows

    @reserve_space_for_menu.setter
    def reserve_space_for_menu(self, _: int) -> None:
        """Ignore the library's default."""


class ChatCompleter(Completer):
    """A completer for names of commands at the beginning of the text, names of models after
    `/model`, and paths below `folder` after `@`. `models` may take seconds and is called when the
    person has typed as much."""

    def __init__(
        self,
        commands: Sequence[tuple[str, str]],
        models: Callable[[], Sequence[str]],
        folder: Path,
    ) -> None:
        self._commands, self._models = commands, models
        self._known: Sequence[str] | None = None
        self._files = FileIndex(folder)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        typed = document.text_before_cursor
        if (match := _FILE.search(typed)) is not None:
            word = match["word"]
            for path in self._files.matching(word.removeprefix('"')):
                yield Completion(_quote(path), -len(word), display=path)
            return
        word = typed.removeprefix(_MODEL)
        for name, summary in self._matching(typed):
            yield Completion(name, start_position=-len(word), display_meta=summary)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        typed = document.text_before_cursor
        if typed.startswith(_MODEL) and self._known is None:
            self._known = ()  # ask only once
            self._known = await asyncio.to_thread(self._models)
        elif _FILE.search(typed):
            await asyncio.to_thread(self._files.refresh)
        for completion in self.get_completions(document, complete_event):
            yield completion

    def common(self, typed: str) -> str:
        """Return the common continuation of all completions of `typed`."""
        if (match := _FILE.search(typed)) is not None:
            word = match["word"]
            self._files.refresh()
            names = [] if word.startswith('"') else list(map(_quote, self._files.matching(word)))
        else:
            word = typed.removeprefix(_MODEL)
            names = [name for name, _ in self._matching(typed)]
        if not all(name.startswith(word) for name in names):
            return ""
        rests = [name[len(word) :] for name in names]
        same = takewhile(lambda letters: len(set(letters)) == 1, zip(*rests, strict=False))
        return "".join(letters[0] for letters in same)

    def _matching(self, typed: str) -> list[tuple[str, str]]:
        if typed.startswith(_MODEL):
            part = typed.removeprefix(_MODEL).lower()
            found = [name for name in self._known or () if part in name.lower()]
            found.sort(key=lambda name: (not name.lower().startswith(part), name))
            return [(name, "") for name in found]
        if not typed.startswith("/"):
            return []
        return [command for command in self._commands if command[0].startswith(typed)]


def read_commands(data: object) -> list[tuple[str, str]]:
    """Return the names and summaries in the answer of the operation `commands`."""
    return [
        ("/" + str(command.get("name", "")), clean(str(command.get("summary", ""))))
        for command in (data if isinstance(data, list) else ())
        if isinstance(command, dict)
    ]


def list_models(ask: Ask) -> Sequence[str]:
    """Return the names of the models. Blocks."""
    answer: object = None
    with suppress(NanobotError):  # no completion then
        answer = ask("models", {})
    names = answer.get("models") if isinstance(answer, dict) else None
    return [one_line(str(name), 200) for name in names] if isinstance(names, list) else []


class FileIndex:
    """The paths below `folder`. Folders end with a slash."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: Sequence[str] = ()
        self._read_at = float("-inf")

    def refresh(self) -> None:
        """Read the folder again if the index is a few seconds old. Blocks briefly."""
        if time.monotonic() - self._read_at > _FRESH_SECONDS:
            self._paths = list_paths(self._folder)
            self._read_at = time.monotonic()

    def matching(self, part: str) -> list[str]:
        """Return some paths that contain `part` in any case, the best matches first. A part outside
        the folder (`../`, `~/` or `/`) is completed in its own folder."""
        if part.startswith(("/", "~/", "../")):
            return list(islice(_list_outside(self._folder, part), _MOST_SHOWN))
        wanted = part.lower()

        def rank(path: str) -> tuple[bool, bool, int, str]:
            lower = path.lower()
            name = lower.rstrip("/").rpartition("/")[2]
            is_start = lower.startswith(wanted)
            return not is_start, not name.startswith(wanted), path.count("/"), lower

        found = [path for path in self._paths if wanted in path.lower() and path != part]
        return sorted(found, key=rank)[:_MOST_SHOWN]


def list_paths(folder: Path) -> list[str]:
    """Return the paths below `folder`, nearest first, without hidden and ignored ones. The work is
    bounded."""
    is_ignored = _read_ignored(folder)
    found, folders = list[str](), deque([""])
    deadline = time.monotonic() + _SECONDS
    while folders and len(found) < _MOST_FILES and time.monotonic() < deadline:
        inner = folders.popleft()
        with suppress(OSError), os.scandir(folder / inner) as entries:
            for entry in islice(entries, _MOST_FILES - len(found)):
                path = inner + entry.name
                if not _is_shown(entry.name) or is_ignored(path):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path := f"{path}/")
                found.append(path)
    return found


def _is_shown(name: str) -> bool:
    return (
        not name.startswith(".") and name not in _HEAVY and name.isprintable() and '"' not in name
    )


def _read_ignored(folder: Path) -> Callable[[str], bool]:
    """Return a test for paths that the folder's `.gitignore` names. Exceptions in it (`!`) are not
    supported."""
    lines: Sequence[str] = ()
    with (
        suppress(OSError),
        (folder / ".gitignore").open(encoding="utf-8", errors="replace") as file,
    ):
        lines = file.read(_IGNORE_BYTES).split("\n")
    named = [line.strip() for line in lines if line.strip() and line[0] not in "#!"]
    patterns = [one.strip("/").removeprefix("**/") for one in named]
    anchored = ["/" in one.rstrip("/") and not one.startswith("**/") for one in named]

    def is_ignored(path: str) -> bool:
        name = path.rpartition("/")[2]
        return any(
            fnmatchcase(path if is_path else name, pattern)
            for pattern, is_path in zip(patterns, anchored, strict=True)
        )

    return is_ignored


def _list_outside(folder: Path, part: str) -> Iterator[str]:
    """Yield the paths that begin with `part`, in its own folder."""
    head, _, start = part.rpartition("/")
    with suppress(OSError, RuntimeError):  # no such folder, or no home
        place = folder / Path(f"{head}/").expanduser()
        with os.scandir(place) as entries:
            names = sorted(
                (entry.name + "/" if entry.is_dir() else entry.name)
                for entry in islice(entries, _MOST_FILES)
                if entry.name.startswith(start) and _is_shown(entry.name)
            )
            yield from (f"{head}/{name}" for name in names)


def _quote(path: str) -> str:
    """Return a path as it is typed after `@`."""
    return f'"{path}"' if re.search(r"\s", path) else path
