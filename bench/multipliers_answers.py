"""Answers of a model, a tool server, a web page and a file: many small, one large, deep."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.multipliers_requests import many
from nanobot.messages import ToolCall
from tests.doubles.openai.answers import Answer, Raw, Step

STREAM = "text/event-stream"
MODEL_BYTES, PAGE_BYTES, FILE_BYTES, MCP_BYTES = 1_900_000, 4_900_000, 20_000_000, 7_900_000


@dataclass(frozen=True)
class Scene:
    """A person sends a message, and the model answers with `steps`. `files` are put into the
    workspace, `pages` on the site, and `said` is the tool server's answer."""

    name: str
    steps: Callable[[str], list[Step]]
    files: dict[str, Callable[[], bytes]] = field(default_factory=dict)
    pages: dict[str, Callable[[], bytes]] = field(default_factory=dict)
    said: Callable[[], str] = str


@dataclass(frozen=True)
class PageMessage:
    """A person's message on the page, such as a command with a large argument."""

    name: str
    make: Callable[[], str]


_COMMANDS = (
    *("remind", "note", "remember", "forget", "memory search", "memory why", "memory accept"),
    *("send", "approve", "model", "secret", "pair", "undo", "jobs", "skills", "mcp", "queue"),
    *("dream-log", "dream-restore", "compact", "nothing", "stop", "voice", "approvals", "sessions"),
)


def _messages_on_page() -> list[PageMessage]:
    shapes: dict[str, Callable[[], str]] = {
        "words": lambda: "word " * 190_000,
        "different words": lambda: " ".join(f"w{n}" for n in range(110_000)),
        "one word": lambda: "x" * 950_000,
        "numbers": lambda: "1 " * 450_000,
        "lines": lambda: "a\n" * 450_000,
    }
    return [
        PageMessage(f"said: /{command}, {name}", _with(f"/{command} ", make))
        for command in _COMMANDS
        for name, make in shapes.items()
    ]


def _with(before: str, make: Callable[[], str]) -> Callable[[], str]:
    return lambda: before + make()


def _event(delta: object, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "1", "choices": [choice]}).encode() + b"\n\n"


_END = _event({}, "stop") + b"data: [DONE]\n\n"


def _stream(*deltas: tuple[object, int]) -> Callable[[str], list[Step]]:
    def steps(_: str) -> list[Step]:
        body = b"".join(_event(delta) * times for delta, times in deltas)
        return [Raw(body + _END, content_type=STREAM)]

    return steps


def _text(text: str) -> Callable[[str], list[Step]]:
    return lambda _: [Raw(_event({"content": text}) + _END, content_type=STREAM)]


def _calls(count: int, arguments: str, name: str = "read_file") -> Callable[[str], list[Step]]:
    def steps(_: str) -> list[Step]:
        given = tuple(ToolCall(f"c{n}", name, arguments) for n in range(count))
        listed = [
            {"index": n, "id": one.id, "type": "function",
             "function": {"name": one.name, "arguments": one.arguments}}
            for n, one in enumerate(given)
        ]  # fmt: skip
        body = _event({"tool_calls": listed}) + _event({}, "tool_calls") + b"data: [DONE]\n\n"
        return [Raw(body, content_type=STREAM)]

    return steps


def _tool(name: str, arguments: dict[str, object]) -> Callable[[str], list[Step]]:
    def steps(site: str) -> list[Step]:
        given = json.dumps(arguments).replace("SITE", site)
        return [Answer(None, (ToolCall("c1", name, given),)), Answer("ok")]

    return steps


def _model() -> list[Scene]:
    nested = '{"path":' + "[" * 1_000 + "]" * 1_000 + "}"
    wide = many("1", 1_500_000, ('{"path":[', "]}")).decode()
    return [
        Scene("model: 200,000 deltas", _stream(({"content": "a "}, 200_000))),
        Scene("model: 200,000 thoughts", _stream(({"reasoning_content": "a "}, 200_000))),
        Scene("model: 100,000 empty deltas", _stream(({}, 100_000))),
        Scene("model: 400,000 lines", _text("word\n" * 400_000)),
        Scene("model: one large line", _text("word " * (MODEL_BYTES // 5))),
        Scene("model: markdown", _text("*_[`" * 500_000)),
        Scene("model: nested quotes", _text("> " * 500_000)),
        Scene("model: nested lists", _text("".join(" " * n + "- a\n" for n in range(1_500)))),
        Scene("model: table", _text("\n".join(one * 100_000 for one in ("|a", "|-", "|b")))),
        Scene("model: links", _text("[a](http://b.c) " * 100_000)),
        Scene("model: brackets", _text("[" * 500_000)),
        Scene("model: tags", _text("<think>" * 200_000)),
        Scene("model: call tags", _text("<tool_call>" * 200_000)),
        Scene("model: braces", _text("{" * 500_000)),
        Scene("model: fences", _text("```json\n{\n" * 200_000)),
        Scene("model: 20,000 calls", _calls(20_000, '{"path":"a"}')),
        Scene("model: 20,000 unknown calls", _calls(20_000, "{}", "nothing")),
        Scene("model: deep arguments", _calls(1, nested)),
        Scene("model: wide arguments", _calls(1, wide)),
        Scene("model: large arguments", _calls(1, '{"path":"' + "x" * 5_000_000 + '"}')),
        Scene("model: broken arguments", _calls(1, "{" * 1_000_000)),
        Scene("model: broken quotes", _calls(1, "{'a':" + "'b'," * 800_000)),
        Scene("model: call of pieces", _stream(
            ({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "read_file"}}]}, 1),
            ({"tool_calls": [{"index": 0, "function": {"arguments": "["}}]}, 100_000))),
    ]  # fmt: skip


def _files() -> list[Scene]:
    read = _tool("read_file", {"path": "big.txt"})
    found = _tool("grep", {"pattern": "a", "path": "."})
    shapes: dict[str, Callable[[], bytes]] = {
        "lines": lambda: b"a\n" * (FILE_BYTES // 2),
        "one line": lambda: b"word " * (FILE_BYTES // 5),
        "invisible": lambda: "\u200b".encode() * (FILE_BYTES // 3),
        "carriage returns": lambda: b"\r" * FILE_BYTES,
    }
    scenes = [Scene(f"file: read, {n}", read, {"big.txt": make}) for n, make in shapes.items()]
    scenes += [Scene(f"file: grep, {n}", found, {"big.txt": make}) for n, make in shapes.items()]
    edit = _tool("edit_file", {"path": "big.txt", "old_text": "zzz\nyyy", "new_text": "b"})
    scenes += [Scene(f"file: edit, {n}", edit, {"big.txt": make}) for n, make in shapes.items()]
    page = _tool("read_file", {"path": "big.html"})
    scenes.append(Scene("file: nested html", page, {"big.html": lambda: b"<div>" * 400_000}))
    return scenes


def _pages() -> list[Scene]:
    fetch = _tool("web_fetch", {"url": "SITE/p"})
    shapes: dict[str, Callable[[], bytes]] = {
        "nested tags": lambda: b"<div>" * (PAGE_BYTES // 5),
        "links": lambda: b'<a href="/x">y</a>' * (PAGE_BYTES // 18),
        "tables": lambda: b"<table><tr><td>" * (PAGE_BYTES // 15),
        "attributes": lambda: b"<p " + b"a=1 " * (PAGE_BYTES // 4) + b">hello</p>",
        "entities": lambda: b"<p>" + b"&amp;" * (PAGE_BYTES // 5),
        "text": lambda: b"<p>" + b"word " * (PAGE_BYTES // 5),
        "lines": lambda: b"<pre>" + b"a\n" * (PAGE_BYTES // 2),
    }
    return [Scene(f"page: {n}", fetch, pages={"/p": make}) for n, make in shapes.items()]


def _servers() -> list[Scene]:
    call = _tool("bench__echo", {"text": "x"})

    def answer(content: str, more: str = "") -> str:
        return f'{{"content":[{content}]{more}}}'

    one = '{"type":"text","text":"a"}'
    return [
        Scene("mcp: items", call, said=lambda: answer(",".join([one] * (MCP_BYTES // 27)))),
        Scene("mcp: large item", call,
              said=lambda: answer('{"type":"text","text":"' + "word " * (MCP_BYTES // 5) + '"}')),
        Scene("mcp: structured", call, said=lambda: answer(
            "", ',"structuredContent":{"a":[' + ",".join(["{}"] * (MCP_BYTES // 3)) + "]}")),
        Scene("mcp: deep", call, said=lambda: answer(
            "", ',"structuredContent":{"a":' + "[" * 900 + "]" * 900 + "}")),
        Scene("mcp: blanks", call, said=lambda: answer(one + " " * MCP_BYTES)),
    ]  # fmt: skip


SCENES = (*_model(), *_files(), *_pages(), *_servers())
SAID = tuple(_messages_on_page())
