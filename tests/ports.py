"""Free TCP ports for servers that start later."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_LOWEST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Return a port of the loopback interface on which nothing listens.

    It is outside the range from which the kernel takes the ports of outgoing connections. A client
    that tries a port of that range until a server listens can connect to itself, and then the
    server cannot listen (simultaneous open, RFC 9293, section 3.5)."""
    highest = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    while True:
        port = random.SystemRandom().randrange(_LOWEST, highest)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
