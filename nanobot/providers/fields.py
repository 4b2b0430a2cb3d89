"""Reading JSON that others wrote: each function gives the type asked for, or its empty value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence


def parse_json(data: bytes | str) -> object:
    """The value of `data`; raises `ValueError` for what is no JSON or nested too deeply."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        value: object = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def mapping(value: object) -> Mapping[str, object]:
    """`value` if it is an object."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> Sequence[object]:
    """`value` if it is an array."""
    return value if isinstance(value, list) else ()


def string(value: object) -> str:
    """`value` if it is a string."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """`value` if it is a whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return max(value, 0)
