"""File names of sessions: readable, reversible, and never outside the folder.

`telegram:123` is `telegram_123`: the first colon becomes the underscore, and every other character
than `[A-Za-z0-9.@+-]` is percent-encoded, underscores and further colons too, so no two keys share
a name. A leading dot is encoded as well: no name is hidden, `.` or `..`. A key too long for a file
name keeps its beginning and gets a hash; the metadata in the file then says the whole key.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote_to_bytes

SUFFIX = ".jsonl"
_LONGEST = 200
_EMPTY = "%"
_HASH_MARK = "%%"
_UNSAFE = re.compile(rb"[^A-Za-z0-9.@+-]")
_FOREIGN_UNSAFE = re.compile(r'[<>:"/\\|?*]')


def is_own(key: str) -> bool:
    """Whether nobody talks in the conversation `key`: it is nanobot's own, for what is done by
    schedule, begins empty each time, and is taken into no memory."""
    return key.startswith(("cron:", "heartbeat:"))


def stem_of(key: str) -> str:
    """The name of a key's file without the suffix; at most 200 bytes, no `/`."""
    if not key:
        return _EMPTY
    head, colon, tail = key.partition(":")
    stem = _quoted(head) + ("_" if colon else "") + _quoted(tail)
    if stem.startswith("."):
        stem = "%2E" + stem[1:]
    if len(stem) <= _LONGEST:
        return stem
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]
    return f"{stem[: _LONGEST - len(digest) - len(_HASH_MARK)].rstrip('%')}{_HASH_MARK}{digest}"


def key_of(stem: str) -> str:
    """The key behind a name. One with a hash, or one that others gave, yields the likeliest key."""
    if stem == _EMPTY:
        return ""
    readable = stem.partition(_HASH_MARK)[0].replace("_", ":", 1)
    # A name that is not UTF-8 has lone surrogates, which the other way round become escapes.
    return unquote_to_bytes(readable.encode("utf-8", "backslashreplace")).decode(
        "utf-8", "surrogatepass" if _valid(stem) else "replace"
    )


def foreign_stem_of(key: str) -> str:
    """The name that other programs with this format give the same key; several keys may share it.

    Empty where it could be no file name.
    """
    stem = _FOREIGN_UNSAFE.sub("_", key).strip()
    return stem if len(stem) <= _LONGEST and stem.isascii() and stem.isprintable() else ""


def _quoted(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    return _UNSAFE.sub(lambda match: b"%%%02X" % match[0][0], raw).decode("ascii")


def _valid(stem: str) -> bool:
    try:
        unquote_to_bytes(stem).decode("utf-8", "surrogatepass")
    except UnicodeError:
        return False
    return True
