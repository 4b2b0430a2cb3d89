"""Paths that begin with `~`, as people write them. Light: every command line begins with one."""

from __future__ import annotations

from pathlib import Path

from nanobot.errors import NanobotError


def expanded(text: str, user_home: str = "") -> Path:
    """A path that may begin with `~` or `~name`, where `user_home` is the folder of a user other
    than the one who runs this. Raises `NanobotError` for one who is not known here."""
    if user_home and (text == "~" or text.startswith("~/")):
        return Path(user_home, text[2:])
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise NanobotError(
            f"the home folder of the user in {text!r} is not known",
            hint="Write the path in full, from / on.",
        ) from None
