"""Memory: the facts of a scope and their sources, pending facts, versions, notes, history, search.

People see their own scope, the owner any. Changes use the operations of the commands, in the
visitor's name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from aiohttp import web

from nanobot.errors import NanobotError
from nanobot.text import pluralize
from nanobot_web.requests import to_number
from nanobot_web.site import Call, PageError, Route

_OWNER = "owner"
_FACTS, _VERSIONS, _ENTRIES, _DAYS, _HITS = 150, 25, 20, 60, 20
_MOST_LINES = 1_000  # lines of a diff
_SOURCES = ("message", "history", "note", "memory", "library")
_ROLES = ("user", "assistant", "tool")
_NAMES = {
    "memory/MEMORY.md": "Long-term memory",
    "USER.md": "About the person",
    "SOUL.md": "The agent’s personality",
    "memory/retired.md": "Outdated",
}
_AUTHORS = {
    "start": "initial files",
    "consolidate": "learned from a conversation",
    "dream": "learned by Dream",
    "agent": "written by the agent",
    "you": "written by the person",
    "restore": "undone",
    "forget": "forgotten",
    "sync": "from another device",
}


async def show_facts(call: Call) -> web.StreamResponse:
    scope, offset = _scope_of(call), call.number("offset")
    found = await call.ask("memory.facts", scope=scope, offset=offset, limit=_FACTS)
    return await _render_page(
        call,
        "memory_facts.html",
        "Memory",
        scope,
        files=[
            (
                path,
                [(name, list(facts)) for name, facts in groupby(group, key=itemgetter("section"))],
            )
            for path, group in groupby(found["facts"], key=itemgetter("path"))
        ],
        names=_NAMES,
        writable=[path for path in found["files"] if path != "memory/retired.md"],
        pager=call.pager(offset, _FACTS, found["total"]),
        total=found["total"],
    )


async def show_fact(call: Call) -> web.StreamResponse:
    """Show one fact, its sources, and its actions."""
    scope = _scope_of(call)
    fact = await _find_fact(call, scope, call.query("id"))
    why = await call.ask(
        "memory.why", scope=scope, text=fact["text"], asker="" if call.scope else None
    )
    lines = [one for one in why["found"] if one["path"] == fact["path"]]
    found = [one for one in lines if one["line"].strip() == fact["line"].strip()][:1] or lines[:1]
    return await _render_page(
        call,
        "memory_fact.html",
        "A fact",
        scope,
        fact=fact,
        found=found,
        titles=await _find_titles(call, found),
        levels=range(1, 6),
        name=_NAMES.get(fact["path"], fact["path"]),
        authors=_AUTHORS,
    )


async def _find_titles(call: Call, found: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """Return the titles of the conversations that facts came from, for the owner."""
    if call.scope:
        return {}
    steps = [step for one in found for step in one["steps"]]
    entries = [step["entry"] for step in steps if step["entry"] and step["entry"]["session"]]
    return await call.titles([*entries, *(said for step in steps for said in step["messages"])])


async def edit_fact(call: Call) -> web.StreamResponse:
    scope, id = _scope_of(call), call.form.get("id", "")
    if id:
        fact = await _find_fact(call, scope, id)
        given = {"path": fact["path"], "text": fact["line"]}
    else:
        given = {name: call.form.get(name, "").strip() for name in ("path", "section")}
    new = call.form.get("new", "")
    done = await call.change("memory.edit", scope=scope, new=new, **given)
    if not done:
        return call.back("/memory/fact" if id else "/memory", scope=scope, id=id)
    _tell_version(call, done["version"], "Saved the fact")
    return call.back("/memory", scope=scope)


async def set_importance(call: Call) -> web.StreamResponse:
    scope, id, level = _scope_of(call), call.form.get("id", ""), call.form.get("level", "")
    fact = await _find_fact(call, scope, id)
    given = int(level) if level in {"1", "2", "3", "4", "5"} else 0
    if done := await call.change("memory.importance", scope=scope, text=fact["line"], level=given):
        _tell_version(call, done["version"], f"Set the importance to {given}")
        return call.back("/memory", scope=scope)
    return call.back("/memory/fact", scope=scope, id=id)


async def show_forget_plan(call: Call) -> web.StreamResponse:
    """Show the data that forgetting would remove, without a change."""
    scope, erase = _scope_of(call), bool(call.query("erase"))
    fact = await _find_fact(call, scope, call.query("id"))
    _expect_may_erase(call, scope, erase=erase)
    plan = await call.ask("memory.forget_plan", scope=scope, text=fact["text"], erase=erase)
    return await _render_page(
        call, "memory_forget.html", "Forget", scope, fact=fact, plan=plan, erase=erase
    )


async def forget_fact(call: Call) -> web.StreamResponse:
    scope, id = _scope_of(call), call.form.get("id", "")
    erase = bool(call.form.get("erase"))
    fact = await _find_fact(call, scope, id)
    _expect_may_erase(call, scope, erase=erase)
    done = await call.change("memory.forget", scope=scope, text=fact["text"], erase=erase)
    if not done:
        return call.back("/memory/fact", scope=scope, id=id)
    if erase:
        call.tell(str(done["text"]))
    else:
        counts = (
            pluralize(len(done[name]), *words)
            for name, *words in (
                ("lines", "line"),
                ("messages", "message"),
                ("entries", "history entry", "history entries"),
            )
        )
        call.tell(f"Forgotten: {', '.join(counts)}. This won't be learned again.")
    return call.back("/memory", scope=scope)


async def show_pending(call: Call) -> web.StreamResponse:
    scope = _scope_of(call)
    found = await call.ask("memory.pending", scope=scope)
    return await _render_page(
        call, "memory_pending.html", "Pending facts", scope, facts=found["pending"], names=_NAMES
    )


async def decide_pending(call: Call) -> web.StreamResponse:
    scope, code = _scope_of(call), call.form.get("code", "")
    decision = "accept" if call.form.get("decision") == "accept" else "drop"
    if done := await call.change(f"memory.{decision}", scope=scope, codes=[code]):
        said = "Remembered." if decision == "accept" else "Dropped."
        call.tell(said if done["facts"] else "It was already accepted or dropped.")
    return call.back("/memory/pending", scope=scope)


async def show_versions(call: Call) -> web.StreamResponse:
    scope, offset = _scope_of(call), call.number("offset")
    found = await call.ask("memory.versions", scope=scope, skip=offset, limit=_VERSIONS)
    return await _render_page(
        call,
        "memory_versions.html",
        "Versions",
        scope,
        versions=found["versions"],
        authors=_AUTHORS,
        pager=call.pager(offset, _VERSIONS, found["total"]),
        total=found["total"],
    )


async def show_version(call: Call) -> web.StreamResponse:
    """Show a version and its diff. A script gets only the diff."""
    scope, number = _scope_of(call), call.number("n")
    found = await call.ask("memory.log", scope=scope, version=number or None)
    if "version" not in found:
        raise PageError(404, "There are no versions yet.")
    diff = list(_diff_lines(str(found.get("diff", ""))))
    if call.query("part"):
        return call.part("_memory_diff.html", diff=diff)
    title = f"Version {found.get('version', number)}"
    return await _render_page(
        call, "memory_version.html", title, scope, version=found, diff=diff, authors=_AUTHORS
    )


async def restore_version(call: Call) -> web.StreamResponse:
    """Undo a version, or go back to one."""
    scope, number = _scope_of(call), to_number(call.form.get("version", ""))
    if not number:
        raise PageError(400, "The version must be a number.")
    to = bool(call.form.get("to"))
    done = await call.change("memory.restore", scope=scope, **{"to" if to else "version": number})
    if done:
        made = done["versions"]
        what = f"Restored version {number}" if to else f"Undid change {number}"
        said = f"{what} (now version {made[0]})." if made else "Nothing changed."
        left = [f"Kept because it has changed since: {one}" for one in done["conflicts"]]
        call.tell("\n".join([said, *left]))
    return call.back("/memory/versions", scope=scope)


async def show_notes(call: Call) -> web.StreamResponse:
    scope, offset = _scope_of(call), call.number("offset")
    found = await call.ask("memory.notes", scope=scope, day=call.query("day"))
    days = found["days"]
    return await _render_page(
        call,
        "memory_notes.html",
        "Daily notes",
        scope,
        days=days[offset : offset + _DAYS],
        months=found["months"],
        day=found["day"],
        text=found["text"],
        pager=call.pager(offset, _DAYS, len(days)),
    )


async def show_history(call: Call) -> web.StreamResponse:
    scope, offset = _scope_of(call), call.number("offset")
    found = await call.ask("memory.history", scope=scope, offset=offset, limit=_ENTRIES)
    return await _render_page(
        call,
        "memory_history.html",
        "History",
        scope,
        entries=found["entries"],
        pager=call.pager(offset, _ENTRIES, found["total"]),
    )


async def search_memory(call: Call) -> web.StreamResponse:
    scope, skip = _scope_of(call), call.number("offset")
    wanted = {name: call.query(name).strip() for name in ("q", "since", "until", "chat")}
    wanted["role"] = _one_of(call.query("role"), _ROLES)
    wanted["source"] = _one_of(call.query("source"), _SOURCES)
    found: dict[str, Any] = {"hits": [], "left": 0, "terms": []}
    problem = ""
    if wanted["q"]:
        try:
            found = await call.ask(
                "memory.search",
                scope=scope,
                asker="" if call.scope else None,
                text=wanted["q"],
                since=wanted["since"] or None,
                until=wanted["until"] or None,
                session=wanted["chat"],
                role=wanted["role"],
                source=wanted["source"],
                limit=_HITS,
                skip=skip,
            )
        except NanobotError as error:
            problem = str(error)
    return await _render_page(
        call,
        "memory_search.html",
        "Search",
        scope,
        wanted=wanted,
        hits=found["hits"],
        terms=found["terms"],
        problem=problem,
        roles=_ROLES,
        sources=_SOURCES,
        pager=call.pager(skip, _HITS, skip + len(found["hits"]) + found["left"]),
    )


async def _render_page(
    call: Call, template: str, title: str, scope: str, **values: Any
) -> web.Response:
    """Return a page with the choice of the scope, and its pending facts."""
    if call.scope:
        scopes = [{"scope": scope, "facts": 0}]
        waiting = len((await call.ask("memory.pending", scope=scope))["pending"])
    else:
        scopes = (await call.ask("memory.scopes"))["scopes"]
        waiting = next((one["pending"] for one in scopes if one["scope"] == scope), 0)
    return call.page(template, title, scope=scope, scopes=scopes, waiting=waiting, **values)


def _scope_of(call: Call) -> str:
    """Return the requested scope. Only the owner may request another person's. Raises
    `PageError`."""
    asked = call.form.get("scope") or call.query("scope")
    if call.scope and asked not in ("", call.scope):
        raise PageError(404, "There is no such memory.")
    return call.scope or asked or _OWNER


async def _find_fact(call: Call, scope: str, id: str) -> dict[str, Any]:
    """Return the fact with an id. Raises `PageError` if it no longer exists."""
    try:
        return await call.ask("memory.fact", scope=scope, id=id)
    except NanobotError as error:
        raise PageError(404, str(error), hint=error.hint) from None


def _expect_may_erase(call: Call, scope: str, *, erase: bool) -> None:
    if erase and (call.scope or scope != _OWNER):
        raise PageError(403, "Only the owner can erase, because erasing affects all scopes.")


def _tell_version(call: Call, number: int, what: str) -> None:
    call.tell(f"{what} (now version {number})." if number else "Nothing changed.")


def _one_of(text: str, known: Sequence[str]) -> str:
    return text if text in known else ""


def _diff_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a unified diff, each with its HTML element."""
    lines = text.splitlines()
    for line in lines[:_MOST_LINES]:
        if line.startswith("--- "):
            continue
        if line.startswith("+++ "):
            yield "b", line.removeprefix("+++ b/")
        elif line.startswith("@@"):
            yield "b", "…"
        elif line.startswith("+"):
            yield "ins", line
        elif line.startswith("-"):
            yield "del", line
        else:
            yield "span", line
    if len(lines) > _MOST_LINES:
        yield "b", f"… {pluralize(len(lines) - _MOST_LINES, 'more line')}"


ROUTES = {
    ("GET", "/memory"): Route(show_facts, everyone=True),
    ("GET", "/memory/fact"): Route(show_fact, everyone=True),
    ("POST", "/memory/edit"): Route(edit_fact, everyone=True),
    ("POST", "/memory/importance"): Route(set_importance, everyone=True),
    ("GET", "/memory/forget"): Route(show_forget_plan, everyone=True),
    ("POST", "/memory/forget"): Route(forget_fact, everyone=True),
    ("GET", "/memory/pending"): Route(show_pending, everyone=True),
    ("POST", "/memory/decide"): Route(decide_pending, everyone=True),
    ("GET", "/memory/versions"): Route(show_versions, everyone=True),
    ("GET", "/memory/version"): Route(show_version, everyone=True),
    ("POST", "/memory/restore"): Route(restore_version, everyone=True),
    ("GET", "/memory/notes"): Route(show_notes, everyone=True),
    ("GET", "/memory/history"): Route(show_history, everyone=True),
    ("GET", "/memory/search"): Route(search_memory, everyone=True),
}
