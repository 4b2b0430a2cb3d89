"""Configuration: `config.yaml`, `secrets.env` and the environment become one frozen value.

All problems are found before anything starts, and reported with file, line, key and fix. No message
of this package repeats a configured value, because any of them may be a secret in the wrong place.
`load` reads the configuration into `settings`.

This module is cheap to import: every command line needs the path of the home first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from nanobot.errors import ConfigError, NanobotError
from nanobot.text import expanduser


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the absolute path in NANOBOT_HOME, else `~/.nanobot`. The folder need not exist."""
    chosen = environ.get("NANOBOT_HOME", "").strip() or "~/.nanobot"
    try:
        return expanduser(chosen, environ.get("HOME", "")).absolute()
    except NanobotError:
        raise ConfigError(
            "the user's home folder is unknown",
            file="environment",
            key="NANOBOT_HOME",
            hint="Set NANOBOT_HOME to an absolute path.",
        ) from None


def not_imported(home: Path) -> str:
    """Return advice for a home of HKUDS/nanobot that was not imported, else an empty text."""
    if not (home / "config.json").is_file() or not (home / "workspace").is_dir():
        return ""
    return (
        f"{home} is a home of HKUDS/nanobot. Run `nanobot import` first to import its "
        "conversations, memory, and settings."
    )


def command_for(home: Path) -> str:
    """Return the command for `home`: `nanobot`, with the option `--home` if needed."""
    import shlex

    return "nanobot" if home == home_folder() else f"nanobot --home {shlex.quote(str(home))}"
