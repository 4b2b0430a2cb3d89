"""What onboarding changes: config.yaml, secrets.env, and what USER.md says of the owner.

Everything is checked in a folder of its own before anything of the person's is touched; then each
file is replaced as a whole, the secrets first, as the configuration names them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from difflib import unified_diff
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.config.load import (
    CONFIG_FILE,
    SECRETS_FILE,
    fits_env_line,
    load_settings,
    parse_env_file,
    update_env_file,
)
from nanobot.config.yamltext import ConfigChange, edited, value_at
from nanobot.errors import ConfigError, NanobotError, StorageError
from nanobot.io import replace_file, storage_errors

if TYPE_CHECKING:
    from nanobot.config.settings import Settings

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HEADER = """\
# Written by `nanobot onboard`, which also changes it; edit it as you like. Every setting, with its
# default and a comment, is in config.example.yaml and in docs/configuration.md.
#
# ${NAME} takes a value from the environment or from secrets.env beside this file.
"""
_USER = "USER.md"
_LARGEST = 1 << 20
_NAME = re.compile(r"(?m)^- Name: (.*\S)$|^\(name, languages, time zone, where they live\)$")
"""What is known of the name in USER.md, or what the template has in its place."""


class ConfigPart(Struct, frozen=True):
    """What one step wants written. `summary` are lines for the person, a topic and its value;
    `sign_in` are channels where somebody has to sign in afterwards; `name` is what the person is
    called, for USER.md."""

    changes: tuple[ConfigChange, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    summary: tuple[tuple[str, str], ...] = ()
    sign_in: tuple[str, ...] = ()
    name: str = ""

    def __add__(self, other: ConfigPart) -> ConfigPart:
        """Both, of which each is about other keys."""
        return ConfigPart(
            (*self.changes, *other.changes),
            {**self.secrets, **other.secrets},
            (*self.summary, *other.summary),
            (*self.sign_in, *other.sign_in),
            self.name or other.name,
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be written."""
        return not (self.changes or self.secrets or self.name)


class ExistingFiles(Struct, frozen=True):
    """The two files as they are, and the environment, which takes precedence over secrets.env."""

    config: str
    secrets: str
    environ: Mapping[str, str]

    @classmethod
    def read(cls, home: Path, environ: Mapping[str, str]) -> ExistingFiles:
        """Those of `home`; empty where there are none."""
        return cls(_text(home / CONFIG_FILE), _text(home / SECRETS_FILE), environ)

    def variable(
        self, path: tuple[str, ...], preferred: str, value: str, *, fresh: bool = False
    ) -> str:
        """The variable for a secret at `path`: the one that is there, unless it is to be a `fresh`
        one, or else one that nothing else has a value for. Raises `NanobotError` for what is no
        secret."""
        if not fits_env_line(value):
            said = f"the value for {preferred} holds a line break or an invisible character"
            raise NanobotError(said, hint="Copy it again, on its own.")
        written = _REFERENCE.fullmatch(str(value_at(self.config, path) or ""))
        if written and not fresh and self.environ.get(written[1]) in (None, value):
            return written[1]
        known = {**parse_env_file(self.secrets), **self.environ}
        names = chain([preferred], (f"{preferred}_{number}" for number in count(2)))
        return next(name for name in names if known.get(name) in (None, value))

    def new_in(self, part: ConfigPart) -> ConfigPart:
        """`part` without what the files say already."""
        known = parse_env_file(self.secrets)
        changes = (one for one in part.changes if value_at(self.config, one.path) != one.as_read())
        secrets = {name: value for name, value in part.secrets.items() if known.get(name) != value}
        return replace(part, changes=tuple(changes), secrets=secrets)

    def with_part(self, part: ConfigPart) -> dict[str, str]:
        """The new text of each file; the secrets come first."""
        config = edited(self.config or _HEADER, part.changes) if part.changes else self.config
        texts = {SECRETS_FILE: update_env_file(self.secrets, part.secrets), CONFIG_FILE: config}
        return {name: text for name, text in texts.items() if text}

    def changed_lines(self, part: ConfigPart) -> list[str]:
        """The lines of config.yaml that go (`-`) and that come (`+`)."""
        config = self.config or _HEADER
        new = edited(config, part.changes)
        lines = unified_diff(config.splitlines(), new.splitlines(), lineterm="", n=0)
        return [line for line in islice(lines, 2, None) if line[0] in "+-" and line[1:].strip()]


def check(home: Path, before: ExistingFiles, part: ConfigPart) -> Settings:
    """The settings as they would be. Raises `NanobotError` for what cannot be."""
    with tempfile.TemporaryDirectory(prefix="nanobot-") as folder:  # only we may look into it
        for name, text in before.with_part(part).items():
            replace_file(Path(folder, name), text.encode(), durable=False)
        try:
            return load_settings(home, before.environ, source=Path(folder))
        except ConfigError as error:
            said = error.for_people().replace(folder, str(home))
            raise NanobotError(f"the configuration would be wrong:\n{said}") from None


def write(home: Path, before: ExistingFiles, part: ConfigPart) -> None:
    """Write it all. Raises `StorageError`, and `NanobotError` where somebody else changed a file
    since `before` was read; both files are as they were then."""
    from nanobot.app.base import make_home

    make_home(home)
    was = {SECRETS_FILE: before.secrets, CONFIG_FILE: before.config}
    texts = before.with_part(part)
    for name in texts:
        if _text(home / name) != was[name]:
            changed = f"{home / name} was changed meanwhile; it stays as it is now"
            raise NanobotError(changed, hint="Run this again.")
    for name, text in texts.items():
        if text != was[name]:
            path = (home / name).resolve()  # it may be a link into somebody's collection of such
            with storage_errors(path):
                replace_file(path, text.encode())
    if part.name:
        _introduce(home / "workspace", part.name)


def name_in(home: Path) -> str:
    """What USER.md says that the owner is called, in the line that onboarding writes."""
    found = _NAME.search(_text(home / "workspace" / _USER))
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


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StorageError.of(path, error) from error
    except UnicodeDecodeError:
        raise StorageError(path, "is not UTF-8 text", hint="Save it as UTF-8.") from None
