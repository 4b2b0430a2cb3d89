"""How a server's program is started: shut in, with what its entry lists and nothing else."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from nanobot.errors import ToolError
from nanobot.security.sandbox import Confined, Found, Launch
from nanobot.security.sandbox.system import PATH, readable
from nanobot.tools.mcp.values import McpServer

Relay = Callable[[], AbstractAsyncContextManager[Path]]
"""Opens the way to the network for one program: the socket that its sandbox gets."""

FindSandbox = Callable[[], Awaitable[Found]]
"""Finds the sandbox of this machine; asked when a program is started, so better remembered."""


class Programs:
    """`folder` holds a private folder for each server, where it runs and may write. `guarded` are
    files and folders of nanobot's own, which no entry opens to a program."""

    def __init__(
        self,
        folder: Path,
        find_sandbox: FindSandbox,
        relay: Relay,
        *,
        guarded: Sequence[Path] = (),
    ) -> None:
        self._folder, self._find_sandbox, self._relay = folder, find_sandbox, relay
        self._guarded = tuple(guarded)

    @asynccontextmanager
    async def launch(self, server: McpServer) -> AsyncIterator[Launch]:
        """What starts the server's program; the way to the network is open as long as the context.
        Raises `ToolError` where the owner has to do something first."""
        home = await asyncio.to_thread(self._prepared, server)
        command = (server.command, *server.args)
        if not server.sandbox:
            yield Launch(argv=command, env=_environment(server, home), cwd=str(home))
            return
        found = await self._find_sandbox()
        sandbox = found.sandbox
        if sandbox is None or sandbox.kind == "none":  # what is said of the shell is not said here
            raise ToolError(
                f"no sandbox works here: {found.problem or 'it is turned off'}",
                hint=f"Or the owner writes mcp.servers.{server.name}.sandbox: false.",
            )
        _expect_seen(server)
        confined = Confined(
            workspace=home,
            extra_read_only=server.paths,
            writable=server.writable,
            network="relay" if server.network else "none",
            environment=server.env,
            cwd=home,
        )
        if not server.network:
            yield sandbox.launch(command, confined)
            return
        async with self._relay() as socket:
            yield sandbox.launch(command, confined, socket)

    def _prepared(self, server: McpServer) -> Path:
        for path in (*server.paths, *server.writable):
            if not os.path.lexists(path):
                raise ToolError(f"{path} does not exist; it is listed in mcp.servers.{server.name}")
            if _opens(path, self._guarded):
                raise ToolError(f"{path} is not given to programs, for it is nanobot's own")
        home = self._folder / server.name
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        return home


def _opens(path: Path, guarded: Sequence[Path]) -> bool:
    """Whether who may see `path` could see something guarded."""
    real = Path(os.path.realpath(path))
    others = [Path(os.path.realpath(other)) for other in guarded]
    return any(real.is_relative_to(other) or other.is_relative_to(real) for other in others)


def _expect_seen(server: McpServer) -> None:
    """Raise `ToolError` where its sandbox shows neither the program nor the script that it runs."""
    folders = server.env.get("PATH", PATH)
    if (
        not Path(server.command).is_absolute()
        and shutil.which(server.command, path=folders) is None
    ):
        raise ToolError(
            f"there is no program {server.command!r} in {folders}",
            hint="Install it there, or write its whole path as `command`, and its folder under"
            f" mcp.servers.{server.name}.paths.",
        )
    seen = [*map(Path, readable(names=False)), *server.paths, *server.writable]
    script = next((word for word in server.args if not word.startswith("-")), "")
    for word in (server.command, script):
        path = Path(os.path.normpath(word))
        if path.is_absolute() and path.is_file() and not any(map(path.is_relative_to, seen)):
            raise ToolError(
                f"its sandbox does not show it {path}",
                hint=f"Write {path.parent} under mcp.servers.{server.name}.paths in config.yaml.",
            )


def _environment(server: McpServer, home: Path) -> dict[str, str]:
    """Small and fixed, so that no secret of ours is inherited."""
    path = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", **server.env}
