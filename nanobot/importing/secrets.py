"""Secrets on their way from one configuration to the other: into secrets.env, each under a name
that the new configuration refers to. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nanobot.config.variables import fits, with_entries
from nanobot.importing.foreign import Fields

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NO_NAME = re.compile(r"[^A-Z0-9]+")
_HEAD = (
    "# Secrets that config.yaml refers to as ${NAME}, taken over by `nanobot import`.\n"
    "# What the environment says counts before this file.\n"
)


class Secrets:
    """Collects those of `config`; the same value is kept once. `environ` goes before secrets.env,
    so a name that has another value there is no use."""

    def __init__(self, environ: Mapping[str, str], config: Fields) -> None:
        self._environ = environ
        self._values: dict[str, str] = {}
        self._referred = frozenset(_REFERENCE.findall(str(config)))
        self.awaited: list[str] = []
        """Variables that the other configuration referred to, which are set somewhere else."""
        self.unfit: list[str] = []
        """What could not be taken, by the name that it would have had."""

    def put(self, name: str, value: str) -> str:
        """What stands in the configuration for a secret `value`; empty for none, and for one that
        goes on no line. A value that refers to variables itself stays as it is."""
        name = _NO_NAME.sub("_", name.upper()).strip("_")
        if not value:
            return ""
        if not fits(value):
            self.unfit.append(name)
            return ""
        if names := _REFERENCE.findall(value):
            self.awaited += [name for name in names if name not in self.awaited]
            return value
        known = next((key for key, kept in self._values.items() if kept == value), "")
        if not known:
            known = self._free(name, value)
            self._values[known] = value
        return f"${{{known}}}"

    def as_text(self) -> str:
        """The file; empty where there are none."""
        return with_entries(_HEAD, self._values) if self._values else ""

    def _free(self, name: str, value: str) -> str:
        name = name if name and not name[0].isdigit() else f"SECRET_{name}"
        if name.startswith("NANOBOT_"):
            name = f"MY_{name}"
        taken = {*self._values, *self._referred}
        taken |= {other for other, kept in self._environ.items() if kept != value}
        number, found = 1, name
        while found in taken:
            number += 1
            found = f"{name}_{number}"
        return found
