"""Reading and writing what onboarding changes: config.yaml, secrets.env, and USER.md.

Everything is checked in a folder of its own before anything of the person's is touched; then each
file is replaced as a whole, the secrets first, as the configuration names them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.cli.onboard.parts import Before, Part
from nanobot.config.load import CONFIG_FILE, SECRETS_FILE, load_settings
from nanobot.errors import ConfigError, NanobotError, StorageError
from nanobot.security.paths import replace

if TYPE_CHECKING:
    from nanobot.config.settings import Settings

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
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            replace(folder, path.name, content, 0o600, lambda: _expect(path, was))
        finally:
            os.close(folder)
    except OSError as error:
        raise StorageError.of(path, error) from error
