"""The list of conversations: groups, search through all messages, and the menu of each chat.

The owner can change all conversations, and other people only their own. Deleting shows a page
first, because it can't be undone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from aiohttp import web
from markupsafe import Markup, escape

from nanobot.text import one_line
from nanobot_web.site import Call, PageError, Route

PAGE = 40  # conversations in a piece of the list
_HITS = 20
_RECENT_DAYS = 7
_CHANGES: Mapping[str, Mapping[str, bool]] = {
    "pin": {"pinned": True},
    "unpin": {"pinned": False},
    "archive": {"archived": True},
    "restore": {"archived": False},
}


async def load_conversations(call: Call) -> dict[str, Any]:
    """Return a piece of the list, for templates. The first piece of a search also has messages."""
    offset, query = call.number("offset"), call.query("q").strip()
    archived, scope = bool(call.query("archived")), call.scope or None
    found = await call.ask(
        "conversations.list",
        scope=scope,
        query=query,
        archived=archived,
        offset=offset,
        limit=PAGE,
    )
    hits: Sequence[Mapping[str, Any]] = ()
    if query and not offset:
        searched = await call.ask("conversations.search", query=query, scope=scope, limit=_HITS)
        hits = [{**one, "snippet": _mark(one)} for one in searched["hits"]]
    groups = list(_group(found["conversations"], call.now, call.query("group")))
    return {
        "groups": groups,
        "last_group": groups[-1][0] if groups else "",
        "hits": hits,
        "is_empty": not found["total"],
        "rest": max(0, found["total"] - offset - PAGE),
        "offset": offset + PAGE,
        "query": query,
        "archived": archived,
    }


def _group(
    conversations: Sequence[Mapping[str, Any]], now: datetime, shown: str
) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Yield each group with its conversations. A group that was `shown` has no name again."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in conversations:
        found.setdefault(_group_of(one, now), []).append(one)
    for name, members in found.items():
        yield (
            name,
            [{**one, "first": not index and name != shown} for index, one in enumerate(members)],
        )


def _group_of(one: Mapping[str, Any], now: datetime) -> str:
    if one["pinned"]:
        return "Pinned"
    return name_of_day(datetime.fromisoformat(one["updated_at"]).astimezone(now.tzinfo).date(), now)


def name_of_day(day: date, now: datetime) -> str:
    """Return the group of a day in the list."""
    days = (now.date() - day).days
    if days <= 1:
        return "Yesterday" if days == 1 else "Today"
    return "Last 7 days" if days <= _RECENT_DAYS else "Older"


def _mark(hit: Mapping[str, Any]) -> Markup:
    """Return the snippet of a hit with its words marked."""
    text, parts, end = hit["snippet"], list[Markup](), 0
    for start, stop in sorted(hit["marks"]):
        if start >= end:
            parts += (escape(text[end:start]), Markup("<mark>%s</mark>") % text[start:stop])
            end = stop
    return Markup("").join([*parts, escape(text[end:])])


async def show_list(call: Call) -> web.StreamResponse:
    return call.part("_conversations.html", key=call.query("c"), **await load_conversations(call))


async def show_menu(call: Call) -> web.StreamResponse:
    """Show the actions of a conversation: as a piece for the list, or as a page without it."""
    key = call.query("c")
    one = await _find(call, key)
    given: dict[str, Any] = {"key": key, "one": one, "shown": call.query("shown")}
    if call.query("piece"):
        return call.part("_chat_menu.html", **given)
    return call.page("chat_menu.html", one["label"], **given)


async def change_chat(call: Call) -> web.StreamResponse:
    """Rename, pin, or archive a conversation, or undo that."""
    key, what = call.form.get("c", ""), call.form.get("do", "")
    await _find(call, key)
    if what == "rename":
        changes: Mapping[str, object] = {"title": call.form.get("title", "")}
    elif what in _CHANGES:
        changes = _CHANGES[what]
    else:
        raise PageError(400, "The form is invalid.")
    await call.change("conversations.change", key=key, **changes)
    call.site.live.note_change(key)
    archived = "1" if what == "restore" else ""
    return call.back("/chat", c=call.form.get("shown"), list="1", archived=archived)


async def ask_delete(call: Call) -> web.StreamResponse:
    key = call.query("c")
    one = await _find(call, key)
    return call.page("chat_delete.html", "Delete", key=key, one=one)


async def delete_chat(call: Call) -> web.StreamResponse:
    key = call.form.get("c", "")
    await _find(call, key)
    if done := await call.change("conversations.delete", key=key):
        call.tell(str(done["text"]))
        call.site.live.note_change(key, deleted=True)
    return call.back("/chat", list="1")


async def _find(call: Call, key: str) -> dict[str, Any]:
    """Return a conversation that the visitor may change. Raises `PageError`."""
    scope = await call.expect_visible(key)
    shown = await call.ask("conversations.show", key=key, limit=1)
    if shown["new"] and not (await call.ask("conversations.owner", key=key))["scope"]:
        raise PageError(404, "This chat has no messages yet.")
    whose = "" if scope == call.own_scope else shown["name"] or scope
    last = shown["messages"][-1]["content"] if shown["messages"] else ""
    label = shown["title"] or shown["name"] or one_line(last, 60) or key
    return {**shown, "label": label, "whose": whose}


ROUTES = {
    ("GET", "/chat/list"): Route(show_list, everyone=True),
    ("GET", "/chat/menu"): Route(show_menu, everyone=True),
    ("POST", "/chat/change"): Route(change_chat, everyone=True),
    ("GET", "/chat/delete"): Route(ask_delete, everyone=True),
    ("POST", "/chat/delete"): Route(delete_chat, everyone=True),
}
