"""Pending questions, on every page of the owner, and standing approvals. The first answer counts,
here or in the chat of the question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from nanobot_web.live import Event
from nanobot_web.site import Call, Route

_LABELS = {
    "once": "Approve",
    "chat_today": "Today in this chat",
    "always": "Always",
    "no": "Deny",
}


async def list_questions(call: Call) -> list[Event]:
    """Return events that show the pending questions."""
    found = (await call.ask("approvals.waiting"))["waiting"]
    codes: Event = {"kind": "waiting", "codes": [one["code"] for one in found]}
    return [codes, *[await _render_question(call, one) for one in found]]


async def find_question(call: Call, code: str) -> list[Event]:
    """Return the event that shows a question, or none if it is closed."""
    found = (await call.ask("approvals.waiting"))["waiting"]
    return [await _render_question(call, one) for one in found if one["code"] == code]


async def _render_question(call: Call, question: Mapping[str, Any]) -> Event:
    answers, key = [(name, _LABELS[name]) for name in question["answers"]], question["session"]
    shown = await call.ask("conversations.show", key=key, limit=1)
    given = {
        "title": shown["title"] or shown["name"] or ("" if key.startswith("web:") else key),
        "who": "" if question["scope"] == call.own_scope else shown["name"] or question["scope"],
    }
    html = call.site.render("_approval.html", question=question, answers=answers, **given)
    return {"kind": "approval", "code": question["code"], "session": key, "html": html}


async def answer_question(call: Call) -> web.StreamResponse:
    code, answer = call.form.get("code", ""), call.form.get("answer", "")
    return web.json_response(await call.act("approvals.answer", code=code, answer=answer))


async def show_approvals(call: Call) -> web.StreamResponse:
    found = await call.ask("approvals.list")
    titles = await call.titles(found["approvals"])
    return call.page("approvals.html", "Approvals", titles=titles, **found)


async def revoke_approval(call: Call) -> web.StreamResponse:
    await call.change("approvals.revoke", id=call.form.get("id", ""))
    return call.back("/approvals")


ROUTES = {
    ("GET", "/approvals"): Route(show_approvals),
    ("POST", "/approvals"): Route(answer_question),
    ("POST", "/approvals/revoke"): Route(revoke_approval),
}
