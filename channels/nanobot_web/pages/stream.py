"""The stream of a page: the messages of its conversation, and the running turn as it grows.

A pending message and the frame of a running answer are rendered by the template of stored messages,
so that nothing moves when the session has them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import cast

from aiohttp import web

from nanobot_web.live import Event, Follower, join_outputs
from nanobot_web.pages.approvals import find_question, list_questions
from nanobot_web.pages.chat import (
    MESSAGES,
    File,
    Item,
    describe_turns,
    load_messages,
    make_extra_item,
    make_items,
    render_items,
)
from nanobot_web.pages.starting import name_model
from nanobot_web.requests import to_number
from nanobot_web.site import Call, PageError, Route

_RECENT = timedelta(minutes=1)
_BEAT_SECONDS = 15.0  # seconds of silence before a keep-alive
_REFRESHING = ("end", "refresh", "extra")


async def stream_events(call: Call) -> web.StreamResponse:
    """Stream the events of a conversation until the page is closed."""
    key = call.query("c")
    after = to_number(call.request.headers.get("Last-Event-ID", ""), call.number("after"))
    if key:
        await load_messages(call, key, limit=1)  # check access
    if call.site.live.is_full(call.visitor.session):
        raise PageError(429, "Too many pages are open in this browser.", hint="Close some.")
    response = call.stream("text/event-stream; charset=utf-8")
    response.headers["X-Accel-Buffering"] = "no"
    await response.prepare(call.request)
    await response.write(b"retry: 500\n\n")
    everything, session = call.visitor.is_owner, call.visitor.session
    with call.site.live.follow(
        key,
        everything=everything,
        session=session,
        is_gone=lambda: call.request.transport is None,
    ) as follower:
        if key:
            after = await _write_new_messages(call, response, key, after)
            await _write_recent_extras(call, response, key)
        if everything:
            await _write_events(response, *await list_questions(call))
        while (events := await _next_events(follower)) is not None:
            await call.site.expect_unchanged(call)
            if key:
                await call.expect_visible(key)
            if not events:
                await response.write(b": still here\n\n")
            for event in events:
                after = await _pass_event(call, response, key, event, after)
    return response


async def _next_events(follower: Follower) -> Sequence[Event] | None:
    """Return the joined events, none after a silence, or None at the end."""
    try:
        async with asyncio.timeout(_BEAT_SECONDS):
            events = [await follower.queue.get()]
    except TimeoutError:
        return ()
    while not follower.queue.empty():
        events.append(follower.queue.get_nowait())
    if None in events:
        return None
    return join_outputs([event for event in events if event is not None])


async def _pass_event(
    call: Call, response: web.StreamResponse, key: str, event: Event, after: int
) -> int:
    """Write an event, with new messages of the session. Return the seq of the newest message."""
    if event["kind"] == "extra":
        extras = await asyncio.to_thread(call.site.extras.of, key)
        found = [make_extra_item(one) for one in extras if one.key == event["key"]]
        html = await render_items(call, found, key)
        event = {"kind": "extra", "html": html}
    elif event["kind"] == "temporary":
        item = Item("extra", "", str(event["text"]), who="nanobot", key=str(event["key"]))
        event = {**event, "html": await render_items(call, [item], key)}
    if event["kind"] in _REFRESHING:
        after = await _write_new_messages(call, response, key, after)
    if event["kind"] in ("said", "turn"):
        event = {**event, "html": await render_items(call, [_make_item(event)], key)}
    events = [event]
    if event["kind"] == "asked":
        events = await find_question(call, str(event["code"]))
    await _write_events(response, *events)
    return after


async def _write_recent_extras(call: Call, response: web.StreamResponse, key: str) -> None:
    """Write the newest extras, because one may have come between the page and its stream."""
    since = call.site.host.clock.now() - _RECENT
    extras = await asyncio.to_thread(call.site.extras.of, key)
    if found := [make_extra_item(one) for one in extras if one.at >= since]:
        await _write_events(
            response, {"kind": "extra", "html": await render_items(call, found, key)}
        )


async def _write_events(response: web.StreamResponse, *events: Event) -> None:
    for event in events:
        await response.write(f"data: {json.dumps(event)}\n\n".encode())


async def _write_new_messages(
    call: Call, response: web.StreamResponse, key: str, after: int
) -> int:
    """Write the session's messages after `after`, and the numbers of its newest ones, because
    others were taken back."""
    shown = await call.ask("conversations.show", key=key, limit=MESSAGES)
    numbers = [one["seq"] for one in shown["messages"]]
    new = [one for one in shown["messages"] if one["seq"] > after]
    html = await render_items(
        call, make_items(new, await describe_turns(call, key)), key, shown["name"]
    )
    last = max(after, int(shown["last"]))
    event = {
        "kind": "messages",
        "html": html,
        "numbers": numbers,
        "whole": not shown["more"],
        "kept": [one["seq"] for one in shown["messages"] if one.get("kept")],
        "title": shown["title"],
        "model": await name_model(call, shown["model"]),
    }
    await response.write(f"id: {last}\ndata: {json.dumps(event)}\n\n".encode())
    return last


def _make_item(event: Event) -> Item:
    """Return a pending message, or the frame of an answer."""
    if event["kind"] == "turn":
        at, turn = str(event["at"]), str(event["turn"])
        return Item("assistant", at, "", turn=turn, who="nanobot", ends=False)
    names = cast("Sequence[str]", event["files"])
    return Item(
        kind="user",
        at=str(event["at"]),
        text=str(event["text"]),
        who=str(event["name"]),
        mine=True,
        files=[File(name, "", index) for index, name in enumerate(names)],
        key=str(event["event"]),
    )


ROUTES = {("GET", "/live"): Route(stream_events, everyone=True)}
