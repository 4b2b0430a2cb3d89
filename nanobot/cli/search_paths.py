"""Removal of folders that the agent can write from PATH, PYTHONPATH and `sys.path`.

Each command does this first, so this module needs only the standard library."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path


def trust_no_relative_folder() -> None:
    """Remove relative folders from PATH, PYTHONPATH and `sys.path`. They depend on the current
    folder, which the agent may be able to write."""
    for name in ("PATH", "PYTHONPATH"):
        if given := os.environ.get(name):
            folders = given.split(":")
            os.environ[name] = ":".join(one for one in folders if one.startswith("/"))
            if name == "PYTHONPATH":
                meant = {Path(one).absolute() for one in folders if not one.startswith("/")}
                meant.discard(Path(__file__).parents[2])  # nanobot's own folder
                sys.path[:] = [one for one in sys.path if Path(one).absolute() not in meant]


def trust_nothing_below(folder: os.PathLike[str]) -> None:
    """Remove folders that the agent can write from PATH and `sys.path`, unless nanobot itself is
    installed there."""
    real = os.path.realpath(folder) + "/"

    def drop_below(entries: Iterable[str]) -> list[str]:
        return [one for one in entries if not f"{os.path.realpath(one)}/".startswith(real)]

    if "PATH" in os.environ:
        os.environ["PATH"] = ":".join(drop_below(os.environ["PATH"].split(":")))
    if len(drop_below([sys.prefix, __file__])) == 2:
        sys.path[:] = drop_below(sys.path)
