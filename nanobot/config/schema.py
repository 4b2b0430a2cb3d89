"""Pages of the documentation that are made from the code: checked, or written anew.

The settings described: as a JSON Schema for editors, as a Markdown table for people.

Keeps the table of settings in docs/configuration.md true.

python -m nanobot.config.schema            say whether it is (exit code 1 when it is not)
python -m nanobot.config.schema --write    write it anew
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from nanobot.config.channels import (
    COMMON,
    BrokenAdapter,
    installed_channels,
    options_model,
    shipped_channels,
)
from nanobot.config.memory import OwnerSettings
from nanobot.config.settings import SECTIONS, ChannelSettings, keys_of


def kept_current(
    page: Path, render: Callable[[str], str], what: str, arguments: Sequence[str] | None = None
) -> int:
    """The command line of a page: check it or, with --write, mend it; the exit code. `render` makes
    the page from what stands there, empty where there is none; `what` says what is made."""
    parser = argparse.ArgumentParser(description=f"Check {what}.")
    parser.add_argument("--write", action="store_true", help="write it anew")
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


_OWNER = OwnerSettings.model_fields["owner"]

Key = tuple[tuple[str, ...], FieldInfo]
"""A key with the way to it, and what is known of it."""

_TYPES: Mapping[object, str] = {
    str: "text",
    SecretStr: "secret text",
    bool: "true or false",
    int: "whole number",
    float: "number",
}


def config_schema() -> dict[str, Any]:
    """A JSON Schema (draft 2020-12) of config.yaml, the installed channels included."""
    adapters = dict(_adapter_models())
    models: list[type[BaseModel]] = [*SECTIONS.values(), ChannelSettings, *adapters.values()]
    inputs: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (model, "validation") for model in models
    ]
    references, shared = models_json_schema(inputs)
    definitions: dict[str, Any] = shared["$defs"]
    common = definitions.pop("ChannelSettings")["properties"]
    del common["options"], definitions["BaseModel"]  # the adapters' own keys stand beside these
    channels = {
        name: _channel(common, definitions, references[(model, "validation")]["$ref"])
        for name, model in adapters.items()
    }
    fallbacks = definitions["ModelSettings"]["properties"]["fallbacks"]
    fallbacks["items"] = {"anyOf": [{"type": "string", "minLength": 1}, fallbacks["items"]]}
    sections = {name: references[(model, "validation")] for name, model in SECTIONS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nanobot's config.yaml",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **sections,
            "owner": {
                "description": _OWNER.description,
                "type": "object",
                "additionalProperties": {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1},
                },
            },
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
        try:
            yield name, options_model(point)
        except BrokenAdapter:
            continue  # it has no schema; loading a configuration that names it says why


def _channel(
    common: Mapping[str, Any], definitions: Mapping[str, Any], reference: str
) -> dict[str, Any]:
    own = definitions[reference.removeprefix("#/$defs/")]
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {**common, **own.get("properties", {})},
    }
    if required := own.get("required"):
        schema["required"] = required
    return schema


def settings_table() -> str:
    """The Markdown table of every key: type, default and meaning."""
    rows = [
        _row(".".join(path), field)
        for name, model in SECTIONS.items()
        for path, field in _with_entries(keys_of(model, (name,)))
    ]
    rows.append(_row("owner.<channel>", _OWNER, shown="list of text", default="`[]`"))
    rows += [_row(f"channels.<name>.{key}", ChannelSettings.model_fields[key]) for key in COMMON]
    rows += [
        _row(".".join(path), field)
        for name, point in sorted(shipped_channels().items())
        for path, field in keys_of(options_model(point), ("channels", name))
    ]
    head = "| Key | Type | Default | Meaning |\n| --- | --- | --- | --- |\n"
    return head + "".join(rows)


def _with_entries(keys: Iterable[Key]) -> Iterator[Key]:
    """`keys` and, after one that holds sections in a row or by name, those of such a section."""
    for path, field in keys:
        yield path, field
        if get_origin(field.annotation) is tuple:
            held, which = get_args(field.annotation)[0], "<n>"
        elif get_origin(field.annotation) is Mapping:
            held, which = get_args(field.annotation)[1], "<name>"
        else:
            continue
        if entry := _section(held):
            yield from keys_of(entry, (*path, which))


def _section(held: object) -> type[BaseModel] | None:
    """The model of what a list or a mapping holds, if that are sections."""
    return held if isinstance(held, type) and issubclass(held, BaseModel) else None


def _row(key: str, field: FieldInfo, *, shown: str = "", default: str = "") -> str:
    kind, value = shown or _type(field), default or _default(field)
    return f"| `{key}` | {kind} | {value} | {field.description} |\n"


def _type(field: FieldInfo) -> str:
    annotation = field.annotation
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        held = get_args(annotation)[0]
        return (
            "list of text" if _is_text(held) else "list of sections" if _section(held) else "list"
        )
    if get_origin(annotation) is Mapping:
        return _mapping(get_args(annotation)[1])
    least, most = _bound(field, Ge, "ge"), _bound(field, Le, "le")
    if least and most:
        return f"{_TYPES[annotation]}, {least} to {most}"
    if least:
        return f"{_TYPES[annotation]}, at least {least}"
    more = _bound(field, Gt, "gt")
    return f"{_TYPES[annotation]}, more than {more}" if more else _TYPES[annotation]


def _mapping(value: object) -> str:
    if get_origin(value) is tuple:
        return "list of text by id"
    return "sections by name" if _section(value) else "text by name"


def _is_text(annotation: object) -> bool:
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return bare is str


def _bound(field: FieldInfo, kind: type[Ge | Gt | Le], name: str) -> str:
    return next((str(getattr(m, name)) for m in field.metadata if isinstance(m, kind)), "")


def _default(field: FieldInfo) -> str:
    match field.get_default():
        case _ if field.is_required():
            return "required"
        case SecretStr() | "":
            return "empty"
        case bool(value):
            shown = str(value).lower()
        case () | []:
            shown = "[]"
        case float(number):
            shown = f"{number:g}"
        case value:
            shown = f"{value}"
    return f"`{shown}`"


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
    """Check the page or, with --write, mend it; the exit code."""
    return kept_current(PAGE, with_current_table, "the table", arguments)


if __name__ == "__main__":
    raise SystemExit(main())
