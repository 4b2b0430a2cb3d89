"""JSON objects that models write almost as JSON has them. Pure.

They use Python's quotes and words, a comma too many, comments, a code fence, or encode an object
twice. It is repaired if it can only mean one thing. The repair reads tokens and writes each of them
as JSON has it, so no letter of a value is lost or invented, and a strict parser checks the result.
It takes time in proportion to the text.

The libraries for this guess further: they complete text that was cut off, and half a command must
never run. json-repair 0.64 also loses words (`'it''s'`) and takes quadratic time.
"""

from __future__ import annotations

import re

import msgspec

_MOST_REPAIRED = 2_000_000
"""Characters. No tool takes more, and repair takes a second for it at worst."""
_DEEPEST = 200
"""Levels of nesting in a text that needs repair. Valid text may be as deep as Python allows."""

_TOKEN = re.compile(
    r"""
      (?P<blank>\s++ | //[^\n]*+ | \#[^\n]*+ | /\*.*?\*/)
    | (?P<open>[{\[]) | (?P<close>[}\]]) | (?P<comma>,) | (?P<colon>:)
    | (?P<value>"(?:[^"\\]++|\\.)*+" | '(?:[^'\\]++|\\.)*+' | -?[0-9][0-9.eE+-]*+
        | [A-Za-z_][A-Za-z0-9_]*+)
    """,
    re.VERBOSE | re.DOTALL,
)
_BEFORE = re.compile(r"\s*+(?:`++[\w-]*+\s*+)?(?:\{\s*+\}\s*+)*+(?=[{\[])")
"""A code fence and empty objects in front of the one that is meant."""
_LEFT_OVER = re.compile(r"(?:[\s\"`}\],;]++|//[^\n]*+|\#[^\n]*+|/\*.*?\*/)*+", re.DOTALL)
_AFTER_KEY = re.compile(r"\s*+:")
_WORDS = {
    **dict.fromkeys(("true", "True"), "true"),
    **dict.fromkeys(("false", "False"), "false"),
    **dict.fromkeys(("null", "None"), "null"),
}
_IN_STRING = re.compile(r"""\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\.|"|[\x00-\x1f]""", re.DOTALL)
_CONTROLS = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPES = frozenset({*'"\\/bfnrt'})

_HALVES = re.compile(
    r"(?P<other>\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\u[dD](?P<byte>[cC][89a-fA-F][0-9a-fA-F])?(?:(?(byte)|[89a-fA-F][0-9a-fA-F]{2}))",
    re.DOTALL,
)
"""Escapes of surrogates: pairs and other escapes are `other`, lone ones are left. U+DC80 to U+DCFF
are the bytes of names that are not UTF-8, as nanobot shows such names (see `nanobot.text`)."""


class _Unreadable(Exception):
    """The text has no single meaning as JSON."""


def first_object(text: str, start: int) -> tuple[str, int] | None:
    """Return the object or list that begins at `start` as valid JSON, and the position behind it.
    None if there is none, or it was cut off."""
    try:
        return _value(text, start)
    except _Unreadable:
        return None


def halves_as_text(text: str) -> str:
    """Return JSON with each escape of a lone surrogate as the text of that escape."""
    return _HALVES.sub(lambda found: found["other"] or f"\\{found[0]}", text)


def repaired_object(text: str) -> str | None:
    """Return the text of the JSON object or list that `text` can only mean, or None."""
    if len(text) > _MOST_REPAIRED:
        return None
    if (whole := _without_halves(text)) is not None:
        return whole
    before = _BEFORE.match(text)
    found = first_object(text, before.end()) if before else None
    if found is None:
        return None
    left = _LEFT_OVER.match(text, found[1])
    return found[0] if left and left.end() == len(text) else None


def _without_halves(text: str) -> str | None:
    """Return `text` with escapes of half a character replaced, if that is all that is wrong."""
    if "\\ud" not in text and "\\uD" not in text:
        return None
    kept = _HALVES.sub(lambda one: one["other"] or (one[0] if one["byte"] else "\\ufffd"), text)
    plain = _HALVES.sub(lambda one: one["other"] or "\\ufffd", text)
    try:
        return kept if isinstance(msgspec.json.decode(plain), dict) else None
    except (msgspec.MsgspecError, RecursionError):
        return None


_SPACED = {",": ", ", ":": ": "}


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the list or object at `at` as valid JSON, and its end."""
    out: list[str] = []
    depth, before = 0, "open"
    while found := _TOKEN.match(text, at):
        kind, token, at = str(found.lastgroup), found[0], found.end()
        if kind == "blank":
            continue
        if kind in ("value", "open") and before in ("value", "close"):
            break
        if kind == "close" and before == "comma":
            out.pop()
        depth += {"open": 1, "close": -1}.get(kind, 0)
        out.append(_as_json(text, found) if kind == "value" else _SPACED.get(token, token))
        before = kind
        if depth <= 0:
            return _checked("".join(out)), at
        if depth > _DEEPEST:
            break
    raise _Unreadable


def _checked(written: str) -> str:
    try:
        msgspec.json.decode(written)
    except (msgspec.MsgspecError, RecursionError):
        if (kept := _without_halves(written)) is None:
            raise _Unreadable from None
        return kept
    return written


def _as_json(text: str, found: re.Match[str]) -> str:
    """Return a text, number or word as JSON has it."""
    token = found[0]
    if token[0] in "\"'":
        return f'"{_IN_STRING.sub(_in_string, token[1:-1])}"'
    if token[0].isdigit() or token[0] == "-":
        return token
    written = f'"{token}"' if _AFTER_KEY.match(text, found.end()) else _WORDS.get(token)
    if written is None:
        raise _Unreadable
    return written


def _in_string(found: re.Match[str]) -> str:
    one = found[0]
    if one == '"':
        return '\\"'
    if one[0] != "\\":
        return _CONTROLS.get(one) or f"\\u{ord(one):04x}"
    if one[1] == "'":
        return "'"
    if one[1] == "x" and len(one) > 2:  # Python's
        return f"\\u00{one[2:]}"
    if one[1] in _ESCAPES or len(one) > 2:
        return one
    raise _Unreadable
