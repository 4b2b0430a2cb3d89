"""Health: how nanobot is, what waits or failed, backups, room on the disk, and the checks of
`nanobot doctor`, which run when somebody asks for them."""

from __future__ import annotations

import re

from aiohttp import web

from nanobot.errors import NanobotError
from nanobot_web.site import Call, Refused, Route

_ROW = re.compile(r"(in|out)-[0-9]{1,18}")
_MOST_ROWS = 100
_DONE = {
    "retry": "{} is tried again.",
    "drop": "{} is dropped.",
    "backup": "A backup is being made.",
}


async def _health(call: Call) -> web.StreamResponse:
    did, row = call.query("did"), call.query("row")
    said = _DONE.get(did, "").format(row if _ROW.fullmatch(row) else "It")
    return await _page(call, said=said)


async def _page(call: Call, *, said: str = "", problem: str = "") -> web.StreamResponse:
    status = await call.ask("status")
    queue = await call.ask("queue.list")
    try:
        backups, no_backups = await call.ask("backup.list"), ""
    except NanobotError as error:
        backups, no_backups = {}, f"{error} {error.hint}".strip()
    rows = [
        *({"place": one["session"], **one} for one in queue["inbox"]),
        *({"place": f"{one['channel']}:{one['chat_id']}", **one} for one in queue["outbox"]),
    ]
    return call.page(
        "health.html",
        "Health",
        status=400 if problem else 200,
        about=status,
        total=sum(status["sizes"].values()),
        rows=rows[:_MOST_ROWS],
        hidden=max(0, len(rows) - _MOST_ROWS),
        backups=backups,
        no_backups=no_backups,
        said=said,
        problem=problem,
    )


async def _doctor(call: Call) -> web.StreamResponse:
    found = await call.ask("doctor")
    return call.page("doctor.html", "Checks", findings=found["findings"])


async def _queue(call: Call) -> web.StreamResponse:
    """Try a failed message or a dead reply again, or give it up."""
    row, what = call.form.get("row", ""), call.form.get("do", "")
    if what not in ("retry", "drop"):
        raise Refused(400, "The form is broken.")
    try:
        await call.ask(f"queue.{what}", id=row, by=f"web:{call.visitor.account}")
    except NanobotError as error:
        return await _page(call, problem=f"{error}. {error.hint}")
    return call.back("/health", did=what, row=row)


async def _backup(call: Call) -> web.StreamResponse:
    await call.ask("backup.make", by=f"web:{call.visitor.account}")
    return call.back("/health", did="backup")


ROUTES = {
    ("GET", "/health"): Route(_health),
    ("GET", "/health/doctor"): Route(_doctor),
    ("POST", "/health/queue"): Route(_queue),
    ("POST", "/health/backup"): Route(_backup),
}
