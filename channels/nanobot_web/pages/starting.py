"""New chats: the first screen, with suggestions, and temporary chats, which nothing remembers."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from nanobot_web.site import Call, PageError, Route

_TRIES = (
    "What can you do for me?",
    "Remind me tomorrow at 9 to water the plants",
    "Remember that I like short answers",
)
_TRIES_OFFLINE = (
    "My sister is called Ana",
    "What is my sister called?",
    "Remind me in 20 minutes to water the plants",
)


def new_key(call: Call) -> str:
    """Return the key of a new chat. Only this visitor's scope can begin and follow it."""
    return f"web:{call.site.sessions.new_chat(call.own_scope)}"


async def name_model(call: Call, chosen: str) -> str:
    """Return the name of a conversation's model, for the owner."""
    if not call.visitor.is_owner:
        return ""
    found = await call.ask("models.name", chosen=chosen)
    return "Built-in model" if found["offline"] else str(found["name"])


async def make_welcome(call: Call) -> dict[str, Any]:
    """Return the content of a first screen: suggestions that the present model can follow."""
    about = await call.ask("models.name")
    tries = _TRIES_OFFLINE if about["offline"] else _TRIES
    return {"tries": tries, "offline": about["offline"], "model": about["name"]}


async def open_chat(call: Call) -> web.StreamResponse:
    """Open a new chat."""
    return call.back("/chat", c=new_key(call))


async def open_temporary(call: Call) -> web.StreamResponse:
    """Open a chat that nothing remembers."""
    return call.page("temporary.html", "Temporary chat", key=new_key(call))


async def read_earlier(call: Call, key: str, given: str | None) -> list[object] | None:
    """Return the earlier messages of a temporary chat, which only the browser has, or None for
    another chat. Raises `PageError`."""
    if given is None:
        return None
    if (await call.ask("conversations.owner", key=key))["scope"]:
        raise PageError(409, "This chat is stored, so it can't be temporary.")
    try:
        earlier = json.loads(given)
    except ValueError:
        earlier = None
    if not isinstance(earlier, list):
        raise PageError(400, "The form is invalid.")
    return earlier


ROUTES = {
    ("GET", "/chat/new"): Route(open_chat, everyone=True),
    ("GET", "/chat/temporary"): Route(open_temporary, everyone=True),
}
