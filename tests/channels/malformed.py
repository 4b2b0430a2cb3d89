"""JSON values that a platform never sends, put in place of other values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

DEEP, LONG, HALF = "@deep@", "@long@", "@half@"
"""Placeholders for values that `json.dumps` cannot write. See `as_body`."""
NESTED = "[" * 20_000 + "]" * 20_000

MALFORMED: tuple[object, ...] = (
    None, True, 0, -1, 5, 2**63, 10**400, 1.5, 1e300, float("nan"), "", "x", "\x00", "x" * 100_000,
    "é id", [], [[]], {}, {"id": {}}, ["x"], {"x": 5}, DEEP, LONG, HALF,
    json.loads("[" * 600 + "]" * 600),
)  # fmt: skip


def as_body(document: object) -> bytes:
    """Encode a document and replace its placeholders."""
    body = json.dumps(document).replace(f'"{DEEP}"', NESTED).replace(f'"{LONG}"', "9" * 5_000)
    return body.replace(HALF, "\\ud800").encode()


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of all values in a document."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value)  # type: ignore[arg-type]
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def mutate(document: Mapping[str, object], rnd: Random, *, but: frozenset[str]) -> dict[str, Any]:
    """Return the document with up to three malformed values, but not in the fields `but`."""
    copy: dict[str, Any] = json.loads(json.dumps(document))
    found = [place for place in places(copy) if place[0] not in but]
    chosen = rnd.sample(found, min(len(found), rnd.randint(1, 3)))
    for *path, last in sorted(chosen, key=len, reverse=True):
        inner: Any = copy
        for key in path:
            inner = inner[key]
        inner[last] = rnd.choice(MALFORMED)
    return copy
