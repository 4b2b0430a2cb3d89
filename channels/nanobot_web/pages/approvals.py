"""Questions that wait for the owner, on every page of theirs: answered here or in the chat where
they were asked, whichever comes first. And what was allowed for longer than once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from nanobot_web.live import Event
from nanobot_web.site import Call, Route

_LABELS = {
    "once": "Approve",
    "chat_today": "For this chat today",
    "always": "Always",
    "no": "Deny",
}


async def waiting(call: Call) -> list[Event]:
    """Events that show the questions that wait now."""
    found = (await call.ask("approvals.waiting"))["waiting"]
    codes: Event = {"kind": "waiting", "codes": [one["code"] for one in found]}
    return [codes, *(_shown(call, one) for one in found)]


async def asked(call: Call, code: str) -> list[Event]:
    """The event that shows a question; none where it waits no more."""
    found = (await call.ask("approvals.waiting"))["waiting"]
    return [_shown(call, one) for one in found if one["code"] == code]


def _shown(call: Call, question: Mapping[str, Any]) -> Event:
    answers = [(name, _LABELS[name]) for name in question["answers"]]
    html = call.site.render("_approval.html", question=question, answers=answers)
    return {"kind": "approval", "code": question["code"], "html": html}


async def _answer(call: Call) -> web.StreamResponse:
    code, answer = call.form.get("code", ""), call.form.get("answer", "")
    by = f"web:{call.visitor.account}"
    return web.json_response(await call.ask("approvals.answer", code=code, answer=answer, by=by))


async def _standing(call: Call) -> web.StreamResponse:
    """Standing approval for longer than one call."""
    found = await call.ask("approvals.list")
    return call.page("approvals.html", "Approvals", **found)


async def _revoke(call: Call) -> web.StreamResponse:
    await call.change("approvals.revoke", id=call.form.get("id", ""))
    return call.back("/approvals")


ROUTES = {
    ("GET", "/approvals"): Route(_standing),
    ("POST", "/approvals"): Route(_answer),
    ("POST", "/approvals/revoke"): Route(_revoke),
}
