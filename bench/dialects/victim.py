"""The process killed by `patience.crash_between`: `python -m bench.dialects.victim HOME URL MODEL`.

A person sends a message, the model calls a tool, and while that runs the process prints
`reached`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from loguru import logger

from nanobot.testing.channel import FakeChannel
from tests.support import Gate, Probe, running, write_config


async def main(home: Path, base_url: str, model: str) -> None:
    """Hold the conversation until the process is killed."""
    logger.remove()
    settings = {"name": model, "base_url": base_url, "api_key": "sk-a-long-secret-key"}
    write_config(home, {"model": settings})
    channel, gate = FakeChannel(), Gate()
    tool = Probe(name="exec_wait", gate=gate, effects=True)
    async with running(home, None, channel, tools=[tool]):
        await channel.say("do it", event_id="killed")
        await gate.reached.wait()
        print("reached", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
