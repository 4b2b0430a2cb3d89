"""The helper on disk: whether it is there, and putting it there.

The package ships its sources. They run in place where they were built there (a checkout, a Docker
image); everywhere else they are copied to `<state folder>/bridge-<hash of the sources>`, get the
packages that the lock file names, to the byte and without running anything of theirs, and are
built. So a new version of nanobot finds no helper of its own and asks for one, and never runs that
of another.

What always holds: a folder with such a name is whole. It is made under another name, by one process
at a time, and renamed when all of it is on disk; what a killed installation left is removed by the
next.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nanobot.disk import sync_folder
from nanobot.errors import StorageError
from nanobot_whatsapp.linked.node import NodeMissing, find_node, find_npm
from nanobot_whatsapp.linked.npm import InstallFailed, Npm, run_npm

__all__ = ["InstallFailed", "NodeMissing", "bridge_program", "find_node", "install"]

SOURCES = Path(__file__).parents[1] / "bridge"
"""Where the package has the helper."""

_MAIN = Path("dist", "main.js")
_SINGLE_FILES = (
    ".npmrc",
    "package-lock.json",
    "package.json",
    "tsconfig.build.json",
    "tsconfig.json",
)
_OURS = re.compile(r"bridge-[0-9a-f]{16}(?:\.new)?")
_LOCK = "bridge-install.lock"
_CACHE_TAG, _CACHE_SIGNATURE = "CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55"
"""By these a backup knows that it need not hold the helper: it can be installed again."""

_PACKAGES = (
    "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund",
    # Tried again for seconds and not for minutes: a person waits, and can start it again.
    "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000",
)  # fmt: skip
_MEGABYTES, _STEP_MEGABYTES, _LOOK_SECONDS = 70, 15, 1.0
_BUILD = ("run", "build", "--ignore-scripts")


def bridge_program(state_folder: Path, *, sources: Path = SOURCES) -> Path | None:
    """The helper's `main.js`, None where it is not installed in the version of this package.

    Raises `StorageError` where the package's own files cannot be read.
    """
    if _is_built(sources):
        return sources / _MAIN
    main = _installed(state_folder, sources) / _MAIN
    return main if main.is_file() else None


async def install(
    state_folder: Path, node: Path, say: Callable[[str], None], *, sources: Path = SOURCES
) -> Path:
    """Install the helper below `state_folder` where it is missing; its `main.js`.

    `node` is what `find_node` gave; `say` tells a person what takes so long. Raises `NodeMissing`
    without npm, `InstallFailed`, and `StorageError` where the disk refuses; what is installed
    already then stays as it was.
    """
    if (ready := bridge_program(state_folder, sources=sources)) is not None:
        return ready
    programs = Npm(find_npm(node), node)
    try:
        with _alone(state_folder) as lock:
            await _install(state_folder, programs, say, sources, lock)
    except OSError as error:
        raise StorageError.of(state_folder, error) from error
    return _installed(state_folder, sources) / _MAIN


async def _install(
    state_folder: Path, programs: Npm, say: Callable[[str], None], sources: Path, lock: int
) -> None:
    target = _installed(state_folder, sources)
    fresh = target.with_name(f"{target.name}.new")
    try:
        await asyncio.to_thread(_copy, sources, fresh)
        say(f"Installing the WhatsApp helper (some {_MEGABYTES} MB, once for this version) …")
        with _growth_told(fresh, say):
            await run_npm(programs, _PACKAGES, fresh, held=lock, environ=os.environ)
        await run_npm(programs, _BUILD, fresh, held=lock, environ=os.environ)
        await asyncio.to_thread(_put_in_place, fresh, target)
    except BaseException:  # cancelled as well: nothing half is left
        await asyncio.to_thread(shutil.rmtree, fresh, ignore_errors=True)
        raise
    await asyncio.to_thread(_remove_others, target)


@contextmanager
def _growth_told(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Tell how much has arrived in `folder` meanwhile, each time it is a good deal more. From a
    thread, as counting some thousand files takes a while."""
    over = threading.Event()

    def watch() -> None:
        told = 0
        while not over.wait(_LOOK_SECONDS):
            size = _bytes_in(folder) // 1_000_000
            if size >= told + _STEP_MEGABYTES:
                told = size
                say(f"  {size} of some {_MEGABYTES} MB …")

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def _bytes_in(folder: Path) -> int:
    """What its files hold; those that go meanwhile are left out."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 - thousands
    return total


def _is_built(sources: Path) -> bool:
    """Whether `sources` were built where they are, and nothing has changed since."""
    built, packages = sources / _MAIN, sources / "node_modules" / ".package-lock.json"
    try:
        if packages.stat().st_mtime < (sources / "package-lock.json").stat().st_mtime:
            return False
        newest = max(file.stat().st_mtime for file in built.parent.rglob("*.js"))
        return built.is_file() and newest >= max(
            file.stat().st_mtime for file in (sources / "src").rglob("*.ts")
        )
    except (OSError, ValueError):  # something of it is not there
        return False


def _installed(state_folder: Path, sources: Path) -> Path:
    return state_folder / f"bridge-{_hash(sources)}"


def _files(sources: Path) -> list[Path]:
    """What the helper is made of, below `sources`, in order."""
    single = [sources / name for name in _SINGLE_FILES]
    return [*single, *sorted((sources / "src").rglob("*.ts"))]


def _hash(sources: Path) -> str:
    """Raises `StorageError` where the package is not whole."""
    digest = hashlib.sha256()
    try:
        for file in _files(sources):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(sources)}\0{len(content)}\0".encode())
            digest.update(content)
    except OSError as error:
        raise StorageError.of(error.filename or sources, error) from error
    return digest.hexdigest()[:16]


def _copy(sources: Path, fresh: Path) -> None:
    _remove(fresh)
    for file in _files(sources):
        copy = fresh / file.relative_to(sources)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    (fresh / _CACHE_TAG).write_text(f"{_CACHE_SIGNATURE}\n", encoding="ascii")


def _put_in_place(fresh: Path, target: Path) -> None:
    if not (fresh / _MAIN).is_file():
        raise InstallFailed("the WhatsApp helper was built, and its program is not there")
    os.sync()  # thousands of files, which must not be empty after a loss of power
    _remove(target)
    fresh.rename(target)
    sync_folder(target.parent)


def _remove_others(target: Path) -> None:
    for folder in target.parent.iterdir():
        if _OURS.fullmatch(folder.name) and folder != target:
            shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


@contextmanager
def _alone(state_folder: Path) -> Iterator[int]:
    """No other process installs while inside; the lock's descriptor. Raises `InstallFailed`."""
    state_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(state_folder / _LOCK, flags, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InstallFailed(
                "the WhatsApp helper is being installed already",
                hint="Wait a minute, then run this again.",
            ) from None
        yield lock
    finally:
        os.close(lock)
