"""Validation of JSON values by JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest

from nanobot.providers.schemas import misfit

PLACE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5},
        "kind": {"enum": ["lake", 1, None]},
        "depth": {"type": ["integer", "null"], "minimum": 0, "maximum": 10},
        "near": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
        "how": {"anyOf": [{"const": "far"}, {"type": "number"}]},
    },
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "value",
    [
        {"name": "Ito"},
        {"name": "Ito", "kind": None, "depth": 3.0, "how": 1.5},
        {"name": "Ito", "near": [{"name": "Abe", "near": []}], "how": "far"},
    ],
)
def test_a_value_that_fits(value: object) -> None:
    assert misfit(value, PLACE) == ""


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "the answer must be of type object"),
        ({}, "'name' is missing from the answer"),
        ({"name": 1}, "'name' in the answer must be of type string"),
        ({"name": ""}, "less than minLength 1"),
        ({"name": "Ito", "more": 1}, "'more' in the answer is not allowed"),
        ({"name": "Ito", "kind": True}, "'kind' in the answer is not one of the allowed values"),
        ({"name": "Ito", "depth": 1.5}, "must be of type integer or null"),
        ({"name": "Ito", "depth": True}, "must be of type integer or null"),
        ({"name": "Ito", "depth": 11}, "more than maximum 10"),
        ({"name": "Ito", "near": [{}]}, "'name' is missing from item 1 of 'near' in the answer"),
        ({"name": "Ito", "near": [{"name": "a"}] * 3}, "more than maxItems 2"),
        ({"name": "Ito", "how": "near"}, "not one of the allowed values"),
    ],
)
def test_a_value_that_does_not_fit_and_why(value: object, why: str) -> None:
    assert why in misfit(value, PLACE)


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"allOf": [{"type": "object"}, {"required": ["a"]}]}, {"a": 1}, True),
        ({"allOf": [{"type": "object"}, {"required": ["a"]}]}, {}, False),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}, True),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1, "b": 1}, False),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"required": ["a"]}}}, {}, False),
        ({"additionalProperties": {"type": "string"}}, {"a": 1}, False),
        ({"properties": {"a": {"const": 1}}}, {"a": True}, False),
        ({"properties": {"a": True, "b": False}}, {"a": 1}, True),
        ({"properties": {"a": True, "b": False}}, {"b": 1}, False),
        ({"properties": {"a": {"type": "string", "pattern": "^x$"}}}, {"a": "y"}, True),
        ({"properties": 1, "required": "a", "items": 3, "anyOf": {}}, {"a": 1}, True),
    ],
)
def test_parts_are_put_together(schema: dict[str, Any], value: object, fits: bool) -> None:
    assert (misfit(value, schema) == "") == fits


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"allOf": [{"anyOf": [{"$ref": "#"}] * 50}] * 50},
    ],
)
def test_a_schema_that_multiplies_is_given_up_soon(schema: dict[str, Any]) -> None:
    assert "too complex" in misfit({"a": 1}, schema)  # otherwise it would take forever
