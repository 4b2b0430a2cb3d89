"""Jobs: schedules with their next and last runs, running subagents, and the heartbeat.

For the owner, who sees the jobs of all."""

from __future__ import annotations

from aiohttp import web

from nanobot_web.site import Call, PageError, Route

_CHANGES = {
    "pause": "cron.pause",
    "resume": "cron.resume",
    "run": "cron.run",
    "remove": "cron.remove",
}
_RUNS = 5  # the number of last runs to show


async def show_jobs(call: Call) -> web.StreamResponse:
    scheduled = await call.ask("cron.list")
    return call.page(
        "jobs.html",
        "Jobs",
        jobs=scheduled["jobs"],
        trouble=scheduled["trouble"],
        chats=scheduled["chats"],
        runs=_RUNS,
        helpers=await call.ask("helpers.list"),
        heartbeat=await call.ask("heartbeat.show"),
    )


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
