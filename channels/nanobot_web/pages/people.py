"""Channels and people: the state of each channel, access requests and approvals, the scopes of
memory, and the signed-in browsers.

Only the terminal can make a person the owner, or undo that: a minute at the owner's browser must
not be enough for it."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from markupsafe import Markup

from nanobot_web.site import Call, PageError, Route

_TERMINAL = "cli"
_PAGE = 100  # memories in a piece of their list


async def show_people(call: Call) -> web.StreamResponse:
    pairing = await call.ask("pair.list")
    offset = call.number("offset")
    scopes, total = await _load_scopes(call, offset)
    return call.page(
        "people.html",
        "People",
        channels=(await call.ask("channels.status"))["channels"],
        signing_in=(await call.ask("channels.signing_in"))["channels"],
        requests=pairing["requests"],
        approved=pairing["approved"],
        trouble=pairing["trouble"],
        scopes=scopes,
        titles=await call.titles([{"session": key} for one in scopes for key in one["chats"]]),
        pager=call.pager(offset, _PAGE, total),
        browsers=(await call.ask("web.list"))["sessions"],
        terminal=_TERMINAL,
    )


async def _load_scopes(call: Call, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Return a piece of the memories, each with its accounts and conversations, and the number of
    all."""
    memories = {one["scope"]: one for one in (await call.ask("memory.scopes"))["scopes"]}
    found = await call.ask("conversations.scopes", known=list(memories), offset=offset, limit=_PAGE)
    nothing = {"facts": 0, "pending": 0}
    return [nothing | one | memories.get(one["scope"], {}) for one in found["scopes"]], found[
        "total"
    ]


async def approve_person(call: Call) -> web.StreamResponse:
    if done := await call.change("pair.approve", code=call.form.get("code", "").strip()):
        call.tell(f"{done['name'] or done['address']} now has access.")
    return call.back("/people")


async def revoke_access(call: Call) -> web.StreamResponse:
    """Revoke a person's access, and sign their browsers out."""
    address = call.form.get("address", "")
    if done := await call.change("pair.revoke", id=address, owners_too=False):
        call.tell(str(done["text"]))
        browsers = (await call.ask("web.list"))["sessions"]
        if any(one["account"] == address for one in browsers):
            await call.change("web.revoke", id=address)
    return call.back("/people")


async def sign_out(call: Call) -> web.StreamResponse:
    """Sign out a browser, perhaps this one."""
    if done := await call.change("web.revoke", id=call.form.get("id", "")):
        call.tell(str(done["text"]))
    return call.back("/people")


async def sign_in(call: Call) -> web.StreamResponse:
    """Sign in to a channel that needs a code to be scanned."""
    name = call.form.get("channel", "")
    if await call.change("channels.sign_in", name=name):
        return call.back("/people/sign-in", channel=name)
    return call.back("/people")


async def show_sign_in(call: Call) -> web.StreamResponse:
    """Show the state of a sign-in, with the code to scan. The script gets only this part."""
    channels = (await call.ask("channels.signing_in"))["channels"]
    name = call.query("channel")
    if not (now := channels.get(name)):
        raise PageError(404, "No sign-in is in progress for this channel.")
    values = {"now": now, "code": _draw_code(now["code"]) if now["code"] else ""}
    if call.query("piece"):
        return call.part("_sign_in.html", **values)
    return call.page("sign_in.html", f"Sign in to {name}", channel=name, **values)


def _draw_code(code: str) -> Markup:
    """Draw a code to scan, dark on white in any colour scheme."""
    import segno

    drawn = segno.make_qr(code, error="l", boost_error=False)
    return Markup(drawn.svg_inline(scale=5, border=4, light="#fff"))  # noqa: S704 - holds no text


ROUTES = {
    ("GET", "/people"): Route(show_people),
    ("GET", "/people/sign-in"): Route(show_sign_in),
    ("POST", "/people/sign-in"): Route(sign_in),
    ("POST", "/people/approve"): Route(approve_person),
    ("POST", "/people/revoke"): Route(revoke_access),
    ("POST", "/people/sign-out"): Route(sign_out),
}
