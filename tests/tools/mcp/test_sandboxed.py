"""Servers in the sandbox have exactly their permissions. Includes real public servers, if
installed."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.errors import NanobotError
from nanobot.messages import ToolCall
from nanobot.security.egress import Egress
from nanobot.security.sandbox import FoundSandbox, Wanted, find_sandbox
from nanobot.testing.clock import FakeClock
from nanobot.tooling import ToolResult
from nanobot.tooling.registry import ToolRegistry
from nanobot.tools.mcp.connections import Connections
from nanobot.tools.mcp.servers import McpServers
from nanobot.tools.mcp.values import McpServer
from tests.doubles.state import MemoryState
from tests.tools.mcp.conftest import OWNER, PROGRAM, McpKit, accept

PYTHON = "/usr/bin/python3"


@asynccontextmanager
async def shut_in(
    home: Path, *servers: McpServer, wanted: Wanted = "auto"
) -> AsyncIterator[tuple[McpServers, ToolRegistry]]:
    async def find() -> FoundSandbox:
        return await find_sandbox(wanted, private=(home,))

    registry = ToolRegistry()
    connections = Connections(home / "mcp", find, Egress())
    all_of_them = McpServers(servers, connections, registry, MemoryState(), FakeClock())
    all_of_them.load()
    try:
        yield all_of_them, registry
    finally:
        await all_of_them.close()


async def call_tool(registry: ToolRegistry, name: str, **arguments: object) -> ToolResult:
    return await registry.call(ToolCall("1", name, json.dumps(arguments)), OWNER)


async def test_a_server_sees_what_its_entry_lists_and_nothing_of_ours(kit: McpKit) -> None:
    secret = kit.home / "state"
    secret.mkdir()
    (secret / "token").write_text("do not tell")
    little = replace(
        kit.little, command=PYTHON, sandbox=True, env={"GIVEN": "yes"},
        paths=(PROGRAM.parent,), writable=(kit.folder,),
    )  # fmt: skip
    async with shut_in(kit.home, little) as (servers, registry):
        await accept(servers, "little")
        seen = json.loads((await call_tool(registry, "little__around")).text)
        assert seen["env"]["GIVEN"] == "yes"
        assert seen["cwd"] == str(kit.home / "mcp" / "little")
        peep = await call_tool(registry, "little__read", path=str(secret / "token"))
        assert "do not tell" not in peep.text
        assert peep.text.startswith("no: ")
        assert kit.starts == 1  # it may write to the folders of its entry
        assert "code 3 (the disk is on fire)" in (await call_tool(registry, "little__crash")).text
        assert "a line of more than" in (await call_tool(registry, "little__endless_line")).text


@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")
async def test_a_server_with_network_gets_a_proxy_as_its_only_way_out(kit: McpKit) -> None:
    little = replace(
        kit.little, command=PYTHON, sandbox=True, network=True,
        paths=(PROGRAM.parent,), writable=(kit.folder,),
    )  # fmt: skip
    async with shut_in(kit.home, little) as (servers, registry):
        await accept(servers, "little")
        seen = json.loads((await call_tool(registry, "little__around")).text)
        assert seen["env"]["HTTPS_PROXY"].startswith("http://127.0.0.1:")
        refused = await call_tool(registry, "little__fetch", path="http://10.0.0.1/")
        assert "403" in refused.text


async def test_that_the_shell_needs_no_sandbox_says_nothing_about_servers(kit: McpKit) -> None:
    little = replace(kit.little, sandbox=True)
    async with shut_in(kit.home, little, wanted="none") as (servers, _):
        with pytest.raises(
            NanobotError, match="no sandbox works on this machine: it is turned off"
        ):
            await servers.check("little")


async def test_a_program_that_its_sandbox_does_not_show_is_said_not_to_run(kit: McpKit) -> None:
    hidden = "No such file|Permission denied"  # from bubblewrap, which leaves it out, or Landlock
    program = kit.folder / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for command, why in ((str(program), hidden), ("no-such-program", "No such file")):
        little = replace(kit.little, sandbox=True, command=command, args=(), paths=())
        async with shut_in(kit.home, little) as (servers, _):
            with pytest.raises(NanobotError, match=f"cannot run {command}: ({why})"):
                await servers.check("little")


async def test_no_entry_opens_nanobots_own_files_to_a_program(kit: McpKit) -> None:
    state, shortcut = kit.home / "state", kit.folder / "shortcut"
    state.mkdir()
    shortcut.symlink_to(state)
    for path in (state, kit.home, Path("/"), shortcut):
        little = replace(kit.little, command=PYTHON, sandbox=True, paths=(PROGRAM.parent, path))
        async with shut_in(kit.home, little) as (servers, _):
            with pytest.raises(NanobotError, match="nanobot's own"):
                await servers.check("little")


def find_installed(name: str) -> tuple[str, tuple[Path, ...]]:
    """Return a public server's program, and the paths that it needs outside the system."""
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not there: npm install -g @modelcontextprotocol/{name[4:]}")
    modules = next((p for p in Path(program).parents if p.name == "node_modules"), None)
    return program, (modules,) if modules else ()


async def test_the_public_file_server_works_in_the_sandbox(disk_path: Path) -> None:
    papers = disk_path / "papers"
    papers.mkdir()
    (papers / "a.txt").write_text("hello papers")
    program, needed = find_installed("mcp-server-filesystem")
    files = McpServer("files", program, (str(papers),), paths=needed, writable=(papers,))
    async with shut_in(disk_path / "home", files) as (servers, registry):
        await accept(servers, "files")
        path = str(papers / "a.txt")
        assert (
            await call_tool(registry, "files__read_text_file", path=path)
        ).text == "hello papers"
        written = await call_tool(
            registry, "files__write_file", path=str(papers / "b.txt"), content="from a server"
        )
        assert not written.is_error
        assert (papers / "b.txt").read_text() == "from a server"
        outside = await call_tool(registry, "files__read_text_file", path="/etc/passwd")
        assert outside.is_error


async def test_the_public_memory_server_works_in_the_sandbox(disk_path: Path) -> None:
    file = disk_path / "home" / "mcp" / "graph" / "memory.jsonl"
    program, needed = find_installed("mcp-server-memory")
    graph = McpServer("graph", program, env={"MEMORY_FILE_PATH": str(file)}, paths=needed)
    async with shut_in(disk_path / "home", graph) as (servers, registry):
        await accept(servers, "graph")
        ada = {"name": "Ada", "entityType": "person", "observations": ["likes tea"]}
        assert not (await call_tool(registry, "graph__create_entities", entities=[ada])).is_error
        assert "Ada" in (await call_tool(registry, "graph__search_nodes", query="tea")).text
    assert "Ada" in file.read_text()
