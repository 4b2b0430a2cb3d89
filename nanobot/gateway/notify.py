"""Telling systemd how the service is: the protocol of `sd_notify(3)`, a datagram each time.

What always holds: nothing here raises, and nothing holds the caller up for longer than
`_PATIENCE`; where no service manager listens (no `NOTIFY_SOCKET`), all of it does nothing.
`stopping` is for the end only: systemd kills what lives on after it. A gateway that becomes a new
one in the same process says `restarting`, and the new one says `ready`.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

_PATIENCE = 1.0
"""Seconds to wait for a manager whose queue is full."""

_LONGEST_STATUS = 300
"""Characters of a status: one line of `systemctl status`."""


class Notifier:
    """Speaks to the service manager at `address` (empty: to nobody).

    `watchdog_seconds` is how long the manager waits for a sign of life before it kills the process,
    None where it does not: `alive()` is to be called at least twice as often.
    """

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        # "@" stands for the NUL byte that a name outside the file system begins with.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = watchdog_seconds

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Notifier:
        """What the manager that started this process asks for; what makes no sense is ignored."""
        address = environ.get("NOTIFY_SOCKET", "")
        if not address.startswith(
            ("/", "@")
        ):  # sockets of virtual machines ("vsock:…") are not ours
            return cls()
        return cls(address, _watchdog_seconds(environ))

    def ready(self) -> None:
        """All has started (again, after `restarting`)."""
        self._tell("READY=1")

    def restarting(self) -> None:
        """This process becomes a new gateway, which will say `ready`."""
        self._tell("RELOADING=1")

    def stopping(self) -> None:
        """The end has begun, and this process will not come back from it."""
        self._tell("STOPPING=1")

    def alive(self) -> None:
        """A sign of life for the watchdog."""
        if self.watchdog_seconds is not None:
            self._tell("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for people, which `systemctl status` shows."""
        self._tell("STATUS=" + " ".join(text.split())[:_LONGEST_STATUS])

    def extend(self, seconds: float) -> None:
        """Starting or stopping will take up to `seconds` more from now, however long is usual."""
        self._tell(f"EXTEND_TIMEOUT_USEC={max(1, round(seconds * 1_000_000))}")

    def _tell(self, message: str) -> None:
        if not self._address:
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as out:
            out.settimeout(_PATIENCE)
            out.connect(self._address)
            out.send(message.encode("utf-8", "replace"))


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    whose = environ.get("WATCHDOG_PID", "")
    if whose and whose != str(os.getpid()):  # meant for a parent of ours
        return None
    text = environ.get("WATCHDOG_USEC", "")
    microseconds = int(text) if text.isascii() and text.isdigit() else 0
    return microseconds / 1_000_000 if microseconds else None
