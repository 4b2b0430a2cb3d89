"""A person who edits a file while nanobot writes it, at the worst moments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

_watching: list[Callable[[str], None]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event == "os.rename" and _watching and isinstance(arguments[1], str):
        _watching[-1](arguments[1])


sys.addaudithook(_hook)


class Editor:
    """Saves `file` on request, or just before nanobot does one of two things: its planned write,
    and the version of its text.

    `edits` are called in turn, each for the new text from the current one. Every other save uses a
    temporary file, like vim, and the rest write in place. Nanobot writes nothing else at those
    moments, so that its own reads and saves are the newest."""

    def __init__(self, file: Path, *edits: Callable[[str], str]) -> None:
        self._file, self._edits = file, list(edits)
        self._saves = self._moments = 0

    def __enter__(self) -> Editor:
        _watching.append(self._about_to_rename)
        return self

    def __exit__(self, *_: object) -> None:
        _watching.pop()

    @property
    def left(self) -> int:
        """The number of edits not made yet."""
        return len(self._edits)

    def save(self) -> None:
        """Make the next edit now."""
        if not self._edits:
            return
        text = self._edits.pop(0)(self._file.read_text())
        self._saves += 1
        if self._saves % 2:
            swap = self._file.with_name("MEMORY.md~")
            swap.write_text(text)
            swap.replace(self._file)
        else:
            with self._file.open("r+b", buffering=0) as file:  # no reader sees half of it
                file.write(text.encode())
                file.truncate()

    def _about_to_rename(self, target: str) -> None:
        if target.endswith("prepared") or Path(target).name.startswith("device-"):
            self._moments += 1
            if self._moments % 3 == 1:  # leave other writers some gaps
                self.save()
