"""Turns that began on the page in a conversation of the terminal, for the clients that watch it.

Their answer goes to the page. The watchers see the message as a note, and the answer once it is in
the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nanobot.bus.events import PAGE, TERMINAL, InboundMessage, TurnEnded
from nanobot.channel import GatewayEvent, Overview
from nanobot.text import shorten
from nanobot_cli.wire import AgentMessage, Note

_NEWEST, _MOST = 20, 300

Tell = Callable[[str, Note | AgentMessage], None]


async def follow_page(overview: Overview, is_watched: Callable[[str], bool], tell: Tell) -> None:
    """Pass messages and answers on to the watchers of their chat, forever."""
    events: asyncio.Queue[tuple[str, InboundMessage | TurnEnded]] = asyncio.Queue()

    def watcher(happening: GatewayEvent) -> None:
        event, key = happening.event, happening.session_key
        channel, _, chat = key.partition(":")
        is_here = channel == TERMINAL and is_watched(chat)
        if is_here and isinstance(event, InboundMessage | TurnEnded) and event.channel == PAGE:
            events.put_nowait((key, event))

    with overview.watch(watcher):
        while True:
            key, event = await events.get()
            chat = key.partition(":")[2]
            if isinstance(event, TurnEnded):
                for text in await _read_answer(overview, key, event.turn_id):
                    tell(chat, AgentMessage("", text))
            elif event.content:
                tell(chat, Note("", f"You on the page: {shorten(event.content, _MOST)}"))


async def _read_answer(overview: Overview, key: str, turn_id: str) -> list[str]:
    """Return the texts of the agent in a turn."""
    asked = {"key": key, "limit": _NEWEST}
    shown = await overview.operations["conversations.show"](asked)
    messages = shown["messages"] if isinstance(shown, dict) else []
    own = (one for one in messages if one.get("turn") == turn_id)
    return [one["content"] for one in own if one["role"] == "assistant" and one["content"]]
