"""Reading the two files of the owner: as UTF-8 text, or as a problem that says what to do."""

from __future__ import annotations

import os
import re
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path

from nanobot.config.findings import Findings, Place

LARGEST = 1 << 20
"""Bytes; a file beyond this was not written by a person."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class OwnFile:
    """What a file says. `exposed`: others than the owner may read it."""

    text: str
    exposed: bool


def read_own_file(path: Path, findings: Findings) -> OwnFile | None:
    """The file, or None where it is absent or, as a finding then says, of no use."""
    place = Place(str(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                findings.broken(place, "is not a plain file", "Move it away.")
                return None
            raw = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except PermissionError:
        hint = f"Make it yours: `chmod 600 {shlex.quote(str(path))}`, or run nanobot as the user"
        findings.broken(place, "cannot be read: permission denied", f"{hint} who owns it.")
        return None
    except OSError as error:
        findings.broken(place, *_unreadable(path, error))
        return None
    if len(raw) > LARGEST:
        findings.broken(place, "is larger than 1 MiB", "This is not a configuration.")
        return None
    text = _decoded(raw, place, findings)
    return None if text is None else OwnFile(text, bool(status.st_mode & 0o077))


def exists(path: Path) -> bool:
    """Whether there is anything at `path` that can be reached."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def _unreadable(path: Path, error: OSError) -> tuple[str, str]:
    if isinstance(error, IsADirectoryError):
        return "is a folder, not a file", "Move it away."
    if isinstance(error, NotADirectoryError):
        return f"cannot be read: {path.parent} is not a folder", "Check NANOBOT_HOME."
    return f"cannot be read: {error.strerror}", "Check the path and the disk."


def _decoded(raw: bytes, place: Place, findings: Findings) -> str | None:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        findings.broken(
            Place(place.file, line), "is not UTF-8 text", "Save the file with encoding UTF-8."
        )
        return None
    if control := _CONTROL.search(text):
        line = text.count("\n", 0, control.start()) + 1
        findings.broken(
            Place(place.file, line),
            "holds a control character, which cannot be seen",
            "Delete the line and type it again.",
        )
        return None
    return text
