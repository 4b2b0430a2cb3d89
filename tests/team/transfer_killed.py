"""Run commands of nanobot, each in a process that dies before a given change. See `test_transfer`.

    python -m tests.team.transfer_killed HOME ROOT

It reads lines `NUMBER COMMAND…`, and answers each with the command's exit code, or -9. Changes are
changes of names below ROOT, and opening a database there: of each kind, the first two in a folder.
Number 0: no kill."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

from nanobot.app import transfer  # noqa: F401 - loaded once, for all
from nanobot.cli.main import main
from nanobot.cli.parser import build_parser
from nanobot.config.load import load_settings

_CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "sqlite3.connect")
_OF_A_KIND = 2


def _die_at(number: int, root: str) -> None:
    seen = Counter[tuple[str, str]]()
    points = 0

    def hook(event: str, values: tuple[object, ...]) -> None:
        nonlocal points
        if event not in _CHANGES:
            return
        place = os.fsdecode(values[0]) if isinstance(values[0], str | bytes | os.PathLike) else ""
        if place.startswith(("/", "file:")) and root not in place:
            return
        kind = event, "/".join(place.partition(root)[2].split("/")[:4])
        seen[kind] += 1
        points += seen[kind] <= _OF_A_KIND
        if points == number and seen[kind] <= _OF_A_KIND:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _run(root: str, number: int, command: list[str]) -> int:
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.stdin = Path(os.devnull).open()  # noqa: SIM115 - until the end
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if number:
        _die_at(number, root)
    os._exit(main(command))


if __name__ == "__main__":
    home, root = sys.argv[1:]
    build_parser()
    load_settings(Path(home))
    for line in sys.stdin:
        number, *command = line.split()
        print(_run(root, int(number), ["--home", home, *command]), flush=True)
