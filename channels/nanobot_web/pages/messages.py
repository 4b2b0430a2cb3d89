"""Actions on a message and choices at the composer: earlier versions, the source text, the mark to
keep, voices, the commands and the models."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from nanobot_web.pages.chat import add_html, expect_writable, make_items
from nanobot_web.pages.files import UPLOADS, receive_form, remove_uploads
from nanobot_web.requests import to_number
from nanobot_web.site import Call, PageError, Route

_MOST_MODELS = 300
_EFFORTS = ("default", "none", "low", "medium", "high")
"""The choices of `/think`."""


async def show_version(call: Call) -> web.StreamResponse:
    """Show the earlier version `n` of a turn, from 1: a piece for the open conversation, or a
    page."""
    key, turn = call.query("c"), call.query("turn")
    await call.expect_visible(key)
    versions = (await call.ask("conversations.versions", key=key, turn=turn))["versions"]
    number = call.number("n") or len(versions)
    if not 0 < number <= len(versions):
        raise PageError(404, "This message has no such version.")
    items = await add_html(make_items(versions[number - 1]["messages"], {}))
    given: dict[str, Any] = {"items": items, "key": key, "turn": turn, "number": number}
    given |= {"total": len(versions) + 1, "writable": False, "earlier": True}
    if call.query("part"):
        return call.part("_version.html", **given)
    return call.page("version.html", "Earlier version", **given)


async def show_source(call: Call) -> web.StreamResponse:
    """Return the text of a message as it was written, to copy."""
    return web.json_response({"text": await _find_text(call)})


async def speak_message(call: Call) -> web.StreamResponse:
    """Read a message aloud. A person can listen to one at a time."""
    text = await _find_text(call)
    with _single_use(call, "Another message is being prepared."):
        found = await call.ask("speak", text=text)
    return web.Response(body=b64decode(found["sound"]), content_type="audio/ogg")


async def _find_text(call: Call) -> str:
    key, seq = call.query("c"), call.number("seq")
    await call.expect_visible(key)
    shown = await call.ask("conversations.show", key=key, first=seq, limit=1)
    text = next((one["content"] for one in shown["messages"] if one["seq"] == seq), None)
    if text is None:
        raise PageError(404, "There is no such message.")
    return str(text)


@contextmanager
def _single_use(call: Call, otherwise: str) -> Iterator[None]:
    """Raise `PageError` if a sound of this person is being processed."""
    account, busy = call.visitor.account, call.site.voiced
    if account in busy:
        raise PageError(429, otherwise)
    busy.add(account)
    try:
        yield
    finally:
        busy.discard(account)


async def keep_message(call: Call) -> web.StreamResponse:
    """Mark a message to keep, or remove the mark."""
    key, seq = call.form.get("c", ""), call.form.get("seq", "")
    await expect_writable(call, key)
    given = {"key": key, "seq": to_number(seq), "kept": call.form.get("kept") == "yes"}
    done = await call.act("conversations.mark", **given)
    call.site.live.note_change(key)
    return web.json_response(done)


async def transcribe_recording(call: Call) -> web.StreamResponse:
    """Return the words of a recording, which is not kept. A person can have one at a time."""
    with _single_use(call, "Your last recording is still being transcribed."):
        async with receive_form(call) as sent:
            try:
                if len(sent.media) != 1:
                    raise PageError(400, "There is no recording.")
                file = call.site.host.state_folder / UPLOADS / sent.media[0].ref
                found = await call.ask("transcribe", file=str(file), mime=sent.media[0].mime)
            finally:
                remove_uploads(call, sent.media)
    return web.json_response(found)


async def list_commands(call: Call) -> web.StreamResponse:
    """List the slash commands that the visitor may use."""
    owner = call.visitor.is_owner
    menu = [one for one in call.site.host.menu() if owner or not one.owner_only]
    return web.json_response([{"name": one.name, "summary": one.summary} for one in menu])


async def show_models(call: Call) -> web.StreamResponse:
    """Show the models and thinking levels to choose from."""
    key = call.query("c")
    await expect_writable(call, key)
    shown = await call.ask("conversations.show", key=key, limit=1)
    found = await call.ask("models")
    names = list(dict.fromkeys((found["default"], *found["models"])))
    return call.part(
        "_models.html",
        models={name: found["names"].get(name, name) for name in names[:_MOST_MODELS]},
        current=shown["model"] or found["default"],
        efforts=_EFFORTS,
        effort=shown["effort"] or "default",
    )


ROUTES = {
    ("GET", "/chat/versions"): Route(show_version, everyone=True),
    ("GET", "/chat/source"): Route(show_source, everyone=True),
    ("GET", "/chat/speech"): Route(speak_message, everyone=True),
    ("POST", "/chat/keep"): Route(keep_message, everyone=True),
    ("POST", "/chat/transcribe"): Route(transcribe_recording, everyone=True),
    ("GET", "/chat/commands"): Route(list_commands, everyone=True),
    ("GET", "/chat/models"): Route(show_models),
}
