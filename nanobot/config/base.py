"""What every section of the configuration is made of."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict


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
