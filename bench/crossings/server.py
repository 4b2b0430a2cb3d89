"""A small MCP server that returns its argument. Needs only the standard library."""

from __future__ import annotations

import json
import sys
from typing import Any

ANYTHING = {"type": "object", "properties": {"text": {"type": "string"}}}


def answer(request: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request, or None for an unknown method."""
    match request.get("method"):
        case "initialize":
            return {
                "protocolVersion": request["params"]["protocolVersion"],
                "serverInfo": {"name": "little", "version": "1"},
                "capabilities": {"tools": {}},
            }
        case "tools/list":
            return {"tools": [{"name": "echo", "description": "says it", "inputSchema": ANYTHING}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": sys.argv[1]}]}
    return None


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = answer(asked)
        failed = {"error": {"code": -32601, "message": "no such method"}}
        said = {"jsonrpc": "2.0", "id": asked["id"]} | (
            failed if result is None else {"result": result}
        )
        print(json.dumps(said), flush=True)
