"""What a model is told about a tool's arguments, and what becomes of the arguments it sends.

The schema is kept short, because every request carries it. Parsing is tolerant where only one thing
can be meant (arguments encoded twice, nothing at all for a tool that needs nothing), and otherwise
says field by field what to change. What the model wrote is repeated there on one line and with its
control characters escaped: an error never looks like anything but an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nanobot.errors import CallRefused
from nanobot.text import printable, shortened

MAX_ARGUMENTS = 2_000_000
"""Characters of JSON; a file that a model writes itself is far smaller."""

ModelT = TypeVar("ModelT", bound=BaseModel)


@cache
def parameters_of(model: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON Schema of `model` without what a language model can do without.

    Titles go, definitions are put where they are used, and "or null" goes where null is the
    default. Made once for each model; nobody changes it.
    """
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    compact: dict[str, Any] = _compact(schema, definitions)
    compact.pop("description", None)  # the class's docstring; the tool has a description
    compact.setdefault("properties", {})
    return compact


def parse_arguments(model: type[ModelT], text: str) -> ModelT:
    """The arguments that the model's JSON holds. Raises `ToolError` saying what to change."""
    values = _object(text)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise CallRefused(_explained(model, error)) from error


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


def _explained(model: type[BaseModel], error: ValidationError) -> str:
    fields = model.model_fields
    lines = ["the arguments do not fit:"]
    for problem in error.errors(include_url=False, include_context=False)[:8]:
        where = printable(".".join(map(str, problem["loc"]))[:80]) or "the arguments"
        if problem["type"] == "missing":
            lines.append(f"- {where}: is missing")
        elif problem["type"] == "extra_forbidden":
            near = get_close_matches(where, fields, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            lines.append(f"- {where}: is not an argument{meant}")
        else:
            given = shortened(repr(problem["input"]), 60)
            reason = printable(problem["msg"]).replace("Input should", "should")
            lines.append(f"- {where}: {reason}; it was {given}")
    required = [name for name, field in fields.items() if field.is_required()]
    optional = [name for name in fields if name not in required]
    others = f" Optional: {', '.join(optional)}." if optional else ""
    return "\n".join([*lines, f"Required: {', '.join(required) or 'nothing'}.{others}"])


def _compact(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema without what says nothing. Only definitions that are not recursive can be put in the
    place of their references."""
    if isinstance(schema, list):
        return [_compact(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = _without_null(schema)
    if name := schema.get("$ref", "").removeprefix("#/$defs/"):
        others = {key: value for key, value in schema.items() if key != "$ref"}
        return _compact({**definitions[name], **others}, definitions)
    compact = {
        key: _compact(value, definitions)
        for key, value in schema.items()
        if key not in ("title", "properties") and (key, value) != ("additionalProperties", False)
    }
    if "properties" in schema:
        fields = schema["properties"].items()
        compact["properties"] = {field: _compact(inner, definitions) for field, inner in fields}
    return compact


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """An optional argument is left out, not null."""
    choices = schema.get("anyOf")
    if "default" not in schema or schema["default"] is not None or not isinstance(choices, list):
        return schema
    rest = [choice for choice in choices if choice != {"type": "null"}]
    others = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**others, **rest[0]} if len(rest) == 1 else {**others, "anyOf": rest}
