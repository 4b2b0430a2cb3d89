"""JSON objects that models write almost as JSON has them. Pure.

They use Python's quotes and words, a comma or a quote too many, comments, a code fence, or encode
an object twice. It is repaired if it can only mean one thing. The repair reads tokens and writes
each of them as JSON has it, so no letter of a value is lost or invented, and a strict parser checks
the result. It takes time in proportion to the text.

The libraries for this guess further: they complete text that was cut off, and half a command must
never run. json-repair 0.64 also loses words (`'it''s'`) and takes quadratic time: 0.8 s for 160,000
characters in single quotes.
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
    | (?P<string>"(?:[^"\\]++|\\.)*+" | '(?:[^'\\]++|\\.)*+')
    | (?P<number>-?[0-9][0-9.eE+-]*+)
    | (?P<word>[A-Za-z_]\w*+)
    """,
    re.VERBOSE | re.DOTALL,
)
_FENCE = re.compile(r"\s*+`++[\w-]*+\s*+")
_EMPTY = re.compile(r"(?:\{\s*+\}\s*+)++(?=\{)")
_LEFT_OVER = re.compile(r"(?:[\s\"'`}\],;]++|//[^\n]*+|\#[^\n]*+|/\*.*?\*/)*+", re.DOTALL)
_AFTER_VALUE = re.compile(r"\s*+(?:[,:}\]]|\Z)")
_GOES_ON = re.compile(r"[^\s,:}\]\"']")
_AFTER_KEY = re.compile(r"\s*+:")
_WORDS = {
    "true": "true",
    "false": "false",
    "null": "null",
    "True": "true",
    "False": "false",
    "None": "null",
}
_IN_STRING = re.compile(r"""\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\.|"|[\x00-\x1f]""", re.DOTALL)
_ESCAPES = frozenset({*'"\\/bfnrt'})
_CONTROLS = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

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
    """Return the object that begins with the brace at `start` as valid JSON, and the position
    behind it. None if there is none, or it was cut off."""
    try:
        return _Repair(text).value(start)
    except _Unreadable:
        return None


def halves_as_text(text: str) -> str:
    """Return JSON with each escape of a lone surrogate as the text of that escape."""
    return _HALVES.sub(lambda found: found["other"] or f"\\{found[0]}", text)


def repaired_object(text: str) -> str | None:
    """Return the text of the JSON object that `text` can only mean, or of a string that holds it,
    or None."""
    if len(text) > _MOST_REPAIRED:
        return None
    if (whole := _without_halves(text)) is not None:
        return whole
    body = _FENCE.sub("", text, count=1) if text.lstrip()[:1] == "`" else text
    body = body.strip()
    if inner := _encoded_object(body):
        return inner
    if body[:1] in ("'", '"') and body[1:].lstrip()[:1] in ("{", "["):
        body = body[1:]  # quoted without escapes, or one quote too many
    try:
        return _only_object(body)
    except _Unreadable:
        return None


def _encoded_object(body: str) -> str:
    """Return the JSON string that `body` is or lacks only the quotes of; empty if it is none."""
    if body.startswith('{\\"'):
        return f'"{body}"'
    found = _TOKEN.match(body) if body[:1] in ("'", '"') else None
    if found is None or found.end() < len(body):
        return ""
    try:
        return _as_json(body)
    except _Unreadable:
        return ""


def _only_object(body: str) -> str | None:
    """Return the one object or list of `body`, repaired. Empty objects in front of it are dropped.
    Raises `_Unreadable`."""
    empty = _EMPTY.match(body)
    start = empty.end() if empty else 0
    if body[start : start + 1] not in ("{", "["):
        return None
    value, end = _Repair(body).value(start)
    left = _LEFT_OVER.match(body, end)
    if left is None or left.end() < len(body):
        return None
    return value


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


class _Repair:
    """The tokens of one text, written as JSON has them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._out: list[str] = []
        self._before = ""
        self._quotes = 0

    def value(self, start: int) -> tuple[str, int]:
        """Return the list or object at `start` as valid JSON, and its end. Raises `_Unreadable`."""
        depth, at = 0, start
        while True:
            kind, token, at = self._token(at)
            if kind == "open":
                depth += 1
            elif kind == "close":
                depth -= 1
                if self._before == "comma":
                    self._out.pop()
            if depth > _DEEPEST:
                raise _Unreadable
            self._put(kind, token)
            if not depth:
                return self._checked(), at

    def _put(self, kind: str, token: str) -> None:
        if kind == "blank":
            return
        if kind in ("value", "open") and self._before in ("value", "close"):
            raise _Unreadable
        self._out.append(token)
        self._before = kind

    def _checked(self) -> str:
        written = "".join(self._out)
        try:
            msgspec.json.decode(written)
        except (msgspec.MsgspecError, RecursionError):
            if (kept := _without_halves(written)) is None:
                raise _Unreadable from None
            return kept
        return written

    def _token(self, at: int) -> tuple[str, str, int]:
        """Return the kind of the token at `at`, its JSON, and its end."""
        text = self._text
        if text[at : at + 1] in ('"', "'") and self._is_extra_quote(at):
            self._quotes += 1
            return "blank", "", at + 1
        found = _TOKEN.match(text, at)
        if found is None:
            raise _Unreadable
        kind, token = str(found.lastgroup), found[0]
        match kind:
            case "string":
                return "value", _as_json(token), found.end()
            case "number":
                return "value", token, found.end()
            case "word":
                is_key = _AFTER_KEY.match(text, found.end())
                written = f'"{token}"' if is_key and token.isascii() else _WORDS.get(token)
                if written is None:
                    raise _Unreadable
                return "value", written, found.end()
            case "comma" | "colon":
                return kind, f"{token} ", found.end()
        return kind, token, found.end()

    def _is_extra_quote(self, at: int) -> bool:
        """Whether the quote at `at` is one too many: behind a text, list or object that has ended,
        or doubled at the beginning of a text. There may be one."""
        if self._quotes:
            return False
        if self._before in ("value", "close"):
            ended = self._out[-1][-1] in '"}]'
            return ended and _AFTER_VALUE.match(self._text, at + 1) is not None
        doubled = self._text[at + 1 : at + 2] == self._text[at]
        return doubled and _GOES_ON.match(self._text, at + 2) is not None


def _as_json(literal: str) -> str:
    return f'"{_IN_STRING.sub(_written, literal[1:-1])}"'


def _written(found: re.Match[str]) -> str:
    one = found[0]
    if one == '"':
        return '\\"'
    if one[0] != "\\":
        return _CONTROLS.get(one) or f"\\u{ord(one):04x}"
    if one[1] == "'":
        return "'"
    if one[1] == "x" and len(one) == 4:
        return f"\\u00{one[2:]}"
    if one[1] in _ESCAPES or len(one) == 6:
        return one
    raise _Unreadable
