"""What onboarding changes: config.yaml, secrets.env, and what USER.md says of the owner."""

from __future__ import annotations

import re
from pathlib import Path

from nanobot.cli.command import shared_folder
from nanobot.config import changing
from nanobot.config.changing import ConfigEdit, ExistingFiles, read_text

_USER = "USER.md"
_LARGEST = 1 << 20
_NAME = re.compile(r"(?m)^- Name: (.*\S)$|^\(name, languages, time zone, where they live\)$")
"""What is known of the name in USER.md, or what the template has in its place."""


class ConfigPart(ConfigEdit, frozen=True):
    """The changes of one step. `summary` are lines for the person, each a topic and its value.
    `sign_in` are channels that still need a sign-in. `name` is the person's name, for USER.md.
    `unchecked` are the channels, or the model, that could not be reached for a check."""

    summary: tuple[tuple[str, str], ...] = ()
    sign_in: tuple[str, ...] = ()
    name: str = ""
    unchecked: tuple[str, ...] = ()

    def __add__(self, other: ConfigPart) -> ConfigPart:
        """Both, of which each is about other keys."""
        return ConfigPart(
            (*self.changes, *other.changes),
            {**self.secrets, **other.secrets},
            (*self.summary, *other.summary),
            (*self.sign_in, *other.sign_in),
            self.name or other.name,
            (*self.unchecked, *other.unchecked),
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be written."""
        return not (self.changes or self.secrets or self.name)


def write(home: Path, before: ExistingFiles, part: ConfigPart) -> None:
    """Write it all. Raises what `nanobot.config.changing.write` does."""
    from nanobot.app.base import make_home

    make_home(home)
    changing.write(home, before, part)
    if part.name:
        _introduce(shared_folder(home) / "workspace", part.name)


def name_in(home: Path) -> str:
    """What USER.md says that the owner is called, in the line that onboarding writes."""
    found = _NAME.search(read_text(shared_folder(home) / "workspace" / _USER))
    return (found[1] or "") if found else ""


def with_name(text: str, name: str) -> str:
    """USER.md with the name: in place of the one that is there, or of what the template has there,
    else at the end."""
    entry = f"- Name: {name}"
    if _NAME.search(text):
        return _NAME.sub(lambda _: entry, text, count=1)
    return f"{text.rstrip()}\n\n{entry}\n".lstrip()


def _introduce(workspace: Path, name: str) -> None:
    from nanobot.memory.documents import install_template, template_folder
    from nanobot.security.paths import Root

    install_template(template_folder(), workspace)
    place = Root(workspace).place(_USER)
    was = place.read_bytes(_LARGEST) or b""
    text = with_name(was.decode("utf-8", "surrogateescape"), name)
    place.write_bytes(text.encode("utf-8", "surrogateescape"), expected=was)
