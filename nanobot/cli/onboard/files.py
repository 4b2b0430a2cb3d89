"""Reading and writing what onboarding changes: config.yaml, secrets.env, and USER.md.

Everything is checked in a folder of its own before anything of the person's is touched; then each
file is replaced as a whole, the secrets first, as the configuration names them.

What the steps find out, gathered to be written at the end; pure.

Words of the wizard that come from elsewhere: what stands above a key that is written for the
first time is its description, from the settings themselves, so that it cannot say something else
than the documentation; and what a model server refused is said for somebody who has no settings
yet.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.config.channels import BrokenAdapter, installed_channels, options_model
from nanobot.config.environment import entries, fits, with_entries
from nanobot.config.load import CONFIG_FILE, SECRETS_FILE, load_settings
from nanobot.config.schema import descriptions
from nanobot.config.settings import SECTIONS, ChannelSettings
from nanobot.config.yamltext import Change, edited, value_at
from nanobot.errors import ConfigError, NanobotError, ProviderError, StorageError
from nanobot.io import replace_file

if TYPE_CHECKING:
    from nanobot.config.settings import Settings

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


_KEYS = (
    ("model.api_key", "the key"),
    ("model.name", "the model's name"),
    ("model.base_url", "the address"),
)


def described(path: tuple[str, ...]) -> str:
    """The description of the key at `path`; empty where it needs none."""
    section, *rest = path
    if section == "channels" and len(rest) == 2:
        return _of_channel(rest[0], rest[1])
    if section == "owner":
        return "Your own ids there: what you say goes into your memory."
    return descriptions(SECTIONS[section]).get(rest[0], "") if len(rest) == 1 else ""


def _of_channel(name: str, key: str) -> str:
    if key in ChannelSettings.model_fields:
        return descriptions(ChannelSettings)[key]
    try:
        return descriptions(options_model(installed_channels().get(name))).get(key, "")
    except BrokenAdapter:
        return ""


def explained(error: ProviderError) -> NanobotError:
    """What a model server said, for somebody who has no config.yaml yet."""
    message, hint = str(error), error.hint
    for key, plain in _KEYS:
        message, hint = message.replace(key, plain), hint.replace(key, plain)
    return NanobotError(message, hint=hint)


_USER = "USER.md"
_BASICS = "## Basics"
_PLACEHOLDER = "(name, languages, time zone, where they live)"
"""What the template has there."""
_LARGEST = 1 << 20


def read(home: Path, environ: Mapping[str, str]) -> Before:
    """The files of `home` as they are; empty where there are none."""
    return Before(_text(home / CONFIG_FILE), _text(home / SECRETS_FILE), environ)


def check(home: Path, before: Before, part: Part) -> Settings:
    """The settings as they would be. Raises `NanobotError` for what cannot be."""
    with tempfile.TemporaryDirectory(prefix="nanobot-") as folder:  # only we may look into it
        for name, content in _contents(before, part).items():
            descriptor = os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        try:
            return load_settings(home, before.environ, source=Path(folder))
        except ConfigError as error:
            said = error.for_people().replace(folder, str(home))
            raise NanobotError(f"that makes no configuration:\n{said}") from None


def write(home: Path, before: Before, part: Part) -> None:
    """Write it all. Raises `StorageError`, and `NanobotError` where somebody else changed a file
    since `before` was read; both files are as they were then."""
    _make(home)
    was = {SECRETS_FILE: before.secrets, CONFIG_FILE: before.config}
    contents = _contents(before, part)
    for name in contents:
        _expect(home / name, was[name])
    try:
        for name, content in contents.items():
            if content != was[name].encode():
                _replace(home / name, content, was[name])
    except BaseException:  # Ctrl-C as well
        _take_back(home, before, contents)
        raise
    if part.basics:
        _introduce(home / "workspace", part.basics)


def basics_of(home: Path) -> dict[str, str]:
    """What USER.md says of the owner in the lines that onboarding writes."""
    found: dict[str, str] = {}
    for line in _text(home / "workspace" / _USER).splitlines():
        key, colon, value = line.removeprefix("- ").partition(": ")
        if line.startswith("- ") and colon:
            found.setdefault(key, value.strip())
    return found


def new_basics(home: Path, basics: Mapping[str, str]) -> dict[str, str]:
    """`basics` without what USER.md says already."""
    known = basics_of(home)
    return {key: value for key, value in basics.items() if known.get(key) != value}


def with_basics(text: str, basics: Mapping[str, str]) -> str:
    """USER.md with these lines under its heading for basics, which is added where there is none: in
    place of those that say otherwise, or of what the template has there. Its line ends stay."""
    cr = "\r" if "\r\n" in text else ""
    lines = text.split("\n")
    start = next((at for at, line in enumerate(lines, start=1) if line.rstrip() == _BASICS), 0)
    if not start:
        gap = "" if text.endswith("\n") or not text else f"{cr}\n"
        blank = f"{cr}\n" if text else ""
        return with_basics(f"{text}{gap}{blank}{_BASICS}{cr}\n", basics)
    end = next((at for at in range(start, len(lines)) if lines[at].startswith("#")), len(lines))
    kept = [line.rstrip("\r") for line in lines[start:end] if line.strip() != _PLACEHOLDER]
    for key, value in basics.items():
        entry = f"- {key}: {value}"
        at = next((at for at, line in enumerate(kept) if line.startswith(f"- {key}: ")), None)
        if at is not None:
            kept[at] = entry
        else:
            kept.insert(_after_text(kept), entry)
    body = "\n".join(kept).strip("\n").replace("\n", f"{cr}\n")
    after = [cr, *lines[end:]] if end < len(lines) else [""]
    return "\n".join([*lines[:start], cr, body + cr, *after])


def _after_text(lines: list[str]) -> int:
    """Where the text ends, blank lines aside."""
    return max((at for at, line in enumerate(lines, start=1) if line.strip()), default=0)


def _introduce(workspace: Path, basics: Mapping[str, str]) -> None:
    from nanobot.memory.store.template import install_template, template_folder
    from nanobot.security.paths import Root

    install_template(template_folder(), workspace)
    place = Root(workspace).place(_USER)
    was = place.read_bytes(_LARGEST) or b""
    place.write_bytes(
        with_basics(was.decode("utf-8", "surrogateescape"), basics).encode(
            "utf-8", "surrogateescape"
        ),
        expected=was,
    )


def _contents(before: Before, part: Part) -> dict[str, bytes]:
    """What is to stand in each file; the secrets come first."""
    texts = {SECRETS_FILE: before.secrets_with(part.secrets)}
    texts[CONFIG_FILE] = before.config_with(part.changes)
    return {name: text.encode() for name, text in texts.items() if text}


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StorageError.of(path, error) from error
    except UnicodeDecodeError:
        raise StorageError(path, "is not UTF-8 text", hint="Save it as UTF-8.") from None


def _make(home: Path) -> None:
    """The folder, for nobody else's eyes; the gateway makes what is in it."""
    from nanobot.security.paths import Root

    Root(home, name="home").create()
    try:
        home.chmod(0o700)
    except OSError as error:
        raise StorageError.of(home, error) from error


def _expect(path: Path, was: str) -> None:
    if _text(path) != was:
        raise NanobotError(
            f"{path} was changed meanwhile; it stays as it is now", hint="Run this again."
        )


def _take_back(home: Path, before: Before, contents: Mapping[str, bytes]) -> None:
    """Put back the secrets as they were, if those that were written stand there now, and the
    configuration that names them does not."""
    path, written, was = home / SECRETS_FILE, contents.get(SECRETS_FILE, b""), before.secrets
    config = contents.get(CONFIG_FILE, b"")
    with suppress(NanobotError):
        if config != before.config.encode() and _text(home / CONFIG_FILE).encode() == config:
            return
        if was and written != was.encode():
            _replace(path, was.encode(), written.decode())
        elif written and not was and _text(path) == written.decode():
            path.resolve().unlink(missing_ok=True)


def _replace(path: Path, content: bytes, was: str) -> None:
    path = path.resolve()  # it may be a link into somebody's collection of such files
    try:
        replace_file(path, content, last_check=lambda: _expect(path, was))
    except OSError as error:
        raise StorageError.of(path, error) from error
