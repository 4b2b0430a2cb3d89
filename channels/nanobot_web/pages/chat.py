"""Chat: read conversations of all channels, and write in the page's and the terminal's.

A script inserts the list, older messages and new ones as pieces of HTML. Without the script the
page shows the conversation as it is. A message has an id from the page, so that one sent twice
counts once."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any
from uuid import uuid4

from aiohttp import web
from markupsafe import Markup
from msgspec import Struct

from nanobot.bus.events import InboundMessage, Media
from nanobot.channel import Chat, Sender
from nanobot.channel.temporary import make_temporary
from nanobot.text import format_size, one_line
from nanobot_web.extras import Extra, chat_in
from nanobot_web.markdown import to_html
from nanobot_web.pages.files import receive_form
from nanobot_web.pages.listing import load_conversations
from nanobot_web.pages.starting import make_welcome, name_model, new_key, read_earlier
from nanobot_web.site import Call, PageError, Route

MESSAGES = 60  # messages in a piece of a conversation
_OLDER = 180  # messages in a piece that a person requested
_WRITABLE = ("web:", "cli:")  # conversations that a person may continue on the page
_EVENT_ID = re.compile(r"[0-9a-f-]{8,40}")
_AFTER_FOUND = 20  # messages to show after a search result
_MICROPHONE = "camera=(), display-capture=(), geolocation=(), microphone=(self)"
_STOPPED = "\n(stopped)\n"


class File(Struct):
    """A file of a message or an extra: its sender's `name`, and its name in the media folder, empty
    if it could not be stored. `note` tells the reason."""

    name: str
    stored: str
    index: int
    size: int = 0
    note: str = ""
    seq: str = ""
    extra: str = ""

    @property
    def shown_as(self) -> str:
        """How the page shows it. The suffix of a stored file is by its content."""
        suffix = self.stored.rpartition(".")[2]
        if suffix in ("png", "jpg", "jpeg", "gif", "webp"):
            return "picture"
        return "sound" if suffix in ("ogg", "mp3") else "file"

    @property
    def type_text(self) -> str:
        """A few letters in place of an icon."""
        return self.name.rpartition(".")[2][:4] if "." in self.name else "file"

    @property
    def size_text(self) -> str:
        return format_size(self.size) if self.size else ""


class Item(Struct):
    """An entry of a conversation: a message, with its tool calls, or an extra. `at` is its time in
    ISO format. `mine`: the person of the conversation wrote it. `used` is the use of its turn, with
    the turn's last message. `goes_on`: it follows another message of the same turn. `stopped`:
    the person stopped the turn here. `ends`: no later item of its turn follows. `version` 3 is the
    newest of three. `words` is the text as HTML, unless the person wrote it."""

    kind: str
    at: str
    text: str
    seq: int = 0
    turn: str = ""
    who: str = ""
    mine: bool = False
    kept: bool = False
    steps: Sequence[Mapping[str, Any]] = ()
    files: Sequence[File] = ()
    buttons: Sequence[Mapping[str, str]] = ()
    key: str = ""
    used: str = ""
    goes_on: bool = False
    ends: bool = True
    stopped: bool = False
    version: int = 0
    words: Markup = Markup()


async def show_chat(call: Call) -> web.StreamResponse:
    """Show a conversation with the list. Without a key, show a new one, or only the list."""
    key, listed = call.query("c"), await load_conversations(call)
    if not key and any(map(call.query, ("list", "q", "archived"))):
        empty: dict[str, Any] = {"key": "", "writable": False, "is_start": False, "welcome": None}
        return call.page("chat.html", "Chat", shown=None, **empty, **listed)
    shown, is_cut = await _load_window(call, key or new_key(call))
    heading = _make_heading(shown["key"], shown)
    own: dict[str, Any] = {"key": shown["key"], "writable": shown["writable"], "shown": shown}
    own["model"] = await name_model(call, shown["model"])
    own["can_speak"] = shown["writable"] and call.site.has("transcribe")
    own["can_listen"] = call.site.has("speak")
    own["is_start"] = not key and not listed["is_empty"]
    own["welcome"] = await make_welcome(call) if shown["new"] and shown["writable"] else None
    page = call.page("chat.html", heading, heading=heading, is_cut=is_cut, **own, **listed)
    if own["can_speak"]:
        page.headers["Permissions-Policy"] = _MICROPHONE
    return page


async def _load_window(call: Call, key: str) -> tuple[dict[str, Any], bool]:
    """Return the newest messages of a conversation, or those around the one in the address, and
    whether newer ones are left."""
    found = call.number("m")
    wanted = {"before": found + _AFTER_FOUND} if found else {}
    shown = await load_messages(call, key, limit=MESSAGES, **wanted)
    return shown, bool(found) and found + _AFTER_FOUND <= shown["last"]


def _make_heading(key: str, shown: Mapping[str, Any]) -> str:
    """Return the title of a conversation, or its beginning if that is in view."""
    if title := shown["title"] or shown["name"]:
        return str(title)
    begun = next((one.text for one in shown["items"] if one.mine and one.text), "")
    if begun and not shown["more"]:
        return one_line(begun, 60)
    return "New chat" if key.startswith("web:") else key


async def show_older(call: Call) -> web.StreamResponse:
    before = call.number("before")
    shown = await load_messages(call, call.query("c"), before=before, limit=_OLDER)
    return call.part("_older.html", shown=shown, key=call.query("c"))


async def find_messages(call: Call) -> web.StreamResponse:
    key, query = call.query("c"), call.query("q").strip()
    await load_messages(call, key, limit=1)  # check access
    found = await call.ask("conversations.find", key=key, query=query) if query else {}
    items = make_items(found.get("messages", ()), {})
    return call.part("_found.html", items=items, query=query, key=key)


async def export_conversation(call: Call) -> web.StreamResponse:
    """Send the whole conversation as Markdown."""
    key = call.query("c")
    shown = await load_messages(call, key, limit=1)
    if shown["new"]:
        raise PageError(404, "This chat has no messages yet.")
    response = call.stream("text/markdown; charset=utf-8")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", key)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}.md"'
    await response.prepare(call.request)
    await response.write(f"# {shown['title'] or key}\n".encode())
    after = 0
    while True:  # read piece by piece
        piece = await call.ask("conversations.show", key=key, first=after + 1, limit=200)
        for item in make_items(piece["messages"], {}):
            words = (
                f"\n**{item.who or 'You'}**, {item.at}\n\n{item.text}\n{_STOPPED * item.stopped}"
            )
            await response.write(words.encode(errors="replace"))
        if not piece["messages"]:
            break
        after = piece["messages"][-1]["seq"]
    await response.write_eof()
    return response


async def send_message(call: Call) -> web.StreamResponse:
    """Store a message of the visitor. Raises `NanobotError` if it is not stored."""
    async with receive_form(call) as sent:
        key = sent.fields.get("c", "")
        await expect_writable(call, key)
        event, text = sent.fields.get("event", ""), sent.fields.get("text", "").strip()
        if not _EVENT_ID.fullmatch(event) or not (text or sent.media):
            raise PageError(400, "There is nothing to send.")
        earlier = await read_earlier(call, key, sent.fields.get("earlier"))
        await publish_message(call, key, text, f"web:{event}", sent.media, earlier)
    return web.json_response({"ok": True})


async def press_button(call: Call) -> web.StreamResponse:
    """Press a button under a message."""
    key, button = call.form.get("c", ""), call.form.get("button", "")
    await expect_writable(call, key)
    chat = Chat(chat_in(key))
    value = await call.site.host.resolve_button(button, Sender(call.visitor.account), chat)
    if value is None:
        raise PageError(409, "This button is no longer valid.")
    await publish_message(call, key, value, f"web:button:{button}", ())
    return web.json_response({"ok": True})


async def publish_message(
    call: Call,
    key: str,
    text: str,
    event_id: str,
    media: Sequence[Media] = (),
    earlier: Sequence[object] | None = None,
) -> None:
    """Store a message of the visitor in a conversation that they may write in. With `earlier`
    messages, it belongs to a temporary chat, and its text is not stored."""
    host, chat_id = call.site.host, chat_in(key)
    sender = Sender(call.visitor.account)
    if host.admit(sender, Chat(chat_id)) != "allowed":
        raise PageError(403, "You no longer have access to this nanobot.")
    message = InboundMessage(
        channel="web",
        chat_id=chat_id,
        sender_id=sender.id,
        content=text,
        event_id=event_id,
        timestamp=host.clock.now(),
        media=tuple(media),
        session_override=key if key == chat_id else "",
    )
    await host.publish([message if earlier is None else make_temporary(message, earlier)])


async def continue_here(call: Call) -> web.StreamResponse:
    """Copy a conversation of another channel into a new chat of the page."""
    key = call.form.get("c", "")
    if await call.expect_visible(key) != call.own_scope:
        raise PageError(403, "You can continue only your own conversations.")
    chat = new_key(call)
    await publish_message(call, chat, f"/continue {key}", f"web:{uuid4().hex}")
    return call.back("/chat", c=chat)


async def load_messages(call: Call, key: str, **wanted: object) -> dict[str, Any]:
    """Return a piece of a conversation. Raises `PageError` if the visitor may not see it."""
    owner = await call.expect_visible(key)
    shown = await call.ask("conversations.show", key=key, **wanted)
    items = make_items(shown["messages"], await describe_turns(call, key))
    if key.startswith(_WRITABLE):
        extras = await asyncio.to_thread(call.site.extras.of, key)
        first = items[0].at if items and shown["more"] else ""
        own = [make_extra_item(one) for one in extras]
        before = "before" in wanted
        items = sorted(
            [*items, *(one for one in own if one.at >= first and not before)], key=lambda i: i.at
        )
    whose = "" if owner == call.own_scope else shown["name"] or owner
    _add_writer(items, whose)
    return {
        **shown,
        "items": await add_html(items),
        "writable": _is_writable(call, key, owner),
        "whose": whose,
    }


async def expect_writable(call: Call, key: str) -> None:
    if not _is_writable(call, key, await call.expect_visible(key)):
        raise PageError(403, "You can read this conversation here, but you can't write in it.")


def _is_writable(call: Call, key: str, owner: str) -> bool:
    return key.startswith(_WRITABLE) and owner == call.own_scope


def _add_writer(items: Sequence[Item], whose: str) -> None:
    """Add the writer's name to messages of a person other than the visitor."""
    for one in items:
        one.who = one.who or (whose if one.mine else "")


async def render_items(call: Call, items: Sequence[Item], key: str, name: str = "") -> str:
    """Render messages for an open conversation. `name` is the name of its person."""
    owner = await call.expect_visible(key)
    _add_writer(items, "" if owner == call.own_scope else name or owner)
    given = {"visitor": call.visitor, "items": await add_html(items), "key": key}
    given["writable"] = _is_writable(call, key, owner)
    return call.site.render("_items.html", **given)


async def add_html(items: Sequence[Item]) -> Sequence[Item]:
    """Add the HTML to the items, in a thread, because many take a while."""

    def word() -> None:
        for one in items:
            one.words = Markup() if one.mine else to_html(one.text)

    await asyncio.to_thread(word)
    return items


def make_items(messages: Sequence[Mapping[str, Any]], used: Mapping[str, str]) -> list[Item]:
    """Convert messages for the page, with results next to their calls. `used` is the use of
    turns."""
    results = {one["call"]: one["content"] for one in messages if one["role"] == "tool"}
    items = list[Item]()
    for one in (message for message in messages if message["role"] != "tool"):
        if any(one.get(part) for part in ("content", "media", "calls")):
            items.append(_make_item(one, results))
        elif items and one.get("ended") == "stopped":
            items[-1].stopped = True
    _mark_turns(items, used)
    return items


def _mark_turns(items: Sequence[Item], used: Mapping[str, str]) -> None:
    """Mark the items that go on a turn, and add its use to the last one."""
    for before, item in pairwise(items):
        item.goes_on = item.kind == before.kind == "assistant" and item.turn == before.turn
        before.ends = not item.goes_on
    last = {item.turn: item for item in items if item.kind == "assistant"}
    for turn, item in last.items():
        item.used = used.get(turn, "")


async def describe_turns(call: Call, key: str) -> dict[str, str]:
    """Describe the tokens and time of a conversation's newest turns, by turn id."""
    found = await call.ask("turns.list", session=key, limit=MESSAGES)
    described = {}
    for turn in found["turns"]:
        if not turn["milliseconds"]:
            continue
        tokens = turn["prompt_tokens"] + turn["completion_tokens"]
        parts = [f"{tokens:,} tokens", f"{turn['milliseconds'] / 1000:.1f} s"]
        if call.visitor.is_owner:  # only the owner sees the model and the cost
            parts += [f"{turn['cost']:.4f}" if turn["cost"] else "", turn["model"]]
        described[turn["id"]] = " · ".join(filter(None, parts))
    return described


def _make_item(message: Mapping[str, Any], results: Mapping[str, str]) -> Item:
    origin, role = message.get("origin", ""), message["role"]
    mine = role == "user" and origin in ("", "attached", "forwarded")
    by_nanobot = role == "assistant" or origin == "nanobot" or bool(message.get("about"))
    who = "nanobot" if by_nanobot else ("" if mine else origin)
    steps = [
        {**call, "result": results.get(call["id"]), "pretty": _format_arguments(call["arguments"])}
        for call in message.get("calls", ())
    ]
    files = [
        File(
            one.get("name") or one.get("kind") or one["file"],
            one["file"],
            index,
            one.get("size", 0),
            one.get("note", ""),
            seq=str(message["seq"]),
        )
        for index, one in enumerate(message.get("media", ()))
    ]
    return Item(
        kind=role,
        at=message.get("at", ""),
        text=message["content"],
        seq=message["seq"],
        turn=message.get("turn", ""),
        who=who,
        mine=mine,
        kept=bool(message.get("kept")),
        version=message.get("version", 0),
        steps=steps,
        files=files,
    )


def make_extra_item(extra: Extra) -> Item:
    files = [
        File(one.name or one.kind, one.ref, index, one.size, extra=extra.key)
        for index, one in enumerate(extra.media)
    ]
    buttons = [{"id": one.id, "label": one.label} for one in extra.buttons]
    at = extra.at.isoformat()
    return Item("extra", at, extra.text, who="nanobot", files=files, buttons=buttons, key=extra.key)


def _format_arguments(arguments: str) -> str:
    """Format the arguments of a call for people."""
    try:
        values = json.loads(arguments)
    except ValueError:
        return arguments
    if not isinstance(values, dict):
        return arguments
    return "\n".join(f"{name}: {value}" for name, value in values.items())


async def confirm_session(call: Call) -> web.StreamResponse:
    """Let a page that lost its stream check that it is signed in."""
    return web.json_response({"account": call.visitor.account})


ROUTES = {
    ("GET", "/"): Route(show_chat, everyone=True),
    ("GET", "/chat"): Route(show_chat, everyone=True),
    ("GET", "/chat/older"): Route(show_older, everyone=True),
    ("GET", "/chat/find"): Route(find_messages, everyone=True),
    ("GET", "/chat/export"): Route(export_conversation, everyone=True),
    ("POST", "/chat/send"): Route(send_message, everyone=True),
    ("POST", "/chat/press"): Route(press_button, everyone=True),
    ("POST", "/chat/continue"): Route(continue_here, everyone=True),
    ("GET", "/session"): Route(confirm_session, everyone=True),
}
