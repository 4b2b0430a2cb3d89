"""What tests of commands that ask a person share."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

Nanobot = Callable[..., CompletedProcess[str]]
"""Runs a command, in this process or in one of its own."""

MCP_PROGRAM = Path(__file__).parents[1] / "tools" / "mcp" / "program.py"
"""A small MCP server."""


class Terminal(io.StringIO):
    """A keyboard on which this was typed."""

    def isatty(self) -> bool:
        return True
