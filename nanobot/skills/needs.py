"""What a skill lacks here, and how to get it. Pure but for the look-ups that it is given."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass

from nanobot.skills.values import Header

_SYSTEMS = {"darwin": "macOS", "linux": "Linux", "win32": "Windows"}
_MOST_HINT = 120


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is there: `which` finds a program by its name as commands would, `environ` gives the
    names of the variables that commands see, `system` is the operating system."""

    which: Callable[[str], str | None] = shutil.which
    environ: Callable[[], Collection[str]] = tuple
    system: str = sys.platform


def lacking(header: Header, here: Surroundings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a skill needs and does not find, and how to get that: a line each."""
    wanted = header.requires
    if wanted.systems and here.system not in wanted.systems:
        names = " or ".join(_SYSTEMS.get(name, name) for name in wanted.systems)
        return (f"a computer with {names}",), ()
    missing = [name for name in wanted.bins if not _found(name, here)]
    if wanted.any_bins and not any(_found(name, here) for name in wanted.any_bins):
        missing.append(" or ".join(wanted.any_bins))
    hints = [header.install[0][:_MOST_HINT]] if missing and header.install else []
    if missing and not hints:
        hints.append(f"a package that brings {missing[0]}")
    known = here.environ()
    for name in wanted.env:
        if name not in known:
            missing.append(f"${name}")
            hints.append(f"set {name} under tools.exec.environment")
    return tuple(missing), tuple(hints)


def _found(name: str, here: Surroundings) -> bool:
    # A name with a slash would be looked for as a path, relative to wherever nanobot runs.
    return "/" not in name and here.which(name) is not None
