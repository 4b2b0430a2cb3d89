"""Untrusted JSON, bounded before it is parsed.

The C parser holds the interpreter until it has read everything, so a thread does not help: a body
of 30 MB of `{},{},…` would block the event loop for seconds. The number of values makes JSON slow,
so values are counted first, which takes milliseconds."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from nanobot.text import valid_unicode

P = ParamSpec("P")
T = TypeVar("T")

MOST_MARKS = 300_000
"""Most quotes, commas and opening brackets outside of strings. An object with so many takes 60 ms,
and a request of 2,000 messages has 30,000."""

LARGE = 100_000
"""Bytes from which work goes to a thread: about a millisecond."""

_DEEPEST = 64
"""Most levels. Deeper values are read as null. No platform, client or model needs them."""
_MOST_DIGITS = 30
_SLICE = 1_000_000
_SEPARATORS = (b",", b"[", b"{")
_COUNTED = (*_SEPARATORS, b'"', rb"\ud", rb"\uD")
_NEST = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
"""A string, or the beginning or end of an array or object."""
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")


class TooManyValues(ValueError):
    """The JSON holds too many values. None of it was parsed."""


def parse_json(data: bytes | str, most: int = MOST_MARKS) -> object:
    """Parse untrusted JSON.

    A single bad value does not make the others unreadable: too deep values are null, whole numbers
    with too many digits are infinite, half characters are replaced. Raises `TooManyValues`, or
    another `ValueError` for invalid JSON."""
    body = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    _expect_few(body, most)
    # `utf-8-sig` drops a byte order mark.
    text = data if isinstance(data, str) else data.decode("utf-8-sig", "replace")
    if body.count(b"[") + body.count(b"{") > _DEEPEST:
        text = _shallow(text)
    value: object = json.loads(
        text, parse_int=lambda digits: int(digits) if len(digits) <= _MOST_DIGITS else math.inf
    )
    if _HALVES.search(text) is not None:
        value = json.loads(valid_unicode(json.dumps(value, ensure_ascii=False)))
    return value


def holds_more(value: object, most: int) -> bool:
    """Return True if a parsed value holds more than `most` values at all its levels."""
    left, waiting = most, [value]
    while waiting and left >= 0:
        inner = waiting.pop()
        if isinstance(inner, dict | list):
            left -= len(inner)
            waiting += inner.values() if isinstance(inner, dict) else inner
    return left < 0


async def off_loop(size: int, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Call a function on an input of `size` bytes, in a thread if that is large."""
    if size < LARGE:
        return function(*args, **named)
    return await asyncio.to_thread(function, *args, **named)


class ValueCounter:
    """Counts the marks of a JSON text that arrives in pieces."""

    def __init__(self, most: int = MOST_MARKS) -> None:
        self._most = self._left = most
        self._in_string, self._escape = False, b""

    def feed(self, piece: bytes) -> None:
        """Count a piece. Raises `TooManyValues`."""
        text = (self._escape + piece).replace(rb"\\", b"")
        # The escaped character is in the next piece.
        self._escape = text[-1:] if text.endswith(b"\\") else b""
        parts = text.replace(rb"\"", b"").split(b'"')
        outside = b"".join(parts[self._in_string :: 2])
        quotes = len(parts) - 1
        self._in_string ^= bool(quotes % 2)  # an odd number opens or closes a string
        self._left -= quotes + sum(map(outside.count, _SEPARATORS))
        if self._left < 0:
            raise TooManyValues(f"more than {self._most:,} values")


def _expect_few(body: bytes, most: int) -> None:
    """Raise `TooManyValues` for more than `most` marks. Strings are scanned only if they could
    matter, and in slices, so that other threads can run."""
    if len(body) <= most or sum(map(body.count, _COUNTED)) <= most:
        return
    if body.count(rb"\ud") + body.count(rb"\uD") > most:
        raise TooManyValues(f"more than {most:,} halves of surrogate pairs")
    counter = ValueCounter(most)
    for start in range(0, len(body), _SLICE):
        counter.feed(body[start : start + _SLICE])


def _shallow(text: str) -> str:
    """Replace values that are too deep for Python's parser with null."""
    kept: list[str] = []
    depth = since = 0
    for token in _NEST.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth == _DEEPEST + 1:
                kept += (text[since : token.start()], "null")
        elif token[0] in "]}":
            depth -= 1
            if depth == _DEEPEST:
                since = token.end()
    return "".join((*kept, text[since:])) if depth <= _DEEPEST else text[:since]
