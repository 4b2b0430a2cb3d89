"""JSON in a model's answer. Pure.

Models send an object as requested, encoded twice, in a list, in a code fence, with prose around it,
or as invalid JSON. All of these are read, with the same repairs as arguments of tool calls."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

_DECODER = json.JSONDecoder(strict=False)
_NESTED = 3
"""Maximum levels of strings encoded in strings."""
_MOST_FAILED, _MOST_REPAIRED = 1_000, 100
"""Braces that begin no object: how many are tried, and how many with repairs."""


def json_object(answer: str, keys: Collection[str] = ()) -> Mapping[str, object] | None:
    """Return the first JSON object in `answer` with one of `keys` (any object without keys), or
    None."""
    text = answer
    for _ in range(_NESTED):
        with suppress(ValueError, RecursionError):
            if isinstance(value := _DECODER.decode(text), str):
                text = value
    for found in _objects(text):
        if not keys or not found.keys().isdisjoint(keys):
            return found
    return None


def _objects(text: str) -> Iterator[Mapping[str, object]]:
    failed = 0
    start = text.find("{")
    while start >= 0 and failed < _MOST_FAILED:
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            from nanobot.providers.arguments import first_object  # most answers need none

            repaired = first_object(text, start) if failed < _MOST_REPAIRED else None
            if repaired is None:
                failed, end = failed + 1, start + 1
            else:
                value, end = json.loads(repaired[0]), repaired[1]
                yield value
        else:
            yield value
        start = text.find("{", end)
