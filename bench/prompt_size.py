"""Count the tokens of the system prompt and the tools of a default install, and of each tool.

    python -m bench.prompt_size [--json]

A new home, no configuration, one message. Tokens are counted with o200k_base, whose table tiktoken
loads from TIKTOKEN_CACHE_DIR or the network. Without it bytes are divided by four."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from bench.common import gateway
from bench.prompt import counter
from bench.reporting import report
from nanobot.providers.port import Prompt
from nanobot.testing import ScriptedModel, says
from nanobot.testing.channel import FakeChannel

WANTED = 2_200


async def first_prompt(home: Path) -> Prompt:
    """Return the first prompt of a model in `home`."""
    model, channel = ScriptedModel(says("Hello.")), FakeChannel()
    async with gateway(home, model, channel):
        await channel.ask("Hello!")
    return model.prompts[0]


def tool_texts(prompt: Prompt) -> dict[str, str]:
    """Return the part of each tool in the request, by name."""
    return {
        tool["function"]["name"]: json.dumps(tool, ensure_ascii=False, separators=(",", ":"))
        for tool in json.loads(prompt.tools.wire)
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        prompt = asyncio.run(first_prompt(Path(folder)))
    count, counted_by = counter()
    system, tools = count(prompt.messages[0].text.encode()), count(prompt.tools.wire)
    report(
        "prompt_size",
        {
            f"system prompt and tools [{counted_by}] (target <= {WANTED:,})": system + tools,
            "the system prompt": system,
            "the tools": tools,
            **{name: count(text.encode()) for name, text in tool_texts(prompt).items()},
        },
    )


if __name__ == "__main__":
    main()
