"""Users of a root, and running commands as them."""

from __future__ import annotations

from pathlib import Path

from scripts.clean_room.roots import RoomError


def home_of(root: Path, user: str) -> str:
    """Return the home folder of a user of that root."""
    entry = _entry(root, user)
    return entry[5] if entry else "/"


def as_user(root: Path, user: str) -> list[str]:
    """Return the prefix of a command that `user` (a name or a number) runs in that root."""
    if user in ("", "root", "0"):
        return []
    entry = _entry(root, user)
    if entry is None and not user.isdigit():
        raise RoomError(f"there is no user {user}")
    uid, gid = (entry[2], entry[3]) if entry else (user, "0")
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]


def _entry(root: Path, user: str) -> list[str] | None:
    for line in (root / "etc/passwd").read_text().splitlines():
        fields = line.split(":")
        if user in (fields[0], fields[2]):
            return fields
    return None
