"""Where a nanobot lives. Light: every command line asks this first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from nanobot.errors import ConfigError


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder named by NANOBOT_HOME, else `~/.nanobot`; absolute, and it need not exist."""
    chosen = environ.get("NANOBOT_HOME", "").strip() or "~/.nanobot"
    try:
        return _expanded(chosen, environ.get("HOME", "")).absolute()
    except RuntimeError:
        raise ConfigError(
            "the home folder of the user is not known",
            file="environment",
            key="NANOBOT_HOME",
            hint="Set NANOBOT_HOME to an absolute path.",
        ) from None


def _expanded(text: str, user_home: str) -> Path:
    if user_home and (text == "~" or text.startswith("~/")):
        return Path(user_home, text[2:])
    return Path(text).expanduser()
