"""Requests about files and notes: which tool is meant, with which arguments.

Each wording (`rules`) is one anchored pattern; one that ends in a path must name something that
looks like one, so that "show me the way" is not a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from nanobot.providers.offline import rules
from nanobot.providers.offline.intents import (
    FindFiles,
    Intent,
    ListFiles,
    ReadFile,
    ReplaceText,
    SearchFiles,
    SendFile,
    TakeNote,
    WriteFile,
)

_Q = rules.QUOTES
_PLAIN_NAMES = frozenset({"readme", "makefile", "dockerfile", "license", "changelog"})
_HERE = frozenset({
    "here", "workspace", "directory", "folder", "this", "it", "current", "there", "your", "the",
    "my", "工作区", "工作目录", "当前目录", "目录", "这里",
})  # fmt: skip

SENTENCE = 500
"""Characters; a longer request is looked at only where it carries the text of a file."""

_READ_LIST = re.compile(
    r"(?:read|show|open|cat|print|display)\s+(?:me\s+)?(.{3,400})$|(?:读|读取|打开|查看|"
    r"看)(?:一下)?(.+)$",
    re.IGNORECASE,
)

Build = Callable[[re.Match[str]], Intent | None]


def looks_like_path(name: str) -> bool:
    """Whether a word is a file's name: it has an extension or a slash, and is no address."""
    if "://" in name or not name:
        return False
    return (
        "/" in name
        or name.lower() in _PLAIN_NAMES
        or re.search(r"\w\.[A-Za-z][A-Za-z0-9]{0,7}$", name) is not None
        or re.match(r"\.[A-Za-z]\w*$", name) is not None
    )


def _path(match: re.Match[str]) -> str:
    groups = match.groupdict()
    name: str = groups.get("quoted") or groups.get("path") or ""
    return name if groups.get("file") or groups.get("quoted") or looks_like_path(name) else ""


def _unquoted(text: str) -> str:
    text = text.strip()
    fenced = re.match(r"```\w*\n(.*?)\n?```$", text, re.DOTALL)
    if fenced:
        return fenced[1]
    if len(text) > 1 and text[0] in _Q and text[-1] in _Q and not set(text[1:-1]) & set(_Q):
        return text[1:-1]
    return text


def _write(match: re.Match[str]) -> Intent | None:
    path = _path(match)
    return WriteFile(path, _unquoted(match.groupdict().get("content") or "")) if path else None


def _append(match: re.Match[str]) -> Intent | None:
    path = _path(match)
    return WriteFile(path, _unquoted(match["content"]), append=True) if path else None


def _replace(match: re.Match[str]) -> Intent | None:
    path, old = _path(match), _unquoted(match["old"])
    everywhere = bool(match.groupdict().get("all"))
    return ReplaceText(path, old, _unquoted(match["new"]), everywhere) if path and old else None


def _read(match: re.Match[str]) -> Intent | None:
    path = _path(match)
    return ReadFile(path) if path else None


def _send(match: re.Match[str]) -> Intent | None:
    path = _path(match)
    return SendFile(path) if path else None


def folder(name: str) -> str:
    """A folder as a person names it: "the docs folder" is `docs`, "here" is the workspace."""
    name = _unquoted(name.strip().rstrip("?.!？。！"))
    words = [word for word in name.split() if word.lower() not in _HERE]
    return words[0].rstrip("/") or "/" if words else "."


def _list(match: re.Match[str]) -> Intent | None:
    return ListFiles(folder(match.groupdict().get("where") or ""))


def _find(match: re.Match[str]) -> Intent | None:
    name = _unquoted(match["name"]).strip()
    if not name:
        return None
    if re.fullmatch(r"\.\w+", name):
        name = f"*{name}"
    elif not re.search(r"[*?./]", name):
        name = f"*{name}*"
    return FindFiles(name, folder(match.groupdict().get("where") or ""))


def _search(match: re.Match[str]) -> Intent | None:
    text = _unquoted(match["text"])
    return SearchFiles(text, folder(match.groupdict().get("where") or "")) if text else None


def _note(match: re.Match[str]) -> Intent | None:
    text = match["text"].strip()
    return TakeNote(text) if text else None


_BUILD: dict[str, Build] = {
    "write": _write, "append": _append, "replace": _replace, "read": _read, "list": _list,
    "find": _find, "search": _search, "note": _note, "send": _send,
}  # fmt: skip


@cache
def _compiled(rule: str) -> re.Pattern[str]:
    # On first use: compiling all of them takes longer than importing everything else.
    return re.compile(rule, re.IGNORECASE | re.DOTALL)


def open_command(text: str) -> Intent | None:
    """A request that takes everything to the end of the message: a note, a file's content."""
    return _first(rules.OPEN, text, rules.PLEASE)


def carrying_command(text: str) -> Intent | None:
    """A request that puts the text before it into a file."""
    return _first(rules.CARRYING, text)


def command(sentence: str) -> Intent | None:
    """A request about files in one sentence."""
    if len(sentence) > SENTENCE:
        return carrying_command(sentence)
    return _first(rules.CLOSED, sentence) or carrying_command(sentence)


def reads(sentence: str) -> list[Intent]:
    """ "Read a.txt and b.txt": more than one file at once."""
    match = _READ_LIST.match(sentence) if len(sentence) <= SENTENCE else None
    if match is None:
        return []
    names = [
        word
        for word in re.split(r"[\s,，、]+|和", match[1] or match[2])
        if word not in ("and", "the", "files")
    ]
    names = [_unquoted(name.rstrip(".!?。")) for name in names if name]
    return [ReadFile(name) for name in names] if all(map(looks_like_path, names)) else []


def _first(wordings: tuple[tuple[str, str], ...], text: str, before: str = "") -> Intent | None:
    chinese = _has_ideographs(text[:SENTENCE]) or _has_ideographs(text[-SENTENCE:])
    if (
        not chinese
        and re.split(r"\W", text.lstrip(rules.QUOTES), maxsplit=1)[0].lower() not in rules.STARTS
    ):
        return None
    for rule, kind in wordings:
        if not chinese and _is_chinese(rule):
            continue
        match = _compiled(before + rule).match(text)
        if match and (intent := _BUILD[kind](match)):
            return intent
    return None


@cache
def _is_chinese(rule: str) -> bool:
    return _has_ideographs(rule)


def _has_ideographs(text: str) -> bool:
    return any("\u4e00" <= character <= "\u9fff" for character in text)
