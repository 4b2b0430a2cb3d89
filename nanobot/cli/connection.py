"""A connection to the control socket of one home, read by lines. Light standard library only."""

from __future__ import annotations

import os
import select
import socket

from nanobot.errors import NanobotError, StorageError
from nanobot.gateway import SOCKET_NAME

_BLOCK = 1 << 20


class NoGateway(NanobotError):
    """No gateway runs on this home."""


class Connection:
    """Connected from the start; raises `NoGateway` where none listens. One that breaks off raises
    `OSError`."""

    def __init__(self, state_folder: str) -> None:
        self._socket = _connected(state_folder)
        self._read = bytearray()
        self._searched = 0

    def fileno(self) -> int:
        """What becomes readable when the gateway says something; -1 once closed."""
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        """Send all of it."""
        self._socket.sendall(frame)

    def line(self, *, wait: bool = True) -> bytes | None:
        """The next line, without its end, once it is complete; None where it is not and we do not
        `wait`. Raises `OSError` at the end of the stream."""
        while (end := self._read.find(b"\n", self._searched)) < 0:
            self._searched = len(self._read)
            try:
                block = self._socket.recv(_BLOCK, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if not block:
                raise ConnectionResetError("the gateway hung up")
            self._read += block
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        self._searched = 0
        return line

    @property
    def has_line(self) -> bool:
        """Whether a line has been read that was not asked for yet."""
        return b"\n" in self._read

    def arrives(self, seconds: float) -> bool:
        """Whether the gateway says something, or hangs up, within that time."""
        return self.has_line or bool(select.select([self._socket], [], [], seconds)[0])

    @property
    def is_up(self) -> bool:
        """Whether the gateway has not hung up."""
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:  # nothing to read: it is there
            return True
        except OSError:
            return False

    def be_quick(self, seconds: float) -> None:
        """Wait no longer than that for anything from now on."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def _connected(state_folder: str) -> socket.socket:
    try:
        directory = os.open(state_folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise NoGateway("no gateway is running") from None
    except OSError as error:
        raise StorageError.of(state_folder, error) from error
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:  # the address may have 107 bytes only, so the folder goes in as a descriptor
        connection.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        raise NoGateway("no gateway is running") from None
    except PermissionError as error:
        connection.close()
        raise StorageError.of(f"{state_folder}/{SOCKET_NAME}", error) from error
    except OSError as error:
        connection.close()
        raise NanobotError(f"cannot reach the gateway: {error.strerror}") from error
    finally:
        os.close(directory)
    return connection
