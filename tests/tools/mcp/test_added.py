"""A server that is set up while a gateway runs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest

from nanobot.cli.client import Client
from nanobot.errors import NanobotError
from tests.support import start_configured, write_config
from tests.tools.mcp.conftest import PROGRAM


async def test_it_is_looked_at_accepted_and_offered_without_a_restart(disk_path: Path) -> None:
    home = disk_path

    def ask(operation: str, **arguments: object) -> Any:
        with contextlib.closing(Client(home)) as client:
            return client.ask(operation, arguments)

    async with start_configured(home, {}, None):
        with pytest.raises(NanobotError, match="no MCP server 'little'"):
            await asyncio.to_thread(ask, "mcp.check", server="little")
        args = ["-S", "-I", str(PROGRAM), str(disk_path)]
        server = {"command": sys.executable, "args": args, "sandbox": False, "tools": ["echo"]}
        write_config(home, {"mcp": {"servers": {"little": server}}})
        seen = await asyncio.to_thread(ask, "mcp.check", server="little")
        assert ("echo" in seen["waiting"], seen["tools"]) == (True, [])
        waiting = await asyncio.to_thread(ask, "mcp.waiting", server="little")
        digest = waiting["digest"]
        done = await asyncio.to_thread(ask, "mcp.approve", server="little", digest=digest)
        assert done["tools"] == ["little__echo"]
    async with start_configured(home, {"mcp": {"servers": {"little": server}}}, None):
        (kept,) = (await asyncio.to_thread(ask, "mcp.list"))["servers"]
        assert kept["tools"] == ["little__echo"]
