"""The text of paths: pure checks that come before anything is opened (`nanobot.security.paths`).

A name that is not valid UTF-8 is text with lone surrogates, as everywhere in Python. It is shown
with its escapes (`caf\\udce9.txt`), which stand for the same name when a model puts them in JSON.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from nanobot.errors import PathRefused

_MAX_PATH, _MAX_NAME = 4096, 255
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DRAWN_AS_NOTHING = re.compile(
    r"\b(?:BLANK|FILLER|NULL|VARIATION SELECTOR|GRAPHEME JOINER|VOWEL INHERENT)\b"
)
"""In the names of letters, marks and symbols that show nothing. Python knows no property for them;
with the categories this has all of Default_Ignorable_Code_Point, and U+2800, U+13441, U+1D159."""

_BLANKS, _BLANK_LINES = re.compile("[ \t]{33,}"), re.compile("\n(?:[ \t]*\n){3,}")


def printable(name: str) -> str:
    """`name` on one line and as valid UTF-8, shortened where it is endless."""
    text = name if len(name) <= 300 else f"{name[:297]}..."
    text = text.encode("utf-8", "backslashreplace").decode()
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def visible(text: str) -> str:
    """`text` for somebody who must judge it: what cannot be seen, or turns the reading direction
    round, is written as its escape. Lines, tabs and spaces stay."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return "".join(map(_seen, text))


def judged(text: str) -> str:
    """`visible`, and nothing is pushed out of sight: many blanks or empty lines are a number."""
    text = _BLANKS.sub(lambda run: f"[{len(run[0])} blanks]", visible(text))
    return _BLANK_LINES.sub(lambda run: f"\n[{run[0].count(chr(10)) - 1} empty lines]\n", text)


@lru_cache(maxsize=4_096)
def _seen(character: str) -> str:
    """The character, or its escape: unseen are control, format, unassigned and private ones, all
    blanks but the space, and what is drawn as nothing."""
    if character in " \n\t" or "!" <= character <= "~":
        return character
    unseen = unicodedata.category(character)[0] in "CZ" or _DRAWN_AS_NOTHING.search(
        unicodedata.name(character, "")
    )
    return character.encode("unicode_escape").decode() if unseen else character


def relative_names(path: str, root: str) -> tuple[str, ...]:
    """The names on the way from a root to `path`; raises `PathRefused` where it would leave it.

    `..` is resolved as text, which is exact because links are never followed.
    """
    _refuse_unusable(path)
    if path == "~" or path.startswith(("~/", "/")):
        raise PathRefused(
            f"{printable(path)} is outside the {root}", hint=f"Use a path relative to the {root}."
        )
    names = _resolved(path)
    if names is None:
        raise PathRefused(f"{printable(path)} leads out of the {root}")
    for name in names:
        if masked(name):
            raise PathRefused(f"{printable(path)}: nothing inside .git is read or written")
    return names


def absolute_names(path: str) -> tuple[str, ...]:
    """The names on the way from `/` to `path`."""
    _refuse_unusable(path)
    return _resolved(path) or ()


def masked(name: str) -> bool:
    """Whether a file of this name is treated as absent: a repository's files can run programs."""
    return name.casefold() == ".git"


def _refuse_unusable(path: str) -> None:
    if not path:
        raise PathRefused("the path is empty")
    if "\0" in path:
        raise PathRefused(f"{printable(path)}: a path cannot hold a NUL character")
    try:
        encoded = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise PathRefused(f"{printable(path)}: no file can have such a name") from error
    if len(encoded) > _MAX_PATH:
        raise PathRefused("the path is too long")


def _resolved(path: str) -> tuple[str, ...] | None:
    names: list[str] = []
    for name in path.split("/"):
        if name in ("", "."):
            continue
        if name != "..":
            if len(name.encode("utf-8", "surrogateescape")) > _MAX_NAME:
                raise PathRefused(f"{printable(name)}: the name is too long")
            names.append(name)
        elif names:
            names.pop()
        elif not path.startswith("/"):
            return None
    return tuple(names)
