"""Every key of the configuration by name: what it may hold, what it holds now, and who said so.

Invariant: what is given for showing holds no secret, only whether there is one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Struct

from nanobot.config.channels import BrokenAdapter, installed_channels, options_model
from nanobot.config.document import ENVIRONMENT, ConfigDocument
from nanobot.config.schema import descriptions
from nanobot.config.settings import SECTIONS, ChannelSettings, OwnerSettings, Settings
from nanobot.config.values import looks_plain
from nanobot.validation import Checked, KeyPath, SecretStr, default_of, fields_of

HIDDEN = "…"
"""In place of a secret."""

_REFERENCE = re.compile(r"(?:[A-Za-z]{1,12} )?\$\{[A-Za-z_][A-Za-z0-9_]*\}")
"""What stands for a secret, such as `Bearer ${TOKEN}`."""

_KINDS: Mapping[object, str] = {
    bool: "boolean", int: "integer", float: "number", str: "text", SecretStr: "secret",
    tuple: "list", list: "list", Mapping: "mapping", dict: "mapping",
}  # fmt: skip


class KeyInfo(Struct, frozen=True):
    """A key. `value` is what counts now, `default` what would without a word about it, both for
    JSON and without secrets. `source` is `default`, `config.yaml`, `secrets.env` or `environment`,
    `variable` the variable that said it there."""

    path: tuple[str, ...]
    kind: str
    value: object
    default: object
    source: str
    line: int = 0
    variable: str = ""
    description: str = ""
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As it is written: `model.name`."""
        return ".".join(self.path)


def type_at(path: KeyPath) -> Any:
    """The type of the value at `path`; None where there is no such key, or where the channel that
    would know is not installed."""
    match path:
        case ("owner", _, *rest):
            kind: Any = get_args(_bare(fields_of(OwnerSettings)["owner"].type))[1]
        case ("channels", str(name), str(key), *rest):
            kind = _channel_keys(name).get(key)
        case (str(section), *rest):
            kind = SECTIONS.get(section)
        case _:
            return None
    for step in rest:
        kind = _within(_bare(kind), step)
    return kind


def is_hidden(path: KeyPath, text: str) -> bool:
    """Whether `text`, which is written at `path`, must not be shown: a secret that is written out,
    and also what nobody knows the meaning of."""
    if not text or _REFERENCE.fullmatch(text):
        return False
    kind = type_at(path)
    if _bare(kind) is not SecretStr:
        return kind is None
    is_variable = len(path) > 1 and path[-2] in ("env", "environment")
    return not (is_variable and looks_plain(str(path[-1]), text))


def kind_of(kind: Any) -> str:
    """What a value is, in a word; `section` for what has keys of its own."""
    bare = _bare(kind)
    if get_origin(bare) is Literal:
        return "choice"
    return _KINDS.get(get_origin(bare) or bare, "section")


def choices_of(kind: Any) -> tuple[str, ...]:
    """What a choice is made from; empty for anything else."""
    bare = _bare(kind)
    return get_args(bare) if get_origin(bare) is Literal else ()


def _bare(kind: Any) -> Any:
    """A type without its limits and checks, and without None beside it."""
    while get_origin(kind) in (Annotated, Union, UnionType):
        if get_origin(kind) is Annotated:
            kind = kind.__origin__
        else:
            kind = next(one for one in get_args(kind) if one is not NoneType)
    return kind


def _within(kind: Any, step: str | int) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Checked):
        found = fields_of(kind).get(str(step))
        return found.type if found else None
    if origin in (Mapping, dict) and isinstance(step, str):
        return arguments[1]
    return arguments[0] if origin in (tuple, list) and isinstance(step, int) else None


def _channel_keys(name: str) -> dict[str, Any]:
    """The keys of a channel with their types; the common ones alone where its adapter is not
    there."""
    models: list[type[Checked]] = [ChannelSettings]
    installed = installed_channels()
    if name in installed:
        with contextlib.suppress(BrokenAdapter):
            models.append(options_model(installed[name]))
    found = {key: one.type for model in models for key, one in fields_of(model).items()}
    del found["options"]
    return found


def list_keys(settings: Settings, document: ConfigDocument) -> Iterator[KeyInfo]:
    """Every key there is, in the order of the sections. `document` is what the settings came
    from."""
    for section, model in SECTIONS.items():
        yield from _keys(model, (section,), getattr(settings, section), document)
    for name in sorted({*installed_channels(), *settings.owner}):
        path, own = ("owner", name), settings.owner.get(name, ())
        about = descriptions(OwnerSettings)["owner"]
        yield _info(path, type_at(path), own, (), about, document)
    for name, point in installed_channels().items():
        channel = settings.channels.get(name)
        path = ("channels", name)
        yield from _keys(ChannelSettings, path, channel, document)
        try:
            options = options_model(point)
        except BrokenAdapter:
            continue
        yield from _keys(options, path, channel.options if channel else None, document)


def _keys(
    model: type[Checked], path: tuple[str, ...], present: object, document: ConfigDocument
) -> Iterator[KeyInfo]:
    """The keys of a section; `present` is it, None where it is left out and may not be."""
    meanings = descriptions(model)
    for name, one in fields_of(model).items():
        default = default_of(one)
        value = default if present is None else getattr(present, name)
        bare, here = _bare(one.type), (*path, name)
        of_values = get_args(bare)[1] if get_origin(bare) in (Mapping, dict) else None
        if isinstance(bare, type) and issubclass(bare, Checked):
            if name != "options":  # what a channel has beyond all others stands beside it
                yield from _keys(bare, here, value, document)
        elif isinstance(of_values, type) and issubclass(of_values, Checked) and value:
            for inner, entry in value.items():
                yield from _keys(of_values, (*here, inner), entry, document)
        else:
            yield _info(here, one.type, value, default, meanings.get(name, ""), document)


def _info(
    path: tuple[str, ...],
    kind: Any,
    value: object,
    default: object,
    description: str,
    document: ConfigDocument,
) -> KeyInfo:
    source, line, variable = "default", 0, ""
    if document.get(path) is not None:
        place = document.place(path)
        source = ENVIRONMENT if place.file == ENVIRONMENT else Path(place.file).name
        line, variable = place.line, place.variable
    return KeyInfo(
        path, kind_of(kind), shown(value), shown(default), source, line, variable,
        description, choices_of(kind),
    )  # fmt: skip


def shown(value: object) -> object:
    """A validated value for JSON; a secret is a sign that there is one."""
    match value:
        case SecretStr():
            return HIDDEN if len(value) else ""
        case Struct():
            return {name: shown(getattr(value, name)) for name in value.__struct_fields__}
        case Mapping():
            return {str(key): shown(item) for key, item in value.items()}
        case tuple() | list():
            return [shown(item) for item in value]
    return value
