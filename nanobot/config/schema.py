"""The settings described, as a JSON Schema for editors."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from inspect import getsource
from itertools import pairwise
from textwrap import dedent
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import (
    GenerateJsonSchema,
    JsonSchemaMode,
    JsonSchemaValue,
    models_json_schema,
)
from pydantic_core.core_schema import ModelSchema

from nanobot.config.channels import (
    BrokenAdapter,
    installed_channels,
    options_model,
)
from nanobot.config.settings import SECTIONS, ChannelSettings, OwnerSettings

Json = dict[str, Any]


@cache
def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """What each key means: the text below it in the class, or the description of its field."""
    found = {}
    for kind in reversed(model.__mro__):
        if kind is BaseModel or not issubclass(kind, BaseModel):
            continue
        try:
            (definition,) = ast.parse(dedent(getsource(kind))).body
        except OSError:  # an adapter without its source: its fields may have descriptions
            continue
        assert isinstance(definition, ast.ClassDef)
        for statement, text in pairwise(definition.body):
            match statement, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=key)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ):
                    found[key] = " ".join(words.split())
    fields = model.model_fields.items()
    return found | {key: field.description for key, field in fields if field.description}


class _Described(GenerateJsonSchema):
    """Puts the meaning of each key beside it."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        meanings = descriptions(model)
        for key, value in made.get("properties", {}).items():
            if key in meanings:
                value["description"] = meanings[key]
        return made


def definitions(models: Iterable[type[BaseModel]]) -> tuple[dict[type[BaseModel], Json], Json]:
    """A schema for each model, and the definitions that they refer to."""
    inputs: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (model, "validation") for model in models
    ]
    references, made = models_json_schema(inputs, schema_generator=_Described)
    shared: Json = made["$defs"]
    del shared["BaseModel"]  # stands for adapters' own keys
    shared["ChannelSettings"]["properties"].pop("options")
    return {model: references[(model, mode)] for model, mode in inputs}, shared


def definition_of(schema: Json, shared: Json) -> Json:
    """The definition that a schema refers to; empty where it refers to none."""
    found: Json = shared.get(schema.get("$ref", "").removeprefix("#/$defs/"), {})
    return found


def config_schema() -> Json:
    """A JSON Schema (draft 2020-12) of config.yaml, the installed channels included."""
    adapters = dict(_adapter_models())
    tops: list[type[BaseModel]] = [
        *SECTIONS.values(),
        OwnerSettings,
        ChannelSettings,
        *adapters.values(),
    ]
    models, shared = definitions(tops)
    common = shared.pop("ChannelSettings")["properties"]
    channels = {}
    for name, model in adapters.items():
        own = definition_of(models[model], shared)
        channels[name] = {
            "type": "object",
            "additionalProperties": False,
            "properties": {**common, **own.get("properties", {})},
            **{key: own[key] for key in ("required",) if key in own},
        }
    fallbacks = shared["ModelSettings"]["properties"]["fallbacks"]
    fallbacks["items"] = {"anyOf": [{"type": "string", "minLength": 1}, fallbacks["items"]]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nanobot's config.yaml",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **{name: models[model] for name, model in SECTIONS.items()},
            **shared.pop("OwnerSettings")["properties"],
            "channels": {
                "description": "The channels to run, by name.",
                "type": "object",
                "additionalProperties": False,
                "properties": channels,
            },
        },
        "$defs": shared,
    }


def _adapter_models() -> Iterator[tuple[str, type[BaseModel]]]:
    for name, point in sorted(installed_channels().items()):
        # A broken one has no schema; loading a configuration that names it says why.
        with suppress(BrokenAdapter):
            yield name, options_model(point)
