"""The daemon: its life, the core's side of the channel port, delivery, supervision, control.

These constants are here for programs that import nothing else of this package.
"""

from __future__ import annotations

SOCKET_NAME = "gateway.sock"

MAX_FRAME = 64 * 1024 * 1024
"""Bytes in one line of the control socket, newline included."""

STOP_MARGIN = 10.0
"""Seconds that a stop may take after the grace of running turns and sends. Then the process ends
whatever it is doing: the next start takes up what is left."""
