"""Tool schemas in the plainest words, for servers that refuse more.

JSON Schema has several ways to express one thing, and servers support some of them: Gemini has no
`const`, llama.cpp's grammars no unresolved `$ref`, others no list of types. A constraint that is
left out here is still checked when the tool is called. Sources: https://ai.google.dev/api/caching#Schema,
llama.cpp's grammars/README.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nanobot.providers.fields import items, mapping, string
from nanobot.providers.port import Toolset, ToolSpec

_KEPT = ("type", "description", "enum", "properties", "required", "items", "minimum", "maximum")
_DEEPEST = 12
"""A schema that refers to itself ends there."""


def plain_tools(tools: Toolset) -> Toolset:
    """Return the tools with plain schemas."""
    return Toolset.of(
        ToolSpec(spec.name, spec.description, plain_schema(spec.parameters)) for spec in tools.specs
    )


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without references, alternatives, constants and lists of types."""
    return _plain(schema, schema, 0)


def _plain(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        return {"type": "object"}
    schema = _resolved(schema, root)
    plain: dict[str, Any] = {name: schema[name] for name in _KEPT if name in schema}
    if "const" in schema:
        plain["enum"] = [schema["const"]]
    plain["type"] = _type_of(schema, plain)
    if plain["type"] == "object":
        properties = mapping(schema.get("properties")).items()
        plain["properties"] = {
            name: _plain(mapping(value), root, depth + 1) for name, value in properties
        }
    if plain["type"] == "array":
        plain["items"] = _plain(mapping(schema.get("items")), root, depth + 1)
    if any(not isinstance(value, str) for value in items(plain.get("enum"))):
        del plain["enum"]  # Gemini's are texts
    return plain


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema with its reference, its alternatives and its parts put together: of
    alternatives the first that is not null."""
    for _ in range(_DEEPEST):
        if reference := string(schema.get("$ref")):
            rest = {name: value for name, value in schema.items() if name != "$ref"}
            schema = {**_target(reference, root), **rest}
        elif alternatives := _alternatives(schema):
            rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
            schema = {**alternatives[0], **rest}
        elif parts := items(schema.get("allOf")):
            rest = {name: value for name, value in schema.items() if name != "allOf"}
            schema = {**_merged([_resolved(mapping(part), root) for part in parts]), **rest}
        else:
            break
    return schema


def _alternatives(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = [mapping(one) for name in ("anyOf", "oneOf") for one in items(schema.get(name))]
    return [one for one in given if one.get("type") != "null"] or given


def _merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if name == "properties":
                merged[name] = {**mapping(merged.get(name)), **mapping(value)}
            elif name == "required":
                merged[name] = [*items(merged.get(name)), *items(value)]
            else:
                merged[name] = value
    return merged


def _target(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of the schema that a local reference such as `#/$defs/Place` names."""
    found: object = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        if step:
            found = mapping(found).get(step.replace("~1", "/").replace("~0", "~"))
    return mapping(found)


def _type_of(schema: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    given = schema.get("type")
    if isinstance(given, list):
        given = next((one for one in given if one != "null"), "")
    if isinstance(given, str) and given:
        return given
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else "string"
