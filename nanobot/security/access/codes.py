"""Pairing codes: eight characters that are hard to mistake for each other and hard to guess."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable

ALPHABET = "23456789BCDFGHJKMNPQRSTVWXYZ"
"""No 0 and O, no 1, I and L, and no vowels, so that no code is a word."""

LENGTH = 8
"""Characters of a code: 38 bits, of which a guesser gets to try ten codes in ten minutes."""


def new_code() -> str:
    """A code that nobody can foresee."""
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def as_code(text: str) -> str:
    """`text` as a code, as people write it: in small letters, with spaces or dashes. Empty where it
    cannot be one."""
    code = "".join(text.replace("-", " ").split()).upper()
    return code if len(code) == LENGTH and set(code) <= set(ALPHABET) else ""


def matching(code: str, codes: Iterable[str]) -> int:
    """The position of `code` in `codes`, -1 where it is not among them.

    Takes as long wherever it stands and however much of it is right.
    """
    found = -1
    for index, known in enumerate(codes):
        if hmac.compare_digest(known.encode(), code.encode()):
            found = index
    return found
