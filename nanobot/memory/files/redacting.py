"""Putting the texts of a file through a function that takes something out of them."""

from __future__ import annotations

import json
from collections.abc import Callable

from nanobot.jsonl import json_line
from nanobot.memory.files.linefile import LIMIT
from nanobot.security.paths import Place

Redact = Callable[[str], str]

_STRUCTURE = frozenset({"cursor", "timestamp", "type", "range"})
"""What makes a line an entry, and says nothing of what was talked about."""


def redact_file(place: Place, redact: Redact) -> bool:
    """Rewrite the file where `redact` changes its text; say whether it did.

    Bytes that are not UTF-8 stay as they are. Raises `WriteConflict` where someone else writes.
    """
    content = place.read_bytes(LIMIT)
    if content is None:
        return False
    text = content.decode("utf-8", "surrogateescape")
    redacted = redact(text)
    if redacted == text:
        return False
    place.write_bytes(redacted.encode("utf-8", "surrogateescape"), expected=content)
    return True


def redacted_line(redact: Redact) -> Redact:
    """`redact` for a file of JSON entries: each text in a line is redacted by itself.

    A line that is no JSON, and one that has nothing to redact, keeps its bytes otherwise.
    """

    def every_line(text: str) -> str:
        return "\n".join(_line(line, redact) for line in text.split("\n"))

    return every_line


def _line(line: str, redact: Redact) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return redact(line)
    redacted = _value(value, redact)
    if redacted == value:
        return line
    return json_line(redacted, compact=False)


def _value(value: object, redact: Redact) -> object:
    match value:
        case str():
            return redact(value)
        case list():
            return [_value(item, redact) for item in value]
        case dict():
            return {
                key: item if key in _STRUCTURE else _value(item, redact)
                for key, item in value.items()
            }
    return value
