"""Where a nanobot lives. Light: every command line asks this first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from nanobot.errors import ConfigError, NanobotError


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder named by NANOBOT_HOME, else `~/.nanobot`; absolute, and it need not exist."""
    chosen = environ.get("NANOBOT_HOME", "").strip() or "~/.nanobot"
    try:
        return expanded(chosen, environ.get("HOME", "")).absolute()
    except NanobotError:
        raise ConfigError(
            "the home folder of the user is not known",
            file="environment",
            key="NANOBOT_HOME",
            hint="Set NANOBOT_HOME to an absolute path.",
        ) from None


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
