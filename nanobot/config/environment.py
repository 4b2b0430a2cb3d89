"""Values that a program gets: its environment and HTTP headers, some of which are secrets.

A value is a secret unless it plainly is none: what is held to be one is blotted out wherever it
turns up, so a folder or a word such as `production` must not be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, SecretStr

from nanobot.config.base import NoSecret
from nanobot.config.values import Unfit

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_SECRET_NAME = re.compile(r"key|token|secret|pass|auth|credential|cookie|pwd|pin\b", re.IGNORECASE)
_PLAIN = re.compile(
    r"""
      [a-z]{1,12}                     # a word: production
    | [0-9]{1,6} | true | false
    | (?:~|\.{1,2})?/[^:@?\s]*(?::/[^:@?\s]*)*   # a path, or a list of them as in PATH
    | [A-Za-z_]{1,10}\.[Uu][Tt][Ff]-?8           # a locale: C.UTF-8
    | https?://[^@?\#\s]*             # an address that holds no key
    """,
    re.VERBOSE,
)
_RESERVED = frozenset({"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"})


def revealed(values: Mapping[str, SecretStr]) -> dict[str, str]:
    """The bare values, for whoever starts the program or makes the request."""
    return {name: value.get_secret_value() for name, value in values.items()}


def _variables(values: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    for name, value in revealed(values).items():
        if not _NAME.fullmatch(name):
            raise Unfit("must have names of variables as its keys", "Write it like `LANG: C`.")
        if name in _RESERVED:
            raise Unfit(f"cannot hold {name}, which changes every program", "Leave it out.")
        if "\0" in value:
            raise Unfit(f"{name} holds a character that no variable can", "Type it again.")
    return {name: _told_apart(name, value) for name, value in values.items()}


def _told_apart(name: str, value: SecretStr) -> SecretStr:
    bare = value.get_secret_value()
    plain = not _SECRET_NAME.search(name) and bool(_PLAIN.fullmatch(bare))
    return NoSecret(bare) if plain else value


def _headers(values: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    for name, value in revealed(values).items():
        if not _HEADER.fullmatch(name):
            example = "Write it like `Authorization: Bearer ${MY_TOKEN}`."
            raise Unfit("must have names of HTTP headers as its keys", example)
        if not all(" " <= character <= "~" for character in value):
            hint = "Copy it again, on its own."
            raise Unfit(f"{name} holds a line break or a character beyond ASCII", hint)
    return values


Variables = Annotated[Mapping[str, SecretStr], AfterValidator(_variables)]
Headers = Annotated[Mapping[str, SecretStr], AfterValidator(_headers)]
