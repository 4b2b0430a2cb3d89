"""Jobs: schedules with their next and last runs, running subagents, and the heartbeat.

For the owner, who sees the jobs of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from nanobot.text import one_line
from nanobot_web.site import Call, PageError, Route

_CHANGES = {
    "pause": "cron.pause",
    "resume": "cron.resume",
    "run": "cron.run",
    "remove": "cron.remove",
}
_LONGEST = 200  # characters of a result
_NEWEST = 10  # messages to search for it


async def show_jobs(call: Call) -> web.StreamResponse:
    scheduled = await call.ask("cron.list")
    return call.page(
        "jobs.html",
        "Jobs",
        jobs=[{**job, "result": await _last_result(call, job)} for job in scheduled["jobs"]],
        trouble=scheduled["trouble"],
        chats=scheduled["chats"],
        titles=await call.titles(scheduled["jobs"], "chat"),
        helpers=await call.ask("helpers.list"),
        heartbeat=await call.ask("heartbeat.show"),
    )


async def _last_result(call: Call, job: Mapping[str, Any]) -> str:
    """Return the beginning of the last answer of a task, empty if it has none."""
    if job["reminder"] or not job["last"]:
        return ""
    shown = await call.ask("conversations.show", key=job["session"], limit=_NEWEST)
    said = (m["content"] for m in reversed(shown["messages"]) if m["role"] == "assistant")
    return one_line(next(filter(None, said), ""), _LONGEST)


async def add_job(call: Call) -> web.StreamResponse:
    given = {name: call.form.get(name, "").strip() for name in ("schedule", "message", "chat")}
    if done := await call.change("cron.add", task=call.form.get("kind") == "task", **given):
        call.tell(f"Scheduled: {done['words']}.")
    return call.back("/jobs")


async def change_job(call: Call) -> web.StreamResponse:
    operation = _CHANGES.get(call.form.get("do", ""))
    if operation is None:
        raise PageError(400, "A job can only be paused, resumed, run, or removed.")
    if done := await call.change(operation, id=call.form.get("id", "")):
        call.tell(str(done["text"]))
    return call.back("/jobs")


ROUTES = {
    ("GET", "/jobs"): Route(show_jobs),
    ("POST", "/jobs/add"): Route(add_job),
    ("POST", "/jobs/change"): Route(change_job),
}
