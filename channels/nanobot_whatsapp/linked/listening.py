"""The Unix socket that the helper connects to: for our own user, for one connection, no port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

from loguru import logger

from nanobot_whatsapp.linked.protocol import MAX_LINE

SOCKET_NAME = "bridge.sock"

_UCRED = struct.Struct("3i")


class Listener:
    """Listens on `folder`/bridge.sock (0600) while inside, or until one has connected. Reached
    through `/proc/self/fd`: an address may have 107 bytes, and a folder's path more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._directory = -1
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        """Raises `OSError`. A socket that a dead process left is replaced."""
        self._directory = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._unlink()
            address = f"/proc/self/fd/{self._directory}/{SOCKET_NAME}"
            self._socket.bind(address)
            Path(address).chmod(0o600)  # before anyone can connect: it does not listen yet
            self._socket.setblocking(False)
            self._socket.listen(1)
        except OSError:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def accept(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The first connection of our own user; there is no second one."""
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        while True:
            peer, _ = await loop.sock_accept(self._socket)
            if _uid_of(peer) == os.geteuid():
                self.close()
                return await asyncio.open_unix_connection(sock=peer, limit=MAX_LINE)
            logger.warning("whatsapp: a process of another user knocked at {}", SOCKET_NAME)
            peer.close()

    def close(self) -> None:
        """Listen no more; again is nothing."""
        if self._socket is None:
            return
        self._unlink()
        self._socket.close()
        self._socket = None
        os.close(self._directory)

    def _unlink(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET_NAME, dir_fd=self._directory)


def _uid_of(peer: socket.socket) -> int:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(credentials)[1])
