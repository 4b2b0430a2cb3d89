"""Health: the state of nanobot, pending and failed messages, backups, disk space, and the checks of
`nanobot doctor` on request."""

from __future__ import annotations

from aiohttp import web

from nanobot.errors import NanobotError
from nanobot_web.requests import to_sentences
from nanobot_web.site import Call, PageError, Route

_MOST_ROWS = 100


async def show_health(call: Call) -> web.StreamResponse:
    status = await call.ask("status")
    queue = await call.ask("queue.list")
    try:
        backups, no_backups = await call.ask("backup.list"), ""
    except NanobotError as error:
        backups, no_backups = {}, to_sentences(error)
    rows = [
        *({"place": one["session"], **one} for one in queue["inbox"]),
        *({"place": f"{one['channel']}:{one['chat_id']}", **one} for one in queue["outbox"]),
    ]
    return call.page(
        "health.html",
        "Health",
        about=status,
        total=sum(status["sizes"].values()),
        rows=rows[:_MOST_ROWS],
        hidden=max(0, len(rows) - _MOST_ROWS),
        backups=backups,
        no_backups=no_backups,
    )


async def run_checks(call: Call) -> web.StreamResponse:
    found = await call.ask("doctor")
    return call.page("doctor.html", "Checks", findings=found["findings"])


async def change_queue(call: Call) -> web.StreamResponse:
    """Retry or drop a failed message or a dead reply."""
    row, what = call.form.get("row", ""), call.form.get("do", "")
    if what not in ("retry", "drop"):
        raise PageError(400, "The form is invalid.")
    if done := await call.change(f"queue.{what}", id=row):
        call.tell(str(done["text"]))
    return call.back("/health")


async def make_backup(call: Call) -> web.StreamResponse:
    if await call.change("backup.make"):
        call.tell("A backup is running.")
    return call.back("/health")


ROUTES = {
    ("GET", "/health"): Route(show_health),
    ("GET", "/health/doctor"): Route(run_checks),
    ("POST", "/health/queue"): Route(change_queue),
    ("POST", "/health/backup"): Route(make_backup),
}
