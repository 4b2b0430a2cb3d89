"""What every section of the configuration is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, SecretStr


class Strict(BaseModel):
    """Frozen, with no key beyond its own; built when first used, as every command passes here."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        allow_inf_nan=False,
        defer_build=True,
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """Keys that do not go together. `key` is the one to change, relative to the section."""

    key: tuple[str | int, ...]
    message: str
    hint: str


class NoSecret(SecretStr):
    """A value that stands where secrets do and plainly is none."""


def secrets_in(
    value: object, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], SecretStr]]:
    """Every secret within a validated value, those of adapters' settings included, with the way to
    it from `path`, which is where the value stands."""
    if isinstance(value, NoSecret):
        return
    if isinstance(value, SecretStr):
        yield path, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from secrets_in(getattr(value, name), (*path, name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from secrets_in(item, (*path, str(key)))
    elif isinstance(value, tuple | list | set | frozenset):
        for index, item in enumerate(value):
            yield from secrets_in(item, (*path, index))
