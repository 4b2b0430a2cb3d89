"""Names and arguments of calls, as models write them. Pure.

Valid arguments are kept byte for byte. Models also write nearly valid JSON: with Python's quotes
and words, an extra comma, comments, a code fence, or an object encoded twice. That is repaired if
it has only one possible meaning. The repair reads tokens and writes each of them as JSON, so no
letter of a value is lost or invented, and a strict parser checks the result. It takes linear time.

Libraries for this guess more: they complete truncated text, but half a command must never run.
json-repair 0.64 also loses words (`'it''s'`) and takes quadratic time."""

from __future__ import annotations

import re

import msgspec

from nanobot.text import valid_unicode

_NOT_IN_NAMES = r"[^A-Za-z0-9_-]"
_LONGEST_NAME = 64  # OpenAI's limit
_ENCODED = 3  # levels of an object encoded as a string that are decoded
_MOST_REPAIRED = 2_000_000
"""Characters. No tool takes more. Repairing this many takes a second at worst."""
_DEEPEST = 200
"""Levels of nesting in text that needs repair. Valid text may be as deep as Python allows."""

# Repairs are rare, so their patterns are compiled at the first use and cached by `re`.
_PIECE = r"""(?xs)
    (?:\s++ | //[^\n]*+ | \#[^\n]*+ | /\*.*?\*/)*+
    (?:(?P<open>[{\[]) | (?P<close>[}\]]) | (?P<comma>,) | (?P<colon>:)
      | (?P<value>"(?:[^"\\]++|\\.)*+" | '(?:[^'\\]++|\\.)*+' | -?[0-9][0-9.eE+-]*+
        | [A-Za-z_][A-Za-z0-9_]*+))
    """
_BEFORE = r"\s*+(?:`++[\w-]*+\s*+)?(?:\{\s*+\}\s*+)*+(?=[{\[])"
"""A code fence and empty objects before the intended object."""
_LEFT_OVER = r"(?s)(?:[\s\"`}\],;]++|//[^\n]*+|\#[^\n]*+|/\*.*?\*/)*+"  # allowed after the object
_WORDS = {
    **dict.fromkeys(("true", "True"), "true"),
    **dict.fromkeys(("false", "False"), "false"),
    **dict.fromkeys(("null", "None"), "null"),
}
_IN_STRING = r"""(?s)\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\.|"|[\x00-\x1f]"""
_CONTROLS = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPACED = {",": ", ", ":": ": ", **{mark: mark for mark in "{}[]"}}  # as Python writes JSON
_HALVES = (
    r"(?s)(?P<other>\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\u[dD](?P<byte>[cC][89a-fA-F][0-9a-fA-F])?(?:(?(byte)|[89a-fA-F][0-9a-fA-F]{2}))"
)
"""Escapes of surrogates: pairs and other escapes are `other`, the rest is lone ones. U+DC80 to
U+DCFF are the bytes of names that are not UTF-8, as nanobot shows such names (see
`nanobot.text`)."""


def fitting_name(name: str) -> str:
    """Return a tool's name in the characters that every server accepts."""
    return re.sub(_NOT_IN_NAMES, "_", name)[:_LONGEST_NAME] or "unnamed"


def read_arguments(text: str, *, repair: bool = True) -> str | None:
    """Return the text of the only JSON object that `text` can mean, or None. Without `repair` it
    must be a valid object or empty.

    A valid object is returned byte for byte. Empty text and null become `{}`. Numbers, texts, lists
    of other things and truncated text give None. Lone surrogate escapes are replaced, unless they
    are bytes of a file name."""
    text = valid_unicode(text)
    read = _read_encoded(text, _ENCODED)
    return read if repair or read in (text, "{}") else None


def sendable_arguments(arguments: str) -> str:
    """Return arguments that strict parsers accept too: an escape of a lone surrogate, which some
    refuse, becomes the text of that escape."""
    if not may_hold_halves(arguments):
        return arguments
    return re.sub(_HALVES, lambda found: found["other"] or f"\\{found[0]}", arguments)


def first_object(text: str, start: int) -> tuple[str, int] | None:
    """Return the object or list that begins at `start` as valid JSON, and the position after it.
    None if there is none, it is truncated, or its meaning is ambiguous."""
    out: list[str] = []
    depth, before, at, tokens = 0, "open", start, re.compile(_PIECE)
    while found := tokens.match(text, at):
        kind, at = str(found.lastgroup), found.end()
        if kind in ("value", "open") and before in ("value", "close"):  # no comma: ambiguous
            return None
        if kind == "close" and before == "comma":
            out.pop()  # trailing comma
        depth += {"open": 1, "close": -1}.get(kind, 0)
        out.append(render_token(text, found[kind], at) if kind == "value" else _SPACED[found[kind]])
        before = kind
        if depth <= 0:
            whole = validate_json("".join(out))
            return (whole, at) if whole else None
        if depth > _DEEPEST:
            return None
    return None


def _read_encoded(text: str, encoded: int) -> str | None:
    if text.strip() in ("", "null"):
        return "{}"
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        inner = repair_json(text)
        return unwrap_list(inner) if inner is not None and inner[:1] == "[" else inner
    if isinstance(value, str) and encoded and value.lstrip()[:1] in ("{", "[", '"', "'", "`", ""):
        return _read_encoded(value, encoded - 1)
    if isinstance(value, list):
        return unwrap_list(text)
    return text if isinstance(value, dict) else None


def unwrap_list(listed: str) -> str | None:
    """Return the text of the object in a list, if the list holds nothing else."""
    inner = msgspec.json.decode(listed, type=list[msgspec.Raw])
    one = bytes(inner[0]).decode() if len(inner) == 1 else ""
    return one if one[:1] == "{" else None


def repair_json(text: str) -> str | None:
    """Return the only JSON object or list that `text` can mean, or None."""
    if len(text) > _MOST_REPAIRED:
        return None
    if (whole := replace_halves(text)) is not None:
        return whole
    before = re.match(_BEFORE, text)
    found = first_object(text, before.end()) if before else None
    if found is None:
        return None
    left = re.compile(_LEFT_OVER).match(text, found[1])
    return found[0] if left and left.end() == len(text) else None


def may_hold_halves(text: str) -> bool:
    return "\\ud" in text or "\\uD" in text


def replace_halves(text: str) -> str | None:
    """Return `text` with lone surrogate escapes replaced, or None if that does not make it
    valid."""
    if not may_hold_halves(text):
        return None
    halves = re.compile(_HALVES)
    kept = halves.sub(lambda one: one["other"] or (one[0] if one["byte"] else "\\ufffd"), text)
    plain = halves.sub(lambda one: one["other"] or "\\ufffd", text)
    try:
        return kept if isinstance(msgspec.json.decode(plain), dict) else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def validate_json(written: str) -> str | None:
    try:
        msgspec.json.decode(written)
    except (msgspec.MsgspecError, RecursionError):
        return replace_halves(written)
    return written


def render_token(text: str, token: str, end: int) -> str:
    """Return a string, number or word of `text` as JSON. Unknown words stay for the parser to
    reject."""
    if token[0] in "\"'":
        return f'"{re.sub(_IN_STRING, escape_in_string, token[1:-1])}"'
    if token[0].isdigit() or token[0] == "-":
        return token
    is_key = re.compile(r"\s*+:").match(text, end)
    return f'"{token}"' if is_key else _WORDS.get(token, token)


def escape_in_string(found: re.Match[str]) -> str:
    one = found[0]
    if one == '"':
        return '\\"'
    if one[0] != "\\":
        return _CONTROLS.get(one) or f"\\u{ord(one):04x}"
    if one[1] == "'":
        return "'"
    return f"\\u00{one[2:]}" if one[1] == "x" and len(one) > 2 else one  # Python's escape
