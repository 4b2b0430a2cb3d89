"""A small MCP server without the SDK, so that it starts at once and can misbehave in any way.

Its only argument is a folder: `description` there is the description of `echo`, and each start adds
a line to `starts`. `tools` is its listing, and `answer` the answer of its tools, both as JSON. It
runs on its own, with only the standard library."""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
ANYTHING: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = (
    "echo", "hang", "crash", "endless_line", "endless_messages",
    "picture", "large", "around", "read", "fetch",
)  # fmt: skip


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(id: object, *texts: str) -> None:
    say({"id": id, "result": {"content": [{"type": "text", "text": text} for text in texts]}})


def tools() -> list[dict[str, Any]]:
    if (FOLDER / "tools").exists():
        return json.loads((FOLDER / "tools").read_text())  # type: ignore[no-any-return]
    described = FOLDER / "description"
    text = described.read_text() if described.exists() else "says it again"
    return [
        {"name": name, "description": text if name == "echo" else name, "inputSchema": ANYTHING}
        | ({"annotations": {"readOnlyHint": True}} if name in ("echo", "large") else {})
        for name in TOOLS
    ]


def call(id: object, name: str, arguments: dict[str, Any]) -> None:
    if (FOLDER / "answer").exists():
        return say({"id": id, "result": json.loads((FOLDER / "answer").read_text())})
    match name:
        case "echo":
            answer(id, f"you said {arguments.get('text', 'nothing')}")
        case "picture":
            image = {"type": "image", "mimeType": "x/y", "data": base64.b64encode(PNG).decode()}
            say({"id": id, "result": {"content": [image]}})
        case "large":
            answer(id, "a" * 500_000)
        case "around":
            answer(id, json.dumps({"env": dict(os.environ), "cwd": str(Path.cwd())}))
        case "read" | "fetch":
            try:
                answer(id, (read if name == "read" else fetch)(arguments["path"]))
            except OSError as error:
                answer(id, f"no: {error}")
        case _:
            misbehave(name)
    return None


def read(path: str) -> str:
    return Path(path).read_text()


def fetch(url: str) -> str:
    import urllib.request  # here, for it takes its time

    with urllib.request.urlopen(url, timeout=5) as response:
        return str(response.read())


def misbehave(name: str) -> None:
    if name == "crash":
        sys.stderr.write("the disk is on fire\n")
        sys.stderr.flush()
        os._exit(3)
    while name == "endless_line":
        sys.stdout.write("x" * 1_000_000)
    while name == "endless_messages":
        say({"method": "notifications/message", "params": {"level": "info", "data": "hi"}})


def main() -> None:
    with (FOLDER / "starts").open("a") as starts:
        starts.write("started\n")
    print("Welcome to the little server!", flush=True)  # as many servers do
    for line in sys.stdin:
        request = json.loads(line)
        id, params = request.get("id"), request.get("params", {})
        match request.get("method"):
            case "initialize":
                info = {"name": "little", "version": "1"}
                capabilities = {"tools": {"listChanged": True}}
                result = {"protocolVersion": params["protocolVersion"], "serverInfo": info}
                say({"id": id, "result": {**result, "capabilities": capabilities}})
            case "tools/list":
                say({"id": id, "result": {"tools": tools()}})
            case "tools/call":
                call(id, params["name"], params.get("arguments") or {})
            case _ if id is not None:
                say({"id": id, "error": {"code": -32601, "message": "no such method"}})


main()
