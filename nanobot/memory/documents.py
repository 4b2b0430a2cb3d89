"""The files of a scope that people read: names, the template of a new workspace, and safe changes.

The template is copied once, and never over an existing file. People may edit any file at any
moment. A line exists once its newline does. An append is one write and one sync. The remains of a
failed append are removed at once, or at the latest by the next append. If an editor replaces the
file in between, the append is repeated in the new file."""

from __future__ import annotations

import json
import os
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from loguru import logger

import nanobot
from nanobot.clock import Clock
from nanobot.errors import StorageError, WriteConflict
from nanobot.io import json_line, lstate_of, tail_without_newline, write_all
from nanobot.security.paths import Place, Root
from nanobot.tasks import pace

OTHER_SCOPE = r"(?:people|groups)/(?!\.)[A-Za-z0-9.@+_%-]{1,200}"
"""Pattern for the names of scopes other than the owner's. These names are safe as folders."""

LONG_TERM = "memory/MEMORY.md"
PENDING = "memory/pending.md"
"""Facts that need to be confirmed."""
RETIRED = "memory/retired.md"
"""Facts that are no longer true."""

PERSONAL = ("USER.md", "SOUL.md")
"""The person's profile, and how the agent behaves toward them."""
FACTS = (LONG_TERM, *PERSONAL)
"""The files of learned facts."""
ALL_FACTS = (*FACTS, RETIRED)

BOOTSTRAP = ("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md")
"""The files in the system prompt, in this order."""
RULES = frozenset({*BOOTSTRAP, "HEARTBEAT.md"})
"""Files that decide how the agent behaves, in addition to memory."""

TRACKED = (*sorted(RULES), LONG_TERM, PENDING, RETIRED)
"""The versioned files, relative to the scope's folder."""


def template_folder() -> Path:
    """Return the template's folder: in the installed package, or next to it in a checkout."""
    package = Path(nanobot.__file__).parent
    for folder in (package / "workspace_template", package.parent / "workspace"):
        if (folder / "AGENTS.md").is_file():
            return folder
    raise StorageError(package / "workspace_template", "it is missing", hint="Reinstall nanobot.")


@cache
def load_template() -> Mapping[str, str]:
    """Return the text of each file of the template, by its path in the workspace."""
    source = template_folder()
    files = (one for one in sorted(source.rglob("*")) if one.is_file() and one.name[0] != ".")
    return {file.relative_to(source).as_posix(): file.read_text("utf-8") for file in files}


def install_template(workspace: Path) -> tuple[str, ...]:
    """Copy missing files and return their paths. Raise `StorageError`."""
    target = Root(workspace)
    target.create()
    for name in ("memory", "skills"):
        Root(workspace / name).create()
    made = []
    for path, text in load_template().items():
        place = target.place(path)
        with suppress(WriteConflict):  # another process has just created it
            if place.stat() is None:
                place.write_bytes(text.encode(), expected=None)
                made.append(path)
    return tuple(made)


LIMIT = 1 << 30
"""Bytes of the largest file that is read."""

_ATTEMPTS = 5


def text_of(content: bytes | None) -> str:
    """Decode a file, without its byte order mark; return "" for None.

    Editors may save UTF-16, or lines in Latin-1: these are recognized."""
    content = (content or b"").removeprefix(BOM_UTF8)
    try:
        return content.decode(
            "utf-16" if content.startswith((BOM_UTF16_BE, BOM_UTF16_LE)) else "utf-8"
        )
    except UnicodeDecodeError:
        return "\n".join(map(_decode_line, content.split(b"\n")))


def _decode_line(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


def bytes_of(text: str, before: bytes | None) -> bytes:
    """Encode `text` in UTF-8 to replace `before`. Lines of `before` in another encoding keep their
    bytes if `text` still has them as `text_of` reads them."""
    kept = {_decode_line(line): line for line in (before or b"").split(b"\n")}
    return b"\n".join(
        kept.get(line) or line.encode("utf-8", "replace") for line in text.split("\n")
    )


class LineFile:
    """A file of lines that grows by appends.

    `is_line` decides whether a last line without a newline is complete. The caller ensures that
    there is one writer at a time."""

    def __init__(self, place: Place, clock: Clock, is_line: Callable[[bytes], bool]) -> None:
        self._place, self._clock, self._is_line = place, clock, is_line
        self._path = f"{place.root.path}/{place.relative}"
        self.was_damaged = False
        """True if a last line with zero bytes was set aside: damage, not just a torn append."""

    def append(self, data: bytes) -> None:
        """Add lines, durably. Raise `StorageError` if they are not in the file."""
        for _ in range(_ATTEMPTS):
            with self._place.open(os.O_RDWR | os.O_APPEND, create=True) as descriptor:
                self._mend(descriptor)
                _append(descriptor, data)
                inode = os.fstat(descriptor).st_ino
            current = lstate_of(self._path)
            if current is not None and current.inode == inode:
                return
        raise StorageError(self._place.label, "another program keeps replacing it")

    def mend(self) -> None:
        """Set aside a last line that a crash cut short, if the file exists."""
        if lstate_of(self._path) is not None:
            with self._place.open(os.O_RDWR | os.O_APPEND) as descriptor:
                self._mend(descriptor)

    def _mend(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        torn = tail_without_newline(descriptor, size)
        if torn == b"":
            return
        if torn is None or self._is_line(torn):  # too long: it stays as a broken line
            _append(descriptor, b"\n")
            return
        name = f"{self._place.relative}.corrupt-{self._clock.now():%Y%m%dT%H%M%S%f}"
        aside = self._place.root.place(name)
        aside.write_bytes(torn, expected=None)
        self.was_damaged |= b"\0" in torn
        os.ftruncate(descriptor, size - len(torn))
        os.fsync(descriptor)
        shown = self._place.label
        logger.warning(
            "{}: the last line was incomplete and has been moved to {}", shown, aside.label
        )


def _append(descriptor: int, data: bytes) -> None:
    base = os.fstat(descriptor).st_size
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, base)
        raise


def append_paragraph(place: Place, paragraph: str) -> None:
    """Add a paragraph to the file, durably, unless the file has it. Raise `StorageError`, or
    `WriteConflict` if an editor saves now."""
    wanted, current = paragraph.encode("utf-8", "backslashreplace"), place.read_bytes(LIMIT)
    text = (current or b"").replace(b"\r\n", b"\n")
    if b"\n\n%b\n\n" % wanted not in b"\n\n%b\n\n" % text:
        begun = current.rstrip(b"\r\n") + b"\n\n" if current else b""
        place.write_bytes(begun + wanted + b"\n\n", expected=current)


Redact = Callable[[str], str]

_FIELDS = (
    "_type role type kind state id key session session_key session_override turn_id tool_call_id "
    "channel chat_id sender_id event_id message_id thread_id group_id answers timestamp created_at "
    "updated_at received_at epoch inbox_id salt author commit version cursor range origin mime "
    "event_ids platform_id scope new_hash sender chat created_by"
)
_STRUCTURE = frozenset(_FIELDS.split())
"""Fields that identify records in any of nanobot's files. Their values never change."""


def redact_file(place: Place, redact: Redact) -> bool:
    """Rewrite the file if `redact` changes its text. Return True if it did.

    Bytes that are not UTF-8 are kept. Raise `WriteConflict` if another program writes."""
    content = place.read_bytes(LIMIT)
    if content is None:
        return False
    text = content.decode("utf-8", "surrogateescape")
    redacted = redact(text)
    if redacted == text:
        return False
    place.write_bytes(redacted.encode("utf-8", "surrogateescape"), expected=content)
    return True


def redact_lines(text: str, redact: Redact) -> str:
    """Redact each text in a file of JSON entries."""
    lines = text.split("\n")
    return "\n".join(redact_json(line, redact) or redact(line) for line in pace(lines))


def redact_json(text: str, redact: Redact) -> str | None:
    """Redact each text in a JSON object or list, except identifying fields. Return None for other
    text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    redacted = _redact_value(value, redact)
    if redacted == value:
        return text
    if "\n" in text.strip():
        return json.dumps(redacted, indent=2) + ("\n" if text.endswith("\n") else "")
    return json_line(redacted, compact='": ' not in text)


def _redact_value(value: object, redact: Redact) -> object:
    match value:
        case str():
            return redact(value)
        case list():
            return [_redact_value(item, redact) for item in value]
        case dict():
            is_call = "arguments" in value or "tool_call_id" in value
            kept = _STRUCTURE | {"name"} if is_call else _STRUCTURE
            return {
                key: item
                if key in kept and not isinstance(item, dict | list)
                else _redact_value(item, redact)
                for key, item in value.items()
            }
    return value
