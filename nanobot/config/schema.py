"""The settings described: as a JSON Schema for editors, and every key by name, with what it may
hold, what it holds now, and who said so.

Invariant: what is given for showing holds no secret, only whether there is one.
"""

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
    """What each key means: the text below it in the class."""
    found = {}
    for kind in reversed(model.__mro__):
        if kind is Checked or not issubclass(kind, Checked):
            continue
        definition = _definitions(kind.__module__).get(kind.__qualname__)
        # An adapter may come without its source.
        for statement, text in pairwise(definition.body if definition else ()):
            match statement, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=key)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ):
                    found[key] = " ".join(words.split())
    return found


@cache
def _definitions(module: str) -> Mapping[str, ast.ClassDef]:
    """The classes of a module by name: each module is parsed once, which takes a while."""
    with suppress(OSError, TypeError, KeyError):
        body = ast.parse(getsource(sys.modules[module])).body
        return {one.name: one for one in body if isinstance(one, ast.ClassDef)}
    return {}


def config_schema() -> Json:
    """A JSON Schema (draft 2020-12) of config.yaml, the installed channels included."""
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
    """The schema of a section: no keys beyond its own, each with its meaning, which takes a while
    to find, where it is to be `described`."""
    schema = json_schema(model, descriptions) if described else json_schema(model)
    schema["properties"].pop("options", None)  # adapters' own keys stand beside the common ones
    return _close(schema)


def channel_schema(name: str, *, described: bool = True) -> Json:
    """The schema of a channel: the common keys, and its adapter's own where that can be loaded."""
    common = section_schema(ChannelSettings, described=described)
    with suppress(BrokenAdapter):
        own = section_schema(options_model(find_channels().get(name)), described=described)
        common = {**own, "properties": {**common["properties"], **own["properties"]}}
    return common


def _close(schema: Json) -> Json:
    """`schema` without room for other keys, in it and within."""
    inner = schema.get("additionalProperties", schema.get("items"))
    if isinstance(inner, dict):
        _close(inner)
    if "properties" in schema:
        schema["additionalProperties"] = False
        for value in schema["properties"].values():
            _close(value)
    return schema


HIDDEN = "…"
"""In place of a secret."""

_REFERENCE = re.compile(r"(?:[A-Za-z]{1,12} )?\$\{[A-Za-z_][A-Za-z0-9_]*\}")
"""What stands for a secret, such as `Bearer ${TOKEN}`."""

_KINDS: Mapping[str, str] = {"string": "text", "array": "list", "object": "mapping"}


class KeyInfo(Struct, frozen=True, rename={"kind": "type"}):
    """A key, as it is written: `model.name`. `value` is the present value, `default` the one that
    it has if nothing is set, both for JSON and without secrets. `source` is `default`,
    `config.yaml`, `secrets.env` or `environment`, `variable` the variable that set it there."""

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
    """The schema of the value at `path`; None where there is no such key, or where the channel that
    would know is not installed."""
    size = 2 if path[:1] == ("channels",) and len(path) > 2 else 1
    found = _part_schema(path[:size], tuple(sys.path))
    for step in path[size:]:
        if found is None:
            break
        inner = found.get("items")
        if isinstance(step, str):
            inner = found.get("properties", {}).get(step) or found.get("additionalProperties")
        found = inner if isinstance(inner, dict) else None
    return found


@cache
def _part_schema(path: KeyPath, _: tuple[str, ...]) -> Json | None:
    """The schema of a section or a channel, without descriptions, as far as it is found where
    Python looks."""
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
    """Whether `text`, which is written at `path`, must not be shown: a secret that is written out,
    and also what nobody knows the meaning of."""
    if not text or _REFERENCE.fullmatch(text):
        return False
    schema = schema_at(path)
    if schema is None:
        return True
    is_variable = len(path) > 1 and path[-2] in ("env", "environment")
    return kind_of(schema) == "secret" and not (is_variable and looks_plain(str(path[-1]), text))


def kind_of(schema: Json | None) -> str:
    """What a value is, in a word; `section` for what has keys of its own."""
    if schema is None or "properties" in schema:
        return "section"
    if "enum" in schema:
        return "choice"
    kind = schema.get("type", "section")
    return "secret" if schema.get("format") == "password" else _KINDS.get(kind, kind)


def list_keys(settings: Settings, document: ConfigDocument) -> Iterator[KeyInfo]:
    """Every key there is, in the order of the sections. `document` is what the settings came
    from."""
    known = config_schema()["properties"]
    for section in SECTIONS:
        present = asdict(getattr(settings, section))
        yield from _keys((section,), known[section], present, document)
    of_models = known["models"]["additionalProperties"]
    for name, model in settings.models.items():
        yield from _keys(("models", name), of_models, asdict(model), document)
    installed = known["channels"]["properties"]
    of_owner = {**known["owner"]["additionalProperties"], "default": []}
    of_owner["description"] = known["owner"]["description"]
    for name in sorted({*installed, *settings.owner}):
        yield _info(("owner", name), of_owner, settings.owner.get(name, ()), document)
    for name, schema in installed.items():
        present = {}
        if channel := settings.channels.get(name):  # its adapter's settings stand beside the common
            present = asdict(channel) | (asdict(channel.options) if channel.options else {})
        yield from _keys(("channels", name), schema, present, document)


def _keys(
    path: tuple[str, ...], schema: Json, present: Mapping[str, object], document: ConfigDocument
) -> Iterator[KeyInfo]:
    """The keys of a section; `present` are the values that it has, the others are the defaults."""
    for name, one in schema["properties"].items():
        value, here = present.get(name, one.get("default")), (*path, name)
        of_values = one.get("additionalProperties") or {}
        if "properties" in one:
            inner = asdict(value) if isinstance(value, Struct) else {}
            yield from _keys(here, one, inner, document)
        elif "properties" in of_values and isinstance(value, Mapping) and value:
            for entry, settings in value.items():
                yield from _keys((*here, entry), of_values, asdict(settings), document)
        else:
            yield _info(here, one, value, document)


def _info(path: tuple[str, ...], schema: Json, value: object, document: ConfigDocument) -> KeyInfo:
    source, line, variable = "default", 0, ""
    if document.get(path) is not None:
        place = document.place(path)
        source = ENVIRONMENT if place.file == ENVIRONMENT else Path(place.file).name
        line, variable = place.line, place.variable
    kind, default, about = kind_of(schema), schema.get("default"), schema.get("description", "")
    choices, key = tuple(schema.get("enum", ())), ".".join(path)
    shown = to_builtins(value, enc_hook=_without_secret)
    return KeyInfo(key, kind, shown, default, source, line, variable, about, choices)


def _without_secret(value: object) -> str:
    if isinstance(value, SecretStr):
        return HIDDEN if len(value) else ""
    raise NotImplementedError  # no other value of a setting is foreign to JSON
