"""The names and arguments of calls, as models write them. Pure.

Valid arguments are kept byte for byte. Others are repaired if they can only mean one thing, by
`repair`, which is loaded for that.
"""

from __future__ import annotations

import re

import msgspec

from nanobot.text import valid_unicode

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
_ENCODED = 3
"""How often an object may be encoded as a string."""


def fitting_name(name: str) -> str:
    """Return a tool's name in the characters that every server takes."""
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or "unnamed"


def read_arguments(text: str, *, repair: bool = True) -> str | None:
    """Return the text of the JSON object that `text` is or can only mean, or None. Without `repair`
    it must be one already, or nothing at all.

    A valid object comes back byte for byte. An empty text and null are `{}`. Numbers, texts, lists
    of other things and what was cut off are None. An escape of half a character is replaced, unless
    it is a byte of a file name.
    """
    text = valid_unicode(text)
    read = _read(text, _ENCODED)
    return read if repair or read in (text, "{}") else None


def sendable_arguments(arguments: str) -> str:
    """Return arguments that strict parsers take too: an escape of a lone surrogate, which some
    refuse, becomes the text of that escape."""
    if "\\ud" not in arguments and "\\uD" not in arguments:
        return arguments
    from nanobot.providers.repair import halves_as_text

    return halves_as_text(arguments)


def _read(text: str, encoded: int) -> str | None:
    if text.strip() in ("", "null"):
        return "{}"
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        from nanobot.providers.repair import repaired_object

        inner = repaired_object(text)
        return _only_item(inner) if inner is not None and inner[:1] == "[" else inner
    if isinstance(value, str) and encoded and value.lstrip()[:1] in ("{", "[", '"', "'", "`", ""):
        return _read(value, encoded - 1)
    if isinstance(value, list):
        return _only_item(text)
    return text if isinstance(value, dict) else None


def _only_item(listed: str) -> str | None:
    """Return the text of the object that a list holds, if it holds nothing else."""
    inner = msgspec.json.decode(listed, type=list[msgspec.Raw])
    one = bytes(inner[0]).decode() if len(inner) == 1 else ""
    return one if one[:1] == "{" else None
