"""What the two ends of the control socket agree on. Light: the thin client imports it."""

from __future__ import annotations

SOCKET_NAME = "gateway.sock"

MAX_FRAME = 64 * 1024 * 1024
"""Bytes in one line, newline included."""
