"""The helper on disk: checks whether it is installed, and installs it with Node.js and npm.

The package contains its sources. If they were built in place (a checkout, a Docker image), they run
there. Otherwise they are copied to `<state folder>/bridge-<hash of the sources>`, get the packages
of the lock file, verified by hash and without running their code, and are built. So a new version
of nanobot needs its own helper and never runs another version's.

Invariants: a folder with such a name is complete. It is built under another name, by one process at
a time, and renamed when all of it is on disk. The next installation removes the remains of a killed
one. npm and its children are a process group, which is killed if the installation is left before
npm is done. npm gets only the environment that it needs: no keys for a tree of packages. Node.js is
used only after it has reported a recent enough version."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import signal
import subprocess
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from nanobot import programs
from nanobot.errors import NanobotError, StorageError
from nanobot.io import hold_lock, sync_folder
from nanobot.programs import Launch
from nanobot.text import expanduser

NODE_VERSION = 20
"""The oldest supported major version of Node.js."""
SOURCES = Path(__file__).parents[1] / "bridge"
"""The helper in the package."""

_MAIN = Path("dist", "main.js")
_SINGLE_FILES = (
    ".npmrc",
    "package-lock.json",
    "package.json",
    "tsconfig.build.json",
    "tsconfig.json",
)
_INSTALLED = re.compile(r"bridge-[0-9a-f]{16}(?:\.new)?")
_LOCK = "bridge-install.lock"

_NODE_SECONDS = 20.0
_NODE_ANSWER = re.compile(r"v(\d{1,4})\.\d+\.\d+")
_GET_NODE = (
    f"Install Node.js {NODE_VERSION} or newer (nodejs.org, or `sudo apt-get install nodejs npm` if"
    " that version is new enough). If nanobot does not find it, set channels.whatsapp.node in"
    " config.yaml to the path from `command -v node`."
)

_NPM_SECONDS = 900.0  # the limit for one run, which may download everything over a slow line
_PACKAGES = (
    "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund",
    # Retry for seconds, not for minutes: a person waits, and can start it again.
    "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000",
)  # fmt: skip
_BUILD = ("run", "build", "--ignore-scripts")
_OUTPUT_BYTES = 16_384
_OUTPUT_LINES = 12
_NOT_UNPACKED = re.compile(rb"\bTAR_ENTRY_ERROR (E[A-Z0-9]+)[:\s]")
_NPM_ENVIRONMENT = (
    r"(?i:XDG_CACHE_HOME|NODE_EXTRA_CA_CERTS|SSL_CERT_(?:FILE|DIR)|(?:https?|no|all)_proxy"
    r"|npm_config_(?:registry|\w*proxy|ca|cafile|cache|userconfig|globalconfig|strict_ssl"
    r"|fetch_\w+|maxsockets|prefer_offline|offline|//.*))"
)
"""Variables for the source and route of packages. None names a program or a module to load."""


class NodeMissing(NanobotError):
    """There is no suitable Node.js, or no npm with it."""


class InstallFailed(NanobotError):
    """The helper could not be installed. An earlier installation is unchanged."""


def find_node(setting: str) -> Path:
    """Return the program for the setting `node`: a path, or a name on the PATH.

    Runs it for its version, which blocks for some 50 ms. Raises `NodeMissing`."""
    try:
        found = programs.program(str(expanduser(setting)))
        answer = Launch((found, "--version"), programs.environment()).run(_NODE_SECONDS)
    except (NanobotError, OSError, subprocess.SubprocessError) as error:
        problem = f"{setting} cannot be run: {error}"
    else:
        said = answer.stdout.strip()
        version = _NODE_ANSWER.fullmatch(said)
        if version and int(version[1]) >= NODE_VERSION and not answer.returncode:
            return Path(found)
        problem = f"{found} is version {said[:20]!r}"
    raise NodeMissing(
        f"WhatsApp as a linked device needs Node.js {NODE_VERSION} or newer, but {problem}",
        hint=_GET_NODE,
    )


def bridge_program(state_folder: Path, *, sources: Path = SOURCES) -> Path | None:
    """Return the helper's `main.js`, or None if this version's helper is not installed.

    Raises `StorageError` if the package's own files cannot be read."""
    if is_built(sources):
        return sources / _MAIN
    main = find_target(state_folder, sources) / _MAIN
    return main if main.is_file() else None


async def install(
    state_folder: Path, node: Path, say: Callable[[str], None], *, sources: Path = SOURCES
) -> Path:
    """Install the helper below `state_folder` if it is missing. Return its `main.js`.

    `node` is the result of `find_node`. `say` shows slow steps to a person. Raises `NodeMissing`
    without npm, `InstallFailed`, and `StorageError` if the disk refuses. An earlier installation
    then stays unchanged."""
    if (ready := bridge_program(state_folder, sources=sources)) is not None:
        return ready
    npm = find_npm(node)
    target = find_target(state_folder, sources)
    fresh = target.with_name(f"{target.name}.new")
    try:
        with hold_lock(state_folder / _LOCK) as lock:
            try:
                await asyncio.to_thread(copy_sources, sources, fresh)
                say("Installing the WhatsApp helper (about 70 MB, once per version) …")
                await run_npm(npm, node, _PACKAGES, fresh, lock)
                await run_npm(npm, node, _BUILD, fresh, lock)
                await asyncio.to_thread(put_in_place, fresh, target)
            except BaseException:  # also when cancelled: leave nothing incomplete
                await asyncio.to_thread(shutil.rmtree, fresh, ignore_errors=True)
                raise
    except BlockingIOError:
        raise InstallFailed(
            "the WhatsApp helper is already being installed",
            hint="Wait a minute, then run this again.",
        ) from None
    except OSError as error:
        raise StorageError.of(state_folder, error) from error
    return target / _MAIN


def find_npm(node: Path) -> Path:
    """Return the npm that belongs to `node`, or else the one on the PATH. Raises `NodeMissing`."""
    folders = f"{node.parent}{os.pathsep}{node.resolve().parent}"
    found = programs.find("npm", folders) or programs.find("npm")
    if not found:
        raise NodeMissing(
            "npm, which installs the WhatsApp helper, is missing",
            hint="It is part of Node.js from nodejs.org. Debian and Ubuntu have a separate package:"
            " sudo apt-get install npm",
        )
    return Path(found)


async def run_npm(npm: Path, node: Path, arguments: Sequence[str], folder: Path, lock: int) -> None:
    """Run `npm ARGUMENTS` with `node` in `folder`. It holds the descriptor `lock` open for as long
    as any of its processes lives. Raises `InstallFailed` with the end of its output."""
    kept = programs.environment(_NPM_ENVIRONMENT, npm_config_update_notifier="false")
    kept["PATH"] = f"{node.parent}:{kept.get('PATH', os.defpath)}"
    what = f"npm {arguments[0]}"
    try:
        launch = Launch((str(npm), *arguments), kept, str(folder), (lock,))
        process = await launch.spawn(stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    except OSError as error:
        raise InstallFailed(f"{npm} cannot be run: {error.strerror}") from error
    assert process.stdout is not None
    end, not_unpacked = b"", ""
    try:
        async with asyncio.timeout(_NPM_SECONDS):
            while chunk := await process.stdout.read(_OUTPUT_BYTES):
                # npm only warns about files that it could not write, and reports success.
                if not not_unpacked and (found := _NOT_UNPACKED.search(end[-64:] + chunk)):
                    not_unpacked = found[1].decode()
                end = (end + chunk)[-_OUTPUT_BYTES:]
            code = await process.wait()
    except TimeoutError:
        minutes = int(_NPM_SECONDS / 60)
        raise InstallFailed(
            f"{what} took more than {minutes} minutes",
            hint="Check the connection (and https_proxy), then run this again.",
        ) from None
    finally:
        await kill_group(process)
    if code or not_unpacked:
        lines = filter(str.strip, end.decode("utf-8", "replace").splitlines())
        shown = "\n  ".join(["The end of its output:", *list(lines)[-_OUTPUT_LINES:]])
        reason = not_unpacked or f"exit code {code}"
        raise InstallFailed(f"{what} failed ({reason})", hint=shown)


async def kill_group(process: Process) -> None:
    """Kill a process and its children, unless it has ended."""
    if process.returncode is None:  # afterwards its pid may be reused
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def is_built(sources: Path) -> bool:
    """Return True if `sources` were built in place and have not changed since."""
    built, packages = sources / _MAIN, sources / "node_modules" / ".package-lock.json"
    try:
        if packages.stat().st_mtime < (sources / "package-lock.json").stat().st_mtime:
            return False
        newest = max(file.stat().st_mtime for file in built.parent.rglob("*.js"))
        return built.is_file() and newest >= max(
            file.stat().st_mtime for file in (sources / "src").rglob("*.ts")
        )
    except (OSError, ValueError):  # some of it is missing
        return False


def list_sources(sources: Path) -> list[Path]:
    """Return the helper's source files, in order."""
    single = [sources / name for name in _SINGLE_FILES]
    return [*single, *sorted((sources / "src").rglob("*.ts"))]


def find_target(state_folder: Path, sources: Path) -> Path:
    """Return the installation folder for these sources. Raises `StorageError` if some are
    missing."""
    digest = hashlib.sha256()
    try:
        for file in list_sources(sources):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(sources)}\0{len(content)}\0".encode())
            digest.update(content)
    except OSError as error:
        raise StorageError.of(error.filename or sources, error) from error
    return state_folder / f"bridge-{digest.hexdigest()[:16]}"


def copy_sources(sources: Path, fresh: Path) -> None:
    if fresh.exists():
        shutil.rmtree(fresh)
    for file in list_sources(sources):
        copy = fresh / file.relative_to(sources)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def put_in_place(fresh: Path, target: Path) -> None:
    if not (fresh / _MAIN).is_file():
        raise InstallFailed("the WhatsApp helper was built, but its program is missing")
    os.sync()  # thousands of files must not be empty after a power failure
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    sync_folder(target.parent)
    for folder in target.parent.iterdir():
        if _INSTALLED.fullmatch(folder.name) and folder != target:
            shutil.rmtree(folder, ignore_errors=True)
