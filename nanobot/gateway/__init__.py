"""The daemon: its life cycle, the core's side of the channel port, delivery, supervision, control.

Programs that import nothing else of this package use these constants."""

from __future__ import annotations

SOCKET_NAME = "gateway.sock"

MAX_FRAME = 64 * 1024 * 1024
"""Bytes in one line of the control socket, newline included."""

STOP_MARGIN = 10.0
"""Seconds for a stop after the grace of running turns and sends. Then the process ends at once, and
the next start resumes its work."""
