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
from nanobot.text import printable

MAX_ARGUMENTS = 2_000_000
"""Characters of JSON; a file that a model writes itself is far smaller."""

ModelT = TypeVar("ModelT", bound=BaseModel)


@cache
def parameters_of(model: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON Schema of `model` without what a language model can do without.

    Titles go, definitions are put where they are used (unless they are recursive), and "or null"
    goes where null is the default. Made once for each model; nobody changes it.
    """
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    compact: dict[str, Any] = _compact(schema, definitions, ())
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
    except RecursionError as error:
        raise CallRefused("the arguments are nested too deeply") from error
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 20) : error.pos + 20]
        raise CallRefused(
            f"the arguments are not valid JSON: {error.msg} at character {error.pos}, near {near!r}"
        ) from error
    except ValueError as error:  # a number with thousands of digits
        raise CallRefused(f"the arguments are not usable: {error}") from error


def _no_number(name: str) -> Any:
    raise CallRefused(f"the arguments hold {name}, which is not JSON")


def _explained(model: type[BaseModel], error: ValidationError) -> str:
    fields = list(model.model_fields)
    lines = ["the arguments do not fit:"]
    for problem in error.errors(include_url=False, include_context=False)[:8]:
        where = printable(".".join(map(str, problem["loc"]))[:80]) or "the arguments"
        if problem["type"] == "missing":
            lines.append(f"- {where}: is missing")
        elif problem["type"] == "extra_forbidden":
            near = get_close_matches(where, fields, 1)
            lines.append(
                f"- {where}: is not an argument" + (f"; did you mean {near[0]}?" if near else "")
            )
        else:
            given = repr(problem["input"])
            given = given if len(given) <= 60 else f"{given[:57]}..."
            reason = printable(problem["msg"].removeprefix("Value error, "))
            reason = reason.replace("Input should", "should")
            lines.append(f"- {where}: {reason}; it was {given}")
    required = [name for name, field in model.model_fields.items() if field.is_required()]
    optional = [name for name in fields if name not in required]
    lines.append(
        f"Required: {', '.join(required) or 'nothing'}."
        + (f" Optional: {', '.join(optional)}." if optional else "")
    )
    return "\n".join(lines)


def _compact(schema: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_compact(part, definitions, inside) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = _without_null(schema)
    if (name := _definition(schema)) and name not in inside:
        merged = {**definitions[name], **{k: v for k, v in schema.items() if k != "$ref"}}
        return _compact(merged, definitions, (*inside, name))
    if name:
        return {"type": "object"}  # recursive: the model learns the rest from what is refused
    compact = {
        key: _compact(value, definitions, inside)
        for key, value in schema.items()
        if key not in ("title", "properties") and (key, value) != ("additionalProperties", False)
    }
    if "properties" in schema:
        compact["properties"] = {
            field: _compact(inner, definitions, inside)
            for field, inner in schema["properties"].items()
        }
    return compact


def _definition(schema: Mapping[str, Any]) -> str:
    reference = schema.get("$ref", "")
    return reference.removeprefix("#/$defs/") if isinstance(reference, str) else ""


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    choices = schema.get("anyOf")
    if "default" not in schema or schema["default"] is not None or not isinstance(choices, list):
        return schema
    rest = [choice for choice in choices if choice != {"type": "null"}]
    others = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**others, **rest[0]} if len(rest) == 1 else {**others, "anyOf": rest}
