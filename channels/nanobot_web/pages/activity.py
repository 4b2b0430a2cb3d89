"""Activity: a list of turns, one turn as a waterfall, decisions about tool calls, and the log,
which updates while it is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from nanobot_web.site import Call, Route

_PAGE = 50
_LINES = 200
_FACTS = 200
OUTCOMES = ("done", "failed", "stopped", "running")
LEVELS = ("debug", "info", "warning", "error")


async def show_turns(call: Call) -> web.StreamResponse:
    session, outcome = call.query("session").strip(), call.query("outcome")
    outcome = outcome if outcome in OUTCOMES else ""
    found = await call.ask(
        "turns.list",
        session=session,
        outcome=outcome,
        before=call.query("before"),
        limit=_PAGE,
    )
    return call.page(
        "activity.html",
        "Activity",
        turns=found["turns"],
        titles=await call.titles(found["turns"]),
        more=found["more"],
        session=session,
        outcome=outcome,
        outcomes=OUTCOMES,
        paged=bool(call.query("before")),
        has_cost=any(turn["cost"] is not None for turn in found["turns"]),
    )


async def show_turn(call: Call) -> web.StreamResponse:
    turn = await call.ask("turn.show", id=call.query("id"))
    whole = max((one["start"] + one["took"] for one in turn["steps"]), default=0) or 1
    bars = [  # on a line of 1,000 parts, each wide enough to be seen
        {
            **one,
            "x": round(one["start"] * 1000 / whole),
            "width": max(4, round(one["took"] * 1000 / whole)),
        }
        for one in turn["steps"]
    ]
    scope, facts = await _find_facts(call, turn)
    given: dict[str, Any] = {"turn": turn, "bars": bars, "scope": scope, "facts": facts}
    return call.page("turn.html", "Turn", titles=await call.titles([turn]), **given)


async def _find_facts(
    call: Call, turn: Mapping[str, Any]
) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """Return the scope of a turn, and the remembered facts in its prompt that still exist."""
    scope = str((await call.ask("conversations.owner", key=turn["session"]))["scope"])
    if not scope or not turn["system_prompt"]:
        return scope, ()
    found = await call.ask("memory.facts", scope=scope, limit=_FACTS)
    return scope, [one for one in found["facts"] if one["text"] in turn["system_prompt"]]


async def show_audit(call: Call) -> web.StreamResponse:
    tool, session = call.query("tool").strip(), call.query("session").strip()
    offset = call.number("offset")
    found = await call.ask("audit.list", tool=tool, session=session, offset=offset, limit=_PAGE)
    return call.page(
        "audit.html",
        "Tool calls",
        records=[_format_record(one) for one in found["records"]],
        more=found["more"],
        tool=tool,
        session=session,
        offset=offset,
        next=offset + _PAGE,
    )


def _format_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a record for the page: its outcome in a word, and the other fields."""
    event, outcome = record.get("event", ""), str(record.get("outcome", ""))
    if event == "ended":
        outcome = "done" if outcome == "ok" else "failed"
    elif event == "answered":
        outcome = f"approval: {outcome}"
    shown = ("time", "event", "outcome", "tool", "session", "turn", "call")
    rest = {name: value for name, value in record.items() if name not in shown}
    return {
        "time": str(record.get("time", "")),
        "outcome": outcome,
        "tool": record.get("tool", ""),
        "session": record.get("session", ""),
        "turn": record.get("turn", ""),
        "rest": rest,
    }


async def show_log(call: Call) -> web.StreamResponse:
    found = await _tail_log(call, limit=_LINES)
    return call.page("logs.html", "Log", **found, level=call.query("level"), levels=LEVELS)


async def send_new_lines(call: Call) -> web.StreamResponse:
    """Return the log lines after a position, for the script."""
    found = await _tail_log(call, limit=_LINES, after=call.query("after") or "0:0")
    html = call.site.render("_lines.html", lines=found["lines"])
    return web.json_response({"html": html, "position": found["position"]})


async def _tail_log(call: Call, **wanted: object) -> dict[str, Any]:
    level, turn = call.query("level"), call.query("turn")
    return {**await call.ask("logs.tail", level=level, turn=turn, **wanted), "turn": turn}


ROUTES = {
    ("GET", "/activity"): Route(show_turns),
    ("GET", "/activity/turn"): Route(show_turn),
    ("GET", "/activity/tools"): Route(show_audit),
    ("GET", "/activity/log"): Route(show_log),
    ("GET", "/activity/log/new"): Route(send_new_lines),
}
