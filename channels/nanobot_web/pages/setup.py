"""Set-up: the questions of `nanobot onboard`, one on each page.

Who may change the model's server sees all conversations, so a minute at the owner's browser must
not be enough: it takes a link of `nanobot web --setup`, unless no model is set yet."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from nanobot_web.requests import to_number
from nanobot_web.site import RESTART_SECONDS, SETUP, Call, PageError, Route

_TOPIC = "topic-"


async def show_setup(call: Call) -> web.StreamResponse:
    """Show the open question, the progress, or what can be set up."""
    now = await load_setup(call)
    values: dict[str, Any] = {"allowed": is_allowed(call, now), "setup": SETUP}
    return call.page("setup.html", now.get("title") or "Set up", now=now, **values)


async def show_progress(call: Call) -> web.StreamResponse:
    """Show the progress. The script gets only this part, and then the address of the next page."""
    now = await load_setup(call)
    following = "" if now["state"] in ("works", "saved") else SETUP
    if now["state"] == "none" and call.query("then") == "people":  # a new gateway runs
        following = "/people"
    elif now["state"] == "none" and now["has_model"]:
        following = "/chat/new"
    return call.part("_setup.html", now=now, following=following)


async def load_setup(call: Call) -> dict[str, Any]:
    """Return the state of the set-up in this browser."""
    return await call.ask("setup.show", session=call.visitor.session, all=_is_granted(call))


def is_allowed(call: Call, now: dict[str, Any]) -> bool:
    """Return True if this browser may change the model and the channels now."""
    return _is_granted(call) or not now["has_model"]


def _is_granted(call: Call) -> bool:
    return call.site.sessions.may_set_up(call.visitor.session)


async def begin(call: Call) -> web.StreamResponse:
    topics = [name.removeprefix(_TOPIC) for name in call.form if name.startswith(_TOPIC)]
    return await _change(call, "begin", topics=topics, all=_is_granted(call), zone=call.zone)


async def answer(call: Call) -> web.StreamResponse:
    given, is_back = call.form.get("answer", ""), call.form.get("do") == "back"
    return await _change(call, "answer", number=_number(call), answer=given, back=is_back)


async def save(call: Call) -> web.StreamResponse:
    """Write the changes, and restart the gateway, which then uses them."""
    await _change(call, "save", number=_number(call))
    if (await load_setup(call))["state"] == "saved":
        call.site.sessions.end_setup(call.visitor.session)
        await call.change("restart", sure=True, seconds=RESTART_SECONDS)
    return call.back(SETUP)


async def cancel(call: Call) -> web.StreamResponse:
    return await _change(call, "cancel")


async def _change(call: Call, name: str, **arguments: object) -> web.StreamResponse:
    """Run an operation of the set-up, and show the next page. Raises `PageError` if this browser
    may not."""
    if not is_allowed(call, await load_setup(call)):
        raise PageError(
            403,
            "You can't change the model here.",
            hint="Run `nanobot web --setup` in the terminal, and open its link.",
        )
    await call.change(f"setup.{name}", session=call.visitor.session, **arguments)
    return call.back(SETUP)


def _number(call: Call) -> int:
    return to_number(call.form.get("number", ""))


ROUTES = {
    ("GET", SETUP): Route(show_setup),
    ("GET", f"{SETUP}/progress"): Route(show_progress),
    ("POST", f"{SETUP}/begin"): Route(begin),
    ("POST", f"{SETUP}/answer"): Route(answer),
    ("POST", f"{SETUP}/save"): Route(save),
    ("POST", f"{SETUP}/cancel"): Route(cancel),
}
