"""Folders that programs of the agent's get to see, and those that they never may.

The folder of nanobot itself holds keys, sessions and the control socket: showing it, or anything
above it or in it, would undo the sandbox. The workspace is no exception: a command could put a link
there between the check and the use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from nanobot.config.values import Unfit


def unfit_to_show(path: Path, home: Path) -> str:
    """Why programs may not read `path`, which is absolute; empty where they may."""
    path, home = path.resolve(), home.resolve()
    if path in (Path("/proc"), Path("/dev"), Path("/sys"), Path("/run")):
        return "holds no files but the system itself"
    if home.is_relative_to(path):
        return "would show nanobot's own folder, with its keys and sessions"
    return "is in nanobot's own folder" if path.is_relative_to(home) else ""


def _absolute(text: str) -> str:
    path = text.strip()
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        example = "Write it from the root, such as /home/ada/notes or ${HOME}/notes."
        raise Unfit("must be an absolute path", example)
    return path.rstrip("/") or "/"


AbsolutePath = Annotated[str, AfterValidator(_absolute)]
