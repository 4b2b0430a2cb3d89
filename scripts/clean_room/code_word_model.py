"""A model server for trials: it answers with the code word if that was sent in the conversation.

    python -m scripts.clean_room.code_word_model

prints its address and serves until a signal. It shows whether a conversation continues, because the
word is known only from earlier messages."""

from __future__ import annotations

import asyncio
import re
import signal

from tests.doubles.openai.answers import ChatRequest
from tests.doubles.openai.server import FakeOpenAI

_WORD = re.compile(r"code word is (\w+)")


def answer(request: ChatRequest) -> str:
    """Return the code word if it is in the conversation."""
    found = _WORD.findall(request.raw.decode(errors="replace"))
    return f"The code word: {found[0]}." if found else "I know of no code word."


async def serve() -> None:
    """Serve until a signal."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with FakeOpenAI(answer) as server:
        print(server.base_url, flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(serve())
