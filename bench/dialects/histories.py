"""Conversations in an order or form that some server rejects, at every kind of server."""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import Sequence
from struct import pack

from bench.dialects.world import (
    THOUGHT,
    DialectWorld,
    Play,
    Shape,
    WrongError,
    expect,
    expect_words,
    probe,
)
from nanobot.bus.events import Media
from nanobot.testing import FakeClock
from tests.doubles.dialects.replies import Call, Says
from tests.doubles.dialects.requests import calls_of, messages_of
from tests.doubles.dialects.server import KINDS, DialectServer, Line, as_step, reasoning_in
from tests.doubles.dialects.templates import llama
from tests.doubles.openai.answers import ChatRequest, Raw
from tests.support import Gate

ORDINARY = (
    "openai", "mistral", "deepseek", "kimi", "openrouter-gemini", "gemini", "groq", "minimax",
    "xai", "litellm", "vllm", "vllm-alternating", "llama.cpp", "llama.cpp-alternating",
    "llama.cpp-alternating-new", "llama.cpp-gemma", "ollama", "lm-studio",
)  # fmt: skip
"""Kinds of servers that support tools."""

LOOK = Says("", (Call("probe", '{"text":"a"}'),), THOUGHT)
"""A first tool call."""


def png() -> str:
    """Return a picture of one pixel as base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(b"\0\0\0\0"))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + header + data + chunk(b"IEND", b"")).decode()


async def plain(world: DialectWorld) -> None:
    """Run two turns without a tool."""
    async with world.nanobot([Says("Hi.", thinking=THOUGHT)]):
        await world.gets("hello", "Hi.")
        await world.goes_on()


async def tool(world: DialectWorld) -> None:
    """Run a turn with two steps of tools, one of them with two parallel calls."""
    pair = Says("I look.", (Call("probe", '{"text":"b"}'), Call("probe", '{"text":"c"}')), THOUGHT)
    second = LOOK if world.kind == "llama.cpp-gemma" else pair  # see `templates.GEMMA`
    used = probe()
    async with world.nanobot([LOOK, second, "done"], tools=[used]):
        await world.gets("look", "done")
        await world.goes_on()
    expect(used.called, ["a", "a"] if second is LOOK else ["a", "b", "c"], "the tool's calls")


async def steer(world: DialectWorld) -> None:
    """Send a second message while a tool runs."""
    gate = Gate()
    async with world.nanobot([LOOK, "done both"], tools=[probe(gate)]):
        await world.say("look at it")
        await gate.reached.wait()
        second = await world.say("and hurry up")
        gate.opened.set()
        expect(await world.channel.answer_to(second), "done both", "the answer")
        await world.goes_on()


async def stop(world: DialectWorld) -> None:
    """Send /stop while a tool runs, and then another question."""
    gate = Gate()
    async with world.nanobot([LOOK, "here"], tools=[probe(gate)]):
        await world.say("look at it")
        await gate.reached.wait()
        expect(await world.channel.ask("/stop"), "Stopped.", "the answer to /stop")
        await world.gets("something else", "here")
        await world.goes_on()


async def fail(world: DialectWorld) -> None:
    """Run a turn that the server rejects twice, and then another question."""
    refusal = as_step(llama("the model is on holiday", 403, "permission_error"))
    async with world.nanobot([refusal, refusal, "here"]):
        for text in ("one thing", "another thing"):
            answer = await world.ask(text)
            if "the model is on holiday" not in answer:
                raise WrongError(f"the server's reason is missing: {answer!r}")
        await world.gets("a third thing", "here")
        await world.goes_on()


async def reach_step_limit(world: DialectWorld) -> None:
    """Use up the steps of a turn, which adds a note after the last result."""
    environ = {"NANOBOT_AGENT__MAX_ITERATIONS": "2"}
    async with world.nanobot(
        [LOOK, LOOK, "that is all"], tools=[probe()], settings=environ
    ) as server:
        answer = await world.ask("look everywhere")
        if "that is all" not in answer:
            raise WrongError(f"no last answer: {answer!r}")
        expect(server.left, 0, "lines not asked for")
        await world.goes_on()


async def picture(world: DialectWorld) -> None:
    """Return a picture from a tool. It follows the result as a user message."""
    shows = probe(images=[(png(), "image/png")])
    async with world.nanobot([LOOK, "I see it"], tools=[shows]):
        await world.gets("look at the picture", "I see it")
        await world.goes_on()


async def album(world: DialectWorld) -> None:
    """Send three pictures with one text, which are three messages in a row."""
    world.channel.files["p"] = base64.b64decode(png())
    photo = Media("p", "image", "image/png", "p.png")
    gate = Gate()
    async with world.nanobot([LOOK, "three pictures"], tools=[probe(gate)]):
        await world.say("look at it")
        await gate.reached.wait()
        last = ""
        for text in ("these", "", ""):
            last = await world.say(text, media=(photo,), group_id="album")
        gate.opened.set()
        expect(await world.channel.answer_to(last), "three pictures", "the answer")
        await world.goes_on()


async def heavy(world: DialectWorld) -> None:
    """Send a request that is too large in bytes (413 of nginx). It is repeated without its
    picture."""
    world.channel.files["p"] = base64.b64decode(png())
    photo = Media("p", "image", "image/png", "p.png")

    def script(request: ChatRequest) -> Line:
        heavy = b"image_url" in request.raw
        return Raw(b"<h1>413 Request Entity Too Large</h1>", 413) if heavy else "a guess"

    async with world.nanobot(script):
        said = await world.say("what is it?", media=(photo,))
        expect_words(await world.channel.answer_to(said), "a guess", "without seeing any")
        await world.goes_on("a guess")


async def job(world: DialectWorld) -> None:
    """Run a job between two messages of the person."""
    world.set_clock(FakeClock(world.clock.now()))
    wish = '{"action":"add","schedule":"in 20m","message":"Say that the oven is hot."}'
    script: list[Line] = [Says("", (Call("cron", wish),), THOUGHT), "I will.", "The oven is hot."]
    environ = {"NANOBOT_HEARTBEAT__EVERY": "off", "NANOBOT_DREAM__ENABLED": "false"}
    async with world.nanobot(script, chores=True, settings=environ) as server:
        await world.gets("remind me of the oven", "I will.")
        for _ in range(60):
            if len(world.channel.sent) > 1:
                break
            await world.clock.advance(60)
            await _let_others_run()
        texts = [part.content for part in world.channel.sent]
        expect(texts[1:], ["The oven is hot."], "what the job said")
        await world.goes_on()
        expect(
            "The oven is hot." in server.requests[-1].raw.decode(), True, "the model knows of it"
        )


async def _let_others_run() -> None:
    for _ in range(20):
        await asyncio.to_thread(int)
        await asyncio.sleep(0.002)


async def empty_answers(world: DialectWorld) -> None:
    """Make calls without text, with messages of white space between them."""
    async with world.nanobot([LOOK, LOOK, "done"], tools=[probe()]):
        await world.gets("look", "done")
        await world.say(" \n ")
        await world.goes_on()


async def unknown_tool(world: DialectWorld) -> None:
    """Call a tool that does not exist, by a name that could not be sent back."""
    odd = Says("", (Call("no such/tool", "{}"),), THOUGHT)
    async with world.nanobot([odd, "sorry"]):
        await world.gets("do it", "sorry")
        await world.goes_on()


async def restart(world: DialectWorld) -> None:
    """Continue a conversation with tools in a new process, without the thinking of old turns."""
    async with DialectServer(KINDS[world.kind], [LOOK, "done"]) as server:
        world.servers.append(server)
        async with world.using(server, tools=[probe()]):
            await world.gets("look", "done")
        async with world.using(server, tools=[probe()]):
            await world.goes_on()


HISTORIES: Sequence[tuple[str, Play]] = (
    ("two plain turns", plain),
    ("a turn with tools", tool),
    ("a message during a tool", steer),
    ("/stop during a tool", stop),
    ("two failed turns", fail),
    ("the step limit", reach_step_limit),
    ("a picture from a tool", picture),
    ("an album during a tool", album),
    ("a job speaks between messages", job),
    ("calls without text", empty_answers),
    ("a tool that does not exist", unknown_tool),
    ("a new process after a turn with tools", restart),
)


def fall_back(first: str, second: str) -> Play:
    """Break the first server down after a call, and continue with one of another kind."""

    async def play(world: DialectWorld) -> None:
        down = as_step(llama("out of order", 503))
        async with DialectServer(KINDS[second], ["done"]) as other:
            script: list[Line] = [LOOK, "first", LOOK, *[down] * 400]
            environ = {"retry_seconds": 0}
            async with world.nanobot(script, tools=[probe()], model=environ, fallback=other):
                await world.gets("look", "first")
                answer = await world.ask("look again")
                if "done" not in answer:
                    raise WrongError(f"the fallback's answer is {answer!r}")
                world.servers.append(other)
                if "fine" not in (answer := await world.ask("and now?")):
                    raise WrongError(f"the next answer is {answer!r}")
            for request in other.requests:
                _judge_foreign(request.raw.decode(), reasoning_in(request.body), first)

    return play


def _judge_foreign(raw: str, reasoning: str, first: str) -> None:
    if THOUGHT in raw or "'thought_signature': 'Cs" in reasoning:
        raise WrongError(f"the reasoning of {first} went to another server: {reasoning!r}")


async def two_people(world: DialectWorld) -> None:
    """Serve two people at once, whose calls have the same ids at the server."""
    ponder = {chat: f"{THOUGHT} of person {chat}" for chat in ("1", "2")}

    def script(request: ChatRequest) -> Says:
        messages = messages_of(request.body)
        text = str(messages)
        chat = "1" if "I am person 1" in text else "2"
        tail = next(at for at in range(len(messages), 0, -1) if messages[at - 1]["role"] == "user")
        results = sum(one["role"] == "tool" for one in messages[tail:])
        calls = (Call("probe", '{"text":"a"}'),) if results < 2 else ()
        return Says("" if calls else f"answer to {chat}", calls, ponder[chat])

    async with world.nanobot(script, tools=[probe()]) as server:
        for number in range(3):
            events = [
                (chat, await world.say(f"I am person {chat}, message {number}", chat))
                for chat in ("1", "2")
            ]
            for chat, event in events:
                answer = await world.channel.answer_to(event, chat)
                expect(answer, f"answer to {chat}", "the answer")
    seen = False
    for request in server.requests:
        text = request.raw.decode()
        own, other = ("1", "2") if "I am person 1" in text else ("2", "1")
        seen = seen or ponder[own] in text
        if ponder[other] in text:
            raise WrongError("one person's thinking is in another person's request")
    if world.kind in ("kimi", "deepseek", "openrouter-gemini"):
        expect(seen, True, "the thinking came back to the server")


async def kimi_ids(world: DialectWorld) -> None:
    """Check Kimi's ids `functions.NAME:n`, n counted through the conversation
    (github.com/MoonshotAI/Kimi-K2/blob/main/docs/tool_call_guidance.md), also for calls of another
    server."""
    async with DialectServer(KINDS["openai"], [LOOK, LOOK, "first"]) as first:
        world.servers.append(first)
        async with world.using(first, tools=[probe()]):
            await world.gets("look", "first")
    async with world.nanobot([LOOK, "done"], tools=[probe()]) as server:
        await world.gets("look again", "done")
        await world.goes_on()
    sent = [one for m in messages_of(server.requests[-1].body) for one in calls_of(m)]
    wanted = [f"functions.probe:{n}" for n in range(3)]
    expect([one["id"] for one in sent], wanted, "the ids of the calls")


def _shapes() -> list[Shape]:
    found = [Shape(f"{kind}: {name}", kind, play) for name, play in HISTORIES for kind in ORDINARY]
    pairs = [("kimi", "mistral"), ("kimi", "openai"), ("vllm", "openai"), ("openai", "deepseek")]
    pairs += [("deepseek", "groq"), ("openrouter-gemini", "mistral"), ("gemini", "kimi")]
    pairs += [("openai", "gemini"), ("llama.cpp", "kimi"), ("mistral", "xai"), ("kimi", "deepseek")]
    found += [
        Shape(f"{first}: {second} goes on with its conversation", first, fall_back(first, second))
        for first, second in pairs
    ]
    found += [
        Shape(f"{kind}: two people at once", kind, two_people)
        for kind in ("kimi", "deepseek", "openrouter-gemini", "gemini", "llama.cpp", "openai")
    ]
    found.append(Shape("a picture that makes a request too large", "lenient", heavy))
    return [*found, Shape("kimi: the ids of another server's calls", "kimi", kimi_ids)]


SHAPES: Sequence[Shape] = _shapes()
