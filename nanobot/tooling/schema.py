"""What a model is told about a tool's arguments, and what becomes of the arguments it sends.

The schema is kept short, because every request carries it. Parsing is tolerant where only one thing
can be meant (arguments encoded twice, nothing at all for a tool that needs nothing), and otherwise
says field by field what to change. What the model wrote is repeated there on one line and with its
control characters escaped: an error never looks like anything but an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from nanobot.errors import CallRefused
from nanobot.text import printable, shortened
from nanobot.tooling import Arguments
from nanobot.validation import Fault, Invalid, build, dotted, fields_of, json_schema

MAX_ARGUMENTS = 2_000_000
"""Characters of JSON; a file that a model writes itself is far smaller."""

A = TypeVar("A", bound=Arguments)


@cache
def parameters_of(model: type[Arguments]) -> Mapping[str, Any]:
    """The JSON Schema of `model`, made once. Every request carries it, so it has what a model needs
    to choose: lengths, a minimum of 0 or 1, and the defaults of all but a choice, are left out."""
    return _brief(json_schema(model))


_UNSAID = frozenset({"minLength", "maxLength", "minItems", "maxItems"})


def _brief(schema: Mapping[str, Any]) -> dict[str, Any]:
    brief = {key: value for key, value in schema.items() if key not in _UNSAID}
    if brief.get("minimum", 2) <= 1:
        del brief["minimum"]
    if choices := list(filter(None, brief.pop("enum", ()))):
        brief["enum"] = choices
    if not (choices and brief.get("default")):
        brief.pop("default", None)
    if "items" in brief:
        brief["items"] = _brief(brief["items"])
    if "properties" in brief:
        brief["properties"] = {key: _brief(one) for key, one in brief["properties"].items()}
    return brief


def parse_arguments(model: type[A], text: str) -> A:
    """The arguments that the model's JSON holds. Raises `ToolError` saying what to change."""
    values = _object(text)
    try:
        return build(model, values)
    except Invalid as error:
        raise CallRefused(_explained(model, error.faults)) from error


def _object(text: str) -> dict[str, Any]:
    value = _load(text)
    if isinstance(value, str) and value.lstrip()[:1] in ("{", ""):
        value = _load(value)  # encoded twice
    if value is None:
        return {}
    if not isinstance(value, dict):
        kind = {str: "a string", list: "a list", bool: "true or false"}.get(type(value), "a number")
        raise CallRefused(f"the arguments must be a JSON object, not {kind}")
    return value


def _load(text: str) -> Any:
    if len(text) > MAX_ARGUMENTS:
        raise CallRefused(f"the arguments are too large ({len(text):,} characters)")
    if not text.strip():
        return None
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise CallRefused(f"the arguments are not valid JSON: {error}") from error


def _no_number(name: str) -> Any:
    raise CallRefused(f"the arguments hold {name}, which is not JSON")


def _explained(model: type[Arguments], faults: Sequence[Fault]) -> str:
    lines = ["the arguments do not fit:"]
    for fault in faults[:8]:
        where = printable(dotted(fault.key)[:80]) or "the arguments"
        given = f"; it was {shortened(repr(fault.given), 60)}" if fault.given is not None else ""
        hint = f" {printable(fault.hint)}" if fault.hint else ""
        lines.append(f"- {where}: {printable(fault.message)}{given}.{hint}")
    fields = fields_of(model)
    required = [name for name, field in fields.items() if field.required]
    optional = [name for name in fields if name not in required]
    others = f" Optional: {', '.join(optional)}." if optional else ""
    return "\n".join([*lines, f"Required: {', '.join(required) or 'nothing'}.{others}"])
