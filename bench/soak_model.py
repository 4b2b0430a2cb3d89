"""The model of a soak, as a process: answers, calls tools, condenses, dreams, and often fails.

    python -m bench.soak_model --faults 0.1 --seed 1

prints the base URL, and then answers each line of standard input with one line of JSON with the
number of calls and of failed ones. After `stop` no call fails any more. A request fails in one of
the ways of `tests.doubles.openai.faults` with the given probability. Otherwise a message such as
`m17: please write` gets a call of that tool and then `answer to m17`."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from random import Random

from nanobot.messages import ToolCall
from tests.doubles.openai.answers import Answer, ChatRequest
from tests.doubles.openai.faults import FAULTS
from tests.doubles.openai.server import FakeOpenAI, Scripted

_THINGS = ("tea", "chess", "bread", "trains", "jazz", "roses")
_WHERE = ("at home", "in town", "in spring", "on Sundays", "with friends")
TOPICS = tuple(f"{thing} {where}" for thing in _THINGS for where in _WHERE)
"""Topics of the people. Nothing else is ever learned."""

TOOLS = ("nothing", "list", "write", "read", "grep", "run", "note", "search", "fetch", "spawn")
"""Tools that a message may ask for."""

_ASKED = re.compile(r"^\b([mr]\d+): ", re.MULTILINE)
_WISH = re.compile(r"\bplease (\w+)")
_MEMORY_LINES = 30
_SENTENCE = "It is a sentence of ordinary length, as models write them, about this and that. "


class Author:
    """Writes the answers. A `share` of the requests fails, and `made` counts these."""

    def __init__(self, share: float, seed: int) -> None:
        self.share, self._random = share, Random(seed)
        self._kinds = sorted(FAULTS)
        self._calls = 0
        self.calls = self.made = 0

    def __call__(self, request: ChatRequest) -> Scripted:
        self.calls += 1
        if self._random.random() < self.share:
            self.made += 1
            return FAULTS[self._random.choice(self._kinds)]()
        if "save_memory" in json.dumps(request.body.get("tool_choice", "")):
            return self._condense(request.last_user_text)
        system = _text(request.messages[0])
        if system.startswith("# Dream, phase 1"):
            return json.dumps(_extract(request.last_user_text))
        if system.startswith("# Dream, phase 2"):
            return json.dumps(_integrate(request.last_user_text))
        return self._speak(request.messages)

    def _speak(self, messages: Sequence[Mapping[str, object]]) -> Scripted:
        spoken = [at for at, one in enumerate(messages) if _is_answer(one)]
        tail = messages[spoken[-1] + 1 :] if spoken else messages
        people = [at for at, one in enumerate(tail) if one.get("role") == "user"]
        newest = people[-1] if people else 0
        asked = _text(tail[newest])
        mark = (_ASKED.findall(asked) or ["m0"])[-1]
        wish = _WISH.search(asked)
        called = any(one.get("role") == "tool" for one in tail[newest:])
        if wish and not called and (call := self._call(wish[1], mark)):
            return Answer("", (call,))
        marks = dict.fromkeys(mark for at in people for mark in _ASKED.findall(_text(tail[at])))
        length = self._random.randint(1, 12)
        return f"answer to {' '.join(marks)}\n\n{_SENTENCE * length}"

    def _call(self, wish: str, mark: str) -> ToolCall | None:
        self._calls += 1
        topic = self._random.choice(TOPICS)
        path = f"notes/{topic.split()[0]}.txt"
        wishes: dict[str, tuple[str, dict[str, object]]] = {
            "list": ("list_dir", {"path": "."}),
            "write": ("write_file", {"path": path, "content": _SENTENCE * 20}),
            "read": ("read_file", {"path": "AGENTS.md"}),
            "grep": ("grep", {"pattern": "sentence"}),
            "run": ("exec", {"command": "echo one; ls | head -3"}),
            "note": ("note", {"text": f"spoke of {topic}"}),
            "search": ("search_memory", {"query": topic}),
            "fetch": ("web_fetch", {"url": "http://127.0.0.1:9/nothing"}),
            "spawn": ("spawn", {"task": f"r{mark[1:]}: please list", "label": "a look"}),
        }
        if wish not in wishes:
            return None
        tool, arguments = wishes[wish]
        return ToolCall(f"call_{self._calls}", tool, json.dumps(arguments))

    def _condense(self, request: str) -> Answer:
        known, _, talk = request.partition("\n## Conversation to Process")
        memory = known.partition("## Current Long-term Memory\n")[2].strip()
        kept = [line for line in memory.splitlines() if line.startswith("- ")]
        told = [topic for topic in TOPICS if topic in talk]
        new = [f"- They spoke of {topic}." for topic in told]
        fields = {
            "history_entry": f"They spoke of {', '.join(told)}. {_SENTENCE}",
            "memory_update": "\n".join(list(dict.fromkeys([*kept, *new]))[-_MEMORY_LINES:]),
            "key_facts": [f"{topic} was spoken of" for topic in told[:5]],
        }
        return Answer("", (ToolCall("save", "save_memory", json.dumps(fields)),))


def _extract(request: str) -> dict[str, object]:
    """Answer Dream's first phase: a topic that no file holds yet is a new fact about the person."""
    files, _, new = request.partition("## New entries")
    entries = re.split(r"^\[(\d+)\] ", new, flags=re.MULTILINE)[1:]
    updates = [
        {"text": f"- likes {topic}", "entry": int(number)}
        for number, text in zip(entries[::2], entries[1::2], strict=True)
        for topic in TOPICS
        if topic in text and f"likes {topic}" not in files
    ]
    return {
        "user_updates": updates[:3],
        "contradictions": [],
        "processed_entries": [int(number) for number in entries[::2]],
    }


def _integrate(request: str) -> dict[str, object]:
    """Answer Dream's second phase: every update unchanged."""
    updates = re.findall(r"^\[\d+\] add: (.*)$", request, re.MULTILINE)
    return {"edits": [{"old": "", "new": f"- {text}"} for text in updates]}


def _is_answer(message: Mapping[str, object]) -> bool:
    """Check whether this model wrote it. A filler after a tool result, which keeps roles
    alternating, is not an answer."""
    return message.get("role") == "assistant" and _text(message).startswith("answer to ")


def _text(message: Mapping[str, object]) -> str:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    return "".join(str(part.get("text", "")) for part in parts)


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until standard input ends."""
    author = Author(arguments.faults, arguments.seed)
    async with FakeOpenAI(author, latency=0.02, characters=60) as server:
        print(server.base_url, flush=True)
        async for line in lines():
            if line == "stop":
                author.share = 0.0
            server.requests.clear()  # large and unused
            print(json.dumps({"calls": author.calls, "faults": author.made}), flush=True)


async def lines() -> AsyncIterator[str]:
    """Yield the lines of standard input."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode().strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(serve(parser.parse_args()))
