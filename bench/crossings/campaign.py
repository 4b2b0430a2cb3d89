"""Plays payloads for callers, each time in a new world."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.crossings.callers import Caller, play, prepare
from bench.crossings.comparison import crossings, find_lost_command, look
from bench.crossings.gateway import prelude, running
from bench.crossings.laundering import SCENES
from bench.crossings.listeners import MARKER
from bench.crossings.payloads import Payload
from bench.crossings.world import Crossing, World, create_world
from nanobot.tooling import Tool

_KINDS = ("SEND", "FETCH", "EXEC", "PERSIST", "SCHEDULE", "MCP")
_ALLOWING = {f"NANOBOT_TOOLS__APPROVAL__{kind}": "allow" for kind in _KINDS}


async def attack(
    caller: Caller,
    payloads: Sequence[Payload],
    *,
    merge: bool = False,
    proxied: bool = False,
    careless: bool = False,
    tools: Sequence[Tool] = (),
) -> list[Crossing]:
    """Return the crossings after `caller` makes these calls.

    `merge` runs many commands as one. With `proxied` the gateway reaches the web through a proxy,
    which sees every address of a connection. `careless`: the owner approves everything even if the
    caller is tainted. `tools` are offered in addition."""
    with tempfile.TemporaryDirectory() as folder:
        async with create_world(Path(folder)) as world:
            allows = caller.clean or careless
            environ = dict(_ALLOWING) if allows else {}
            if proxied:
                environ["NANOBOT_TOOLS__WEB__PROXY"] = f"http://127.0.0.1:{world.listeners.proxy}"
            with _signals_counted(world):
                answers = "Approve" if allows else "Deny"
                async with running(world, tools=tools, answers=answers, environ=environ) as gateway:
                    prepare(gateway, caller)
                    await prelude(
                        gateway, commands=any("{process}" in p.arguments for p in payloads)
                    )
                    before = look(gateway)
                    await play(gateway, caller, payloads, merge=merge)
                    found = await find_lost_command(gateway)
            return [*found, *crossings(gateway, caller, before)]


TAINTED = Caller("owner, tainted unawares", clean=False)


async def launder(
    scene: str, payloads: Sequence[Payload], *, merge: bool = False
) -> list[Crossing]:
    """Return the crossings after a scene of `laundering` tainted the owner's conversation.

    Raise `RuntimeError` if the scene brings no untrusted content."""
    with tempfile.TemporaryDirectory() as folder:
        async with create_world(Path(folder), mcp=scene == "an MCP result") as world:
            async with running(world) as gateway:
                prepare(gateway, TAINTED)
                await prelude(gateway, commands=False)
                await SCENES[scene](gateway)
                before = look(gateway)
                await play(gateway, TAINTED, payloads, merge=merge)
            if not any(MARKER in m.text for _, prompt in gateway.watched for m in prompt.messages):
                raise RuntimeError(f"{scene}: nothing foreign came into the conversation")
            return crossings(gateway, TAINTED, before)


@contextmanager
def _signals_counted(world: World) -> Iterator[None]:
    """Count the signal that payloads send, which has no other effect."""
    loop = asyncio.get_running_loop()

    def count() -> None:
        world.signals += 1

    loop.add_signal_handler(signal.SIGURG, count)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGURG)
