"""Reading JSON that another program wrote: each value is asked for with its type, and whatever is
of another one counts as missing. Keys may be written in camelCase or snake_case.

Secrets on their way from one configuration to the other: into secrets.env, each under a name
that the new configuration refers to. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from nanobot.config.environment import fits, with_entries

_HUMP = re.compile(r"_([a-z0-9])")


class NotJson(Exception):
    """The text is no JSON object; says why."""


class Fields:
    """One JSON object."""

    def __init__(self, value: object) -> None:
        self._value: Mapping[str, object] = value if isinstance(value, dict) else {}

    @classmethod
    def read(cls, content: bytes) -> Fields:
        """The object that `content` is. Raises `NotJson`."""
        try:
            value = json.loads(content.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise NotJson("it is not UTF-8 text") from None
        except RecursionError:
            raise NotJson("it is nested too deeply") from None
        except ValueError as error:
            raise NotJson(f"it is not JSON ({error})") from None
        if not isinstance(value, dict):
            raise NotJson("it is not a JSON object")
        return cls(value)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __str__(self) -> str:
        return str(self._value)

    def get(self, name: str) -> object:
        """The value of `name` (in snake_case), None where there is none."""
        hump = _HUMP.sub(lambda match: match[1].upper(), name)
        return self._value.get(hump, self._value.get(name))

    def inner(self, *path: str) -> Fields:
        """The object at `path`; an empty one where there is none."""
        found = self
        for name in path:
            found = Fields(found.get(name))
        return found

    def text(self, name: str) -> str:
        """A text without white space around it; empty where there is none. Numbers are texts."""
        value = self.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return value.strip() if isinstance(value, str) else ""

    def number(self, name: str) -> int | None:
        """A whole number."""
        value = self.get(name)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def flag(self, name: str, *, otherwise: bool) -> bool:
        """True or false."""
        value = self.get(name)
        return value if isinstance(value, bool) else otherwise

    def texts(self, name: str) -> tuple[str, ...]:
        """The texts and whole numbers in a list."""
        value = self.get(name)
        items = value if isinstance(value, list) else []
        kept = (i for i in items if isinstance(i, str | int) and not isinstance(i, bool))
        return tuple(text for item in kept if (text := str(item).strip()))

    def items(self, name: str) -> list[object]:
        """A list as it is."""
        value = self.get(name)
        return value if isinstance(value, list) else []

    def mapping(self, name: str) -> Mapping[str, str]:
        """An object's texts by key."""
        value = self.get(name)
        entries = value.items() if isinstance(value, dict) else ()
        return {key: item for key, item in entries if isinstance(item, str)}

    def objects(self) -> Iterator[tuple[str, Fields]]:
        """The objects in it, by key."""
        for name, value in self._value.items():
            if isinstance(value, dict):
                yield name, Fields(value)


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
