"""Parsing JSON from a platform, so that one odd value in it costs that value alone."""

from __future__ import annotations

import json
import math
import re

_HALVES = re.compile(r"\\u[dD][89a-fA-F]")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
"""A string, or what begins or ends an array or object."""
_DEEPEST = 64
_MOST_DIGITS = 30


def document_of(body: bytes) -> object:
    """The JSON document in `body`, without half characters, which no file can hold.

    No single value makes the others unreadable: what is nested deeper than any platform means it is
    cut (null stands there), and a whole number of too many digits is infinite. Both are odd to
    whoever reads that value. Raises `ValueError` for no JSON.
    """
    text = body.decode("utf-8-sig", "replace")
    if text.count("[") + text.count("{") > _DEEPEST:
        text = _shallow(text)
    document = _parsed(text)
    if _HALVES.search(text) is None:
        return document
    halves = json.dumps(document, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
    return _parsed(halves.decode("utf-16-le", "replace"))


def _parsed(text: str) -> object:
    document: object = json.loads(text, parse_int=_whole_number)
    return document


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else math.inf


def _shallow(text: str) -> str:
    """`text` with null in place of what is nested too deep: Python's parser would give up."""
    kept: list[str] = []
    depth = since = 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth == _DEEPEST + 1:
                kept += (text[since : token.start()], "null")
        elif token[0] in "]}":
            depth -= 1
            if depth == _DEEPEST:
                since = token.end()
    return "".join((*kept, text[since:])) if depth <= _DEEPEST else text[:since]
