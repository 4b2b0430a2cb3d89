"""Descriptions of the settings: a JSON Schema for editors, and every key with its type, value and
source.

Invariant: shown values hold no secret, only whether there is one."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from inspect import getsource
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from nanobot.config.channels import (
    BrokenAdapter,
    ChannelSettings,
    OwnerSettings,
    find_channels,
    options_model,
)
from nanobot.config.document import ENVIRONMENT, ConfigDocument
from nanobot.config.model import NamedModels
from nanobot.config.settings import SECTIONS, Settings
from nanobot.config.values import looks_plain
from nanobot.validation import Checked, KeyPath, SecretStr, json_schema

Json = dict[str, Any]


@cache
def descriptions(model: type[Checked]) -> Mapping[str, str]:
    """Return the meaning of each key: the text below it in the class."""
    found = {}
    for kind in reversed(model.__mro__):
        if kind is Checked or not issubclass(kind, Checked):
            continue
        definition = parse_classes(kind.__module__).get(kind.__qualname__)
        # An adapter may be installed without its source.
        for statement, text in pairwise(definition.body if definition else ()):
            match statement, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=key)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ):
                    found[key] = " ".join(words.split())
    return found


@cache
def parse_classes(module: str) -> Mapping[str, ast.ClassDef]:
    """Return the classes of a module by name. Cached, because parsing is slow."""
    with suppress(OSError, TypeError, KeyError):
        body = ast.parse(getsource(sys.modules[module])).body
        return {one.name: one for one in body if isinstance(one, ast.ClassDef)}
    return {}


def config_schema() -> Json:
    """Return a JSON Schema (draft 2020-12) of config.yaml, including the installed channels."""
    channels = {name: channel_schema(name) for name in find_channels()}
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
    """Return the schema of a section, which allows no other keys. Finding the descriptions of keys
    is slow, so it is optional."""
    schema = json_schema(model, descriptions) if described else json_schema(model)
    schema["properties"].pop("options", None)  # adapters' own keys are next to the common ones
    return forbid_other_keys(schema)


def channel_schema(name: str, *, described: bool = True) -> Json:
    """Return the schema of a channel: the common keys, and its adapter's if that can be loaded."""
    common = section_schema(ChannelSettings, described=described)
    with suppress(BrokenAdapter):
        own = section_schema(options_model(find_channels().get(name)), described=described)
        common = {**own, "properties": {**common["properties"], **own["properties"]}}
    return common


def forbid_other_keys(schema: Json) -> Json:
    """Forbid other keys in `schema` and below it."""
    inner = schema.get("additionalProperties", schema.get("items"))
    if isinstance(inner, dict):
        forbid_other_keys(inner)
    if "properties" in schema:
        schema["additionalProperties"] = False  # catches typos in editors
        for value in schema["properties"].values():
            forbid_other_keys(value)
    return schema


HIDDEN = "…"
"""Replaces a secret."""

_REFERENCE = re.compile(r"(?:[A-Za-z]{1,12} )?\$\{[A-Za-z_][A-Za-z0-9_]*\}")
"""A reference to a secret, such as `Bearer ${TOKEN}`."""

_KINDS: Mapping[str, str] = {"string": "text", "array": "list", "object": "mapping"}


class KeyInfo(Struct, frozen=True, rename={"kind": "type"}):
    """A key as it is written: `model.name`. `value` is the present value and `default` the default,
    both for JSON and without secrets. `source` is `default`, `config.yaml`, `secrets.env` or
    `environment`, `variable` the variable that set it there."""

    key: str
    kind: str
    value: object
    default: object
    source: str
    line: int = 0
    variable: str = ""
    description: str = ""
    choices: tuple[str, ...] = ()

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(self.key.split("."))


def schema_at(path: KeyPath) -> Json | None:
    """Return the schema of the value at `path`, or None if there is no such key or its channel is
    not installed."""
    size = 2 if path[:1] == ("channels",) and len(path) > 2 else 1
    found = find_part_schema(path[:size], tuple(sys.path))
    for step in path[size:]:
        if found is None:
            break
        inner = found.get("items")
        if isinstance(step, str):
            inner = found.get("properties", {}).get(step) or found.get("additionalProperties")
        found = inner if isinstance(inner, dict) else None
    return found


@cache
def find_part_schema(path: KeyPath, _: tuple[str, ...]) -> Json | None:
    """Return the schema, without descriptions, of a section or channel on this path, or None."""
    match path:
        case ("channels", str(name)):
            return channel_schema(name, described=False)
        case ("owner",):
            return dict(section_schema(OwnerSettings, described=False)["properties"]["owner"])
        case ("models",):
            return dict(section_schema(NamedModels, described=False)["properties"]["models"])
        case (str(name),) if name in SECTIONS:
            return section_schema(SECTIONS[name], described=False)
    return None


def is_hidden(path: KeyPath, text: str) -> bool:
    """Return True if `text` at `path` must be hidden: a secret, or a value of unknown meaning."""
    if not text or _REFERENCE.fullmatch(text):
        return False
    schema = schema_at(path)
    if schema is None:
        return True
    is_variable = len(path) > 1 and path[-2] in ("env", "environment")
    return kind_of(schema) == "secret" and not (is_variable and looks_plain(str(path[-1]), text))


def kind_of(schema: Json | None) -> str:
    """Return the kind of a value in a word, `section` for one with keys."""
    if schema is None or "properties" in schema:
        return "section"
    if "enum" in schema:
        return "choice"
    kind = schema.get("type", "section")
    return "secret" if schema.get("format") == "password" else _KINDS.get(kind, kind)


def list_keys(settings: Settings, document: ConfigDocument) -> Iterator[KeyInfo]:
    """Yield every key in the order of the sections. `document` is the source of the settings."""
    known = config_schema()["properties"]
    for section in SECTIONS:
        present = asdict(getattr(settings, section))
        yield from list_section_keys((section,), known[section], present, document)
    of_models = known["models"]["additionalProperties"]
    for name, model in settings.models.items():
        yield from list_section_keys(("models", name), of_models, asdict(model), document)
    installed = known["channels"]["properties"]
    of_owner = {**known["owner"]["additionalProperties"], "default": []}
    of_owner["description"] = known["owner"]["description"]
    for name in sorted({*installed, *settings.owner}):
        yield describe_key(("owner", name), of_owner, settings.owner.get(name, ()), document)
    for name, schema in installed.items():
        present = {}
        if channel := settings.channels.get(name):  # with its adapter's settings
            present = asdict(channel) | (asdict(channel.options) if channel.options else {})
        yield from list_section_keys(("channels", name), schema, present, document)


def list_section_keys(
    path: tuple[str, ...], schema: Json, present: Mapping[str, object], document: ConfigDocument
) -> Iterator[KeyInfo]:
    """Yield the keys of a section. `present` are its values that are set."""
    for name, one in schema["properties"].items():
        value, here = present.get(name, one.get("default")), (*path, name)
        of_values = one.get("additionalProperties") or {}
        if "properties" in one:
            inner = asdict(value) if isinstance(value, Struct) else {}
            yield from list_section_keys(here, one, inner, document)
        elif "properties" in of_values and isinstance(value, Mapping) and value:
            for entry, settings in value.items():
                yield from list_section_keys((*here, entry), of_values, asdict(settings), document)
        else:
            yield describe_key(here, one, value, document)


def describe_key(
    path: tuple[str, ...], schema: Json, value: object, document: ConfigDocument
) -> KeyInfo:
    source, line, variable = "default", 0, ""
    if document.get(path) is not None:
        place = document.place(path)
        source = ENVIRONMENT if place.file == ENVIRONMENT else Path(place.file).name
        line, variable = place.line, place.variable
    kind, default, about = kind_of(schema), schema.get("default"), schema.get("description", "")
    choices, key = tuple(schema.get("enum", ())), ".".join(path)
    shown = to_builtins(value, enc_hook=hide_secret)
    return KeyInfo(key, kind, shown, default, source, line, variable, about, choices)


def hide_secret(value: object) -> str:
    if isinstance(value, SecretStr):
        return HIDDEN if len(value) else ""
    raise NotImplementedError  # all other values are JSON
