"""JSON on one line of a text file, with people's letters as they are, so that grep finds them.

What would break a line, or hide in a terminal, stays escaped: control characters, the line ends of
Unicode (U+0085, U+2028, U+2029), and lone surrogates, which UTF-8 cannot hold.
"""

from __future__ import annotations

import json
import re

_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_SPACED = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def json_line(value: object, *, compact: bool = True) -> str:
    """`value` as JSON without a newline; without blanks where it is `compact`. Raises `ValueError`
    for a number that JSON does not have."""
    text = (_COMPACT if compact else _SPACED).encode(value)
    return text if text.isascii() and "\x7f" not in text else _ESCAPED.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
