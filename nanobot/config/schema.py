"""The settings described: as a JSON Schema for editors, and as the Markdown table of
docs/configuration.md.

python -m nanobot.config.schema            say whether the table is current (exit code 1 if not)
python -m nanobot.config.schema --write    rewrite it
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from inspect import getsource
from itertools import pairwise
from pathlib import Path
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
from nanobot.config.memory import OwnerSettings
from nanobot.config.settings import SECTIONS, ChannelSettings


def kept_current(
    page: Path, render: Callable[[str], str], what: str, arguments: Sequence[str] | None = None
) -> int:
    """The command line of a generated page: check it or, with --write, rewrite it; the exit code.
    `render` makes it from the present text, empty where there is none; `what` says what is made."""
    parser = argparse.ArgumentParser(description=f"Check {what}.")
    parser.add_argument("--write", action="store_true", help="rewrite it")
    parser.add_argument("page", nargs="?", type=Path, default=page)
    chosen = parser.parse_args(arguments)
    place: Path = chosen.page
    old = place.read_text(encoding="utf-8") if place.exists() else ""
    new = render(old)
    if old == new:
        return 0
    if chosen.write:
        place.write_text(new, encoding="utf-8")
        return 0
    sys.stderr.write(f"{place}: {what} is out of date; run this with --write\n")
    return 1


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


def _definitions(models: Iterable[type[BaseModel]]) -> tuple[dict[type[BaseModel], Json], Json]:
    """A schema for each model, and the definitions that they refer to."""
    inputs: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (model, "validation") for model in models
    ]
    references, shared = models_json_schema(inputs, schema_generator=_Described)
    definitions: Json = shared["$defs"]
    del definitions["BaseModel"]  # stands for adapters' own keys
    definitions["ChannelSettings"]["properties"].pop("options")
    return {model: references[(model, mode)] for model, mode in inputs}, definitions


def _target(schema: Json, definitions: Json) -> Json:
    """The definition that a schema refers to; empty where it refers to none."""
    found: Json = definitions.get(schema.get("$ref", "").removeprefix("#/$defs/"), {})
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
    models, definitions = _definitions(tops)
    common = definitions.pop("ChannelSettings")["properties"]
    channels = {}
    for name, model in adapters.items():
        own = _target(models[model], definitions)
        channels[name] = {
            "type": "object",
            "additionalProperties": False,
            "properties": {**common, **own.get("properties", {})},
            **{key: own[key] for key in ("required",) if key in own},
        }
    fallbacks = definitions["ModelSettings"]["properties"]["fallbacks"]
    fallbacks["items"] = {"anyOf": [{"type": "string", "minLength": 1}, fallbacks["items"]]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nanobot's config.yaml",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **{name: models[model] for name, model in SECTIONS.items()},
            **definitions.pop("OwnerSettings")["properties"],
            "channels": {
                "description": "The channels to run, by name.",
                "type": "object",
                "additionalProperties": False,
                "properties": channels,
            },
        },
        "$defs": definitions,
    }


def _adapter_models() -> Iterator[tuple[str, type[BaseModel]]]:
    for name, point in sorted(installed_channels().items()):
        # A broken one has no schema; loading a configuration that names it says why.
        with suppress(BrokenAdapter):
            yield name, options_model(point)


def settings_table() -> str:
    """The Markdown table of every key: type, default and meaning."""
    shipped = {
        name: options_model(point)
        for name, point in sorted(installed_channels().items())
        if point and point.dist and point.dist.name == "nanobot"
    }
    tops: dict[str, type[BaseModel]] = {
        **SECTIONS,
        "owner": OwnerSettings,
        "channels.<name>": ChannelSettings,
        **{f"channels.{name}": model for name, model in shipped.items()},
    }
    models, definitions = _definitions(tops.values())
    owner = definitions["OwnerSettings"]["properties"].pop("owner")
    definitions["OwnerSettings"]["properties"]["<channel>"] = {
        **owner["additionalProperties"],
        "description": owner["description"],
        "default": [],
    }
    rows = [row for name, model in tops.items() for row in _rows(models[model], name, definitions)]
    head = "| Key | Type | Default | Meaning |\n| --- | --- | --- | --- |\n"
    return head + "".join(rows)


def _rows(section: Json, name: str, definitions: Json) -> Iterator[str]:
    """The rows of a section and of those within it, also of those in a list or by name."""
    section = _target(section, definitions)
    for key, value in section["properties"].items():
        path = f"{name}.{key}"
        if _target(value, definitions):
            yield from _rows(value, path, definitions)
            continue
        default = "required" if key in section.get("required", ()) else _default(value["default"])
        yield f"| `{path}` | {_type(value)} | {default} | {value['description']} |\n"
        for held, which in ((value.get("items"), "<n>"), (_by_name(value), "<name>")):
            if held and "$ref" in held:
                yield from _rows(held, f"{path}.{which}", definitions)


def _by_name(value: Json) -> Json:
    held = value.get("additionalProperties")
    return held if isinstance(held, dict) else {}


def _type(value: Json) -> str:
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    if value["type"] == "array":
        held = value["items"]
        kinds = {"string": "list of text"}
        return "list of sections" if "$ref" in held else kinds.get(held["type"], "list")
    if value["type"] == "object":
        held = _by_name(value)
        kinds = {"array": "list of text by id"}
        return "sections by name" if "$ref" in held else kinds.get(held["type"], "text by name")
    shown = "secret text" if value.get("format") == "password" else _TYPES[value["type"]]
    least, most = value.get("minimum"), value.get("maximum")
    if least is not None and most is not None:
        return f"{shown}, {least} to {most}"
    if least is not None:
        return f"{shown}, at least {least:g}"
    more = value.get("exclusiveMinimum")
    return shown if more is None else f"{shown}, more than {more:g}"


_TYPES = {
    "string": "text",
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
}


def _default(value: object) -> str:
    if value == "":
        return "empty"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{json.dumps(value) if not isinstance(value, str) else value}`"


PAGE = Path("docs/configuration.md")
BEGIN = "<!-- settings: begin; written by `python -m nanobot.config.schema --write` -->\n"
END = "<!-- settings: end -->\n"


def with_current_table(page: str) -> str:
    """`page` with what stands between the markers replaced. Raises ValueError without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError("the page lacks the two markers of the table")
    return f"{before}{BEGIN}\n{settings_table()}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the page or, with --write, rewrite it; the exit code."""
    return kept_current(PAGE, with_current_table, "the table", arguments)


if __name__ == "__main__":
    raise SystemExit(main())
