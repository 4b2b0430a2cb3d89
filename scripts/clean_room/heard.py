"""A model server for trials: it answers with the code word, if that was said in the conversation.

    python -m scripts.clean_room.heard

prints where it is and serves until a signal comes. It shows whether a conversation goes on: the
word is known only from what was said before.
"""

from __future__ import annotations

import asyncio
import re
import signal

from tests.doubles.openai.answers import ChatRequest
from tests.doubles.openai.server import FakeOpenAI

_WORD = re.compile(r"code word is (\w+)")


def answer(request: ChatRequest) -> str:
    """The code word, where somebody said it to the model."""
    found = _WORD.findall(request.raw.decode(errors="replace"))
    return f"The code word: {found[0]}." if found else "I know of no code word."


async def serve() -> None:
    """Serve until a signal comes."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with FakeOpenAI(answer) as server:
        print(server.base_url, flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(serve())
