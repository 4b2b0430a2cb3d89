"""Time, connections and abilities: slow reading, resets, stops, crashes, missing features."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

from bench.dialects.histories import LOOK, png
from bench.dialects.world import (
    THOUGHT,
    DialectWorld,
    Play,
    Shape,
    WrongError,
    expect,
    expect_words,
)
from nanobot.bus.events import Media
from nanobot.testing import FakeClock
from nanobot.tooling import ToolResult
from tests.doubles.dialects.replies import Call, Reset, Says, Slow
from tests.doubles.dialects.requests import functions_of, messages_of, obj
from tests.doubles.dialects.server import KINDS, DialectServer, Line
from tests.doubles.openai.answers import ChatRequest, Exchange
from tests.support import Probe


async def slow_reading(world: DialectWorld) -> None:
    """Read a prompt for longer than the read timeout of a running answer."""
    step = Slow(1.2, Says("read it", thinking=THOUGHT), KINDS[world.kind].manner)
    async with world.nanobot([step], model={"timeout_seconds": 0.4}) as server:
        await world.gets("here is much to read", "read it")
        expect(len(server.requests), 1, "requests for one answer")
        await world.goes_on()


async def progress(world: DialectWorld) -> None:
    """Report llama.cpp's reading progress, which the person sees."""
    step = Slow(0.4, Says("read it"), KINDS[world.kind].manner)
    async with world.nanobot([step]):
        await world.gets("here is much to read", "read it")
        await world.goes_on()
    shown = [str(event) for event in world.channel.shown if type(event).__name__ == "PromptReading"]
    if not any(text.startswith("reading ") and " of " in text for text in shown):
        raise WrongError("the progress of reading was not shown")


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Never answers, and records when the client disconnects."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        self.reached.set()
        transport = exchange.http.transport
        while transport is not None and not transport.is_closing():
            if exchange.closing.is_set():
                return web.Response(status=503)
            await asyncio.sleep(0.02)
        self.gone.set()
        return web.Response(status=503)


async def stop_cancels(world: DialectWorld) -> None:
    """Check that /stop ends the request at the server, which has only one slot."""
    watched = Unanswered()
    async with world.nanobot([watched, "here"]):
        await world.say("think for ever")
        await watched.reached.wait()
        expect(await world.channel.ask("/stop"), "Stopped.", "the answer to /stop")
        try:
            async with asyncio.timeout(5):
                await watched.gone.wait()
        except TimeoutError:
            raise WrongError("the request goes on at the server") from None
        await world.gets("something else", "here")


async def resetting(world: DialectWorld) -> None:
    """Check that a server that resets each connection is not retried repeatedly at once."""
    async with world.nanobot([Reset()] * 500) as server:
        await world.say("hello")
        text = (await world.channel.receive(1))[0]
        expect_words(text, "cannot be reached")
        expect(len(server.requests) <= 15, True, "at most 15 requests")
        waited = sum(world.clock.slept[:10])
        if waited < 5:
            raise WrongError(f"asked 10 times within {waited:.1f} s")


async def reset_once(world: DialectWorld) -> None:
    """Check that the person does not notice one reset connection."""
    async with world.nanobot([Reset(), "here"]):
        await world.gets("hello", "here")
        await world.goes_on()


async def blind(world: DialectWorld) -> None:
    """Send a picture to a text-only model: the text is answered, with a note."""
    world.channel.files["p"] = b"\x89PNG\r\n\x1a\n" + b"pixels"
    photo = Media("p", "image", "image/png", "p.png")
    async with world.nanobot(["seen nothing"]):
        event = await world.say("look at this", media=(photo,))
        expect_words(await world.channel.answer_to(event), "seen nothing", "picture")
        await world.goes_on()


async def blind_tool(world: DialectWorld) -> None:
    """Return a picture from a tool to a text-only model."""
    tool = Probe(act=lambda text: ToolResult("a picture", images=((png(), "image/png"),)))
    async with world.nanobot([LOOK, "seen nothing"], tools=[tool]):
        expect_words(await world.ask("look at it"), "seen nothing")
        await world.goes_on()


async def toolless(world: DialectWorld) -> None:
    """Use a server without tools: it answers without them or gives its reason, and the conversation
    continues."""
    async with world.nanobot(["hello", "fine", "fine"]):
        for text in ("hello", "and now?"):
            answer = await world.ask(text)
            if answer not in ("hello", "fine"):
                expect_words(answer, "tool")


SCHEMAS: dict[str, dict[str, object]] = {
    "$ref": {"$ref": "#/$defs/text", "$defs": {"text": {"type": "string"}}},
    "const": {"type": "string", "const": "a"},
    "a list of types": {"type": ["string", "null"]},
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "string"}},
}


def schema(given: dict[str, object]) -> Play:
    """Use a foreign tool whose schema has keywords unknown to the server."""

    async def play(world: DialectWorld) -> None:
        class Foreign(Probe):
            parameters = {  # noqa: RUF012 - as an MCP server has it
                "type": "object",
                "$schema": "http://json-schema.org/draft-07/schema#",
                "properties": {"text": given},
            }

        used = Foreign()
        async with world.nanobot([LOOK, "done"], tools=[used]):
            await world.gets("look", "done")
            await world.goes_on()
        expect(used.called, ["a"], "the tool's calls")

    return play


MEMORY: dict[str, object] = {
    "history_entry": "They spoke of the blue garden.",
    "memory_update": "# Memory\n\n- Likes the blue garden\n",
    "key_facts": ["the garden is blue"],
}
PADDING = "We spoke of the garden and of the evening. " * 150
Rung = Literal["named", "required", "json_schema", "text", "trailing comma"]


def consolidate_by(rung: Rung) -> Play:
    """Consolidate with a model that supports only one way to request an object: the tool by name,
    `required`, a JSON schema, or none (the object is in its text)."""

    async def play(world: DialectWorld) -> None:
        world.set_clock(FakeClock(world.clock.now()))  # the wait for condensing has a timeout

        def script(request: ChatRequest) -> Line:
            if b"history_entry" not in request.raw:
                return f"an answer. {PADDING}"
            return _as_memory(request.body, rung)

        environ = {
            "NANOBOT_DREAM__ENABLED": "false",
            "NANOBOT_MODEL__CONTEXT_WINDOW": "16000",
            "NANOBOT_MODEL__MAX_COMPLETION_TOKENS": "2000",
            "NANOBOT_MODEL__RETRY_SECONDS": "0",
        }
        async with world.nanobot(script, learns=True, settings=environ):
            for number in range(8):
                await world.ask(f"message {number}. {PADDING}")
        path = world.home / "workspace/memory/history.jsonl"
        if not path.exists():
            raise WrongError("nothing was condensed")
        types = [json.loads(line)["type"] for line in path.read_text().splitlines()]
        if types[-1] != "consolidation" or types.count("raw") > 1:
            raise WrongError(f"the history has {types}")

    return play


def _as_memory(fields: Mapping[str, object], rung: Rung) -> Line:
    choice, text = fields.get("tool_choice"), json.dumps(MEMORY)
    call = Says("", (Call("save_memory", text),))
    if rung == "named" and isinstance(choice, dict):
        return call
    if rung == "required" and choice == "required" and len(functions_of(fields)) == 1:
        return call
    if rung == "json_schema" and obj(fields.get("response_format")).get("type") == "json_schema":
        return text
    if rung == "text":
        return f"Here it is:\n\n```json\n{text}\n```"
    if rung == "trailing comma":
        return f"```\n{text[:-1]},}}\n```"
    return "I would love to tell you about the garden."


async def crash_between(world: DialectWorld) -> None:
    """Kill the process between a call and its result. A new process continues the turn, and the
    server gets back the data that it sent with the call."""
    lines = [Says("", (Call("exec_wait", '{"text":"a"}'),), THOUGHT)]
    async with DialectServer(KINDS[world.kind], lines) as server:
        world.servers.append(server)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.dialects.victim", str(world.home), server.base_url,
            server.kind.model, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None
        line = (await child.stdout.readline()).decode().strip()
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()
        expect(line, "reached", "the process that is killed")
        server.then("done after all")
        tool = Probe(name="exec_wait", effects=True)
        async with world.using(server, tools=[tool]):
            expect(await world.channel.answer_to("killed"), "done after all", "the answer")
            await world.goes_on()
    expect(tool.called, [], "the call that had begun")
    again = [one for one in server.requests if len(messages_of(one.body)) > 2]
    if world.kind in ("deepseek", "kimi", "openrouter-gemini"):
        expect(THOUGHT in again[0].raw.decode(), True, "the thinking came back to the server")


CRASHING = (
    "deepseek", "kimi", "openrouter-gemini", "gemini", "mistral", "llama.cpp-alternating",
    "openai", "groq",
)  # fmt: skip


def _shapes() -> list[Shape]:
    kinds = ("llama.cpp", "lenient", "ollama")
    found = [Shape(f"{kind}: reading takes long", kind, slow_reading) for kind in kinds]
    found += [
        Shape("llama.cpp: reading is shown", "llama.cpp", progress),
        Shape("/stop ends the request", "llama.cpp", stop_cancels),
        Shape("each connection is reset", "lenient", resetting, outage=True),
        Shape("one connection is reset", "lenient", reset_once),
        Shape("llama.cpp: a picture without eyes", "llama.cpp-blind", blind),
        Shape("llama.cpp: a tool's picture without eyes", "llama.cpp-blind", blind_tool),
        Shape("llama.cpp: no tools", "llama.cpp-without-tools", toolless),
        Shape("vllm: no parser for tools", "vllm-without-parser", toolless),
    ]
    found += [
        Shape(f"{kind}: a schema with {name}", kind, schema(given))
        for name, given in SCHEMAS.items()
        for kind in ("gemini", "openrouter-gemini")
    ]
    rungs: Sequence[Rung] = ("named", "required", "json_schema", "text", "trailing comma")
    found += [
        Shape(f"structured answers: {rung}", "lenient", consolidate_by(rung)) for rung in rungs
    ]
    places: Sequence[tuple[str, Rung]] = (
        ("llama.cpp", "json_schema"), ("lm-studio", "required"), ("deepseek", "text"),
        ("kimi", "json_schema"), ("ollama", "json_schema"), ("minimax", "text"),
    )  # fmt: skip
    found += [
        Shape(f"{kind}: structured answers: {rung}", kind, consolidate_by(rung))
        for kind, rung in places
    ]
    found += [
        Shape(f"{kind}: a crash between a call and its result", kind, crash_between)
        for kind in CRASHING
    ]
    return found


SHAPES: Sequence[Shape] = _shapes()
