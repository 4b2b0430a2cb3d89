"""What the steps find out, gathered to be written at the end; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from nanobot.config.environment import entries, fits, with_entries
from nanobot.config.yamltext import Change, edited, value_at
from nanobot.errors import NanobotError

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HEADER = """\
# Written by `nanobot onboard`, which also changes it; edit it as you like. Every other setting,
# with its default and a comment, is in config.example.yaml and in docs/configuration.md.
#
# ${NAME} takes a value from the environment or from secrets.env beside this file.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """What one step wants written. `told` are lines for the summary, a topic and what is so;
    `sign_in` are channels where somebody has to sign in afterwards; `basics` are for USER.md."""

    changes: tuple[Change, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    told: tuple[tuple[str, str], ...] = ()
    sign_in: tuple[str, ...] = ()
    basics: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: Part) -> Part:
        """Both, where the later word on a key counts."""
        anew = {change.path for change in other.changes}
        topics = {topic for topic, _ in other.told}
        return Part(
            (*(one for one in self.changes if one.path not in anew), *other.changes),
            {**self.secrets, **other.secrets},
            (*(line for line in self.told if line[0] not in topics), *other.told),
            tuple(dict.fromkeys((*self.sign_in, *other.sign_in))),
            {**self.basics, **other.basics},
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be written."""
        return not (self.changes or self.secrets or self.basics)


@dataclass(frozen=True, slots=True)
class Before:
    """The two files as they are, and the environment, which goes before secrets.env."""

    config: str
    secrets: str
    environ: Mapping[str, str]

    def variable(
        self, path: tuple[str, ...], preferred: str, value: str, *, anew: bool = False
    ) -> str:
        """The variable for a secret at `path`: the one that stands there, unless it is to be
        `anew`, or else one that nothing else has a value for. Raises `NanobotError` for what is no
        secret."""
        if not fits(value):
            said = f"what is to be {preferred} holds a line break or another character unseen"
            raise NanobotError(said, hint="Copy it again, on its own.")
        written = _REFERENCE.fullmatch(str(value_at(self.config, path) or ""))
        known = entries(self.secrets)
        if written and not anew and self.environ.get(written[1]) in (None, value):
            return written[1]
        for name in _names(preferred):
            taken = {self.environ.get(name), known.get(name)} - {None, value}
            if not taken or self.environ.get(name) == value:
                return name
        raise AssertionError("unreachable")

    def new_in(self, part: Part) -> Part:
        """`part` without what stands in the files already."""
        known = entries(self.secrets)
        changes = (one for one in part.changes if value_at(self.config, one.path) != _told(one))
        secrets = {name: value for name, value in part.secrets.items() if known.get(name) != value}
        return replace(part, changes=tuple(changes), secrets=secrets)

    def renews_model(self, part: Part) -> bool:
        """Whether another model answers, or the same with another key; the first one does too."""
        if not self.config or any(change.path[0] == "model" for change in part.changes):
            return True
        read = value_at(self.config, ("model", "api_key"))
        return any(read == f"${{{name}}}" for name in part.secrets)

    def config_with(self, changes: Sequence[Change]) -> str:
        """The new config.yaml."""
        return edited(self.config or _HEADER, changes) if changes else self.config

    def secrets_with(self, secrets: Mapping[str, str]) -> str:
        """The new secrets.env: lines of other variables stay as they are."""
        return with_entries(self.secrets, secrets)


def _told(change: Change) -> object:
    """A value as `value_at` gives it."""
    value = change.value
    if isinstance(value, tuple):
        return list(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _names(preferred: str) -> Iterator[str]:
    yield preferred
    for number in count(2):
        yield f"{preferred}_{number}"
