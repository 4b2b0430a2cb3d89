"""The settings described, as a JSON Schema for editors."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from inspect import getsource
from itertools import pairwise
from textwrap import dedent
from typing import Any

from nanobot.config.channels import (
    BrokenAdapter,
    ChannelSettings,
    OwnerSettings,
    installed_channels,
    options_model,
)
from nanobot.config.model import NamedModels
from nanobot.config.settings import SECTIONS
from nanobot.validation import Checked, json_schema

Json = dict[str, Any]


@cache
def descriptions(model: type[Checked]) -> Mapping[str, str]:
    """What each key means: the text below it in the class."""
    found = {}
    for kind in reversed(model.__mro__):
        if kind is Checked or not issubclass(kind, Checked):
            continue
        definition = _definition(kind)
        if definition is None:  # an adapter without its source
            continue
        for statement, text in pairwise(definition.body):
            match statement, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=key)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ):
                    found[key] = " ".join(words.split())
    return found


def _definition(kind: type) -> ast.ClassDef | None:
    """The source of a class, parsed; None where it is not there."""
    if "<locals>" not in kind.__qualname__:
        return _definitions(kind.__module__).get(kind.__qualname__)
    with suppress(OSError):
        (found,) = ast.parse(dedent(getsource(kind))).body
        return found if isinstance(found, ast.ClassDef) else None
    return None


@cache
def _definitions(module: str) -> Mapping[str, ast.ClassDef]:
    """The classes of a module by name: each module is parsed once, which takes a while."""
    with suppress(OSError, TypeError, KeyError):
        body = ast.parse(getsource(sys.modules[module])).body
        return {one.name: one for one in body if isinstance(one, ast.ClassDef)}
    return {}


def config_schema() -> Json:
    """A JSON Schema (draft 2020-12) of config.yaml, the installed channels included."""
    channels = {name: channel_schema(name) for name in installed_channels()}
    sections = {name: section_schema(model) for name, model in SECTIONS.items()}
    fallbacks = sections["model"]["properties"]["fallbacks"]
    fallbacks["items"] = {"anyOf": [{"type": "string", "minLength": 1}, fallbacks["items"]]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nanobot's config.yaml",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **sections,
            **section_schema(NamedModels)["properties"],
            **section_schema(OwnerSettings)["properties"],
            "channels": {
                "description": "The channels to run, by name.",
                "type": "object",
                "additionalProperties": False,
                "properties": channels,
            },
        },
    }


def section_schema(model: type[Checked], *, described: bool = True) -> Json:
    """The schema of a section: no keys beyond its own, each with its meaning, which takes a while
    to find, where it is to be `described`."""
    schema = json_schema(model, descriptions if described else None)
    schema["properties"].pop("options", None)  # adapters' own keys stand beside the common ones
    return _closed(schema)


def channel_schema(name: str, *, described: bool = True) -> Json:
    """The schema of a channel: the common keys, and its adapter's own where that can be loaded."""
    common = section_schema(ChannelSettings, described=described)
    with suppress(BrokenAdapter):
        own = section_schema(options_model(installed_channels().get(name)), described=described)
        common = {**own, "properties": {**common["properties"], **own["properties"]}}
    return common


def _closed(schema: Json) -> Json:
    """`schema` without room for other keys, in it and within."""
    inner = schema.get("additionalProperties", schema.get("items"))
    if isinstance(inner, dict):
        _closed(inner)
    if "properties" in schema:
        schema["additionalProperties"] = False
        for value in schema["properties"].values():
            _closed(value)
    return schema
