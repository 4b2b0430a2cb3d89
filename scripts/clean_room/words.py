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
    """`text` with `$NAME`, `${NAME}`, `${NAME:-else}` and `${NAME:+then}` filled in; what is
    unknown is empty. Single quotes and backslashes keep what they hold."""

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
    """Its words; quotes hold several together. Raises ValueError for one that is left open."""
    return tuple(shlex.split(text))


def json_words(text: str) -> tuple[str, ...] | None:
    """The words of `["a", "b"]`, None for anything else."""
    try:
        words = json.loads(text)
    except ValueError:
        return None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return tuple(words)
    return None


def command(text: str) -> tuple[str, ...]:
    """What to run: a JSON list as it is, any other text by a shell."""
    return json_words(text) or ("/bin/sh", "-c", text)
