"""What tests of a whole nanobot on Telegram share: models that repeat what they hear."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nanobot.cli.main import main
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from nanobot.testing import says
from tests.support import Gate, without_header

OWNER = 7


def newest_text(prompt: Prompt) -> str:
    """What the newest message says, without its header."""
    return without_header(prompt.messages[-1].text)


def repeat(prompt: Prompt) -> Reply:
    """`re: ` and what was said."""
    return says(f"re: {newest_text(prompt)}")


class Writer:
    """Implements `nanobot.providers.port.Provider`: says what the author wants, half of it at once
    and half when the gate is open."""

    def __init__(self, author: Callable[[Prompt], Reply], gate: Gate) -> None:
        self._author, self._gate = author, gate

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """Write."""
        reply = self._author(prompt)
        if on_text is not None and reply.text:
            half = len(reply.text) // 2
            on_text(reply.text[:half], False)
            await self._gate()
            on_text(reply.text[half:], False)
        return reply

    async def close(self) -> None:
        """Nothing to release."""


async def status_of(home: Path) -> Any:
    """What `nanobot status` says of the gateway that runs on `home`."""
    return json.loads(await nanobot(home, "status", "--json"))


async def nanobot(home: Path, *arguments: str) -> str:
    """What a command prints, beside the gateway."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = await asyncio.to_thread(main, ["--home", str(home), *arguments])
    assert code == 0
    return printed.getvalue()
