"""Completion at the prompt: commands, models, and paths of files to attach (`@notes.txt`).

Paths come from an index of the working directory, which is read with bounded work and without
hidden and ignored files."""

from __future__ import annotations

import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import (
    CompleteEvent,
    Completer,
    Completion,
    get_common_complete_suffix,
)
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


class ChatCompleter(Completer):
    """A completer for names of commands at the beginning of the text, names of models after
    `/model`, and paths below `folder` after `@`. It blocks: `models` may take seconds, and is
    called once."""

    def __init__(
        self,
        commands: Sequence[tuple[str, str]],
        models: Callable[[], Sequence[str]],
        folder: Path,
    ) -> None:
        self._commands, self._models = commands, models
        self._known: Sequence[str] | None = None
        self._folder = folder
        self._paths: Sequence[str] = ()
        self._paths_until = 0.0

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        typed = document.text_before_cursor
        if (match := _FILE.search(typed)) is not None:
            word = match["word"]
            for path in self._matching_paths(word.removeprefix('"')):
                yield Completion(_quote(path), -len(word), display=path)
        elif typed.startswith(_MODEL):
            part = typed.removeprefix(_MODEL)
            for name in self._matching_models(part.lower()):
                yield Completion(name, -len(part))
        elif typed.startswith("/"):
            for name, summary in self._commands:
                if name.startswith(typed):
                    yield Completion(name, -len(typed), display_meta=summary)

    def common(self, typed: str) -> str:
        """Return the common continuation of all completions of `typed`, of the known models for
        their names."""
        is_quoted = (match := _FILE.search(typed)) is not None and match["word"].startswith('"')
        if is_quoted or (typed.startswith(_MODEL) and self._known is None):
            return ""
        document = Document(typed)
        found = self.get_completions(document, CompleteEvent(completion_requested=True))
        return get_common_complete_suffix(document, [*found])

    def _matching_models(self, part: str) -> list[str]:
        if self._known is None:
            self._known = ()  # ask only once
            self._known = self._models()
        found = [name for name in self._known if part in name.lower()]
        return sorted(found, key=lambda name: (not name.lower().startswith(part), name))

    def _matching_paths(self, part: str) -> list[str]:
        """Return some paths that contain `part` in any case, the best matches first. A part outside
        the folder (`../`, `~/` or `/`) is completed in its own folder."""
        if part.startswith(("/", "~/", "../")):
            return list(islice(_list_outside(self._folder, part), _MOST_SHOWN))
        if time.monotonic() > self._paths_until:
            self._paths = list_paths(self._folder)
            self._paths_until = time.monotonic() + _FRESH_SECONDS
        wanted = part.lower()

        def rank(path: str) -> tuple[bool, bool, int, str]:
            lower = path.lower()
            name = lower.rstrip("/").rpartition("/")[2]
            is_start = lower.startswith(wanted)
            return not is_start, not name.startswith(wanted), path.count("/"), lower

        found = [path for path in self._paths if wanted in path.lower() and path != part]
        return sorted(found, key=rank)[:_MOST_SHOWN]


def rows_with_menu(buffer: Buffer) -> int:
    """Return the rows of the text and of the open completion menu, 0 if it is closed."""
    state = buffer.complete_state
    entries = len(state.completions) if state else 0
    return buffer.document.cursor_position_row + 1 + min(_MENU_ROWS, entries) if entries else 0


def read_commands(ask: Ask) -> list[tuple[str, str]]:
    """Return the names and summaries of the commands."""
    with suppress(NanobotError):  # no completion then
        return [(f"/{one['name']}", clean(one["summary"])) for one in ask("commands", {})]
    return []


def list_models(ask: Ask) -> Sequence[str]:
    """Return the names of the models. Blocks."""
    with suppress(NanobotError):  # no completion then
        return [one_line(name, 200) for name in ask("models", {})["models"]]
    return ()


def list_paths(folder: Path) -> list[str]:
    """Return the paths below `folder`, nearest first, without hidden and ignored ones. The work is
    bounded."""
    from dulwich.ignore import IgnoreFilter

    logging.getLogger("dulwich.ignore").disabled = True  # malformed patterns are skipped
    ignored = IgnoreFilter([])
    with suppress(OSError):  # no file
        ignored = IgnoreFilter.from_path(folder / ".gitignore")
    found, folders = list[str](), deque([""])
    deadline = time.monotonic() + _SECONDS
    while folders and len(found) < _MOST_FILES and time.monotonic() < deadline:
        inner = folders.popleft()
        with suppress(OSError), os.scandir(folder / inner) as entries:
            for entry in islice(entries, _MOST_FILES - len(found)):
                is_folder = entry.is_dir(follow_symlinks=False)
                path = f"{inner}{entry.name}{'/' if is_folder else ''}"
                if _is_shown(entry.name) and not ignored.is_ignored(path):
                    found.append(path)
                    folders += [path] if is_folder else []
    return found


def _is_shown(name: str) -> bool:
    return (
        not name.startswith(".") and name not in _HEAVY and name.isprintable() and '"' not in name
    )


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
