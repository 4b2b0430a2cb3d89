"""`nanobot logs`: what the log says, for people, as it is written where that is wished.

Read from the files, so a gateway may run or not.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nanobot.cli.admin import put
from nanobot.errors import StorageError
from nanobot.logs import LOG_FILE
from nanobot.logs.output import LEVELS, LogLine, Tail, newest_lines

_PAUSE = 0.25
"""Seconds between two looks for new lines."""

_NOTHING = "Nothing of that kind is logged.\n"
_NO_LOG = """\
There is no log yet. `nanobot gateway` writes it to {}
unless `log.file` in config.yaml says that it shall not.
"""


@dataclass(frozen=True, slots=True)
class Selection:
    """The last `count` lines from `level` on, those of one turn where it is named."""

    count: int
    level: str = "debug"
    turn: str = ""

    def holds(self, line: LogLine) -> bool:
        """Whether a line is of the kind."""
        important = LEVELS.index(line.level) >= LEVELS.index(self.level)
        return important and self.turn in ("", line.turn)


def show(home: Path, selection: Selection, *, follow: bool, as_json: bool) -> int:
    """`nanobot logs`; with `follow` until somebody interrupts it."""
    path = home / "logs" / LOG_FILE
    try:
        lines, mark = newest_lines(path, selection.holds, selection.count)
        put(_shown(lines, as_json=as_json))
        if follow:
            _until_interrupted(Tail(path, mark), selection, as_json=as_json)
        if not lines and not as_json:
            put(_NOTHING if mark.inode else _NO_LOG.format(path))
    except OSError as error:
        if error.filename is None:  # it is the output that refuses
            raise
        raise StorageError.of(path, error) from error
    return 0


def _until_interrupted(tail: Tail, selection: Selection, *, as_json: bool) -> None:
    try:
        _follow(tail, selection, as_json=as_json)
    except KeyboardInterrupt:
        if sys.stdout.isatty():  # what is typed next stands below, and not beside the `^C`
            put("\n")
        raise


def _follow(tail: Tail, selection: Selection, *, as_json: bool) -> None:
    while True:
        put(_shown(filter(selection.holds, tail.new_lines()), as_json=as_json))
        sys.stdout.flush()
        time.sleep(_PAUSE)


def _shown(lines: Iterable[LogLine], *, as_json: bool) -> str:
    if as_json:
        return "".join(f"{line.to_json()}\n" for line in lines)
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return "".join(f"{line.to_text(colours=colours)}\n" for line in lines)
