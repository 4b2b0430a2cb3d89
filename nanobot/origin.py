"""The place that nanobot was installed from, so that an extra comes from the same place.

A package index may hold a stranger's package under our name. So no command that nanobot prints or
runs asks an index for nanobot itself: it names the clone, or the path, archive or repository that
the installer recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

DISTRIBUTION = "nanobot-daemon"


def install_command(extra: str) -> tuple[str, ...]:
    """Return the command that adds `extra` to this installation; empty if none is known."""
    root = Path(__file__).resolve().parents[1]
    if (root / "Makefile").is_file() and Path(sys.prefix).resolve() == root / ".venv":
        return ("make", "-C", str(root), "extra", f"NAME={extra}")
    words = requirement(extra, _recorded())
    return (sys.executable, "-I", "-m", "pip", "install", *words) if words else ()


def how_to_install(extra: str) -> str:
    """Return a hint with the command that adds `extra` to this installation."""
    import shlex

    if command := install_command(extra):
        return f"Install it: {shlex.join(command)}"
    return (
        f"Install nanobot again with its extra {extra}, from the clone or archive that it came"
        " from: docs/configuration.md, Extras."
    )


def requirement(extra: str, origin: Mapping[str, object]) -> tuple[str, ...]:
    """Return pip's arguments that add `extra` from `origin`, the content of a direct_url.json
    (PEP 610). Empty if the origin is unknown or gone, or a local repository, which older versions
    of pip reject."""
    from urllib.parse import unquote, urlsplit

    url = str(origin.get("url", ""))
    path = unquote(urlsplit(url).path) if url.startswith("file:") else ""
    version_control = _text(origin, "vcs_info", "vcs")
    if not url or (path and (version_control or not Path(path).exists())):
        return ()
    if _text(origin, "dir_info", "editable") == "True":
        return ("--editable", f"{path}[{extra}]")
    parts = []
    if version_control:
        url = f"{version_control}+{url}@{_text(origin, 'vcs_info', 'commit_id')}"
    elif digest := _text(origin, "archive_info", "hash"):
        parts.append(digest)
    if folder := origin.get("subdirectory"):
        parts.append(f"subdirectory={folder}")
    return (f"{DISTRIBUTION}[{extra}] @ {url}{'#' if parts else ''}{'&'.join(parts)}",)


def _recorded() -> Mapping[str, object]:
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(origin: Mapping[str, object], part: str, key: str) -> str:
    found = origin.get(part)
    return str(found.get(key, "")) if isinstance(found, dict) else ""
