"""An MCP server that answers with the contents of a file. Needs only the standard library."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_ANYTHING = {"type": "object", "properties": {"text": {"type": "string"}}}
_TOOLS = {"tools": [{"name": "echo", "description": "says it", "inputSchema": _ANYTHING}]}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = json.dumps(_TOOLS)
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        about = {"name": "bench", "version": "1"}
        result = json.dumps(
            {"protocolVersion": version, "serverInfo": about, "capabilities": {"tools": {}}}
        )
    elif asked["method"] == "tools/call":
        result = Path(sys.argv[1]).read_text()
    print(f'{{"jsonrpc":"2.0","id":{json.dumps(asked["id"])},"result":{result}}}', flush=True)
