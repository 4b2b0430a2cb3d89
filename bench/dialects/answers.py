"""Irregular answers: arguments, ids, calls as text, ends of streams, empty answers."""

from __future__ import annotations

import json
from collections.abc import Sequence

from bench.dialects.histories import LOOK, ORDINARY
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
from tests.doubles.dialects.hosted import groq_too_large
from tests.doubles.dialects.replies import Call, Says, Stream, json_answer
from tests.doubles.dialects.server import KINDS, DialectServer, Line, as_step
from tests.doubles.dialects.templates import llama
from tests.doubles.openai.answers import Step

REPAIRED = {
    "a trailing comma": '{"text":"a",}',
    "single quotes": "{'text':'a'}",
    "a code fence": '```json\n{"text":"a"}\n```',
    "{} in front": '{}{"text":"a"}',
    "an object encoded twice": json.dumps('{"text":"a"}'),
    "an object, not its text": {"text": "a"},
    "white space around": '\n {"text":"a"} \n',
}
"""Malformed arguments with only one possible meaning."""

UNREADABLE = {
    "cut by the limit": '{"text":"a',
    "one quote too many": '{"text":"a""}',
    "a list": '["a"]',
    "a number": "3",
    "a text": '"a"',
    "true": "true",
    "a list, not its text": ["a"],
    "a number, not its text": 3,
    "half a call in words": "text = a",
    "nested deeply": '{"text":' + "[" * 3_000,
}
"""Arguments that cannot be repaired to an object."""

EMPTY = {"nothing": "", "null, not its text": None, "null": "null"}
"""Arguments that mean an empty object."""


def repair_arguments(arguments: object) -> Play:
    """Check that the call runs with the intended arguments."""

    async def play(world: DialectWorld) -> None:
        used = probe()
        async with world.nanobot([Says("", (Call("probe", arguments),)), "done"], tools=[used]):
            await world.gets("look", "done")
            await world.goes_on()
        expect(used.called, ["a"], "the tool's calls")

    return play


def reject_arguments(arguments: object, *, finish: str = "") -> Play:
    """Check that the model gets an error for its unreadable call, and the conversation
    continues."""

    async def play(world: DialectWorld) -> None:
        used = probe()
        bad = Says("", (Call("probe", arguments),), THOUGHT, finish)
        async with world.nanobot([bad, LOOK, "done"], tools=[used]):
            await world.gets("look", "done")
            await world.goes_on()
        expect([one for one in used.called if one != "a"], [], "calls with invented arguments")

    return play


def without_arguments(arguments: object) -> Play:
    """Check that missing arguments mean an empty object."""

    async def play(world: DialectWorld) -> None:
        used = probe()
        async with world.nanobot([Says("", (Call("probe", arguments),)), "done"], tools=[used]):
            await world.gets("look", "done")
            await world.goes_on()
        expect(used.called, [""], "the tool's calls")

    return play


LONG = "x" * 64
IDS: dict[str, tuple[str | None, str | None]] = {
    "missing": (None, None),
    "repeated": ("call_1", "call_1"),
    "of 64 characters": (LONG, LONG[:-1] + "y"),
    "with characters of their own": ("functions.probe:0", "a b/c|d"),
    "empty": ("", ""),
}


def call_ids(first: str | None, second: str | None) -> Play:
    """Check that both calls run once at a server that accepts only its own form of ids."""

    async def play(world: DialectWorld) -> None:
        used = probe()
        pair = (Call("probe", '{"text":"a"}', first), Call("probe", '{"text":"b"}', second))
        again = (Call("probe", '{"text":"c"}', first),)
        script: list[Line] = [Says("", pair), "done", Says("", again), "again"]
        async with world.nanobot(script, tools=[used]):
            await world.gets("look", "done")
            await world.gets("look again", "again")
            await world.goes_on()
        expect(used.called, ["a", "b", "c"], "the tool's calls")

    return play


async def ids_as_a_fallback(world: DialectWorld) -> None:
    """Send ids of 64 characters from one server to OpenAI, which accepts 40."""
    async with DialectServer(KINDS["openai"], ["done"]) as other:
        call = Call("probe", '{"text":"a"}', LONG)
        down = as_step(llama("out of order", 503))
        script: list[Line] = [Says("", (call,)), *[down] * 400]
        model = {"retry_seconds": 0}
        async with world.nanobot(script, tools=[probe()], model=model, fallback=other):
            expect_words(await world.ask("look"), "done")
            world.servers.append(other)
            expect_words(await world.ask("and now?"), "fine")


def _delta(
    *calls: dict[str, object], finish: str | None = None, **delta: object
) -> dict[str, object]:
    whole = {**({"tool_calls": list(calls)} if calls else {}), **delta}
    return {"index": 0, "delta": whole, "finish_reason": finish}


def _piece(
    arguments: str, name: str = "", index: int | None = 0, **more: object
) -> dict[str, object]:
    place = {} if index is None else {"index": index}
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {**place, **more, "function": function}


CALL_STREAMS: dict[str, Stream] = {
    "all indices 0": Stream(
        (
            _delta(_piece('{"text":"a"}', "probe", id="one", type="function")),
            _delta(_piece('{"text":"b"}', "probe", id="two", type="function")),
            _delta(finish="tool_calls"),
        )
    ),
    "no indices": Stream(
        (
            _delta(_piece('{"text":', "probe", None, id="one")),
            _delta(_piece('"a"}', index=None)),
            _delta(_piece('{"text":"b"}', "probe", None, id="two")),
            _delta(finish="tool_calls"),
        )
    ),
    "the name in each piece": Stream(
        (
            _delta(_piece('{"text":', "probe", id="one")),
            _delta(_piece('"a"}', "probe", id="one")),
            _delta(_piece('{"text":"b"}', "probe", 1, id="two")),
            _delta(finish="tool_calls"),
        )
    ),
    "finish reason stop": Stream(
        (
            _delta(_piece('{"text":"a"}', "probe", id="one")),
            _delta(_piece('{"text":"b"}', "probe", 1, id="two")),
            _delta(finish="stop"),
        )
    ),
}


def two_calls(step: Step) -> Play:
    """Check two calls, however they are streamed."""

    async def play(world: DialectWorld) -> None:
        used = probe()
        async with world.nanobot([step, "done"], tools=[used]):
            await world.gets("look", "done")
            await world.goes_on()
        expect(used.called, ["a", "b"], "the tool's calls")

    return play


CUT_CALL = Stream(
    (_delta(_piece('{"text":"a very long te', "probe", id="one")), _delta(finish="length"))
)

A = '{"text":"a"}'
HERMES = f'<tool_call>{{"name":"probe","arguments":{A}}}</tool_call>'
TEXTS = {
    "hermes": f'<tool_call>\n{{"name": "probe", "arguments": {A}}}\n</tool_call>',
    "hermes, two": "\n".join([f'<tool_call>{{"name":"probe","arguments":{A}}}</tool_call>'] * 2),
    "qwen2.5-coder": f'<tools>\n{{"name": "probe", "arguments": {A}}}\n</tools>',
    "llama": f"<function=probe>{A}</function>",
    "qwen3-coder": (
        "<tool_call>\n<function=probe>\n<parameter=text>\na\n</parameter>\n</function>\n</tool_call>"
    ),
    "qwen3-coder, bare": "<function=probe><parameter=text>a</parameter></function>",
    "mistral": f'[TOOL_CALLS][{{"name": "probe", "arguments": {A}}}]',
    "mistral, by name": f"[TOOL_CALLS]probe{A}",
    "mistral, with [ARGS]": f"[TOOL_CALLS]probe[ARGS]{A}",
    "deepseek": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>probe\n```json\n"
        f"{A}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "deepseek v3.1": (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>probe<｜tool▁sep｜>{A}"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.probe:0"
        f"<|tool_call_argument_begin|>{A}<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "glm": ("<tool_call>probe\n<arg_key>text</arg_key>\n<arg_value>a</arg_value>\n</tool_call>"),
    "minimax": (
        '<minimax:tool_call>\n<invoke name="probe">\n<parameter name="text">a</parameter>\n'
        "</invoke>\n</minimax:tool_call>"
    ),
    "anthropic-like": '<invoke name="probe"><parameter name="text">a</parameter></invoke>',
    "gpt-oss": (
        f"<|channel|>commentary to=functions.probe <|constrain|>json<|message|>{A}<|call|>"
    ),
    "bare JSON": f'{{"name": "probe", "arguments": {A}}}',
    "bare JSON with parameters": f'{{"name": "probe", "parameters": {A}}}',
    "fenced JSON": f'```json\n{{"name": "probe", "arguments": {A}}}\n```',
    "with text in front": f"I will look.\n{HERMES}",
}
"""A call as text in each form, by the models that write it."""


def call_as_text(text: str) -> Play:
    """Check that the call runs and is not shown."""

    async def play(world: DialectWorld) -> None:
        used = probe()
        async with world.nanobot([text, "done"], tools=[used]):
            await world.gets("look", "done")
            await world.goes_on()
        expect(set(used.called), {"a"}, "the tool's calls")

    return play


BROKEN_TEXTS = {
    "a call that is cut": '<tool_call>{"name": "probe", "arguments": {"text": "a',
    "a call without JSON": "<tool_call>probe with the text a</tool_call>",
    "a call of an unknown tool": '<tool_call>{"name":"nothing","arguments":{}}</tool_call>',
}


def unreadable_text(text: str) -> Play:
    """Check that an unreadable call goes back to the model once and is never shown."""

    async def play(world: DialectWorld) -> None:
        used = probe()
        async with world.nanobot([text, "sorry"], tools=[used]):
            await world.gets("look", "sorry")
            await world.goes_on()
        expect(used.called, [], "the tool's calls")

    return play


QUOTES = {
    "in a code fence": f"Write it so:\n\n```\n{HERMES}\n```\n\nThat is all.",
    "in a sentence": f"Models write `{HERMES}` there.",
    "after a native call": HERMES,
}


def quotation(text: str, *, native: bool = False) -> Play:
    """Check that quoted or explained markup is not called."""

    async def play(world: DialectWorld) -> None:
        used = probe()
        script: list[Line] = [LOOK, "looked", text] if native else [text]
        async with world.nanobot(script, tools=[used]):
            if native:
                await world.gets("look", "looked")
            await world.gets("how do models write calls?", text)
            await world.goes_on()
        expect(used.called, ["a"] if native else [], "the tool's calls")

    return play


async def quote_markup(world: DialectWorld) -> None:
    """Ask a question that contains a call, which the model repeats."""
    used = probe()
    async with world.nanobot([HERMES], tools=[used]):
        await world.gets(f"repeat this: {HERMES}", HERMES)
        await world.goes_on()
    expect(used.called, [], "the tool's calls")


def groq_failed(generation: str) -> Step:
    """Return Groq's error for an unreadable call.

    Sources: console.groq.com/docs/tool-use, github.com/groq/groq-typescript/issues/28."""
    error = {
        "message": "Failed to call a function. Please adjust your prompt. See 'failed_generation' "
        "for more details.",
        "type": "invalid_request_error",
        "code": "tool_use_failed",
        "failed_generation": generation,
    }
    return json_answer({"error": error}, 400)


def fail_generation(generation: str, *, runs: bool) -> Play:
    """Check Groq's error for a call that it could not read: the text is parsed, otherwise the model
    is asked again."""

    async def play(world: DialectWorld) -> None:
        used = probe()
        async with world.nanobot([groq_failed(generation), "done"], tools=[used]):
            await world.gets("look", "done")
            await world.goes_on()
        expect(used.called, ["a"] if runs else [], "the tool's calls")

    return play


def _texts(*pieces: str, finish: str | None = None) -> tuple[dict[str, object], ...]:
    return tuple(_delta(content=piece, finish=finish) for piece in pieces)


_END = _delta(finish="stop")
_THINKS = _delta(reasoning_content=THOUGHT, finish="stop")
WHOLE = "one two three"
STREAMS: dict[str, Stream] = {
    'finish reason "null" as text': Stream(
        (*_texts("one ", "two ", "three", finish="null"), _END), pauses={1: 2.4}
    ),
    "finish reason stop in each chunk": Stream(
        (*_texts("one ", "two ", "three", finish="stop"), _END), pauses={2: 1.2}
    ),
    "finish reason stop on the thinking": Stream(
        (_THINKS, *_texts("one ", "two ", "three"), _END), pauses={1: 1.2}
    ),
    "finish reason empty": Stream((*_texts("one ", "two ", "three", finish=""), _END)),
    "no [DONE]": Stream((*_texts("one ", "two ", "three"), _END), done=False),
    "no finish reason": Stream(_texts("one ", "two ", "three")),
    "neither [DONE] nor finish reason": Stream(_texts("one ", "two ", "three"), done=False),
    "the end in one piece with the text": Stream((_delta(content=WHOLE, finish="stop"),)),
}


def stream(step: Step) -> Play:
    """Check that the whole text is the answer."""

    async def play(world: DialectWorld) -> None:
        async with world.nanobot([step]):
            await world.gets("count", WHOLE)
            await world.goes_on()

    return play


THINKING = {
    "</think> without an opening tag": f"{THOUGHT}\n</think>\n\n{WHOLE}",
    "<think> in the text": f"<think>{THOUGHT}</think>{WHOLE}",
    "<thinking> in the text": f"<thinking>\n{THOUGHT}\n</thinking>\n\n{WHOLE}",
    "an empty <think>": f"<think>\n\n</think>\n\n{WHOLE}",
}


async def think_and_call(world: DialectWorld) -> None:
    """Think without an opening tag, and then write a call as text."""
    text = f"{THOUGHT}\n</think>\n{HERMES}"
    used = probe()
    async with world.nanobot([text, "done"], tools=[used]):
        await world.gets("look", "done")
        await world.goes_on()
    expect(used.called, ["a"], "the tool's calls")


def empty(step: Line, *words: str, asked: int) -> Play:
    """Check that the person gets a reason for a missing answer. `asked` is the largest number of
    requests."""

    async def play(world: DialectWorld) -> None:
        async with world.nanobot([step] * asked) as server:
            answer = await world.ask("say something")
            expect_words(answer, *words)
            if "empty answer, twice" in answer and "empty" not in words:
                raise WrongError(f"the cause is not told: {answer!r}")
            expect(len(server.requests) <= asked, True, f"at most {asked} requests")
            server.then(*["fine"] * server.left)
            while server.left:
                await world.ask("go on")
            await world.gets("and now?", "fine")

    return play


async def groq_minute(world: DialectWorld) -> None:
    """Answer with Groq's 413 for tokens per minute: the prompt is shortened, or the reason is
    shown."""
    step = as_step(groq_too_large(14_137, 12_000))
    async with world.nanobot([step, "short", step, step, step, step]):
        answer = await world.ask("hello")
        if answer != "short":
            expect_words(answer, "minute")
        await world.ask("more")
        while world.servers[-1].left:
            await world.ask("more")
        await world.gets("and now?", "fine")


def _shapes() -> list[Shape]:
    strict = ("vllm", "llama.cpp", "ollama", "minimax")
    found = [
        Shape(f"{kind}: arguments with {name}", kind, repair_arguments(given))
        for name, given in REPAIRED.items()
        for kind in strict
    ]
    found += [
        Shape(f"{kind}: arguments: {name}", kind, reject_arguments(given))
        for name, given in UNREADABLE.items()
        for kind in strict
    ]
    found += [
        Shape(
            f"{kind}: arguments: cut by the limit, then on",
            kind,
            reject_arguments('{"text":"a', finish="length"),
        )
        for kind in ORDINARY
    ]
    found += [
        Shape(f"{kind}: arguments: {name}", kind, without_arguments(given))
        for name, given in EMPTY.items()
        for kind in ("vllm", "ollama")
    ]
    found += [
        Shape(f"{kind}: call ids {name}", kind, call_ids(*given))
        for name, given in IDS.items()
        for kind in ("openai", "mistral", "groq", "kimi")
    ]
    found.append(
        Shape("vllm: call ids of 64 characters, OpenAI goes on", "vllm", ids_as_a_fallback)
    )
    found += [
        Shape(f"calls: {name}", "lenient", two_calls(one)) for name, one in CALL_STREAMS.items()
    ]
    found.append(Shape("calls: one is cut with finish length", "vllm", _cut))
    found += [
        Shape(f"a call as text: {name}", "llama.cpp", call_as_text(text))
        for name, text in TEXTS.items()
    ]
    found += [
        Shape(f"{name} as text", "llama.cpp", unreadable_text(text))
        for name, text in BROKEN_TEXTS.items()
    ]
    found += [
        Shape(
            f"markup quoted {name}",
            "llama.cpp",
            quotation(text, native=name == "after a native call"),
            quotes=True,
        )
        for name, text in QUOTES.items()
    ]
    found.append(Shape("markup quoted by the person", "llama.cpp", quote_markup, quotes=True))
    found += [
        Shape(
            "groq: failed_generation can be read",
            "groq",
            fail_generation(TEXTS["llama"], runs=True),
        ),
        Shape(
            "groq: failed_generation cannot be read",
            "groq",
            fail_generation("probe{", runs=False),
        ),
        Shape("groq: too large for a minute", "groq", groq_minute),
    ]
    found += [Shape(f"stream: {name}", "lenient", stream(one)) for name, one in STREAMS.items()]
    found += [
        Shape(f"thinking: {name}", "llama.cpp", stream(Stream((*_texts(*_split(text)), _END))))
        for name, text in THINKING.items()
    ]
    found.append(Shape("thinking: </think>, and a call as text", "llama.cpp", think_and_call))
    filtered = Stream((_delta(content=""), _delta(finish="content_filter")))
    eaten = Says("", (), THOUGHT * 9, "length")
    ended = Stream((_delta(content=""), _delta(finish="network_error")))
    return [
        *found,
        Shape("an empty answer: filtered", "lenient", empty(filtered, "filter", asked=1)),
        Shape(
            "an empty answer: all tokens used for thinking",
            "lenient",
            empty(eaten, "thinking", "max_completion_tokens", asked=2),
        ),
        Shape(
            "an empty answer: ended early",
            "lenient",
            empty(ended, "ended", "network_error", asked=2),
        ),
        Shape("an empty answer: really empty", "lenient", empty(Says(""), "empty", asked=2)),
    ]


def _split(text: str) -> list[str]:
    return [text[start : start + 5] for start in range(0, len(text), 5)]


async def _cut(world: DialectWorld) -> None:
    used = probe()
    async with world.nanobot([CUT_CALL, "sorry, that was too long"], tools=[used]):
        await world.gets("look", "sorry, that was too long")
        await world.goes_on()
    expect(used.called, [], "the tool's calls")


SHAPES: Sequence[Shape] = _shapes()
