"""The words of a Dockerfile's line: variables, quotes, JSON lists. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping

_PART = re.compile(
    r"""(?P<escaped>\\.)
    |   (?P<quoted>'[^']*')
    |   \$\{(?P<braced>[A-Za-z_]\w*)(?::(?P<kind>[-+])(?P<word>[^}]*))?\}
    |   \$(?P<plain>[A-Za-z_]\w*)""",
    re.VERBOSE | re.DOTALL,
)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Fill in `$NAME`, `${NAME}`, `${NAME:-else}` and `${NAME:+then}`. Unknown variables are empty.
    Single quotes and backslashes protect their contents."""

    def value(found: re.Match[str]) -> str:
        name = found["braced"] or found["plain"]
        if name is None:
            return found[0]
        known = variables.get(name, "")
        if found["kind"] == "-":
            return known or found["word"]
        if found["kind"] == "+":
            return found["word"] if known else ""
        return known

    return _PART.sub(value, text)


def split(text: str) -> tuple[str, ...]:
    """Split a text into words. Quotes join several. Raise ValueError for an unclosed quote."""
    return tuple(shlex.split(text))


def json_words(text: str) -> tuple[str, ...] | None:
    """Return the words of `["a", "b"]`, or None for anything else."""
    try:
        words = json.loads(text)
    except ValueError:
        return None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return tuple(words)
    return None


def command(text: str) -> tuple[str, ...]:
    """Return the words to run: a JSON list unchanged, any other text through a shell."""
    return json_words(text) or ("/bin/sh", "-c", text)
