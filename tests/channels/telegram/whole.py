"""Models for tests of a whole nanobot on Telegram: they repeat the message."""

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
    """Return the newest message, without its header."""
    return without_header(prompt.messages[-1].text)


def repeat(prompt: Prompt) -> Reply:
    """Answer `re: ` and the message."""
    return says(f"re: {newest_text(prompt)}")


class Writer:
    """Implements `nanobot.providers.port.Provider`: streams the author's reply, half of it at once
    and half when the gate is open."""

    def __init__(self, author: Callable[[Prompt], Reply], gate: Gate) -> None:
        self._author, self._gate = author, gate

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        reply = self._author(prompt)
        if on_text is not None and reply.text:
            half = len(reply.text) // 2
            on_text(reply.text[:half], False)
            await self._gate()
            on_text(reply.text[half:], False)
        return reply

    async def close(self) -> None:
        """Do nothing."""


async def status_of(home: Path) -> Any:
    """Return the output of `nanobot status` for the gateway on `home`."""
    return json.loads(await nanobot(home, "status", "--json"))


async def nanobot(home: Path, *arguments: str) -> str:
    """Return the output of a command, run next to the gateway."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = await asyncio.to_thread(main, ["--home", str(home), *arguments])
    assert code == 0
    return printed.getvalue()
