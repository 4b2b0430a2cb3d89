"""The daemon: its life, the core's side of the channel port, delivery, supervision, control.

The two constants are here because the thin client imports them, and nothing else of this package.
"""

from __future__ import annotations

SOCKET_NAME = "gateway.sock"

MAX_FRAME = 64 * 1024 * 1024
"""Bytes in one line of the control socket, newline included."""
