"""Errors of servers: the person must see the reason, and "too long" must shorten the prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bench.dialects.world import NEXT, DialectWorld, Play, Shape, WrongError, expect, expect_words
from tests.doubles.dialects.hosted import openrouter
from tests.doubles.dialects.replies import Says, event_of, json_answer
from tests.doubles.dialects.server import KINDS, DialectServer, Line, as_step
from tests.doubles.openai.answers import STREAM_TYPE, ChatRequest, Raw, Step

SAID = "the teapot is out of order"
"""The server's reason."""

BODIES: dict[str, object] = {
    "error.message": {"error": {"message": SAID, "type": "invalid_request_error"}},
    "error as text": {"error": SAID},
    "message": {"message": SAID},
    "msg": {"msg": SAID},
    "detail": {"detail": SAID},
    "detail as a list": {"detail": [{"loc": ["body"], "msg": SAID, "type": "value_error"}]},
    "base_resp of MiniMax": {
        "choices": None,
        "base_resp": {"status_code": 1004, "status_msg": SAID},
    },
    "status and msg of iFlow": {"status": "449", "msg": SAID, "body": None},
    "code and message": {"code": 40035, "message": SAID, "data": None},
    "code and error of xAI": {"code": "Client specified an invalid argument", "error": SAID},
    "an array around it": [{"error": {"code": 400, "message": SAID, "status": "INVALID"}}],
    "message.detail of Mistral": {
        "object": "error",
        "message": {"detail": [{"type": "value_error", "loc": ["body"], "msg": SAID}]},
    },
    "errors as a list": {"errors": [{"message": SAID}]},
    "metadata.raw of OpenRouter": json.loads(
        openrouter(json.dumps({"error": {"message": SAID, "code": 400}})).body
    ),
    "metadata.raw that is no JSON": json.loads(openrouter(SAID).body),
    "an error in an error of LiteLLM": {
        "error": {"message": f"litellm.BadRequestError: MistralException - {SAID}", "code": "400"}
    },
}
"""Bodies with the reason. With status 200 an error without a code may be temporary, so the message
may also be kept until the server works again, for that reason."""


STRANGE = {
    "Response.Error of Tencent": json.dumps({"Response": {"Error": {"Message": SAID}}}),
    "header of Spark": json.dumps({"header": {"code": 10163, "message": SAID}}),
    "a web page": f"<html><head><title>Error</title></head><body><h1>{SAID}</h1></body></html>",
    "a sentence": SAID,
}
"""Answers in shapes of other APIs, and of proxies."""


def show_reason(step: Step) -> Play:
    """Check that the person sees the server's reason, and the next turn works."""

    async def play(world: DialectWorld) -> None:
        steps = [step] * 3
        async with world.nanobot(steps, model={"retry_seconds": 0}) as server:
            expect_words(await world.ask("hello"), SAID)
            while server.left:
                await world.ask("hello again")
            await world.goes_on()

    return play


def in_a_stream(body: object, *, named: bool = False, after: bool = False) -> Raw:
    """Return an error as an event of a stream that began well."""
    chunk = {"choices": [{"index": 0, "delta": {"content": "I beg"}, "finish_reason": None}]}
    head = event_of(chunk) if after else b""
    return Raw(
        head + (b"event: error\n" if named else b"") + event_of(body), content_type=STREAM_TYPE
    )


CHINESE = "今天天气很好我们去公园散步吧" * 430
"""A message of 6,020 characters. This server counts more tokens than an estimate."""
WINDOW = 12_000


def _wordings() -> dict[str, str]:
    path = Path(__file__).with_name("too_long.txt")
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    return dict(line.split(": ", 1) for line in lines)


TOO_LONG = _wordings()
"""Error messages for a prompt that is too long, by server."""


def count_tokens(request: ChatRequest) -> int:
    """Count tokens like a server whose tokenizer is bad at Chinese."""
    text = json.dumps(request.body, ensure_ascii=False)
    wide = sum(letter > "\u2e80" for letter in text)
    return (len(text) - wide) // 4 + wide * 2


def shorten_first_message(words: str) -> Play:
    """Check that a first message beyond the server's limit is shortened and answered."""

    async def play(world: DialectWorld) -> None:
        def script(request: ChatRequest) -> Step | str:
            if (tokens := count_tokens(request)) <= WINDOW:
                return "I have read it"
            error = {"message": words.format(tokens=tokens, window=WINDOW), "type": "bad_request"}
            return json_answer({"error": error}, 400)

        async with world.nanobot(script, model={"context_window": 32_000}):
            answer = await world.ask(CHINESE)
            if "I have read it" not in answer:
                raise WrongError(f"the person read {answer!r}")
            world.said.clear()
            await world.goes_on("I have read it")

    return play


def reject_for_good(status: int, words: str) -> Play:
    """Check that an error that recurs for the same request is treated as a rejection."""

    async def play(world: DialectWorld) -> None:
        body = {"error": {"code": status, "message": words, "type": "server_error"}}

        def script(request: ChatRequest) -> Step | str:
            return "fine" if NEXT in str(request.messages[-1]) else json_answer(body, status)

        async with world.nanobot(script) as server:
            expect_words(await world.ask("hello"), words[:60])
            expect(len(server.requests) <= 3, True, "at most three tries")
            await world.goes_on()

    return play


async def short_key(world: DialectWorld) -> None:
    """Check that a key such as `ollama` is not redacted from addresses."""
    step = json_answer({"error": {"message": f"{SAID}, ask ollama on 127.0.0.1"}}, 400)
    async with world.nanobot([step], model={"api_key": "ollama"}):
        answer = await world.ask("hello")
        expect_words(answer, "ask ollama on")
        await world.goes_on()


async def long_key(world: DialectWorld) -> None:
    """Check that a real key that a server repeats is never shown."""
    key = "sk-a-long-secret-key"
    step = json_answer({"error": {"message": f"{SAID}: Incorrect API key provided: {key}"}}, 401)
    async with world.nanobot([step]):
        answer = await world.ask("hello")
        expect_words(answer, SAID)
        if key in answer:
            raise WrongError("the key was shown")
        await world.goes_on()


async def without_v1(world: DialectWorld) -> None:
    """Check that an address without `/v1` works or gives a hint."""

    def script(request: ChatRequest) -> Step | str:
        if request.path.startswith("/v1/"):
            return "found"
        error = {"code": 404, "message": "File Not Found", "type": "not_found_error"}
        return json_answer({"error": error}, 404)

    async with DialectServer(KINDS[world.kind], script) as server:
        world.servers.append(server)
        bare = server.base_url.removesuffix("/v1")
        async with world.using(server, model={"base_url": bare}):
            answer = await world.ask("hello")
            if answer != "found":
                expect_words(answer, "/v1")


def _shapes() -> list[Shape]:
    found = [
        Shape(
            f"{status}: {name}",
            "lenient",
            show_reason(json_answer(body, status)),
            outage=status == 200,
        )
        for name, body in BODIES.items()
        for status in (400, 200)
    ]
    found += [
        Shape(f"in a stream: {name}", "lenient", show_reason(in_a_stream(body)), outage=True)
        for name, body in BODIES.items()
    ]
    error = {"error": {"message": SAID, "code": 400}}
    found += [
        Shape("in a stream: event: error", "lenient", show_reason(in_a_stream(error, named=True))),
        Shape(
            "in a stream: after some text", "lenient", show_reason(in_a_stream(error, after=True))
        ),
        Shape("400: plain text", "lenient", show_reason(Raw(SAID.encode(), 400, "text/plain"))),
        Shape(
            "in a stream: a field error: (llama.cpp)",
            "lenient",
            show_reason(Raw(b"error: " + json.dumps(error).encode() + b"\n\n", 200, STREAM_TYPE)),
        ),
    ]
    found += [
        Shape(f"{status}: {name}", "lenient", show_reason(Raw(body.encode(), status)), outage=True)
        for name, body in STRANGE.items()
        for status in (400, 200)
    ]
    found += [
        Shape(f"too long: {name}", "lenient", shorten_first_message(words))
        for name, words in TOO_LONG.items()
    ]
    raw = "too long: in metadata.raw of OpenRouter"
    found.append(Shape(raw, "lenient", _too_long_in_raw))
    template = (
        "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/..."
    )
    found += [
        Shape("a 500 that is a template's refusal", "lenient", reject_for_good(500, template)),
        Shape(
            "a 500 that is a parse error",
            "lenient",
            reject_for_good(
                500, "Failed to parse tool call arguments as JSON: [json.exception.parse_error"
            ),
        ),
        Shape(
            "a 500 that Bedrock's validation is behind",
            "lenient",
            reject_for_good(500, "ValidationException: The toolConfig field must be defined"),
        ),
        Shape(
            "a 503 of a gateway without such a model",
            "lenient",
            reject_for_good(503, "No available channel for model x under group default"),
        ),
        Shape("too long: LMDeploy, as the text of an answer", "lenient", _too_long_as_text),
        Shape("a key that is a word", "lenient", short_key),
        Shape("a key that a server repeats", "lenient", long_key),
        Shape("an address without /v1", "lenient", without_v1),
    ]
    return found


async def _too_long_as_text(world: DialectWorld) -> None:
    """End a prompt that is too long like LMDeploy's async_engine."""
    words = "internal error happened, status code ResponseType.INPUT_LENGTH_ERROR"

    def script(request: ChatRequest) -> Line:
        fits = count_tokens(request) <= WINDOW
        return "I have read it" if fits else Says(words, finish="error")

    async with world.nanobot(script, model={"context_window": 32_000}):
        expect_words(await world.ask(CHINESE), "I have read it")


async def _too_long_in_raw(world: DialectWorld) -> None:
    def script(request: ChatRequest) -> Step | str:
        if (tokens := count_tokens(request)) <= WINDOW:
            return "I have read it"
        words = TOO_LONG["Gemini"].format(tokens=tokens, window=WINDOW)
        return as_step(openrouter(json.dumps({"error": {"code": 400, "message": words}})))

    async with world.nanobot(script, model={"context_window": 32_000}):
        expect_words(await world.ask(CHINESE), "I have read it")


SHAPES: Sequence[Shape] = _shapes()
