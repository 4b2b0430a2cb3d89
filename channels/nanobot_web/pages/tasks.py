"""Settings by task, in words. Each page has the few settings that matter for a task, and `settings`
has all of them by their keys. Changes are shown before they are written, as there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web
from msgspec import Struct

from nanobot.errors import NanobotError
from nanobot_web.pages.settings import format_key, make_plan, parse_value
from nanobot_web.requests import to_sentences
from nanobot_web.site import Call, Route

_YES_NO = {"true": "Yes", "false": "No"}
_APPROVAL = {
    "auto": "Ask if there is untrusted content",
    "ask": "Always ask",
    "allow": "Never ask",
    "never": "Reject",
}
_NO_LIMIT = "0: no limit."


class Wish(Struct, frozen=True):
    """A setting in words. `words` describe its values."""

    key: str
    label: str
    hint: str = ""
    words: Mapping[str, str] = {}


class Task(Struct, frozen=True):
    """A page of settings. Its form has a `heading` if there is more on the page."""

    title: str
    wishes: Sequence[Wish]
    heading: str = ""


TASKS: Mapping[str, Task] = {
    "answers": Task(
        "Answers",
        (
            Wish(
                "model.reasoning_effort",
                "How long to think",
                words={
                    "": "The model's default",
                    "none": "Not at all",
                    "low": "A little",
                    "medium": "More",
                    "high": "As long as needed",
                },
            ),
            Wish(
                "agent.on_busy",
                "If I write while nanobot works",
                words={
                    "steer": "Read it at the next step",
                    "queue": "Answer it afterwards",
                    "interrupt": "Stop, and answer it",
                },
            ),
            Wish("agent.timezone", "Time zone", "Such as Europe/Berlin. Empty: the system's."),
            Wish("limits.tokens_per_turn", "Maximum tokens per answer", _NO_LIMIT),
            Wish("limits.tokens_per_day", "Maximum tokens per day", _NO_LIMIT),
            Wish("model.prices.input", "Price of a million tokens read", "In your currency."),
            Wish("model.prices.output", "Price of a million tokens written", "In your currency."),
        ),
    ),
    "memory": Task(
        "Memory",
        (
            Wish("memory.notices", "Tell me in the chat what was remembered"),
            Wish(
                "memory.idle_minutes",
                "Remember a chat after idle minutes",
                "0: only when it gets long.",
            ),
            Wish("memory.recent_days", "Days of notes that each answer sees"),
            Wish(
                "memory.embeddings.local",
                "Find facts by their meaning",
                "With a small model on this machine (extra embeddings).",
            ),
            Wish("dream.enabled", "Tidy up the memory regularly"),
            Wish("dream.cron", "When to tidy up", "Such as every day at 4:00."),
            Wish("dream.digest", "Send me a message about new facts"),
            Wish("memory.groups_see_owner", "Use my memory in groups"),
        ),
    ),
    "approvals": Task(
        "Approvals",
        (
            Wish("cron.enabled", "Run jobs and reminders"),
            Wish("heartbeat.every", "How often to check HEARTBEAT.md", "Such as 2h, or off."),
            Wish("heartbeat.active_hours", "Hours for these checks", "Such as 08:00-22:00."),
            Wish("limits.uses.jobs", "Maximum tokens per day for jobs", _NO_LIMIT),
            Wish("backup.schedule", "When to back up", "Such as every day at 3:30. Empty: never."),
            Wish("tools.approval.exec", "Commands with network access", words=_APPROVAL),
            Wish("tools.approval.fetch", "Web addresses that I didn't mention", words=_APPROVAL),
            Wish("tools.approval.send", "Messages to other chats", words=_APPROVAL),
            Wish("tools.approval.schedule", "New jobs", words=_APPROVAL),
            Wish("tools.approval.persist", "Changes of skills", words=_APPROVAL),
            Wish("tools.approval.mcp", "Tools of MCP servers", words=_APPROVAL),
        ),
        heading="Without a request",
    ),
}


async def show_task(call: Call) -> web.StreamResponse:
    """Show the settings of a task."""
    return await _render_task(call, _name_of(call), {})


async def plan_task(call: Call) -> web.StreamResponse:
    """Show the effect of the changed fields before it is written."""
    name = _name_of(call)
    changes, errors = dict[str, object](), list[str]()
    for wish, one in await _load_wishes(call, name):
        typed = call.form.get(wish.key, one["text"])
        if not one["editable"] or typed.strip() == one["text"]:
            continue
        try:
            changes[wish.key] = parse_value(one, typed)
        except ValueError as error:
            errors.append(f"{wish.label}: {error}")
    if errors or not changes:
        return await _render_task(call, name, call.form, errors=errors or ["Nothing is changed."])
    try:
        plan, number = await make_plan(call, changes, back=f"/settings/{name}")
    except NanobotError as error:
        return await _render_task(call, name, call.form, errors=[to_sentences(error)])
    return await _render_task(call, name, call.form, plan=plan, number=number)


def _name_of(call: Call) -> str:
    return call.request.path.rstrip("/").rpartition("/")[2]


async def _render_task(
    call: Call, name: str, typed: Mapping[str, str], **more: object
) -> web.StreamResponse:
    task, shown = TASKS[name], await call.ask("config.show")
    found = await _load_wishes(call, name)
    rows = [_make_row(wish, one, typed.get(wish.key, one["text"])) for wish, one in found]
    given: dict[str, Any] = {"errors": (), "plan": None, "number": "", **more}
    return call.page(
        "task.html",
        task.title,
        status=400 if given["errors"] else 200,
        heading=task.heading,
        rows=[one for one in rows if one["editable"]],
        fixed=[one for one in rows if not one["editable"]],
        changed=call.query("changed"),
        restart_needed=shown["restart_needed"],
        **given,
    )


async def _load_wishes(call: Call, name: str) -> list[tuple[Wish, dict[str, Any]]]:
    """Return the settings of a task, each with its key's facts."""
    by_key = {one["key"]: one for one in (await call.ask("config.show"))["keys"]}
    wishes = (wish for wish in TASKS[name].wishes if wish.key in by_key)
    return [(wish, format_key(by_key[wish.key])) for wish in wishes]


def _make_row(wish: Wish, one: Mapping[str, Any], typed: str) -> dict[str, Any]:
    words = _YES_NO if one["type"] == "boolean" else wish.words
    choices = {value: words.get(value, value) for value in one["choices"] or words}
    return {**one, "wish": wish, "typed": typed, "options": choices}


ROUTES = {
    **{("GET", f"/settings/{name}"): Route(show_task) for name in TASKS},
    **{("POST", f"/settings/{name}"): Route(plan_task) for name in TASKS},
}
