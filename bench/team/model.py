"""The model of the campaign, as a process: answers with the marks of the messages, and calls tools
with effects on request.

    python -m bench.team.model --latency 0.2

prints the base URL and serves until it is ended. A message such as `m17: hello` gets `answer to
m17`. One with `please do c3m17` gets two calls before that, a command that appends this name to a
file and a note with the name. One with `please ask c3m17` gets a command that the owner has to
approve."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
from collections.abc import Iterator, Mapping
from itertools import count

from nanobot.messages import ToolCall
from nanobot.providers.dialogue import NOTED
from tests.doubles.openai.answers import Answer, ChatRequest
from tests.doubles.openai.server import FakeOpenAI, Scripted

EFFECTS = "effects.txt"
"""The file in a person's folder to which commands append."""

MARK = re.compile(r"\bm\d+\b")
"""Names of messages, in messages and in answers."""

_SAID = re.compile(r"\b(m\d+): ")
_WISH = re.compile(r"\bplease (do|ask) (\w+)")
_CALLS = count(1)


def author(request: ChatRequest) -> Scripted:
    """Return the answer to a request."""
    spoken = [n for n, one in enumerate(request.messages) if _is_answer(one)]
    tail = request.messages[spoken[-1] + 1 if spoken else 1 :]
    texts = [_text(one) for one in tail if one.get("role") == "user"]
    said = [mark for text in texts for mark in _SAID.findall(text)]
    wishes = [wish for text in texts for wish in _WISH.findall(text)]
    wanted = [one for verb, name in wishes for one in _calls(verb, name)]
    done = sum(one.get("role") == "tool" for one in tail)
    if done < len(wanted):
        tool, arguments = wanted[done]
        return Answer("", (ToolCall(f"call_{next(_CALLS)}", tool, json.dumps(arguments)),))
    return f"answer to {' '.join(said)}"


def _calls(verb: str, name: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    command = {"command": f"echo {name} >> {EFFECTS}"}
    if verb == "ask":
        yield "exec", {**command, "network": True}
    else:
        yield "exec", command
        yield "note", {"text": f"did {name}"}


def _is_answer(message: Mapping[str, object]) -> bool:
    """True if the model wrote it. Unknown servers get an invented one after a tool result."""
    is_said = message.get("role") == "assistant" and not message.get("tool_calls")
    return is_said and _text(message) != NOTED


def _text(message: Mapping[str, object]) -> str:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    return "".join(str(part.get("text", "")) for part in parts)


async def serve(latency: float) -> None:
    """Serve until the process is ended."""
    async with FakeOpenAI(author, latency=latency, characters=60) as server:
        print(server.base_url, flush=True)
        logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # clients that are killed
        while True:
            await asyncio.sleep(5.0)
            server.requests.clear()  # large and unused


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.2)
    asyncio.run(serve(parser.parse_args().latency))
