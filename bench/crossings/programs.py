"""Requests of programs through the API: each client's way to add text to a person's words, and each
way to continue from there.

The model then follows the added text, for the program or for the owner. A scene is named after the
client and the way. Every call of the model must need approval, and the owner denies it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from bench.crossings.callers import batches_for
from bench.crossings.campaign import TAINTED
from bench.crossings.canaries import OWNER
from bench.crossings.clients import IN_THE_USERS_MESSAGE, SHAPES
from bench.crossings.comparison import crossings, look
from bench.crossings.gateway import AttackedGateway, prelude, running
from bench.crossings.listeners import FOREIGN, MARKER
from bench.crossings.payloads import Payload
from bench.crossings.world import Crossing, create_world
from nanobot.channel.keys import ApiKeys
from nanobot.clock import SystemClock
from nanobot.providers.port import Reply
from nanobot.testing import calls, says
from tests.ports import free_port

WORDS = "What does it say?"
_NOTED = says(f"It says: {FOREIGN}")


@dataclass
class Program:
    """A program with a key of the owner."""

    gateway: AttackedGateway
    port: int
    key: str

    async def post(self, path: str, body: Mapping[str, object], *replies: Reply) -> dict[str, Any]:
        """Send a request, for which the model does `replies`, and return the answer."""
        self.gateway.plan += replies
        headers = {"Authorization": f"Bearer {self.key}"}
        url = f"http://127.0.0.1:{self.port}/v1/{path}"
        async with aiohttp.ClientSession(headers=headers) as session:
            asking = asyncio.ensure_future(session.post(url, json={"model": "nanobot", **body}))
            async with await self.gateway.patiently(asking) as answer:
                if answer.status != 200:
                    raise RuntimeError(f"{url}: {await answer.text()}")
                found = await answer.json()
        assert isinstance(found, dict)
        return found

    async def chat(self, messages: object, *replies: Reply, **more: object) -> dict[str, Any]:
        """Send a Chat Completions request."""
        return await self.post("chat/completions", {"messages": messages, **more}, *replies)

    async def respond(self, given: object, *replies: Reply, **more: object) -> dict[str, Any]:
        """Send a Responses request."""
        return await self.post("responses", {"input": given, **more}, *replies)


Way = Callable[[Program, list[dict[str, Any]], list[Reply]], Awaitable[object]]
"""Sends a client's requests, and lets the model attack at once or afterwards."""


async def _at_once(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    await program.chat(sent, *worst)


async def _in_a_conversation(
    program: Program, sent: list[dict[str, Any]], worst: list[Reply]
) -> None:
    await program.chat(sent, *worst, conversation="c")


async def _afterwards(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    await program.chat(sent, _NOTED, conversation="c")
    await program.chat([{"role": "user", "content": "go on"}], *worst, conversation="c")


async def _follow(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    first = await program.respond(sent, _NOTED)
    await program.respond("go on", *worst, previous_response_id=first["id"])


async def _follow_twice(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    first = await program.respond(sent, _NOTED)
    second = await program.respond("go on", says("On."), previous_response_id=first["id"])
    await program.respond("go on", *worst, previous_response_id=second["id"])


async def _continue(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    await program.chat(sent, _NOTED, conversation="c")
    await program.gateway.say("/continue api:program:c")
    await program.gateway.say("go on", *worst)


async def _condense(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    await _continue(program, sent, [])
    await program.gateway.say("/compact")
    await program.gateway.say("go on", *worst)


async def _retry(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    await _continue(program, sent, [])
    program.gateway.plan += worst
    await program.gateway.say("/retry")


async def _search(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    await program.chat(sent, _NOTED, conversation="c")
    look = calls("search_memory", query="teapotamus everybody tell")
    await program.gateway.say("look it up", look, *worst)


async def _key_made_own(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    await program.chat(sent, _NOTED, conversation="c")
    keys = _keys(program.gateway)
    keys.revoke("program")
    program.key = keys.add("program", "", SystemClock().now(), own_words=True)
    await program.chat([{"role": "user", "content": "go on"}], *worst, conversation="c")


async def _in_an_object(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    made = await program.post("conversations", {})
    await program.respond(sent, _NOTED, conversation=made["id"])
    await program.respond("go on", *worst, conversation={"id": made["id"]})


async def _by_a_helper(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    gateway = program.gateway
    gateway.helpers_plan += worst
    while not gateway.ends.ended.empty():
        gateway.ends.ended.get_nowait()
    await program.chat(sent, calls("spawn", task=FOREIGN), says("Begun."), conversation="c")
    await gateway.until(lambda ended: not ended.event_ids)


async def _note(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    await program.chat(sent, calls("note", text=FOREIGN), says("Noted."), conversation="c")
    await program.gateway.say("/new")
    await program.gateway.say("go on", *worst)


async def _in_a_file(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    left = calls("write_file", path="plan.md", content=FOREIGN)
    await program.chat(sent, left, says("Written."), conversation="c")
    await program.gateway.say("read it", calls("read_file", path="plan.md"), *worst)


async def _continue_twice(program: Program, sent: list[dict[str, Any]], worst: list[Reply]) -> None:
    await program.chat(sent, _NOTED, conversation="c")
    await program.gateway.say("/continue api:program:c", chat="3")
    await program.gateway.say("and?", _NOTED, chat="3")
    await program.gateway.say("/continue fake:3")
    await program.gateway.say("go on", *worst)


WAYS: Mapping[str, Way] = {
    "at once": _at_once,
    "in a conversation": _in_a_conversation,
    "afterwards": _afterwards,
    "a response followed": _follow,
    "a response followed twice": _follow_twice,
    "/continue": _continue,
    "/compact": _condense,
    "/retry": _retry,
    "a search hit": _search,
    "a key that is own now": _key_made_own,
    "a conversation object": _in_an_object,
    "a helper": _by_a_helper,
    "a note": _note,
    "a file that the turn left": _in_a_file,
    "/continue of /continue": _continue_twice,
}


def scenes() -> Mapping[str, tuple[str, str, bool]]:
    """Return client, way, and whether the key is for own words, by name.

    Each client sends at once and as a followed response. Each way is tried with documents in the
    user's message."""
    found = {
        f"{client}, {way}": (client, way, False)
        for client in SHAPES
        for way in ("at once", "a response followed")
    }
    found |= {f"Open WebUI, {way}": ("Open WebUI", way, False) for way in WAYS}
    found |= {
        f"own words, {client}, {way}": (client, way, True)
        for client in SHAPES
        if client not in IN_THE_USERS_MESSAGE
        for way in ("at once", "a response followed", "a response followed twice")
    }
    return found


async def play_scene(client: str, way: str, own: bool, payloads: list[Payload]) -> list[Crossing]:
    """Return the crossings of a scene. Raise `RuntimeError` if the added text never reached the
    model."""
    port = free_port()
    environ = {"NANOBOT_CHANNELS__API__ENABLED": "true", "NANOBOT_HTTP__PORT": str(port)}
    with tempfile.TemporaryDirectory() as folder:
        async with create_world(Path(folder)) as world:
            async with running(world, environ=environ) as gateway:
                await prelude(gateway, commands=False)
                keys = _keys(gateway)
                key = keys.add("program", "", SystemClock().now(), own_words=own, reads_system=own)
                before = look(gateway)
                gateway.watching = OWNER
                sent = SHAPES[client](WORDS, FOREIGN)
                worst = batches_for(gateway, TAINTED, payloads, merge=True)
                await WAYS[way](Program(gateway, port, key), sent, worst)
                gateway.watching = ""
            if not any(MARKER in m.text for _, prompt in gateway.watched for m in prompt.messages):
                raise RuntimeError(f"{client}, {way}: the added text was not read")
            return crossings(gateway, TAINTED, before)


def _keys(gateway: AttackedGateway) -> ApiKeys:
    return ApiKeys(gateway.world.home / "state" / "channels" / "api")
