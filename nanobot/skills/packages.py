"""Skill packages: archives (`.zip`, `.tar.gz`, `.tar`), local or at an https address, unpacked with
limits for review.

Invariants: only files with plain relative names are unpacked, into one new folder. A link, a
device, an absolute name, `..`, two files with equivalent names, or a skill file that programs run
automatically makes the archive invalid. Limits apply regardless of the sizes in the archive. Only
Deflate is unpacked, because other methods take gigabytes of memory for a few bytes. Nothing is
run."""

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
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from nanobot.errors import NanobotError
from nanobot.io import storage_errors
from nanobot.security.confine import autorun
from nanobot.security.egress import Egress, EgressLimits, EgressRequest
from nanobot.skills.folder import MAIN, MOST_BYTES, is_main
from nanobot.text import printable

MOST_ENTRIES = 5_000
"""Files of an archive, which may hold more than the skill. A skill has up to `MOST_FILES`."""
MOST_UNPACKED = 2 * MOST_BYTES
"""Bytes of all files of an archive."""

_LIMITS = EgressLimits(seconds=120.0, bytes=MOST_BYTES, https_only=True)
_DEEPEST = 20
_ENDING = re.compile(r"\.(zip|tar|tgz|tar\.gz)$")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGE = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error, EOFError, OSError),
    *(ValueError, OverflowError, RecursionError, NotImplementedError, RuntimeError),
)
"""Errors of the libraries for invalid archives."""


class Archive(Struct, frozen=True):
    """An archive as received: `name` is its source, `digest` its SHA-256 in hex."""

    name: str
    content: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def is_address(text: str) -> bool:
    """Check whether `text` is a URL rather than a file."""
    return "://" in text


async def fetch_archive(egress: Egress, address: str) -> Archive:
    """Fetch an archive, https only on each hop. Raise `NanobotError` or `ToolError`."""
    response = await egress.fetch(EgressRequest(address), _LIMITS)
    if response.status != 200:
        raise NanobotError(f"{printable(address)} returned status {response.status}")
    return Archive(address, response.body)


def read_archive(path: Path) -> Archive:
    with storage_errors(path), path.open("rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise NanobotError(f"{path} is larger than {MOST_BYTES:,} bytes")
    return Archive(str(path), content)


def expect_digest(archive: Archive, wanted: str) -> None:
    """Raise `NanobotError` if the archive has another digest."""
    if archive.digest != wanted.strip().lower().removeprefix("sha256:"):
        raise NanobotError(
            f"{printable(archive.name)} has a different SHA-256 hash: {archive.digest}",
            hint="Nothing was installed. Check the source of the expected hash.",
        )


def unpack(archive: Archive, target: Path, folder: str = "") -> Path:
    """Write the skill in an archive below `target`, a new folder, and return its path. `folder`
    selects one of several skills. Raise `NanobotError`."""
    files = read_files(archive)
    home = find_skill_folder(archive, files, folder)
    # A skill without a name is named after its archive.
    last = _ENDING.sub("", PurePosixPath(archive.name.partition("?")[0]).name)
    place = target / (PurePosixPath(home).name or last or "skill")
    start = 0 if home == "." else len(home) + 1
    inside = {path[start:]: content for path, content in files.items() if is_within(path, home)}
    for path in inside:
        if name := autorun.find_obeyed_name(path):
            raise NanobotError(
                f"{printable(archive.name)} cannot be installed: it contains {printable(path)}, "
                f"and other programs load {printable(name)} automatically",
                hint=(
                    "Skills must not contain repositories, directory hooks, or settings for "
                    "editors and agents. Ask the author, or unpack the archive and remove these "
                    "files."
                ),
            )
    for path, content in inside.items():
        file = place / path
        with storage_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    return place


def find_skill_folder(archive: Archive, files: Iterable[str], folder: str) -> str:
    """Return the folder of the only matching skill. Raise `NanobotError`."""
    paths = map(PurePosixPath, files)
    found = {str(path.parent) for path in paths if is_main(path.name)}
    wanted = f"/{folder.strip('/')}".rstrip("/")
    homes = sorted(home for home in select_outer(found) if f"/{home}".endswith(wanted))
    if len(homes) == 1:
        return homes[0]
    name = printable(archive.name)
    if not homes:
        where = f" in {printable(folder)}" if folder else ""
        raise NanobotError(f"{name} contains no {MAIN}{where}")
    hint = f"Choose one with --folder: {', '.join(map(printable, homes[:20]))}"
    raise NanobotError(f"{name} contains {len(homes)} skills", hint=hint)


def select_outer(folders: Collection[str]) -> Iterator[str]:
    """Yield the folders that are not within another one."""
    for one in folders:
        if not any(is_within(one, other) for other in folders):
            yield one


def is_within(path: str, folder: str) -> bool:
    return path != folder and (folder == "." or path.startswith(f"{folder}/"))


def read_files(archive: Archive) -> dict[str, bytes]:
    """Return the files' contents by name. Raise `NanobotError`."""
    try:
        return dict(check_files(archive))
    except _DAMAGE as error:
        raise NanobotError(
            f"{printable(archive.name)} is not a readable archive",
            hint="Use a .zip, .tar.gz, or .tar file.",
        ) from error


def check_files(archive: Archive) -> Iterator[tuple[str, bytes]]:
    """Yield the valid files with their names. Raise `NanobotError`."""
    files: set[str] = set()
    folders: set[str] = set()
    left = MOST_UNPACKED
    is_zip = zipfile.is_zipfile(io.BytesIO(archive.content))
    for name, read in read_zip(archive) if is_zip else read_tar(archive):
        path = check_name(archive, name)
        content = read(left + 1)
        left -= len(content)  # counts real bytes, not the archive's sizes
        same = unicodedata.normalize("NFC", path).casefold()  # as some file systems compare names
        above = [str(folder) for folder in PurePosixPath(same).parents]
        if same in files:
            raise build_error(archive, f"contains {printable(path)} twice")
        if same in folders or not files.isdisjoint(above):
            raise build_error(archive, f"contains {printable(path)} both as a file and as a folder")
        if len(files) >= MOST_ENTRIES or left < 0:
            raise build_error(
                archive, f"contains more than {MOST_ENTRIES:,} files or {MOST_UNPACKED:,} bytes"
            )
        files.add(same)
        folders.update(above)
        yield path, content


def check_name(archive: Archive, name: str) -> str:
    parts = name.removeprefix("./").split("/")
    wrong = not name or name.startswith("/") or "\\" in name or len(parts) > _DEEPEST
    if wrong or not name.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise build_error(
            archive, f"contains a file with an invalid name: {printable(name)[:200]!r}"
        )
    return "/".join(parts)


def build_error(archive: Archive, reason: str) -> NanobotError:
    return NanobotError(f"{printable(archive.name)} cannot be unpacked: it {reason}")


Read = Callable[[int], bytes]
"""Returns up to this many bytes of a file."""


def read_zip(archive: Archive) -> Iterator[tuple[str, Read]]:
    """Yield the files' names and readers. Each must be read before the next."""
    with zipfile.ZipFile(io.BytesIO(archive.content)) as opened:
        for entry in opened.infolist():
            name, kind = entry.orig_filename, entry.external_attr >> 28
            if kind not in (0, 0o4, 0o10):  # no type, a folder, a file
                raise build_error(archive, f"contains a link: {printable(name)}")
            if name.endswith("/"):
                continue
            if entry.flag_bits & 1:
                raise build_error(archive, "is encrypted")
            if entry.compress_type not in _METHODS:
                raise build_error(archive, "is not compressed with Deflate")
            with opened.open(entry) as file:
                yield name, file.read


def read_tar(archive: Archive) -> Iterator[tuple[str, Read]]:
    content = archive.content
    if content[:2] == b"\x1f\x8b":
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            content = packed.read(MOST_UNPACKED + 1)
        if len(content) > MOST_UNPACKED:
            raise build_error(archive, f"contains more than {MOST_UNPACKED:,} bytes")
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as opened:
        for entry in opened:
            if entry.isdir():
                continue
            if not entry.isreg() or entry.issparse():  # a sparse file can claim any size
                raise build_error(archive, f"contains a link or a device: {printable(entry.name)}")
            file = opened.extractfile(entry)
            assert file is not None  # it is a regular file
            yield entry.name, file.read
