"""The options of a set-up, on the command line or from the page, and the keys that they name."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from nanobot.errors import NanobotError
from nanobot.providers.known_servers import KnownProvider

_OF_A_SERVER = (
    "provider", "model_name", "base_url", "context_window", "api_key_env", "api_key_stdin",
)  # fmt: skip


class SetupOptions(Struct):
    """How a set-up runs, and the answers that are known before it. Unset ones are asked for, or
    keep their values if it is `non_interactive`. `channels` has settings by channel and key.
    `no_test`: try nothing out."""

    home: Path
    non_interactive: bool = False
    no_test: bool = False
    offline: bool = False
    provider: str = ""
    model_name: str = ""
    base_url: str = ""
    context_window: int = 0
    api_key_env: str = ""
    api_key_stdin: bool = False
    owner_name: str = ""
    timezone: str = ""
    channels: Mapping[str, Mapping[str, str]] = {}


def server_options(options: SetupOptions) -> list[str]:
    """Return the given command-line options about a model's server."""
    return [f"--{name.replace('_', '-')}" for name in _OF_A_SERVER if getattr(options, name)]


def read_key(options: SetupOptions, named: KnownProvider | None) -> tuple[str, str]:
    """Return the key of the command line, and its variable: the one in the options, or the
    provider's usual one."""
    if options.api_key_stdin:
        if not (key := sys.stdin.readline().strip()):
            raise NanobotError(
                "there is no API key on standard input", hint="Send the key as one line."
            )
        return key, ""
    usual = named.key_variable if named and named.key_variable in os.environ else ""
    variable = options.api_key_env or usual
    return from_environment(variable) if variable else "", variable


def from_environment(name: str) -> str:
    """Return the secret in an environment variable. Raises `NanobotError` if it is empty."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise NanobotError(
            f"the variable {name} is not set, or is empty", hint=f"Set it with `export {name}=…`."
        )
    return value
