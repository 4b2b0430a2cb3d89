"""The configuration: `config.yaml`, `secrets.env` and the environment become one frozen value.

Whatever is wrong is found before anything starts, and reported with file, line, key and the fix.
Nothing that this package says to a person ever repeats a configured value, since any of them may be
a secret in the wrong place. `load` reads it, `settings` is what it becomes.

Here is only what every command line asks first, and what costs nothing: where a nanobot lives.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from nanobot.errors import ConfigError, NanobotError
from nanobot.text import expanduser


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder named by NANOBOT_HOME, else `~/.nanobot`; absolute, and it need not exist."""
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
    """What to do first in a home of HKUDS/nanobot that was not imported; else empty."""
    if not (home / "config.json").is_file() or not (home / "workspace").is_dir():
        return ""
    return (
        f"{home} is a home of HKUDS/nanobot. Run `nanobot import` first to import its "
        "conversations, memory, and settings."
    )


def command_for(home: Path) -> str:
    """What a person types to mean `home`: `nanobot`, or that with the option."""
    import shlex

    return "nanobot" if home == home_folder() else f"nanobot --home {shlex.quote(str(home))}"
