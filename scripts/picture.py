"""Draw the README's conversation: `python -m scripts.picture docs/pictures/chat.svg`.

The conversation is real. `nanobot agent` runs in a separate terminal, with a new home and the
built-in model. The typed texts are below. The final screen is drawn as an SVG without external
resources."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.screen import chat_screen

SIZE = (88, 60)
SAID = (
    "My dentist is Dr. Kim, remember that.",
    "/new",
    "Who is my dentist?",
    "/memory why dentist",
)


async def have_conversation() -> str:
    """Have the conversation, and return its picture."""
    with tempfile.TemporaryDirectory() as home:
        environ = {**os.environ, "NANOBOT_HOME": home}
        async with chat_screen(environ=environ, size=SIZE) as screen:
            for text in SAID:
                await screen.rest()
                screen.type(f"{text}\r")
            await screen.rest()
            return screen.draw()


def main() -> int:
    Path(sys.argv[1]).write_text(asyncio.run(have_conversation()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
