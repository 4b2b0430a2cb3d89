"""An unknown or malformed part of an answer affects only itself. Files are kept. Tools that only
run as tasks are not offered, and the reason is shown."""

from __future__ import annotations

import base64
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

from nanobot.agent.media import MediaStore
from nanobot.agent.runner import AgentRunner, TurnLog
from nanobot.cli.client import Data
from nanobot.cli.extensions import format_servers
from nanobot.providers.port import Prompt, Toolset, system_message, user_message
from nanobot.testing import FakeClock, ScriptedModel, calls, says
from nanobot.tooling import ToolResult
from nanobot.tools.mcp.answers import mend
from nanobot.tools.mcp.values import McpServer
from tests.tools.mcp.conftest import OWNER, McpKit, accept

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
TEXT = {"type": "text", "text": "the first"}
LAST = {"type": "text", "text": "the last"}
PDF = base64.b64encode(b"%PDF-1.7 words").decode()
SOUND = base64.b64encode(b"ID3 sound").decode()
ODD: Sequence[tuple[object, str]] = (
    ({"type": "hologram", "beam": [1, 2]}, "unusable part: hologram"),
    ({"type": "hologram", "text": "a caption"}, "a caption"),
    ({"type": 7}, "unusable part: 7"),
    ("words", "unusable part: None"),
    (None, "unusable part: None"),
    ({"type": "text", "text": 7}, "unusable part: text"),
    ({"type": "image"}, "unusable part: image"),
    ({"type": "image", "data": "%%%", "mimeType": "image/png"}, "unreadable data"),
    ({"type": "audio", "data": 7}, "unusable part: audio"),
    ({"type": "resource"}, "unusable part: resource"),
    ({"type": "resource", "resource": {"uri": "x:/y"}}, "unusable part: resource"),
    ({"type": "resource", "resource": {"text": "no address"}}, "no address"),
    ({"type": "resource_link", "name": "no address"}, "unusable part: resource_link"),
    (
        {"type": "resource_link", "uri": "https://x.example/a", "mimeType": "a/b", "size": 1200},
        "[link: https://x.example/a (a/b, 1,200 bytes)]",
    ),
    ({"type": "text", "text": "odd notes", "annotations": 7, "_meta": []}, "odd notes"),
)


async def answer_with(kit: McpKit, result: object) -> ToolResult:
    (kit.folder / "answer").write_text(json.dumps(result))
    async with kit.open_known() as gate:
        return await gate.call("little__echo")


async def test_odd_parts_cost_themselves_alone(kit: McpKit) -> None:
    result = await answer_with(kit, {"content": [TEXT, *(part for part, _ in ODD), LAST]})
    assert not result.is_error
    assert result.text.startswith("the first\n\n")
    assert result.text.endswith("\n\nthe last")
    for _, shown in ODD:
        assert shown in result.text


async def test_odd_fields_around_the_parts_cost_nothing(kit: McpKit) -> None:
    async with kit.open_known() as gate:
        for result, text in (
            ({"content": "words"}, "[the answer is empty]"),
            ({"content": [TEXT], "structuredContent": [1]}, "the first"),
            ({"content": [TEXT], "structuredContent": 7, "isError": "no"}, "the first"),
            ({"structuredContent": {"sum": 3}}, '{"sum": 3}'),
            ({"content": [TEXT], "_meta": 7}, "the first"),
        ):
            (kit.folder / "answer").write_text(json.dumps(result))
            assert (await gate.call("little__echo")).text == text


async def test_what_does_not_fit_the_servers_own_schema_still_arrives(kit: McpKit) -> None:
    schema = {"type": "object", "required": ["sum"], "properties": {"sum": {"type": "number"}}}
    tool = {"name": "echo", "inputSchema": {"type": "object"}, "outputSchema": schema}
    (kit.folder / "tools").write_text(json.dumps([tool]))
    assert (await answer_with(kit, {"content": [TEXT]})).text == "the first"


async def test_thousands_of_parts_are_bounded(kit: McpKit) -> None:
    result = await answer_with(kit, {"content": [TEXT] * 5_000})
    assert result.text.count("the first") == 500
    assert "4,500 more parts were omitted" in result.text


async def test_files_are_kept_and_the_model_reads_where(kit: McpKit, tmp_path: Path) -> None:
    parts = [
        {"type": "resource", "resource": {"uri": "file:///a/q%203.pdf", "blob": PDF,
                                          "mimeType": "application/pdf"}},
        {"type": "audio", "data": SOUND, "mimeType": "audio/mpeg"},
        {"type": "resource", "resource": {"uri": "x:", "blob": base64.b64encode(PNG).decode()}},
    ]  # fmt: skip
    (kit.folder / "answer").write_text(json.dumps({"content": [TEXT, *parts]}))
    log = TurnLog()
    async with kit.open_known() as gate:
        model = ScriptedModel(calls("little__echo"), says("done"))
        media = MediaStore(tmp_path / "media")
        runner = AgentRunner(model, gate.registry, FakeClock(), media=media)
        messages = (system_message("You help."), user_message("hi"))
        prompt = Prompt(messages, Toolset.of(gate.registry.specs()))
        await runner.run(prompt, OWNER, log=log)
    result, picture = log.messages[1:]
    assert result.content.startswith(
        "the first\n[file q 3.pdf, application/pdf, 14 bytes, kept as "
    )
    assert "[file audio, audio/mpeg, 9 bytes, kept as media/" in result.content
    assert result.origin == "tool:little__echo"
    paths = [line.split("kept as ")[1].rstrip("]") for line in result.content.splitlines()[1:]]
    contents = [(tmp_path / path).read_bytes() for path in paths]
    assert contents == [b"%PDF-1.7 words", b"ID3 sound"]
    assert [Path(path).suffix for path in paths] == [".pdf", ".mp3"]
    assert len(picture.media) == 1


TOOLS: Sequence[object] = (
    {"name": "plain", "inputSchema": {"type": "object"}},
    {"name": "slow", "inputSchema": {}, "execution": {"taskSupport": "required"}},
    {"name": "either", "inputSchema": {}, "execution": {"taskSupport": "optional"}},
    {"name": "odd", "inputSchema": 7, "annotations": [], "execution": "x", "description": 7},
    {"name": "bare"},
    {"name": 7, "inputSchema": {}},
    "nonsense",
)


async def test_a_tool_that_only_runs_as_a_task_is_not_offered_and_the_list_says_why(
    kit: McpKit,
) -> None:
    (kit.folder / "tools").write_text(json.dumps(TOOLS))
    (kit.folder / "answer").write_text(json.dumps({"content": [TEXT]}))
    async with kit.open_known() as gate:
        names = ["bare", "either", "odd", "plain"]
        assert gate.names == [f"little__{name}" for name in names]
        assert (await gate.call("little__either")).text == "the first"
        state = gate.servers.state("little").as_json()
        assert state["needs_tasks"] == ["slow"]
        shown = format_servers(Data(servers=[state]))
    assert "little: tools that are not available, because they only run as MCP tasks: slow" in shown


SERVER = """
    import base64, sys
    from mcp.server.mcpserver import MCPServer, Image
    from mcp_types import (AudioContent, BlobResourceContents, EmbeddedResource, ResourceLink,
        TextContent, TextResourceContents)

    server = MCPServer("official")
    data = base64.b64encode(b"%PDF-1.7 words").decode()

    @server.tool(structured_output=False)
    def everything():
        return [
            TextContent(type="text", text="words"),
            AudioContent(type="audio", data=data, mime_type="audio/wav"),
            ResourceLink(type="resource_link", name="a", uri="file:///a.txt"),
            EmbeddedResource(type="resource",
                resource=TextResourceContents(uri="file:///b.txt", text="inner")),
            EmbeddedResource(type="resource",
                resource=BlobResourceContents(uri="file:///c.pdf", blob=data)),
        ]

    server.run()
"""


async def test_every_kind_of_part_of_the_official_sdks_server_arrives(
    kit: McpKit, tmp_path: Path
) -> None:
    import sys

    program = tmp_path / "official.py"
    program.write_text(textwrap.dedent(SERVER))
    official = McpServer("official", sys.executable, (str(program),), sandbox=False)
    async with kit.open(official) as gate:
        await accept(gate.servers, "official")
        result = await gate.call("official__everything")
    assert result.text == "words\n\n[link: a file:///a.txt]\n\n[file:///b.txt]\ninner"
    assert [(file.name, file.mime) for file in result.files] == [
        ("audio", "audio/wav"),
        ("c.pdf", ""),
    ]


def test_other_answers_are_left_as_they_are() -> None:
    welcome: dict[str, object] = {"protocolVersion": "x", "capabilities": {"tools": {}}}
    before = json.dumps(welcome)
    mend(welcome)
    assert json.dumps(welcome) == before
