"""Plain tool schemas, for servers that refuse more, and validation of values.

JSON Schema has several ways to express one thing, and servers support some of them: Gemini has no
`const`, llama.cpp's grammars no unresolved `$ref`, others no list of types. A constraint that is
left out here is still checked when the tool is called. Sources:
https://ai.google.dev/api/caching#Schema, llama.cpp's grammars/README.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nanobot.providers.fields import items, mapping, string
from nanobot.providers.port import Toolset, ToolSpec

_KEPT = ("type", "description", "enum", "properties", "required", "items", "minimum", "maximum")
_DEEPEST = 12  # limit for a schema that refers to itself


def plain_tools(tools: Toolset) -> Toolset:
    return Toolset.of(
        ToolSpec(spec.name, spec.description, simplify_schema(spec.parameters, spec.parameters, 0))
        for spec in tools.specs
    )


def simplify_schema(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> dict[str, Any]:
    """Return a schema without references, alternatives, constants and lists of types."""
    if depth > _DEEPEST:
        return {"type": "object"}  # probably recursive
    schema = resolve_schema(schema, root)
    plain: dict[str, Any] = {name: schema[name] for name in _KEPT if name in schema}
    if "const" in schema:
        plain["enum"] = [schema["const"]]
    plain["type"] = type_of(schema)
    if plain["type"] == "object":
        properties = mapping(schema.get("properties")).items()
        plain["properties"] = {
            name: simplify_schema(mapping(value), root, depth + 1) for name, value in properties
        }
    if plain["type"] == "array":
        plain["items"] = simplify_schema(mapping(schema.get("items")), root, depth + 1)
    if any(not isinstance(value, str) for value in items(plain.get("enum"))):
        del plain["enum"]  # Gemini only accepts texts
    return plain


def resolve_schema(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge a schema's reference, alternatives and parts into it. Of alternatives the first that is
    not null counts."""
    for _ in range(_DEEPEST):
        if reference := string(schema.get("$ref")):
            schema = {**find_target(reference, root), **omit_fields(schema, "$ref")}
        elif given := [*items(schema.get("anyOf")), *items(schema.get("oneOf"))]:
            known = list(map(mapping, given))
            chosen = next((one for one in known if one.get("type") != "null"), known[0])
            schema = {**chosen, **omit_fields(schema, "anyOf", "oneOf")}
        elif parts := items(schema.get("allOf")):
            merged = merge_parts([resolve_schema(mapping(part), root) for part in parts])
            schema = {**merged, **omit_fields(schema, "allOf")}
        else:
            break
    return schema


def omit_fields(schema: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in names}


def merge_parts(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= {
            **part,
            "properties": {**merged.get("properties", {}), **mapping(part.get("properties"))},
            "required": [*merged.get("required", ()), *items(part.get("required"))],
        }
    return {name: value for name, value in merged.items() if value not in ({}, [])}


def find_target(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of the schema at a local reference such as `#/$defs/Place`."""
    found: object = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        if step:
            found = mapping(found).get(step.replace("~1", "/").replace("~0", "~"))
    return mapping(found)


def type_of(schema: Mapping[str, Any]) -> str:
    kinds = (schema.get("type"), *items(schema.get("type")))
    known = "object" if "properties" in schema else "array" if "items" in schema else "string"
    return next((one for one in map(string, kinds) if one not in ("", "null")), known)


_MOST_CHECKS = 20_000  # nested alternatives multiply
_DEEPEST_VALUE = 100  # levels of nesting

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}


def misfit(value: object, schema: Mapping[str, Any]) -> str:
    """Return where and why a JSON value does not fit a schema, or an empty text. Patterns and
    formats of texts are not checked."""
    return _Check(schema).find_problem(value, schema, "the answer")


class _Check:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left, self._depth = _MOST_CHECKS, 0

    def find_problem(self, value: object, schema: object, at: str) -> str:
        """Return why the value at a place does not fit, or an empty text."""
        if not isinstance(schema, Mapping):
            return f"{at} is not allowed" if schema is False else ""
        self._left -= 1
        if self._left < 0 or self._depth > _DEEPEST_VALUE:
            return "the schema is too complex to check"
        self._depth += 1
        checks = (
            check_type,
            check_choice,
            check_bounds,
            self._check_combinations,
            self._check_object,
            self._check_array,
        )
        found = next(filter(None, (check(value, schema, at) for check in checks)), "")
        self._depth -= 1
        return found

    def _check_combinations(self, value: object, schema: Mapping[str, Any], at: str) -> str:
        if reference := string(schema.get("$ref")):
            return self.find_problem(value, find_target(reference, self._root), at)
        for part in items(schema.get("allOf")):
            if found := self.find_problem(value, part, at):
                return found
        for name in ("anyOf", "oneOf"):
            found_in = [self.find_problem(value, part, at) for part in items(schema.get(name))]
            if found_in and all(found_in):
                return found_in[0]
            if name == "oneOf" and found_in.count("") > 1:
                return f"{at} matches more than one of its forms"
        return ""

    def _check_object(self, value: object, schema: Mapping[str, Any], at: str) -> str:
        if not isinstance(value, dict):
            return ""
        required = (name for name in items(schema.get("required")) if isinstance(name, str))
        missing = [name for name in required if name not in value]
        if missing:
            return f"{missing[0]!r} is missing from {at}"
        properties, others = mapping(schema.get("properties")), schema.get("additionalProperties")
        for name, inner in value.items():
            part = properties.get(name, others)
            if found := self.find_problem(inner, part, f"{name!r} in {at}"):
                return found
        return ""

    def _check_array(self, value: object, schema: Mapping[str, Any], at: str) -> str:
        if not isinstance(value, list):
            return ""
        each = (
            self.find_problem(inner, schema.get("items"), f"item {n} of {at}")
            for n, inner in enumerate(value, 1)
        )
        return next(filter(None, each), "")


def check_type(value: object, schema: Mapping[str, Any], at: str) -> str:
    given = schema.get("type")
    kinds = [given] if isinstance(given, str) else [str(kind) for kind in items(given)]
    own = {kind for kind, types in _TYPES.items() if isinstance(value, types)}
    if isinstance(value, bool):
        own = {"boolean"}
    elif isinstance(value, float) and value.is_integer():
        own.add("integer")
    if not kinds or not own.isdisjoint(kinds):
        return ""
    return f"{at} must be of type {' or '.join(kinds)}"


def check_choice(value: object, schema: Mapping[str, Any], at: str) -> str:
    allowed = items(schema.get("enum")) if "enum" in schema else []
    if "const" in schema:
        allowed = [schema["const"]]
    same = any(one == value and isinstance(one, bool) == isinstance(value, bool) for one in allowed)
    return "" if same or not allowed else f"{at} is not one of the allowed values"


def check_bounds(value: object, schema: Mapping[str, Any], at: str) -> str:
    size: float | None = None
    least, most = "minimum", "maximum"
    if isinstance(value, int | float) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str | list):
        size = len(value)
        unit = "Length" if isinstance(value, str) else "Items"
        least, most = f"min{unit}", f"max{unit}"
    if size is None:
        return ""
    low, high = schema.get(least), schema.get(most)
    if isinstance(low, int | float) and size < low:
        return f"{at} is less than {least} {low}"
    if isinstance(high, int | float) and size > high:
        return f"{at} is more than {most} {high}"
    return ""
