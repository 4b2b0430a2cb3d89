"""Sandboxes for commands and third-party programs.

Invariant: a command sees only the system's programs and libraries, its workspace and its given
paths. It writes only there. It has no environment, process, socket or network of nanobot. Before
any command runs, `find_sandbox` verifies this with a command that tries to escape
(`confine/probe`).

A sandbox returns a `Launch`, the instructions for the program that confines a command
(`nanobot.security.confine`). `relay` is a sandbox's network access."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from nanobot.errors import ToolError
from nanobot.programs import Launch, find
from nanobot.security.confine import RELAY_PORT, VARIABLE, Spec

Kind = Literal["bubblewrap", "landlock", "none"]


class SandboxRefused(ToolError):
    """This sandbox cannot run a command in this way. Nothing was started."""

    for_operator = True


class Confinement(Struct, frozen=True):
    """The permissions of a command. All paths except `read_only` are absolute.

    `workspace` exists and keeps its path. Only it and `writable` can be written. `read_only` are
    protected paths below the workspace. They need not exist; a path that ends in `/` is then a
    folder. `hide_git` hides every `.git` in the writable folders, and renames any that the command
    makes to `dot-git` when it ends. In an `own_folder` no person works, so names with a dot may
    stay, except known automatic ones. With `strict`, none may stay anywhere. `extra_read_only` and
    `writable` are outside the workspace.

    `environment` is added to a small fixed one. `memory_megabytes` limits each process, all
    together, and all commands with the same `ledger` (an open file; -1 for none). `processes`
    includes threads, `file_megabytes` limits one file. `cwd` defaults to the workspace."""

    workspace: Path
    read_only: tuple[str, ...] = ()
    hide_git: bool = True
    own_folder: bool = False
    extra_read_only: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    memory_megabytes: int = 2_048
    processes: int = 256
    file_megabytes: int = 1_024
    cwd: Path | None = None
    ledger: int = -1
    strict: bool = False


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""On most systems links into /usr."""

_ALWAYS = (
    "/usr", "/nix/store", "/etc/alternatives", "/etc/ca-certificates", "/etc/fonts",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
    "/etc/lsb-release", "/etc/mime.types", "/etc/os-release", "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/cert.pem", "/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf", "/etc/protocols",
    "/etc/services", "/etc/shells", "/etc/ssl/cert.pem", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
    "/etc/terminfo", "/etc/timezone", "/etc/xdg/fonts",
)  # fmt: skip
"""Visible to every command: programs, libraries and certificates, nothing personal. Home folders,
/run, /var, /opt, /sys and the rest of /etc are not."""

_NAMES = ("/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/passwd")
"""Readable if they cannot be replaced."""


def links() -> tuple[tuple[str, str], ...]:
    """Return the top-level links as (target, path)."""
    return tuple((str(Path(path).readlink()), path) for path in _FOLDERS if Path(path).is_symlink())


def readable(*, names: bool) -> tuple[str, ...]:
    """Return the read-only paths. `names` adds the files with this machine's users and hosts."""
    real = (path for path in _FOLDERS if not Path(path).is_symlink())
    return (*real, *_ALWAYS, *(_NAMES if names else ()))


_PROGRAM = Path(__file__).parent.parent / "confine"
_PROXY = f"http://127.0.0.1:{RELAY_PORT}"
_NOWHERE = "localhost,127.0.0.1,::1"


class Sandbox(Struct, frozen=True):
    """A way to run commands. `bubblewrap`: namespaces with nothing else in them; `program` is
    bubblewrap's. `landlock`: Landlock and a system call filter, on the system as it is; `temporary`
    holds a private folder for each command. `none`, by the owner's choice: limits, a small
    environment, and cleanup.

    `private` are nanobot's folders. A workspace may be in one, but no given path may contain
    one."""

    kind: Kind
    private: tuple[Path, ...] = ()
    program: str = ""
    temporary: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))

    @property
    def notes(self) -> str:
        """Limitations of this sandbox in a few sentences, mostly empty."""
        if self.kind != "landlock":
            return ""
        return (
            "There is no network, no socket, and no /proc. Modes and times of files can't be "
            "changed, so run scripts with `sh FILE`. Create files in folders such as work/, "
            "not next to a protected file or a .git."
        )

    def launch(
        self, command: Sequence[str], confined: Confinement, relay: Path | None = None
    ) -> Launch:
        """Return the launch of `command` with only the permissions in `confined`. Cheap, starts
        nothing.

        The process leads a group: end it by killing the group. A watcher cleans up after any kind
        of end, and keeps standard error open until then. After `nanobot: ` it writes there why it
        ended a command ("more than 256 processes").

        `relay` is the socket of a `network_relay`, which offers an HTTP proxy whose other end
        decides. Without it there is no network, except without a sandbox. Raise
        `SandboxRefused`."""
        spec = Spec(
            kind=self.kind,
            workspace=str(confined.workspace),
            cwd=str(confined.cwd or confined.workspace),
            read_only=confined.read_only,
            hide_git=confined.hide_git,
            own_folder=confined.own_folder,
            writable=tuple(map(str, confined.writable)),
            environment={**self._build_environment(relay), **confined.environment},
            memory_megabytes=confined.memory_megabytes,
            processes=confined.processes,
            file_megabytes=confined.file_megabytes,
            ledger=confined.ledger,
            strict=confined.strict,
        )
        if self.kind != "none":
            refuse_unless_usable(confined, self.private)
            own = readable(names=self.kind == "landlock")
            spec = spec._replace(readable=(*own, *map(str, confined.extra_read_only)))
        if self.kind == "landlock":
            if relay:
                raise SandboxRefused(
                    "commands have no network access in this sandbox",
                    hint=(
                        "Network access needs bubblewrap (see `nanobot doctor`). web_fetch works "
                        "without it."
                    ),
                )
            spec = spec._replace(temporary=str(self.temporary))
        elif self.kind == "bubblewrap":
            spec = spec._replace(
                borrowed=tuple(map(str, program_folders(_PROGRAM))),
                links=links(),
                bubblewrap=self.program,
                relay=str(relay or ""),
            )
        start = (interpreter(), "-E", "-s", "-S", str(_PROGRAM), "start")
        passed = (spec.ledger,) if spec.ledger >= 0 else ()
        return Launch((*start, *command), {VARIABLE: spec.as_text()}, "/", passed)

    def _build_environment(self, relay: Path | None) -> dict[str, str]:
        """Return a small fixed environment. Nothing is inherited."""
        own = {"PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb", "USER": "agent", "LOGNAME": "agent"}
        if self.kind == "bubblewrap":
            own |= {"HOME": "/tmp/home", "TMPDIR": "/tmp"}  # noqa: S108 - in the sandbox
        elif self.kind == "none":
            own["HOME"] = os.path.expanduser("~")  # noqa: PTH111 - `Path.home` raises where there is none
        if relay:
            for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                own |= {name: _PROXY, name.lower(): _PROXY}
            own |= {"NO_PROXY": _NOWHERE, "no_proxy": _NOWHERE, "NODE_USE_ENV_PROXY": "1"}
        return own


def program_folders(*programs: Path) -> tuple[Path, ...]:
    """Return the folders that nanobot's own programs need and commands don't see."""
    paths = (Path(os.path.realpath(sys.base_prefix)), *programs)
    return tuple(path for path in paths if not path.is_relative_to("/usr"))


@cache
def interpreter() -> str:
    """Return the base Python, without its virtual environment."""
    return os.path.realpath(sys.executable)


_SYSTEMS = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")
_TOO_MUCH = frozenset(("/", "/home", "/run", "/tmp", "/var", "/opt", "/mnt"))  # noqa: S108


def refuse_unless_usable(confined: Confinement, private: Sequence[Path]) -> None:
    """Raise `SandboxRefused` if a command would get more than intended. Blocks briefly."""
    for below in confined.read_only:
        if not all(name and _is_plain(name) for name in below.rstrip("/").split("/")):
            raise SandboxRefused(f"{below!r} is not a path in the workspace")
    refuse_private(confined, [resolve_path(path) for path in private])
    refuse_overlaps(confined)


def refuse_private(confined: Confinement, ours: Sequence[Path]) -> None:
    """Refuse paths that contain nanobot's folders, or are in one (except a workspace)."""
    beside = (*confined.writable, *confined.extra_read_only)
    for path in (confined.workspace, *beside):
        if not path.is_absolute() or not all(map(_is_plain, path.parts)):
            raise SandboxRefused(f"{path} is not a full path")
        real = resolve_path(path)
        inside = path in beside and any(map(real.is_relative_to, ours))
        if inside or any(folder.is_relative_to(real) for folder in ours):
            raise SandboxRefused(
                f"{path} contains nanobot's own files, which commands can't access"
            )


def _is_plain(name: str) -> bool:
    return name not in {".", ".."} and "\0" not in name


def refuse_overlaps(confined: Confinement) -> None:
    """Refuse writable folders that overlap or belong to the system."""
    trees: list[Path] = []
    for path in (confined.workspace, *confined.writable):
        tree = resolve_path(path)
        if not path.is_dir():
            raise SandboxRefused(f"there is no folder {path}")
        if str(tree) in _TOO_MUCH or any(map(tree.is_relative_to, _SYSTEMS)):
            raise SandboxRefused(
                f"commands can't write to {path}, because it is part of the system"
            )
        # The last mount would win.
        if any(tree.is_relative_to(one) or one.is_relative_to(tree) for one in trees):
            raise SandboxRefused(f"{path} overlaps with another writable folder")
        trees.append(tree)
    for path in confined.extra_read_only:
        if any(map(resolve_path(path).is_relative_to, trees)):
            raise SandboxRefused(f"{path} is in a writable folder")


def resolve_path(path: Path) -> Path:
    return Path(os.path.realpath(path))


CHUNK = 64 * 1024
"""Bytes of one read."""


@asynccontextmanager
async def run_process(
    launch: Launch, *, stdin: int = DEVNULL, stdout: int | None = None
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """Yield a process and its output: standard error, and standard output unless it goes to the
    file `stdout`. The group is dead afterwards. Raise `OSError` if it cannot start.

    It has its own pipe, because asyncio's would wait for each process that inherited it."""
    reader = asyncio.StreamReader(limit=CHUNK)
    read, write = os.pipe()
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", 0)
        )
        try:
            printed = write if stdout is None else stdout
            child = await launch.spawn(stdin=stdin, stdout=printed, stderr=write)
        except BaseException:
            transport.close()
            raise
    finally:
        os.close(write)
    try:
        yield child, reader
    finally:
        signal_group(child, signal.SIGKILL)
        transport.close()


def signal_group(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal the whole group, which is named after its first process and outlives it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


_PROBE = Path(__file__).parent.parent / "confine" / "probe.py"
_SECONDS = 30.0


class FoundSandbox(Struct, frozen=True):
    """A verified sandbox, or None and advice. With a sandbox, `problem` is why a better one was not
    used."""

    sandbox: Sandbox | None
    problem: str = ""


def identify_process() -> str:
    return f"{os.getpid()}:{Path('/proc/self/ns/pid').stat().st_ino}"


async def verify_sandbox(sandbox: Sandbox) -> str:
    """Return the problem of a sandbox, or an empty text if it holds."""
    with ExitStack() as stack:
        # A killed probe may still write: that must not replace the result or a cancellation.
        made = tempfile.TemporaryDirectory(prefix="nanobot-canary-", ignore_cleanup_errors=True)
        folder = stack.enter_context(made)
        outside, workspace = Path(folder, "outside"), Path(folder, "workspace")
        project = workspace / "project" / ".git"
        for path in (outside, project, workspace / "work"):
            path.mkdir(parents=True)
        for path in (outside / "secret", workspace / "protected", project / "config"):
            path.write_bytes(b"canary\n")
        (outside / "secret").chmod(0o600)
        abstract = f"nanobot-{os.urandom(8).hex()}"
        port = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        for address in (f"{outside}/socket", f"{workspace}/socket", f"\0{abstract}"):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen()
        arguments = (str(outside), str(workspace), identify_process(), str(port), abstract)
        confined = Confinement(
            workspace,
            read_only=("protected",),
            extra_read_only=program_folders(_PROBE),
            cwd=workspace,
        )
        command = (interpreter(), "-E", "-s", "-S", str(_PROBE), *arguments)
        child = await sandbox.launch(command, confined).spawn(stdin=DEVNULL, stdout=PIPE)
        try:
            async with asyncio.timeout(_SECONDS):
                said, complaints = await child.communicate()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, 9)
    try:
        crossed = json.loads(said)["crossed"]
    except (ValueError, KeyError, TypeError):
        text = " ".join(complaints.decode(errors="replace").split())
        return text[-300:] or "commands don't run in it"
    return f"a command in it could {', '.join(crossed)}" if crossed else ""


Wanted = Literal["auto", "bubblewrap", "landlock", "none"]

_INSTALL = "install bubblewrap (`apt-get install bubblewrap`, `dnf install bubblewrap`)"
_NAMESPACES = " (it needs user namespaces, see docs/security.md)"


async def find_sandbox(wanted: Wanted = "auto", *, private: Sequence[Path] = ()) -> FoundSandbox:
    """Return the sandbox to use. No command may get the folders `private` (nanobot's home), except
    workspaces in them. Takes a few tenths of a second and starts processes."""
    if wanted == "none":
        return FoundSandbox(Sandbox("none"))
    if problem := find_unsupported(private):
        return FoundSandbox(None, problem)
    problems = []
    if wanted in ("auto", "bubblewrap"):
        program = find("bwrap", PATH)
        made = Sandbox("bubblewrap", tuple(private), program)
        problem = await find_problem(made) if program else _INSTALL
        if not problem:
            return FoundSandbox(made)
        problems.append(problem)
    if wanted in ("auto", "landlock"):
        from nanobot.security.confine.stage import landlock_lack, landlock_version

        made = Sandbox("landlock", tuple(private))
        problem = landlock_lack(landlock_version()) or await find_problem(made)
        if not problem:
            return FoundSandbox(made, "; ".join(problems))
        problems.append(problem)
    return FoundSandbox(None, "; ".join(problems))


class SandboxFinder:
    """Finds the sandbox on first use, and again while there is none, because the owner may install
    one. `private` are nanobot's folders."""

    def __init__(self, wanted: Wanted, *private: Path) -> None:
        self._wanted, self._private = wanted, private
        self._found: FoundSandbox | None = None
        self._finding = asyncio.Lock()

    async def __call__(self) -> FoundSandbox:
        async with self._finding:
            if self._found is None or self._found.sandbox is None:
                self._found = await find_sandbox(self._wanted, private=self._private)
            return self._found


FindSandbox = Callable[[], Awaitable[FoundSandbox]]
"""A `SandboxFinder`, or a test double."""


def find_unsupported(private: Sequence[Path]) -> str:
    from nanobot.security.confine.seccomp import MACHINES  # loads ctypes

    machine = os.uname()
    if machine.sysname != "Linux" or machine.machine not in MACHINES:
        return f"{machine.sysname} on {machine.machine} is not supported"
    for folder in private:
        real = Path(os.path.realpath(folder))
        if any(real.is_relative_to(shown) for shown in readable(names=True)):
            return f"{folder} is readable by all commands. Move nanobot's home elsewhere"
    return ""


async def find_problem(sandbox: Sandbox) -> str:
    try:
        problem = await verify_sandbox(sandbox)
    except (OSError, ToolError, TimeoutError) as error:
        problem = str(error) or "it does not respond"
    if not problem:
        return ""
    reason = _NAMESPACES if sandbox.kind == "bubblewrap" else ""
    return f"{sandbox.kind} does not work here: {problem}{reason}"
