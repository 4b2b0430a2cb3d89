"""Commands that add an extra to this installation.

A package index may hold a stranger's package under our name, so no command here asks an index for
nanobot itself."""

from __future__ import annotations

import sys
from pathlib import Path

DISTRIBUTION = "nanobot-daemon"


def install_command(extra: str) -> tuple[str, ...]:
    """Return the command that adds `extra`, or nothing if `make` did not make this venv."""
    root = Path(__file__).resolve().parents[1]
    if (root / "Makefile").is_file() and Path(sys.prefix).resolve() == root / ".venv":
        return ("make", "-C", str(root), "extra", f"NAME={extra}")
    return ()


def how_to_install(extra: str) -> str:
    """Return a hint for adding `extra`, with a command if there is one."""
    import shlex

    if command := install_command(extra):
        return f"Install it: {shlex.join(command)}"
    return (
        f"Reinstall nanobot with the extra {extra} from its clone or archive (see Extras in "
        "docs/configuration.md)."
    )
