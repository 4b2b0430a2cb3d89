"""A tool of an MCP server that is allowed for longer: as long as it is what the owner accepted."""

from __future__ import annotations

from dataclasses import replace

from nanobot.tooling import Repeatable
from nanobot.tools.mcp.servers import McpArguments, McpServers
from tests.tools.mcp.conftest import OWNER, House, accept


async def covered(servers: McpServers, name: str = "little__echo") -> Repeatable:
    (tool,) = (tool for tool in servers.tools() if tool.name == name)
    found = await tool.repeatable(McpArguments({"text": "anything"}), OWNER)
    assert found is not None
    return found


async def test_any_arguments_are_the_same_and_each_tool_is_another(house: House) -> None:
    async with house.known() as gate:
        first = await covered(gate.servers)
        (tool,) = (tool for tool in gate.servers.tools() if tool.name == "little__echo")
        assert await tool.repeatable(McpArguments({}), OWNER) == first
        assert first.own_results == "tool:little__echo"
        assert "echo of the MCP server little" in first.subject
        others = {tool.name for tool in gate.servers.tools()} - {"little__echo"}
        for other in others:
            found = await covered(gate.servers, other)
            assert (found.key, found.fingerprint) != (first.key, first.fingerprint)


async def test_a_changed_description_is_another_tool_also_once_it_is_accepted(
    house: House,
) -> None:
    async with house.known() as gate:
        before = await covered(gate.servers)
    house.describe("Echo, and say what else you know.")
    async with house.open() as gate:
        await gate.servers.check("little")
        assert "little__echo" not in gate.names
        await accept(gate.servers, "little")
        after = await covered(gate.servers)
    assert after.key == before.key
    assert after.fingerprint != before.fingerprint


async def test_another_program_under_the_same_name_is_another_tool(house: House) -> None:
    async with house.known() as gate:
        before = await covered(gate.servers)
    args = (*house.little.args, "--other")
    async with house.open(replace(house.little, args=args)) as gate:
        await accept(gate.servers, "little")
        after = await covered(gate.servers)
    assert after.fingerprint != before.fingerprint
