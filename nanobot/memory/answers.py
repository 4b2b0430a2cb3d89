"""JSON in what a model answers. Pure.

Models send an object as asked, encoded twice, in a list, in a code fence, with prose around it, or
with a comma too many. All of these are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")
_DECODER = json.JSONDecoder(strict=False)
_NESTED = 3
"""How often a text may be encoded in another."""


def json_object(answer: str, keys: Collection[str] = ()) -> Mapping[str, object] | None:
    """The first JSON object in `answer` that has one of `keys` (without keys: the first); None
    where there is none."""
    text = answer
    for _ in range(_NESTED):
        with suppress(ValueError, RecursionError):
            if isinstance(value := _DECODER.decode(text), str):
                text = value
    for candidate in (text, _TRAILING_COMMA.sub("", text)):
        for found in _objects(candidate):
            if not keys or not found.keys().isdisjoint(keys):
                return found
    return None


def _objects(text: str) -> Iterator[Mapping[str, object]]:
    start = text.find("{")
    while start >= 0:
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield value
        start = text.find("{", end)
