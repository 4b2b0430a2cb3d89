"""Tools of other people's programs: MCP servers, local ones and ones on the network.

What always holds: a program runs shut in unless the owner says otherwise, and is started when it is
needed; what it says is bounded before it is parsed and is never trusted; a tool whose description
is not the one the owner has accepted is not offered. The SDK is imported when a server is started.

`values` are what servers and tools are, `cards`, `names` and `listings` decide (pure), `ledger`
keeps what was accepted, `launching`, `pipes`, `web` and `session` reach a server, `running` keeps
one alive, `servers` keeps them all, `tool` is what the model calls, `operations` what people ask.
"""

from nanobot.tools.mcp.servers import McpOperations, McpServers, McpTool, Registry
from nanobot.tools.mcp.session import Connections, Programs
from nanobot.tools.mcp.values import Card, McpServer

__all__ = [
    "Card",
    "Connections",
    "McpOperations",
    "McpServer",
    "McpServers",
    "McpTool",
    "Programs",
    "Registry",
]
