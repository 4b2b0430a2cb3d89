"""The meaning of a typed line: folded pastes, and the files that it attaches.

Long pastes are folded to `[pasted 120 lines]` in the input line and on the screen, and sent in
full. The history file has them in full, too, and folds them again when it is read. Files are named
after `@`. The client reads them, and they travel in its request, as the gateway may have other
folders."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from nanobot.errors import NanobotError
from nanobot.text import format_size
from nanobot_cli.text import one_line
from nanobot_cli.wire import MOST_BYTES

_MOST_LINES, _MOST_CHARACTERS = 5, 1_000
_LABEL = re.compile(r"\[pasted [^\[\]]+\]")
_NAMED = re.compile(r'(?:^|(?<=\s))@(?:"(?P<quoted>[^"\n]+)"|(?P<plain>[^\s"]+))')
_PUNCTUATION = ".,;:!?)"


class Pastes:
    """The folded pastes of this chat, by the label that stands for each."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """Return a label for a text that is too long for the input line, or the text. A command
        stays visible, because others may have written it."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.rstrip("\n").count("\n") + 1
        is_short = lines <= _MOST_LINES and len(text) <= _MOST_CHARACTERS
        if is_short or text.lstrip().startswith("/"):
            return text
        size = f"{lines} lines" if lines > _MOST_LINES else f"{len(text):,} characters"
        label, number = f"[pasted {size}]", 1
        while self._texts.get(label, text) != text:
            number += 1
            label = f"[pasted {size}, {number}]"
        self._texts[label] = text
        return label

    def unfold(self, typed: str) -> str:
        """Return the text to send."""
        return _LABEL.sub(lambda label: self._texts.get(label[0], label[0]), typed)

    def open(self, document: Document) -> Document:
        """Return the input with its pastes in full. The cursor stays at its place in the text."""
        before = self.unfold(document.text_before_cursor)
        return Document(before + self.unfold(document.text_after_cursor), len(before))

    def has_folded(self, typed: str) -> bool:
        """Return True if the text has a label."""
        return any(label in self._texts for label in _LABEL.findall(typed))

    def ending(self, document: Document) -> str:
        """Return the label right before the cursor, or an empty text."""
        before = document.text_before_cursor
        label = before[before.rfind("[") :] if before.endswith("]") else ""
        return label if label in self._texts else ""


class ChatHistory(FileHistory):
    """The typed lines in a file. Long ones are folded."""

    def __init__(self, path: Path, pastes: Pastes) -> None:
        super().__init__(str(path))
        self._pastes = pastes

    def load_history_strings(self) -> Iterable[str]:
        """Yield the lines, newest first."""
        return map(self._pastes.fold, super().load_history_strings())

    def store_string(self, string: str) -> None:
        """Add a line, in full."""
        super().store_string(self._pastes.unfold(string))


def open_history(path: Path, pastes: Pastes) -> History:
    """Return the history in `path`, private to its owner, or one in memory if the disk fails."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return ChatHistory(path, pastes)


def read_attachments(text: str, folder: Path) -> list[tuple[str, bytes]]:
    """Return the names and contents of the files that a typed `text` names. A folded paste attaches
    none, because others may have written it. A word after `@` that names no file is only text, and
    so is a command. Raises `NanobotError` if a file cannot be read, or they
    are too large."""
    if "@" not in text or text.startswith(("/", "!")):
        return []
    files, size = list[tuple[str, bytes]](), 0
    for path in dict.fromkeys(_named_files(text, folder)):
        name = one_line(path.name, 200)
        try:
            with path.open("rb") as file:
                data = file.read(MOST_BYTES - size + 1)
        except OSError as error:
            raise NanobotError(f"{name} cannot be read: {error.strerror}") from error
        size += len(data)
        if size > MOST_BYTES:
            raise NanobotError(
                f"{name} is too large to attach (limit: {MOST_BYTES >> 20} MB per message)",
                hint="The message was not sent.",
            )
        files.append((name, data))
    return files


def describe_files(files: Sequence[tuple[str, bytes]]) -> str:
    """Return a line with the files that a message attaches, or an empty text."""
    named = ", ".join(f"{name} ({format_size(len(data))})" for name, data in files)
    return f"\n[attached: {named}]" if named else ""


def _named_files(text: str, folder: Path) -> Iterator[Path]:
    for match in _NAMED.finditer(text):
        plain = match["plain"] or ""
        for name in (match["quoted"], plain, plain.rstrip(_PUNCTUATION)):
            if name and (path := _find(name, folder)) is not None:
                yield path
                break


def _find(name: str, folder: Path) -> Path | None:
    """Return the regular file with this name, or None."""
    with suppress(OSError, ValueError, RuntimeError):  # no file, a null byte, no such home
        path = folder / Path(name).expanduser()
        if stat.S_ISREG(path.stat().st_mode):
            return path.resolve()
    return None
