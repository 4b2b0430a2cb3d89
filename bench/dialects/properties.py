"""Properties of requests, for generated conversations.

Separation: for any interleaving of conversations and any ids of the server, no byte of one
conversation's reasoning is in a request of another. The server is real, and so are its rejections.

Conformity: whatever a conversation holds (roles in any order, unreadable calls, orphans, pictures,
empty texts), each strict server accepts the adapter's request, and each text of the person is in
it.

    python -m bench.dialects.properties --examples 2000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from loguru import logger

from bench.dialects.histories import png
from bench.reporting import report
from nanobot.errors import ProviderError
from nanobot.messages import ProviderData, ToolCall
from nanobot.providers.openai import OpenAIProvider
from nanobot.providers.port import (
    CallOptions,
    Image,
    Prompt,
    PromptMessage,
    Toolset,
    ToolSpec,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)
from tests.doubles.dialects import hosted
from tests.doubles.dialects.replies import Call, Says
from tests.doubles.dialects.requests import Judge, first
from tests.doubles.dialects.server import KINDS, DialectServer, reasoning_in

TOOLS = Toolset.of(
    [
        ToolSpec(
            "probe",
            "Look at something.",
            {"type": "object", "properties": {"text": {"type": "string"}}},
        )
    ]
)
HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

PLACES: Mapping[str, str] = {
    "openai": "https://api.openai.com/v1",
    "mistral": "https://api.mistral.ai/v1",
    "deepseek": "https://api.deepseek.com",
    "kimi": "https://api.moonshot.ai/v1",
    "openrouter-gemini": "https://openrouter.ai/api/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "groq": "https://api.groq.com/openai/v1",
    "xai": "https://api.x.ai/v1",
    "minimax": "https://api.minimax.io/v1",
}
"""Addresses of hosted servers. Nothing is sent there."""

CONFORMING = (
    "openai", "mistral", "deepseek", "kimi", "openrouter-gemini", "gemini", "groq", "xai",
    "minimax", "litellm", "vllm", "vllm-alternating", "llama.cpp", "llama.cpp-alternating",
    "llama.cpp-alternating-new", "ollama", "lm-studio",
)  # fmt: skip
"""All but Gemma's template, which cannot express two results of one message."""


def judge_of(kind: str) -> Judge:
    """Return a server's rules. OpenRouter's own are about signatures, which generated calls
    lack."""
    if kind == "openrouter-gemini":
        return first(hosted.common, hosted.openrouter_upstream)
    return KINDS[kind].judge


_TEXTS = st.one_of(
    st.sampled_from(["", " ", "\n", "hello", "wie geht's? ☕", "\ud800", "a" * 300]),
    st.text(max_size=20),
)
_IDS = st.one_of(
    st.sampled_from(["call_1", "functions.probe:0", "abcdefghi", "x" * 64, "a b", "é", "1"]),
    st.text("ab:_-|0123456789", min_size=1, max_size=50),
)
_ARGUMENTS = st.one_of(
    st.sampled_from(['{"text":"a"}', "{}", '{"text": "é"}', '{ "text" : [1, 2] }']),
    st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2).map(json.dumps),
)
_CALLS = st.builds(
    ToolCall, _IDS, st.just("probe"), _ARGUMENTS, st.sampled_from(["", "", '{"text":"a'])
)
_FIELDS = st.sampled_from([{}, {"reasoning_content": "a foreign thought"}])
_DATA = st.one_of(
    st.none(), st.builds(ProviderData, st.just("another server"), st.just(()), _FIELDS)
)
_IMAGES = st.sampled_from([(), (), (), (Image(png(), "image/png"),)])


@st.composite
def conversations(draw: st.DrawFn) -> tuple[PromptMessage, ...]:
    """Draw messages in any order, in which results mostly follow their calls.

    As in every request, the last message is the person's, or all results of the last calls are
    there."""
    found: list[PromptMessage] = [system_message("Be kind.")]
    for sort in draw(st.lists(st.sampled_from("uuaacctts"), max_size=9)):
        found += _draw_messages(draw, sort)
    found.append(user_message(draw(_TEXTS), draw(_IMAGES)))
    if draw(st.booleans()):
        calls = tuple(draw(st.lists(_CALLS, min_size=1, max_size=3)))
        found.append(assistant_message(draw(_TEXTS), calls, draw(_DATA)))
        found += [tool_message(call.id, draw(_TEXTS)) for call in calls]
    return tuple(found)


def _draw_messages(draw: st.DrawFn, sort: str) -> list[PromptMessage]:
    if sort == "u":
        return [user_message(draw(_TEXTS), draw(_IMAGES))]
    if sort == "a":
        return [assistant_message(draw(_TEXTS))]
    if sort == "t":
        return [tool_message(draw(_IDS), draw(_TEXTS))]
    if sort == "s":
        return [system_message("Be kind, as ever.")]
    calls = tuple(draw(st.lists(_CALLS, min_size=1, max_size=3)))
    results = [tool_message(call.id, draw(_TEXTS)) for call in calls]
    kept = draw(st.sampled_from([results, results, results, results[1:], results[::-1], []]))
    return [assistant_message(draw(_TEXTS), calls, draw(_DATA)), *kept]


def provider_for(kind: str) -> OpenAIProvider:
    """Return an adapter that knows the server's address, and so the preset dialect."""
    return OpenAIProvider(
        model=KINDS[kind].model,
        base_url=PLACES.get(kind, "http://127.0.0.1:9/v1"),
        api_key="",
        max_tokens=0,
    )


def refusal_of(kind: str, provider: OpenAIProvider, messages: Sequence[PromptMessage]) -> str:
    """Return a strict server's error for a conversation or the missing text, or an empty text."""
    body = json.loads(provider.body(Prompt(tuple(messages), TOOLS), CallOptions()))
    if refusal := judge_of(kind)(body):
        return refusal.body.decode()
    whole = json.dumps(body["messages"])
    for message in messages:
        text = message.text.strip()
        if message.role == "user" and text and json.dumps(text)[1:-1] not in whole:
            return f"the person's text {text!r} is lost"
    return ""


def conformity(kind: str) -> Callable[[tuple[PromptMessage, ...]], None]:
    """Return the property for one kind of server, which raises `AssertionError`."""
    provider = provider_for(kind)

    def holds(messages: tuple[PromptMessage, ...]) -> None:
        if wrong := refusal_of(kind, provider, messages):
            raise AssertionError(wrong)

    return holds


@dataclass(frozen=True, slots=True)
class Move:
    """One reply in one of the conversations: calls with these ids, or an answer (no ids).

    `forgets`: the conversation is read from its file first, which lacks the server's data.
    """

    chat: int
    ids: tuple[str, ...]
    forgets: bool = False


_POOL = st.sampled_from(["functions.probe:0", "functions.probe:1", "call_1", "abcdefghi", ""])
MOVES = st.lists(
    st.builds(
        Move,
        st.integers(0, 2),
        st.lists(_POOL, max_size=2).map(tuple),
        st.sampled_from([False, False, False, True]),
    ),
    min_size=2,
    max_size=8,
)


@dataclass
class Separation:
    """Plays interleaved conversations through one adapter, against one server."""

    server: DialectServer
    provider: OpenAIProvider
    returned: int = 0
    _count: int = field(default=0)

    async def play(self, moves: Sequence[Move]) -> None:
        """Play the moves. Raise `AssertionError` if a thought is in another conversation's
        request."""
        self._count += 1
        chats = {n: [system_message(f"Chat {n}."), user_message("Hello.")] for n in range(3)}
        thoughts: dict[int, list[str]] = {n: [] for n in chats}
        for number, move in enumerate(moves):
            if move.forgets:
                chats[move.chat] = list(map(_forget_data, chats[move.chat]))
            thought = f"thought {self._count}.{number} of chat {move.chat};"
            calls = tuple(Call("probe", '{"text":"a"}', one) for one in move.ids)
            self.server.then(Says("" if calls else "Yes.", calls, thought))
            try:
                reply = await self.provider.complete(
                    Prompt(tuple(chats[move.chat]), TOOLS), CallOptions()
                )
            except ProviderError:
                self.server.clear()
                chats[move.chat] = chats[move.chat][:2]
            else:
                thoughts[move.chat].append(thought)
                chats[move.chat] += _answer_messages(
                    reply.text, reply.tool_calls, reply.provider_data
                )
            self._judge(move.chat, thoughts)

    def _judge(self, chat: int, thoughts: Mapping[int, Sequence[str]]) -> None:
        for request in self.server.requests:
            raw = request.raw.decode()
            self.returned += any(one in raw for one in thoughts[chat])
            for other, own in thoughts.items():
                if other != chat and any(one in raw for one in own):
                    raise AssertionError(f"of chat {other}: {reasoning_in(request.body)}")
        self.server.requests.clear()


def _answer_messages(
    text: str, calls: tuple[ToolCall, ...], data: ProviderData | None
) -> list[PromptMessage]:
    spoken = assistant_message(text, calls, data)
    results = [tool_message(call.id, "done") for call in calls]
    return [spoken, *results] if calls else [spoken, user_message("Go on.")]


def _forget_data(message: PromptMessage) -> PromptMessage:
    if message.role != "assistant":
        return message
    return assistant_message(message.text, message.tool_calls)


def _often(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=HEALTH,
        database=None,
        derandomize=True,
        phases=(Phase.generate, Phase.shrink),
    )


THINKING = ("kimi", "deepseek", "openrouter-gemini", "gemini")


async def separation_campaign(kind: str, examples: int) -> int:
    """Run examples, and return the number of requests that gave reasoning back to the server."""
    loop = asyncio.get_running_loop()
    async with DialectServer(KINDS[kind]) as server:
        provider = OpenAIProvider(
            model=KINDS[kind].model, base_url=server.base_url, api_key="", max_tokens=0
        )
        world = Separation(server, provider)

        @_often(examples)
        @given(MOVES)
        def holds(moves: Sequence[Move]) -> None:
            asyncio.run_coroutine_threadsafe(world.play(moves), loop).result()

        try:
            await asyncio.to_thread(holds)
        finally:
            await provider.close()
        return world.returned


def conformity_campaign(kind: str, examples: int) -> None:
    """Run examples. Raise `AssertionError`."""
    _often(examples)(given(conversations())(conformity(kind)))()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--examples", type=int, default=2_000, help="for each kind of server")
    parser.add_argument("--kind", default="", help="only servers whose name holds this")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args()
    logger.remove()
    wrong: dict[str, str] = {}
    begun = time.monotonic()
    for kind in (one for one in CONFORMING if options.kind in one):
        try:
            conformity_campaign(kind, options.examples)
        except Exception as error:  # noqa: BLE001 - the table shows it
            wrong[f"conformity at {kind}"] = f"{error}"[:300]
    returned = 0
    for kind in (one for one in THINKING if options.kind in one):
        try:
            returned += asyncio.run(separation_campaign(kind, options.examples))
        except Exception as error:  # noqa: BLE001 - the table shows it
            wrong[f"separation at {kind}"] = f"{error}"[:300]
    if not options.json:
        for name, what in wrong.items():
            print(f"{name}: {what}")
    figures: dict[str, object] = {
        "examples for each property and kind": options.examples,
        "seconds": time.monotonic() - begun,
        "requests that gave reasoning back": returned,
        "properties broken (target 0)": len(wrong),
    }
    report("dialects.properties", {**figures, "wrong": wrong} if options.json else figures)
    return 1 if wrong or not returned else 0


if __name__ == "__main__":
    sys.exit(main())
