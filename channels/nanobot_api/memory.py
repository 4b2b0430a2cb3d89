"""Memory for other agents: an MCP server with the official SDK, over stdio and HTTP.

A server offers exactly one scope. It reads, and only a writable one has `remember`, whose facts are
pending until the person accepts them. Every call is an operation of the gateway (`ask`), so the
server has no state. The SDK is loaded with the first request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aiohttp import web
from msgspec import Struct

from nanobot import __version__
from nanobot.bus.events import OWNER_ACCOUNT
from nanobot.clock import Clock, with_timeout
from nanobot.errors import ExtraMissing, NanobotError

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

Ask = Callable[[str, Mapping[str, object]], Awaitable[Mapping[str, object]]]
"""A function that runs an operation of the gateway, by name. Raises `NanobotError`."""

NAME = "nanobot-memory"
_MOST_HITS, _MOST_ENTRIES, _LONGEST = 50, 100, 2_000
_BODY_BYTES = 1_000_000
_BODY_SECONDS = 60.0


class MemoryAccess(Struct, frozen=True):
    """The permissions of a client: the memory of a `scope`. If `writable`, also proposals, which
    are marked with `origin`."""

    scope: str
    writable: bool
    origin: str


class _Tool(Struct, frozen=True):
    """A tool, with its operation, whose arguments have the same names."""

    operation: str
    description: str
    properties: Mapping[str, object]
    required: tuple[str, ...] = ()
    writes: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        properties = dict(self.properties)
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        return {**schema, "required": list(self.required), "additionalProperties": False}


def _text(about: str) -> dict[str, object]:
    return {"type": "string", "minLength": 1, "maxLength": _LONGEST, "description": about}


def _count(most: int, usual: int) -> dict[str, object]:
    return {"type": "integer", "minimum": 1, "maximum": most, "default": usual}


_TOOLS: Mapping[str, _Tool] = {
    "search_memory": _Tool(
        "memory.search",
        "Search a person's memory: facts, notes, and messages.",
        {"text": _text("Words to look for."), "limit": _count(_MOST_HITS, 10)},
        ("text",),
    ),
    "memory_why": _Tool(
        "memory.why",
        "Show the source of a fact: the change, the summary, and the original messages.",
        {"text": _text("Words of the fact, enough that only one has them.")},
        ("text",),
    ),
    "recent_history": _Tool(
        "memory.recent",
        "List the latest summaries of conversations, newest last.",
        {"limit": _count(_MOST_ENTRIES, 10)},
    ),
    "remember": _Tool(
        "memory.propose",
        "Propose a fact to be remembered. It waits until the person accepts it.",
        {"text": _text("The fact, in one sentence, dates written out.")},
        ("text",),
        writes=True,
    ),
}


def build_server(access_of: Callable[[Any], MemoryAccess], ask: Ask) -> Server[Any]:
    """Return a server. `access_of` returns the permissions for a request's context. Raises
    `ExtraMissing`."""
    try:
        from mcp import types
        from mcp.server.lowlevel import Server
    except ModuleNotFoundError as error:
        raise ExtraMissing("the memory for other agents", "mcp") from error

    async def list_tools(context: Any, _: object) -> types.ListToolsResult:
        writable = access_of(context).writable
        tools = [
            types.Tool(
                name=name,
                description=tool.description,
                input_schema=tool.schema,
                annotations=types.ToolAnnotations(read_only_hint=not tool.writes),
            )
            for name, tool in _TOOLS.items()
            if writable or not tool.writes
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, call: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            text, failed = (
                await _call_tool(access_of(context), call.name, call.arguments, ask),
                False,
            )
        except NanobotError as error:
            is_owner = access_of(context).scope == OWNER_ACCOUNT
            text, failed = error.redact_for(is_owner=is_owner).for_people(), True
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, is_error=failed)

    return Server(NAME, version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


async def _call_tool(
    access: MemoryAccess, name: str, given: Mapping[str, object] | None, ask: Ask
) -> str:
    """Run a tool and return its text. Raises `NanobotError`."""
    tool, arguments = _TOOLS.get(name), dict(given or {})
    if tool is None:
        raise NanobotError(f"there is no tool {name[:100]!r}")
    if tool.writes and not access.writable:
        raise NanobotError("this memory can only be read here", hint="Ask its person to note it.")
    if unknown := arguments.keys() - tool.properties.keys():
        raise NanobotError(f"{name} has no argument {min(unknown)[:100]!r}")
    if any(not arguments.get(needed) for needed in tool.required):
        raise NanobotError(f"{name} needs {', '.join(tool.required)}")
    if any(isinstance(value, str) and len(value) > _LONGEST for value in arguments.values()):
        raise NanobotError(f"texts here can be at most {_LONGEST:,} characters long")
    origin = {"origin": access.origin} if tool.writes else {}
    report = await ask(tool.operation, {**arguments, **origin, "scope": access.scope})
    return str(report.get("text", ""))


class McpEndpoint:
    """The server over HTTP, without sessions: the key of each request selects the memory. `run`
    must run while it serves."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask, self._clock = ask, clock
        self._wanted = asyncio.Event()
        self._ready = asyncio.Event()
        self._manager: StreamableHTTPSessionManager | None = None
        self._error: ExtraMissing | None = None

    async def run(self) -> None:
        """Load the SDK at the first request, and run until cancelled."""
        await self._wanted.wait()
        try:
            # Loading the SDK takes half a second, so use a thread.
            server = await asyncio.to_thread(build_server, _access_of_request, self._ask)
            await asyncio.to_thread(import_module, "mcp.server.streamable_http_manager")
        except ExtraMissing as error:
            self._error = error
            self._ready.set()
            return
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=_BODY_BYTES
        )
        async with manager.run():
            self._manager = manager
            self._ready.set()
            await asyncio.Event().wait()

    async def handle(
        self, http: web.Request, person: str, writable: bool, origin: str
    ) -> web.StreamResponse:
        """Answer one request for a person's memory. Raises `ExtraMissing`, and `TimeoutError` if
        the body does not arrive."""
        self._wanted.set()
        await self._ready.wait()
        if self._error is not None or self._manager is None:
            raise self._error or ExtraMissing("the memory for other agents", "mcp")
        found = await self._ask("memory.scope_of", {"person": person})
        body = await with_timeout(self._clock, _BODY_SECONDS, _read(http))
        access = MemoryAccess(str(found["scope"]), writable, origin)
        answer = _Answer(http, body)
        await self._manager.handle_request(_scope_of(http, access), answer.receive, answer.send)
        return answer.response


async def _read(http: web.Request) -> bytes:
    body = bytearray()
    async for piece in http.content.iter_any():
        body += piece
        if len(body) > _BODY_BYTES:  # the SDK rejects larger ones
            break
    return bytes(body)


class _Answer:
    """One request and its answer, as ASGI."""

    def __init__(self, http: web.Request, body: bytes) -> None:
        self._http, self._body = http, body
        self.response = web.StreamResponse()
        self._asked = False

    async def receive(self) -> dict[str, object]:
        """Return the body. The next call blocks for ever."""
        if self._asked:
            await asyncio.Event().wait()
        self._asked = True
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send the head of the answer, or a piece of its body."""
        if message["type"] == "http.response.start":
            self.response.set_status(message["status"])
            for name, value in message.get("headers", ()):
                self.response.headers[name.decode("latin-1")] = value.decode("latin-1")
            await self.response.prepare(self._http)
            return
        if body := message.get("body", b""):
            await self.response.write(body)
        if not message.get("more_body", False):
            with suppress(ConnectionError):
                await self.response.write_eof()


_ACCESS = "nanobot.access"


def _scope_of(http: web.Request, access: MemoryAccess) -> dict[str, Any]:
    """Return the ASGI scope of a request."""
    headers = [(name.lower(), value) for name, value in http.raw_headers]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": http.method,
        "scheme": http.scheme,
        "path": http.path,
        "raw_path": http.raw_path.encode(),
        "root_path": "",
        "query_string": http.query_string.encode(),
        "headers": headers,
        "client": None,
        "server": None,
        _ACCESS: access,
    }


def _access_of_request(context: Any) -> MemoryAccess:
    access = context.request.scope[_ACCESS]
    assert isinstance(access, MemoryAccess)
    return access
