"""Shared parts of the tests of commands that ask a person."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

Nanobot = Callable[..., CompletedProcess[str]]
"""Runs a command, in this process or in a separate one."""

MCP_PROGRAM = Path(__file__).parents[1] / "tools" / "mcp" / "program.py"
"""A small MCP server."""


class Terminal(io.StringIO):
    """A keyboard with this typed text."""

    def isatty(self) -> bool:
        return True
