"""Settings: every key with its value, source and meaning, and changes to it.

A change is planned first and shown as a diff of the file. Applying it requires the hash of the
plan, so that only the shown change is written. Security settings can only be changed in the
terminal, and the page shows the command."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from nanobot.errors import NanobotError
from nanobot_web.pages.setup import is_allowed, load_setup
from nanobot_web.requests import to_sentences
from nanobot_web.site import RESTART_SECONDS, SETUP, Call, PageError, Plan, Route

_INTEGER = re.compile(r"-?[0-9]{1,15}")
_EDITABLE = ("boolean", "choice", "integer", "number", "text")  # the types with a field on the page


async def show_settings(call: Call) -> web.StreamResponse:
    shown = await call.ask("config.show")
    query = call.query("q").strip()
    found = [format_key(one) for one in shown["keys"] if _matches(one, query)]
    only_set = bool(call.query("set"))
    if only_set:
        found = [one for one in found if one["source"] != "default"]
    sections, section = _group_keys(found, shown["sections"]), call.query("section")
    if section:
        sections = [one for one in sections if one["name"] == section]
    return call.page(
        "settings.html",
        "Settings",
        sections=sections,
        section=section,
        is_index=not any((query, section, only_set)),
        query=query,
        only_set=only_set,
        count=len(found),
        warnings=shown["warnings"],
        restart_needed=shown["restart_needed"],
        changed=call.query("changed"),
    )


async def show_model(call: Call) -> web.StreamResponse:
    about = await call.ask("status.conversation", key=f"web:{call.visitor.account}")
    allowed = is_allowed(call, await load_setup(call))
    return call.page("model.html", "Model", about=about, allowed=allowed, setup=SETUP)


async def edit_setting(
    call: Call, key: str = "", *, value: str | None = None, error: str = ""
) -> web.StreamResponse:
    """Show the form of one key, after a mistake with the typed text and the error."""
    key = key or call.query("key")
    one = await _find_key(call, key)
    typed = one["text"] if value is None else value
    return call.page(
        "setting.html",
        key,
        status=400 if error else 200,
        one=one,
        typed=typed,
        editable=one["editable"],
        error=error,
        plan=None,
    )


async def plan_change(call: Call) -> web.StreamResponse:
    """Show the effect of a change before it is written."""
    key, typed = call.form.get("key", ""), call.form.get("value", "")
    one, is_reset = await _find_key(call, key), call.form.get("do") == "reset"
    if not one["editable"]:
        raise PageError(403, f"You can change {key} only in the terminal.")
    try:
        value = None if is_reset else parse_value(one, typed)
        plan, number = await make_plan(call, {key: value}, back="/settings")
    except ValueError as error:
        return await edit_setting(call, key, value=typed, error=str(error))
    except NanobotError as error:
        return await edit_setting(call, key, value=typed, error=to_sentences(error))
    given: dict[str, Any] = {"one": one, "typed": typed, "editable": True, "error": ""}
    return call.page("setting.html", key, plan=plan, number=number, **given)


async def make_plan(
    call: Call, changes: Mapping[str, object], *, back: str
) -> tuple[Mapping[str, Any], str]:
    """Return the effect of changes, and the name of this plan. After it is applied, the page `back`
    is shown. Raises `NanobotError`."""
    plan = await call.ask("config.plan", changes=changes)
    shown = Plan(secrets.token_hex(16), changes, plan["hash"], back)
    call.site.plans[call.visitor.session] = shown
    return plan, shown.name


async def apply_change(call: Call) -> web.StreamResponse:
    """Write the change that this browser was shown. The form only has its name."""
    shown = call.site.plans.get(call.visitor.session)
    if shown is None or shown.name != call.form.get("plan", ""):
        raise PageError(409, "This change has expired.", hint="Open the setting again.")
    del call.site.plans[call.visitor.session]
    key = next(iter(shown.changes))
    try:
        await call.act("config.apply", changes=shown.changes, expected=shown.hash)
    except NanobotError as error:
        return await edit_setting(call, key, error=to_sentences(error))
    return call.back(shown.back, changed=key)


async def ask_restart(call: Call) -> web.StreamResponse:
    """Show the work that a restart would interrupt."""
    found = await call.ask("status")
    return call.page("restart.html", "Restart", running=found["turns_running"], done=False)


async def restart(call: Call) -> web.StreamResponse:
    found = await call.act("restart", sure=True, seconds=RESTART_SECONDS)
    return call.page("restart.html", "Restart", running=found["turns_running"], done=True)


async def _find_key(call: Call, key: str) -> dict[str, Any]:
    shown = await call.ask("config.show")
    found = next((one for one in shown["keys"] if one["key"] == key), None)
    if found is None:
        raise PageError(404, f"There is no setting {key!r}.")
    return format_key(found)


def _matches(one: Mapping[str, Any], query: str) -> bool:
    text = f"{one['key']} {one['description']}".casefold()
    return all(word in text for word in query.casefold().split())


def format_key(one: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a key for the page."""
    return {
        **one,
        "text": _format_value(one["value"]),
        "default_text": _format_value(one["default"]),
        "section": one["key"].partition(".")[0],
        "editable": one["type"] in _EDITABLE and not one["terminal_only"],
    }


def _format_value(value: object) -> str:
    """Return a value in the form in which a person types it."""
    match value:
        case None:
            return ""
        case str():
            return value
        case list() if all(isinstance(item, str) for item in value):
            return ", ".join(value)
        case float() if value.is_integer():
            return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def parse_value(one: Mapping[str, Any], typed: str) -> object:
    """Parse a typed value for a key. Raises `ValueError` with a message for people."""
    text = typed.strip()
    match one["type"]:
        case "boolean":
            return text == "true"
        case "integer":
            if not _INTEGER.fullmatch(text):
                raise ValueError("Enter a whole number, such as 20.")
            return int(text)
        case "number":
            try:
                number = float(text)
            except ValueError:
                number = math.nan
            if not math.isfinite(number):
                raise ValueError("Enter a number, such as 0.5.")
            return int(number) if number.is_integer() else number
    return typed if one["type"] == "text" else text


def _group_keys(
    found: Sequence[Mapping[str, Any]], about: Mapping[str, str]
) -> list[dict[str, object]]:
    """Group the keys by section, each with the first paragraph of its description."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for one in found:
        by_name.setdefault(one["section"], []).append(one)
    return [
        {
            "name": name,
            "about": " ".join(about.get(name, "").partition("\n\n")[0].split()),
            "keys": keys,
        }
        for name, keys in by_name.items()
    ]


ROUTES = {
    ("GET", "/settings"): Route(show_settings),
    ("GET", "/settings/model"): Route(show_model),
    ("GET", "/settings/edit"): Route(edit_setting),
    ("POST", "/settings/plan"): Route(plan_change),
    ("POST", "/settings/apply"): Route(apply_change),
    ("GET", "/settings/restart"): Route(ask_restart),
    ("POST", "/settings/restart"): Route(restart),
}
