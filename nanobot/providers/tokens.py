"""Estimating how many tokens a text takes, without a tokenizer in memory.

A tokenizer's tables cost 79 MiB; an estimate by class of character costs nothing and is good to
about a tenth for prose. The weights are characters per token of o200k_base: a run of ASCII letters
averages 4.6, a run of digits 2.4, other ASCII symbols 1.6; other scripts about 2.6; a CJK character
is 0.75 tokens, one outside the basic plane (emoji) 2.
"""

from __future__ import annotations

import re
from functools import cache

MESSAGE_OVERHEAD = 4
"""Tokens that a chat message costs beyond its text (role and separators)."""

CALL_OVERHEAD = 8
"""What a tool call costs beyond its arguments."""

IMAGE_TOKENS = 1_105
"""What one image of ordinary size costs: 85 + 170 per 512-pixel tile at 1024 x 1536 pixels."""


_LETTERS = re.compile(r"[A-Za-z ]+")
_DIGITS = re.compile(r"[0-9]+")


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` takes; linear in its length and never 0 for a non-empty text."""
    if not text:
        return 0
    letters = sum(map(len, _LETTERS.findall(text)))
    digits = sum(map(len, _DIGITS.findall(text)))
    if text.isascii():
        cjk = other = astral = 0
        symbols = len(text) - letters - digits
    else:
        cjk = sum(map(len, _cjk().findall(text)))
        ascii_total = len(text.encode("ascii", "ignore"))
        symbols = ascii_total - letters - digits
        astral = len(_astral().findall(text))
        other = len(text) - ascii_total - cjk - astral
    total = letters / 4.6 + digits / 2.4 + symbols / 1.6 + cjk * 0.75 + other / 2.6 + astral * 2
    return max(1, round(total))


@cache
def _astral() -> re.Pattern[str]:
    return re.compile(r"[\U00010000-\U0010ffff]")


@cache
def _cjk() -> re.Pattern[str]:
    # On first use: compiling ranges this large takes milliseconds.
    return re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+")
