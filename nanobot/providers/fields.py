"""Readers of untrusted JSON. Each returns the requested type, or its empty value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from nanobot import parsing


def parse_json(data: bytes | str, most: int = parsing.MOST_MARKS) -> object:
    """Return the value of `data`. Raise `ValueError` if it isn't JSON, is nested too deeply, or
    holds more than `most` marks."""
    if len(data) > parsing.LARGE:  # stream events are small and many
        return parsing.parse_json(data, most)
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        value: object = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def mapping(value: object) -> Mapping[str, object]:
    """Return `value` if it is an object."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> Sequence[object]:
    """Return `value` if it is an array."""
    return value if isinstance(value, list) else ()


def string(value: object) -> str:
    """Return `value` if it is a string."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """Return `value` if it is a whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return max(value, 0)
