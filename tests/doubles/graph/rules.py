"""Invalid requests, independent of the state of the world: unknown, missing or too long fields, or
wrong types.

Lengths are counted in UTF-16 code units, the strictest reading of "characters"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from tests.doubles.graph.values import Json, as_object, objects, string

TEXT_LIMIT = 4096
CAPTION_LIMIT = 1024
BUTTONS_TEXT_LIMIT = 1024

KINDS = ("image", "audio", "video", "document", "sticker")
"""The kinds of files. Each is a type of message and the name of its object."""

_PERSON = re.compile(r"\+?[1-9]\d{6,14}")
_USER = re.compile(r"[A-Z]{2}\.(ENT\.)?[A-Za-z0-9]{1,128}")
_READ = {"messaging_product", "status", "message_id", "typing_indicator"}
_MESSAGE = {
    "messaging_product",
    "recipient_type",
    "to",
    "recipient",
    "type",
    "context",
    "biz_opaque_callback_data",
}
_NUMBER = {"id", "display_phone_number", "verified_name", "quality_rating", "platform_type"}


def message_problem(body: Json) -> str:
    """Return the first reason to reject a body posted to `messages`, or ""."""
    if body.get("messaging_product") != "whatsapp":
        return "messaging_product must be whatsapp"
    return _read(body) if "status" in body else _check_sent(body)


def number_problem(query: Json) -> str:
    """Return the first problem of a query about the phone number, or ""."""
    asked = set(filter(None, string(query.get("fields")).split(",")))
    unknown = sorted(asked - _NUMBER)
    return f"Tried accessing nonexisting field ({unknown[0]})" if unknown else ""


def upload_problem(form: Json) -> str:
    """Return the first problem of the fields of an upload, or ""."""
    if form.get("messaging_product") != "whatsapp":
        return "messaging_product must be whatsapp"
    return _check_keys(form, {"messaging_product", "type"}, "the form")


def units(text: str) -> int:
    """Return the length of `text` in UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _read(body: Json) -> str:
    if problem := _check_keys(body, _READ, "the body"):
        return problem
    if body["status"] != "read" or not string(body.get("message_id")):
        return "status must be read, and message_id say of which message"
    if "typing_indicator" in body and body["typing_indicator"] != {"type": "text"}:
        return "typing_indicator must be of the type text"
    return ""


def _check_sent(body: Json) -> str:
    kind = string(body.get("type"))
    check = _CHECKS.get(kind)
    if check is None:
        return f"this double has no messages of the type {kind!r}"
    content = body.get(kind)
    if not isinstance(content, dict):
        return f"{kind} is required and must be an object"
    return (
        _check_keys(body, {*_MESSAGE, kind}, "the body")
        or _check_recipient(body)
        or _answers(body)
        or check(content)
    )


def _check_recipient(body: Json) -> str:
    kind = body.get("recipient_type", "individual")
    if kind == "group":
        return "" if string(body.get("to")) else "to must be the id of a group"
    if kind != "individual":
        return "recipient_type must be individual or group"
    if ("to" in body) == ("recipient" in body):
        return "either to (a phone number) or recipient (a user id) is required"
    if "to" in body and not _PERSON.fullmatch(string(body["to"])):
        return "to must be a phone number in digits"
    if "recipient" in body and not _USER.fullmatch(string(body["recipient"])):
        return "recipient must be a user id"
    return ""


def _answers(body: Json) -> str:
    if "context" not in body:
        return ""
    context = as_object(body["context"])
    good = set(context) == {"message_id"} and string(context["message_id"])
    return "" if good else "context must name a message_id and nothing else"


def _text(content: Json) -> str:
    if not isinstance(content.get("preview_url", False), bool):
        return "text.preview_url must be a boolean"
    return _check_keys(content, {"body", "preview_url"}, "text") or _words(
        content.get("body"), TEXT_LIMIT, "text.body"
    )


def _file(kind: str) -> Callable[[Json], str]:
    keys = {"id"}
    if kind in ("image", "video", "document"):
        keys.add("caption")
    if kind == "document":
        keys.add("filename")

    def check(content: Json) -> str:
        if "link" in content:
            return "this double does not fetch files from elsewhere"
        allowed = keys | ({"voice"} if kind == "audio" else set())
        return (
            _check_keys(content, allowed, kind)
            or ("" if string(content.get("id")) else f"{kind}.id is required")
            or (
                _words(content["caption"], CAPTION_LIMIT, "caption") if "caption" in content else ""
            )
        )

    return check


def _interactive(content: Json) -> str:
    if problem := _check_keys(
        content, {"type", "body", "action", "header", "footer"}, "interactive"
    ):
        return problem
    words, action = as_object(content.get("body")).get("text"), as_object(content.get("action"))
    if content.get("type") == "button":
        return _words(words, BUTTONS_TEXT_LIMIT, "interactive.body.text") or _buttons(action)
    if content.get("type") == "list":
        return _words(words, TEXT_LIMIT, "interactive.body.text") or _list(action)
    return "interactive.type must be button or list"


def _buttons(action: Json) -> str:
    buttons = objects(action.get("buttons"))
    if not 1 <= len(buttons) <= 3:
        return "there must be from 1 to 3 buttons"
    if any(button.get("type") != "reply" for button in buttons):
        return "a button must be of the type reply"
    replies = [as_object(button.get("reply")) for button in buttons]
    return _choices(replies, ids=256, titles=20)


def _list(action: Json) -> str:
    sections = objects(action.get("sections"))
    rows = [row for section in sections for row in objects(section.get("rows"))]
    if problem := _words(action.get("button"), 20, "action.button"):
        return problem
    if not 1 <= len(rows) <= 10:
        return "a list must have from 1 to 10 rows"
    if len(sections) > 1 and not all(string(section.get("title")) for section in sections):
        return "each of several sections needs a title"
    if any(units(string(row.get("description"))) > 72 for row in rows):
        return "the description of a row is too long"
    return _choices(rows, ids=200, titles=24)


def _choices(choices: Iterable[Json], *, ids: int, titles: int) -> str:
    seen: set[str] = set()
    for choice in choices:
        problem = _words(choice.get("id"), ids, "the id of a button") or _words(
            choice.get("title"), titles, "the title of a button"
        )
        if problem:
            return problem
        marks = {f"id {choice['id']}", f"title {choice['title']}"}
        if marks & seen:
            return "two buttons have the same id or title"
        seen |= marks
    return ""


def _words(value: object, limit: int, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        return f"{name} is required"
    return f"{name} is longer than {limit}" if units(value) > limit else ""


def _check_keys(value: Json, allowed: set[str], where: str) -> str:
    unknown = sorted(set(value) - allowed)
    return f'Unexpected key "{unknown[0]}" on {where}' if unknown else ""


_CHECKS: dict[str, Callable[[Json], str]] = {
    "text": _text,
    "interactive": _interactive,
    **{kind: _file(kind) for kind in KINDS},
}
