"""Skills that come in an archive (`.zip`, `.tar.gz`, `.tar`) or from an https address: fetched and
unpacked with limits, for the owner to look at.

Invariants: only files with plain relative names are unpacked, into one new folder. A link, a
device, an absolute name, `..`, two files that one name could mean, or a file of the skill that
programs run by themselves makes the whole archive unusable. Nothing is read beyond the limits,
whatever the archive says of its own sizes, and only Deflate is unpacked: other methods take
gigabytes of memory for a few bytes. Nothing is run.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from nanobot.errors import NanobotError
from nanobot.io import storage_errors
from nanobot.security.confine import autorun
from nanobot.security.egress import Egress, EgressLimits, EgressRequest
from nanobot.skills.folder import MAIN, MOST_BYTES, is_main
from nanobot.text import printable

MOST_ENTRIES = 5_000
"""Files of an archive, which may hold more than the skill; a skill has `MOST_FILES` at most."""
MOST_UNPACKED = 2 * MOST_BYTES
"""Bytes of all files of an archive together."""

_LIMITS = EgressLimits(seconds=120.0, bytes=MOST_BYTES, https_only=True)
_DEEPEST = 20
_ENDING = re.compile(r"\.(zip|tar|tgz|tar\.gz)$")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGE = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error, EOFError, OSError),
    *(ValueError, OverflowError, RecursionError, NotImplementedError, RuntimeError),
)
"""What the libraries raise for archives that are none."""


class Archive(Struct, frozen=True):
    """An archive as it came: `name` is where from, `digest` its SHA-256 in hexadecimal."""

    name: str
    content: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def is_address(text: str) -> bool:
    """Whether `text` says where in the network something is, rather than in which file."""
    return "://" in text


async def fetch_archive(egress: Egress, address: str) -> Archive:
    """What is at `address`, fetched by https from the first hop to the last. Raises `NanobotError`,
    `ToolError` among them."""
    response = await egress.fetch(EgressRequest(address), _LIMITS)
    if response.status != 200:
        raise NanobotError(f"{printable(address)} answers with status {response.status}")
    return Archive(address, response.body)


def read_archive(path: Path) -> Archive:
    with storage_errors(path), path.open("rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise NanobotError(f"{path} is larger than {MOST_BYTES:,} bytes")
    return Archive(str(path), content)


def expect_digest(archive: Archive, wanted: str) -> None:
    """Raise `NanobotError` unless the archive is the one that is meant."""
    if archive.digest != wanted.strip().lower().removeprefix("sha256:"):
        raise NanobotError(
            f"{printable(archive.name)} has another SHA-256: {archive.digest}",
            hint="Nothing was installed. Check the source of the expected hash.",
        )


def unpack(archive: Archive, target: Path, folder: str = "") -> Path:
    """Write the one skill in an archive into `target`, a new folder; where it is then. `folder`
    names the one that is meant where there are several. Raises `NanobotError`."""
    files = _files(archive)
    home = _home_of(archive, files, folder)
    # A skill that does not name itself is called after its archive.
    last = _ENDING.sub("", PurePosixPath(archive.name.partition("?")[0]).name)
    place = target / (PurePosixPath(home).name or last or "skill")
    start = 0 if home == "." else len(home) + 1
    inside = {path[start:]: content for path, content in files.items() if _is_within(path, home)}
    for path in inside:
        if name := autorun.obeyed_name(path):
            raise NanobotError(
                f"{printable(archive.name)} cannot be installed: it contains "
                f"{printable(path)}, and other programs use {printable(name)} "
                "automatically",
                hint=(
                    "Skills must not contain repositories, directory hooks, or settings of "
                    "editors and agents. Ask the author, or unpack the archive and remove them."
                ),
            )
    for path, content in inside.items():
        file = place / path
        with storage_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    return place


def _home_of(archive: Archive, files: Iterable[str], folder: str) -> str:
    """Return the folder of the one skill that is meant. Raises `NanobotError`."""
    paths = map(PurePosixPath, files)
    found = {str(path.parent) for path in paths if is_main(path.name)}
    outer = (one for one in found if not any(_is_within(one, other) for other in found))
    wanted = f"/{folder.strip('/')}".rstrip("/")
    homes = sorted(home for home in outer if f"/{home}".endswith(wanted))
    if len(homes) == 1:
        return homes[0]
    name = printable(archive.name)
    if not homes:
        where = f" in {printable(folder)}" if folder else ""
        raise NanobotError(f"{name} contains no {MAIN}{where}")
    hint = f"Choose one with --folder: {', '.join(map(printable, homes[:20]))}"
    raise NanobotError(f"{name} contains {len(homes)} skills", hint=hint)


def _is_within(path: str, folder: str) -> bool:
    return path != folder and (folder == "." or path.startswith(f"{folder}/"))


def _files(archive: Archive) -> dict[str, bytes]:
    """The content of the files by their names. Raises `NanobotError`."""
    try:
        return dict(_checked(archive))
    except _DAMAGE as error:
        raise NanobotError(
            f"{printable(archive.name)} is not a readable archive",
            hint="Use a .zip, .tar.gz, or .tar file.",
        ) from error


def _checked(archive: Archive) -> Iterator[tuple[str, bytes]]:
    """The files by their names. Raises `NanobotError`."""
    files: set[str] = set()
    folders: set[str] = set()
    left = MOST_UNPACKED
    is_zip = zipfile.is_zipfile(io.BytesIO(archive.content))
    for name, read in _zip_entries(archive) if is_zip else _tar_entries(archive):
        path = _usable(archive, name)
        content = read(left + 1)
        left -= len(content)
        same = unicodedata.normalize("NFC", path).casefold()
        above = [str(folder) for folder in PurePosixPath(same).parents]
        if same in files:
            raise _unusable(archive, f"contains {printable(path)} twice")
        if same in folders or not files.isdisjoint(above):
            raise _unusable(archive, f"contains {printable(path)} both as a file and as a folder")
        if len(files) >= MOST_ENTRIES or left < 0:
            raise _unusable(
                archive, f"contains more than {MOST_ENTRIES:,} files or {MOST_UNPACKED:,} bytes"
            )
        files.add(same)
        folders.update(above)
        yield path, content


def _usable(archive: Archive, name: str) -> str:
    parts = name.removeprefix("./").split("/")
    wrong = not name or name.startswith("/") or "\\" in name or len(parts) > _DEEPEST
    if wrong or not name.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise _unusable(archive, f"contains a file with the name {printable(name)[:200]!r}")
    return "/".join(parts)


def _unusable(archive: Archive, reason: str) -> NanobotError:
    return NanobotError(f"{printable(archive.name)} cannot be unpacked: it {reason}")


Read = Callable[[int], bytes]
"""Gives at most so many bytes of a file."""


def _zip_entries(archive: Archive) -> Iterator[tuple[str, Read]]:
    """The names of the files, and how each is read before the next one."""
    with zipfile.ZipFile(io.BytesIO(archive.content)) as opened:
        for entry in opened.infolist():
            name, kind = entry.orig_filename, entry.external_attr >> 28
            if kind not in (0, 0o4, 0o10):  # no type, a folder, a file
                raise _unusable(archive, f"contains a link: {printable(name)}")
            if name.endswith("/"):
                continue
            if entry.flag_bits & 1:
                raise _unusable(archive, "is encrypted")
            if entry.compress_type not in _METHODS:
                raise _unusable(archive, "is not compressed with Deflate")
            with opened.open(entry) as file:
                yield name, file.read


def _tar_entries(archive: Archive) -> Iterator[tuple[str, Read]]:
    """The same."""
    content = archive.content
    if content[:2] == b"\x1f\x8b":
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            content = packed.read(MOST_UNPACKED + 1)
        if len(content) > MOST_UNPACKED:
            raise _unusable(archive, f"contains more than {MOST_UNPACKED:,} bytes")
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as opened:
        for entry in opened:
            if entry.isdir():
                continue
            if not entry.isreg() or entry.issparse():
                raise _unusable(archive, f"contains a link or a device: {printable(entry.name)}")
            file = opened.extractfile(entry)
            assert file is not None  # it is a regular file
            yield entry.name, file.read
