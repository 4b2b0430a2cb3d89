"""A machine to attack: an outside, a workspace, and a check of both afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from nanobot.programs import Launch
from nanobot.security.sandbox import Confinement, Sandbox
from tests.support import PATIENCE

ATTACKER = Path(__file__).with_name("attacker.py")
PYTHON = (os.path.realpath(sys.executable), "-E", "-s", "-S")
UNSEEN = tuple(
    path
    for path in (Path(os.path.realpath(sys.base_prefix)), ATTACKER)
    if not path.is_relative_to("/usr")
)
"""The folders of the test's own Python that commands do not see."""

SECRET = b"secret\n"


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The end of a command, and its output."""

    code: int
    output: str
    complaints: str


async def start_process(launch: Launch) -> asyncio.subprocess.Process:
    """Start a command as tools do."""
    return await asyncio.create_subprocess_exec(
        *launch.argv,
        env=launch.env,
        cwd=launch.cwd,
        pass_fds=launch.pass_fds,
        start_new_session=True,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run_to_end(launch: Launch) -> CommandEnd:
    """Run a command until its watcher has cleaned up."""
    child = await start_process(launch)
    try:
        async with asyncio.timeout(PATIENCE):
            output, complaints = await child.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode is not None
    return CommandEnd(child.returncode, output.decode(), complaints.decode())


@dataclass
class SandboxFolders:
    """No command may touch `outside`. It may change most of `workspace`."""

    folder: Path
    outside: Path = field(init=False)
    workspace: Path = field(init=False)

    def __post_init__(self) -> None:
        self.outside, self.workspace = self.folder / "outside", self.folder / "workspace"
        self._fill(self.outside, "secret", "program")
        self._fill(self.workspace, "SOUL.md", "memory/MEMORY.md", "deep/er/kept", "work/file")
        self._fill(self.workspace, "project/.git/config", "project/sub/.git", "project/code")
        self._fill(self.workspace, "people/telegram_7/MEMORY.md")
        (self.outside / "program").write_text("#!/bin/sh\n")
        (self.outside / "program").chmod(0o755)

    @property
    def confined(self) -> Confinement:
        """The permissions of a command."""
        return Confinement(
            self.workspace,
            read_only=("SOUL.md", "memory/", "deep/er/kept", "skills/", "people/"),
        )

    async def run(self, sandbox: Sandbox, command: str, **changes: object) -> CommandEnd:
        """Run a shell command to its end."""
        confined = replace(self.confined, **changes)
        return await run_to_end(sandbox.launch(("/bin/sh", "-c", command), confined))

    async def attack(self, sandbox: Sandbox, **changes: object) -> list[str]:
        """Return the crossed boundaries, as reported inside and as seen outside."""
        with OutsideSockets(self.outside) as doors:
            target = {
                "outside": str(self.outside),
                "workspace": str(self.workspace),
                "process": str(os.getpid()),
                "namespace": _namespace(),
                "namespace_is_shared": sandbox.kind != "bubblewrap",
                "port": doors.port,
                "abstract": doors.abstract,
            }
            before = self._state()
            confined = replace(self.confined, extra_read_only=UNSEEN, **changes)
            command = (*PYTHON, str(ATTACKER), json.dumps(target))
            end = await run_to_end(sandbox.launch(command, confined))
            assert end.output, end.complaints
            assert (self.workspace / "work" / "allowed").exists()
            return [*json.loads(end.output), *_changes(before, self._state()), *doors.list_used()]

    def _state(self) -> dict[str, object]:
        """Return the state that may not change. Access times and the time of the top folder may."""
        found: dict[str, object] = {}
        tops = ("SOUL.md", "memory", "deep", "project", "people", "skills")
        for top in (self.outside, *(self.workspace / name for name in tops)):
            for path in (top, *sorted(top.rglob("*"))):
                if not path.exists() or path.name in {"skills", "project", "sub", "er", "deep"}:
                    continue
                status = path.lstat()
                content = path.read_bytes() if path.is_file() else b""
                found[str(path)] = (content, status.st_mode, status.st_mtime_ns, status.st_nlink)
        return found

    @staticmethod
    def _fill(folder: Path, *names: str) -> None:
        for name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(SECRET)
            path.chmod(0o600)


class OutsideSockets:
    """Sockets outside that no command may reach."""

    def __init__(self, outside: Path) -> None:
        self.abstract = f"nanobot-test-{os.urandom(8).hex()}"
        self._port = socket.create_server(("127.0.0.1", 0))
        self.port = self._port.getsockname()[1]
        self._streams = [self._port, self._listening(f"{outside}/socket")]
        self._streams.append(self._listening(f"\0{self.abstract}"))
        self._datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._datagrams.bind(f"{outside}/datagrams")

    def __enter__(self) -> OutsideSockets:
        return self

    def __exit__(self, *_: object) -> None:
        for one in (*self._streams, self._datagrams):
            one.close()

    def list_used(self) -> list[str]:
        """Return the sockets that were reached."""
        found = []
        for one in self._streams:
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.accept()[0].close()
                found.append(f"seen outside: a connection to {one.getsockname()!r}")
        with suppress(BlockingIOError):
            self._datagrams.recv(1, socket.MSG_DONTWAIT)
            found.append("seen outside: a datagram")
        return found

    @staticmethod
    def _listening(address: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen()
        return listener


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def _changes(before: dict[str, object], after: dict[str, object]) -> list[str]:
    names = sorted(before.keys() | after.keys())
    return [f"seen outside: {name}" for name in names if before.get(name) != after.get(name)]
