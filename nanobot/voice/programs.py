"""Runs one program on one file, in the sandbox, in a temporary folder.

Invariant: a program sees the system's programs, its given paths and its folder, and writes only
there. It has no network. When `run` returns or raises, the program and all its children are dead.
Its time, memory and output are limited. Links in its folder are not followed: only plain files are
read."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from loguru import logger
from msgspec import Struct

from nanobot.clock import first_error
from nanobot.errors import NanobotError, ToolError
from nanobot.io import make_folder, storage_errors
from nanobot.programs import Launch, find
from nanobot.security.paths import Root
from nanobot.security.sandbox import (
    CHUNK,
    PATH,
    Confinement,
    FindSandbox,
    Sandbox,
    SandboxRefused,
    run_process,
    signal_group,
)
from nanobot.text import printable
from nanobot.voice import VoiceFailed

MEGABYTE = 1_000_000

MOST_SECONDS = 300.0
"""For all programs of one file: a large model on a slow processor needs minutes."""
MEMORY_MEGABYTES = 8_192
"""Enough for the largest of the usual speech models."""
_PROCESSES = 128
_LOOK_SECONDS = 0.2
"""Interval between measurements of the written output."""
_SAID_CHARACTERS = 4_000
"""Characters kept from the end of a program's stderr."""
_LINE_CHARACTERS = 200
_TRIES, _PAUSE = 10, 0.1
_DRAIN_SECONDS = 5.0
"""Timeout for stderr after the program was killed."""


class Program(Struct, frozen=True):
    """A program and its permissions. `command` has placeholders such as `{input}`. It may read the
    paths in `read` and the absolute paths in its command. `seconds` is for all work on one file,
    `memory_megabytes` for all its processes. If not `sandboxed`, it has the owner's permissions."""

    command: tuple[str, ...]
    read: tuple[Path, ...] = ()
    seconds: float = MOST_SECONDS
    memory_megabytes: int = MEMORY_MEGABYTES
    sandboxed: bool = True

    @property
    def name(self) -> str:
        return printable(Path(self.command[0]).name)

    @property
    def readable(self) -> tuple[Path, ...]:
        """All readable paths, including files that the command names."""
        named = [Path(argument) for argument in self.command if argument.startswith("/")]
        shown = [*self.read, *find_environment(Path(self.command[0]))]
        for path in named:  # a link in a readable folder may lead out of it
            inside = any(map(path.is_relative_to, shown))
            shown.append(Path(os.path.realpath(path)) if inside else path)
        own = dict.fromkeys(filter(is_own_path, shown))
        return tuple(path for path in own if own.keys().isdisjoint(path.parents))


_SYSTEM = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")


def is_own_path(path: Path) -> bool:
    """Check whether a path exists outside the system's folders, which the sandbox handles
    itself."""
    real = Path(os.path.realpath(path))
    is_plain = real != Path("/") and ".." not in path.parts and path.exists()
    return is_plain and not any(map(real.is_relative_to, _SYSTEM))


def find_environment(program: Path) -> tuple[Path, ...]:
    """Return the virtual environment of a program and its base Python."""
    folder = program.parent.parent
    if not (program.is_absolute() and (folder / "pyvenv.cfg").is_file()):
        return ()
    return folder, Path(os.path.realpath(folder / "bin" / "python")).parent.parent


class Programs:
    """Runs up to `at_once` programs. `find` finds the sandbox. `folder` holds only their temporary
    folders. A program may write `megabytes` in all, and half of that to one file: two hours of
    speech are 230 MB as WAV."""

    def __init__(
        self, find: FindSandbox, folder: Path, *, at_once: int = 2, megabytes: int = 600
    ) -> None:
        self._find, self._folder, self._megabytes = find, folder, megabytes
        self._turnstile = asyncio.Semaphore(at_once)
        self._swept = False

    @asynccontextmanager
    async def desk(self, program: Program) -> AsyncIterator[Desk]:
        """Yield a folder for one file, within its timeout. Raise `VoiceFailed` on timeout or
        without a sandbox, and `StorageError`."""
        async with self._hold_slot(program):
            sandbox = await self._sandbox(program)
            await self._sweep()
            folder = self._make_folder()  # on the loop, so that a cancellation leaves none
            try:
                async with asyncio.timeout(program.seconds):
                    yield Desk(folder, sandbox, program, self._megabytes)
            except TimeoutError as error:
                raise VoiceFailed(
                    f"{program.name} took longer than {program.seconds:g} seconds",
                    hint="Use a smaller model.",
                ) from error
            finally:
                await asyncio.to_thread(remove_folder, folder)

    @asynccontextmanager
    async def _hold_slot(self, program: Program) -> AsyncIterator[None]:
        """Hold one of the slots. The wait has a timeout, in case other programs hang."""
        try:
            async with asyncio.timeout(program.seconds):
                await self._turnstile.acquire()
        except TimeoutError as error:
            raise VoiceFailed("too many speech programs are running") from error
        try:
            yield
        finally:
            self._turnstile.release()

    async def _sandbox(self, program: Program) -> Sandbox:
        if not program.sandboxed:
            return Sandbox("none")
        found = await self._find()
        if found.sandbox is None:
            raise VoiceFailed(f"there is no sandbox to run {program.name} in", hint=found.problem)
        return found.sandbox

    async def _sweep(self) -> None:
        """Remove the folders that a killed process left, once for each process."""
        if not self._swept:
            self._swept = True
            with storage_errors(self._folder):
                left = list(self._folder.iterdir()) if self._folder.is_dir() else []
            for folder in left:  # by name, because programs may start in the meantime
                await asyncio.to_thread(remove_folder, folder)

    def _make_folder(self) -> Path:
        with storage_errors(self._folder):
            make_folder(self._folder)
            return Path(tempfile.mkdtemp(dir=self._folder))


class Desk:
    """The folder of one file, in which programs run one after the other."""

    def __init__(self, folder: Path, sandbox: Sandbox, program: Program, megabytes: int) -> None:
        self._folder, self._sandbox, self._program = folder, sandbox, program
        self._megabytes = megabytes
        self._root = Root(folder, name="folder of the program")

    def path(self, name: str) -> str:
        """Return the path of a file for a program."""
        return str(self._folder / name)

    async def put(self, name: str, content: bytes) -> None:
        """Write a file. Raise `StorageError`."""
        await asyncio.to_thread(self._root.place(name).write_bytes, content)

    async def take(self, name: str, most: int) -> bytes:
        """Read a program's output file of at most `most` bytes. Raise `VoiceFailed`."""
        try:
            content = await asyncio.to_thread(self._root.place(name).read_bytes, most)
        except ToolError as error:  # a link, a pipe, a folder, or too much
            raise VoiceFailed(
                f"the output of {self._program.name} can't be used: {error}"
            ) from error
        if content is None:
            raise VoiceFailed(f"{self._program.name} produced no output")
        return content

    async def run(self, command: Sequence[str], stdin: bytes = b"", *, most: int) -> bytes:
        """Return the program's stdout, at most `most` bytes. Raise `VoiceFailed` if it fails."""
        name, program = printable(Path(command[0]).name), self._program
        confined = Confinement(
            self._folder,
            hide_git=False,  # its folder holds no repository
            own_folder=True,
            extra_read_only=program.readable if program.sandboxed else (),
            environment={"TMPDIR": str(self._folder), "HOME": str(self._folder)},
            memory_megabytes=program.memory_megabytes,
            processes=_PROCESSES,
            file_megabytes=self._megabytes // 2,
        )
        try:
            launch = self._sandbox.launch(command, confined)
            with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed:
                await asyncio.to_thread(fill_file, given.fileno(), stdin)
                try:
                    why, said = await self._watch(launch, given.fileno(), printed.fileno(), most)
                except BaseExceptionGroup as group:
                    raise first_error(group) from None
                if why:
                    raise build_failure(name, why, said)
                return await asyncio.to_thread(os.pread, printed.fileno(), most, 0)
        except (SandboxRefused, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            hint = error.hint if isinstance(error, NanobotError) else ""
            raise VoiceFailed(f"{name} cannot be run: {error}", hint=hint) from error

    async def _watch(self, launch: Launch, given: int, printed: int, most: int) -> tuple[str, str]:
        """Run a program to its end. Return its failure (empty on success) and its stderr."""
        async with (
            run_process(launch, stdin=given, stdout=printed) as (child, complaints),
            asyncio.TaskGroup() as tasks,
        ):
            reading = tasks.create_task(read_end(complaints))
            exited = tasks.create_task(child.wait())
            why = ""
            while not why and not exited.done():
                await asyncio.wait({exited}, timeout=_LOOK_SECONDS)
                why = await asyncio.to_thread(self._find_excess, printed, most)
            signal_group(child, signal.SIGKILL)  # also children that it left behind
            code = await exited
            await asyncio.wait({reading}, timeout=_DRAIN_SECONDS)
            said = reading.result() if reading.done() else ""
            reading.cancel()  # a process that left the group may still hold the pipe
        return why or (describe_exit(code) if code else ""), said

    def _find_excess(self, printed: int, most: int) -> str:
        """Return the exceeded limit, or an empty text."""
        if os.fstat(printed).st_size > most:
            return f"printed more than {most:,} bytes"
        if measure_folder(self._folder) > self._megabytes * MEGABYTE:
            return f"wrote more than {self._megabytes} MB"
        return ""


def fill_placeholders(command: Sequence[str], places: dict[str, str]) -> list[str]:
    """Return `command` with each `{name}` of `places` replaced. Other braces stay."""
    found = list(command)
    for name, place in places.items():
        found = [argument.replace(f"{{{name}}}", place) for argument in found]
    return found


def find_installed(program: str) -> str:
    """Return the path of a program in the sandbox, or an empty text if it is not installed."""
    return find(program, PATH)


def fill_file(descriptor: int, content: bytes) -> None:
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)  # the program reads from the beginning


def remove_folder(folder: Path) -> None:
    """Remove a folder with files of any mode. Retry, because a killed process may still write for a
    moment. Blocks."""
    for _ in range(_TRIES):
        for place, names, _ in os.walk(folder):
            for path in (Path(place, name) for name in names):
                with suppress(OSError):
                    if not path.is_symlink():
                        path.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(_PAUSE)
    logger.warning("can't remove {}", folder)


def measure_folder(folder: Path) -> int:
    """Return the bytes on disk of a folder. Links are not followed."""
    total, waiting = 0, [str(folder)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    # 1,024 for the inode
                    total += entry.stat(follow_symlinks=False).st_blocks * 512 + 1_024
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total


async def read_end(reader: asyncio.StreamReader) -> str:
    """Read to the end and return the last characters."""
    said = b""
    while chunk := await reader.read(CHUNK):
        said = (said + chunk)[-4 * _SAID_CHARACTERS :]
    return said.decode("utf-8", "replace")[-_SAID_CHARACTERS:]


def describe_exit(code: int) -> str:
    number = -code if code < 0 else code - 128
    with suppress(ValueError):
        if signal.Signals(number) is signal.SIGXFSZ:
            return "wrote a file that is too large"
        return f"was stopped by {signal.Signals(number).name}"
    return f"exited with code {code}"


def build_failure(name: str, what: str, said: str) -> VoiceFailed:
    """Return an error with the last line, preferring the sandbox's own lines (`nanobot: stopped:
    …`)."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("nanobot: ")]
    last = (own or lines or [""])[-1]  # the last line usually names the cause
    said = printable(last.removeprefix("nanobot: ")[:_LINE_CHARACTERS])
    return VoiceFailed(f"{name} {what}" + (f": {said}" if said else ""))
