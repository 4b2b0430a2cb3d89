"""The text of paths: pure checks that come before anything is opened (`nanobot.security.paths`).

A name that is not valid UTF-8 is text with lone surrogates, as everywhere in Python. It is shown
with its escapes (`caf\\udce9.txt`), which stand for the same name when a model puts them in JSON.
"""

from __future__ import annotations

import re

from nanobot.errors import PathRefused

_MAX_PATH, _MAX_NAME = 4096, 255
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def printable(name: str) -> str:
    """`name` on one line and as valid UTF-8, shortened where it is endless."""
    text = name if len(name) <= 300 else f"{name[:297]}..."
    text = text.encode("utf-8", "backslashreplace").decode()
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def visible(text: str) -> str:
    """`text` for somebody who must judge it: what cannot be seen, or turns the reading direction
    round, is written as its escape. Lines and tabs stay."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


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
