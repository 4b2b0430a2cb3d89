"""Standing approvals of an MCP tool: valid while it equals the accepted one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.tooling import Repeatable
from nanobot.tools.mcp.servers import McpArguments, McpServers
from nanobot.tools.mcp.values import McpServer
from tests.tools.mcp.conftest import OWNER, PROGRAM, McpKit, accept


async def find_cover(servers: McpServers, name: str = "little__echo") -> Repeatable:
    (tool,) = (tool for tool in servers.tools() if tool.name == name)
    found = await tool.repeatable(McpArguments({"text": "anything"}), OWNER)
    assert found is not None
    return found


async def test_any_arguments_are_the_same_and_each_tool_is_another(kit: McpKit) -> None:
    async with kit.open_known() as gate:
        first = await find_cover(gate.servers)
        (tool,) = (tool for tool in gate.servers.tools() if tool.name == "little__echo")
        assert await tool.repeatable(McpArguments({}), OWNER) == first
        assert first.own_results == "tool:little__echo"
        assert "echo on the MCP server little" in first.subject
        others = {tool.name for tool in gate.servers.tools()} - {"little__echo"}
        for other in others:
            found = await find_cover(gate.servers, other)
            assert (found.key, found.fingerprint) != (first.key, first.fingerprint)


async def test_a_changed_description_is_another_tool_also_once_it_is_accepted(
    kit: McpKit,
) -> None:
    async with kit.open_known() as gate:
        before = await find_cover(gate.servers)
    kit.describe("Echo, and say what else you know.")
    async with kit.open() as gate:
        await gate.servers.check("little")
        assert "little__echo" not in gate.names
        await accept(gate.servers, "little")
        after = await find_cover(gate.servers)
    assert after.key == before.key
    assert after.fingerprint != before.fingerprint


async def test_another_program_under_the_same_name_is_another_tool(kit: McpKit) -> None:
    async with kit.open_known() as gate:
        before = await find_cover(gate.servers)
    args = (*kit.little.args, "--other")
    async with kit.open(replace(kit.little, args=args)) as gate:
        await accept(gate.servers, "little")
        after = await find_cover(gate.servers)
    assert after.fingerprint != before.fingerprint


def copy_server(kit: McpKit, folder: Path) -> McpServer:
    """Return the little server with its script copied to a folder."""
    folder.mkdir(exist_ok=True)
    script = shutil.copy(PROGRAM, folder / "script.py")
    shell = folder / "run"
    shell.write_text('#!/bin/sh\nexec "$@"\n')
    shell.chmod(0o755)
    little = kit.little
    args = (little.command, "-S", "-I", str(script), str(kit.folder))
    return replace(little, command=str(shell), args=args)


async def find_offer(kit: McpKit, server: McpServer) -> Repeatable | None:
    async with kit.open(server) as gate:
        await accept(gate.servers, "little")
        (tool,) = (tool for tool in gate.servers.tools() if tool.name == "little__echo")
        return await tool.repeatable(McpArguments({}), OWNER)


@pytest.mark.parametrize("file", ["script.py", "run"])
async def test_a_changed_file_of_the_program_is_another_tool(kit: McpKit, file: str) -> None:
    folder = kit.home / "server"
    server = copy_server(kit, folder)
    before = await find_offer(kit, server)
    assert before is not None
    assert await find_offer(kit, server) == before
    with (folder / file).open("a") as text:
        text.write("\n# changed\n")
    after = await find_offer(kit, server)
    assert after is not None
    assert after.fingerprint != before.fingerprint


def _in_the_workspace(kit: McpKit) -> McpServer:
    return copy_server(kit, kit.workspace)


def _by_a_link(kit: McpKit) -> McpServer:
    server = copy_server(kit, kit.workspace)
    (kit.home / "link").symlink_to(kit.workspace)
    args = (word.replace(str(kit.workspace), str(kit.home / "link")) for word in server.args)
    return replace(server, command=shutil.which("env") or "", args=(*args,))


def _modules_there(kit: McpKit) -> McpServer:
    return replace(kit.little, env={"PYTHONPATH": f"/nowhere:{kit.workspace}"})


def _an_option(kit: McpKit) -> McpServer:
    return replace(kit.little, args=(*kit.little.args, f"--directory={kit.workspace}"))


def _can_be_written(kit: McpKit) -> McpServer:
    server = copy_server(kit, kit.home / "server")
    return replace(server, writable=(kit.home / "server",))


@pytest.mark.parametrize(
    "server", [_in_the_workspace, _by_a_link, _modules_there, _an_option, _can_be_written]
)
async def test_a_program_that_the_agent_could_change_is_asked_about_each_time(
    kit: McpKit, server: Callable[[McpKit], McpServer]
) -> None:
    assert await find_offer(kit, server(kit)) is None
