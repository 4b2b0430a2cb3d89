"""How many tokens the system prompt and the tools of a default install take, and each tool.

    python -m bench.prompt_size [--json]

A new home, no configuration, one message. Counted with o200k_base, whose table tiktoken takes from
TIKTOKEN_CACHE_DIR or else from the network; where neither has it, bytes are divided by four.
"""

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
    """What a model is asked with the first time in `home`."""
    model, channel = ScriptedModel(says("Hello.")), FakeChannel()
    async with gateway(home, model, channel):
        await channel.ask("Hello!")
    return model.prompts[0]


def tool_texts(prompt: Prompt) -> dict[str, str]:
    """For each tool its part of the request, by its name."""
    return {
        tool["function"]["name"]: json.dumps(tool, ensure_ascii=False, separators=(",", ":"))
        for tool in json.loads(prompt.tools.wire)
    }


def main() -> None:
    """Measure and print."""
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
