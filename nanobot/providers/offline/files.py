"""Stories about files and notes: one or two tool calls and a sentence on what came of them."""

from __future__ import annotations

import re

from nanobot.providers.offline.intents import (
    FindFiles,
    ListFiles,
    ReadFile,
    ReplaceText,
    SearchFiles,
    SendFile,
    TakeNote,
    WriteFile,
)
from nanobot.providers.offline.steps import Call, Outcome, Story, read_whole
from nanobot.providers.offline.texts import clipped, say, trouble

FileWish = (
    ListFiles | ReadFile | WriteFile | ReplaceText | FindFiles | SearchFiles | SendFile | TakeNote
)


def work_on_files(wish: FileWish, chinese: bool) -> Story:
    """Do what was asked."""
    match wish:
        case ListFiles():
            story = _list(wish, chinese)
        case ReadFile():
            story = _read(wish, chinese)
        case WriteFile():
            story = _append(wish, chinese) if wish.append else _write(wish, chinese)
        case ReplaceText():
            story = _replace(wish, chinese)
        case FindFiles() | SearchFiles():
            story = _search(wish, chinese)
        case SendFile():
            story = _send(wish, chinese)
        case TakeNote():
            story = _note(wish, chinese)
    return story


def _trouble(outcome: Outcome, what: str, chinese: bool) -> str:
    return trouble(outcome.missing, what, outcome.reason, chinese)


def _list(wish: ListFiles, chinese: bool) -> Story:
    outcome = yield Call("list_dir", {"path": wish.path})
    if outcome.failed:
        return _trouble(outcome, f"list_dir {wish.path}", chinese)
    where = say("workspace", chinese) if wish.path == "." else wish.path
    return say("listing", chinese, path=where, text=clipped(outcome.text, None, chinese))


def _read(wish: ReadFile, chinese: bool) -> Story:
    outcome = yield Call("read_file", {"path": wish.path})
    if outcome.failed:
        return _trouble(outcome, f"read_file {wish.path}", chinese)
    if not outcome.text.strip():
        return say("file_empty", chinese, path=wish.path)
    return say("file_says", chinese, path=wish.path, text=clipped(outcome.text, None, chinese))


def _write(wish: WriteFile, chinese: bool) -> Story:
    outcome = yield Call("write_file", {"path": wish.path, "content": wish.content})
    if outcome.failed:
        return _trouble(outcome, f"write_file {wish.path}", chinese)
    return say("wrote" if wish.content else "created_empty", chinese, path=wish.path)


def _append(wish: WriteFile, chinese: bool) -> Story:
    current = yield from read_whole(wish.path)
    if current.failed and not current.absent:
        return _trouble(current, f"read_file {wish.path}", chinese)
    before = "" if current.absent or not current.text else current.text.rstrip("\n") + "\n"
    content = f"{before}{wish.content}\n"
    outcome = yield Call("write_file", {"path": wish.path, "content": content})
    if outcome.failed:
        return _trouble(outcome, f"write_file {wish.path}", chinese)
    return say("appended", chinese, path=wish.path)


def _replace(wish: ReplaceText, chinese: bool) -> Story:
    arguments: dict[str, object] = {"path": wish.path, "old_text": wish.old, "new_text": wish.new}
    if wish.everywhere:
        arguments["replace_all"] = True
    outcome = yield Call("edit_file", arguments)
    if outcome.failed:
        return _trouble(outcome, f"edit_file {wish.path}", chinese)
    return say("replaced", chinese, old=wish.old, new=wish.new, path=wish.path)


def _search(wish: FindFiles | SearchFiles, chinese: bool) -> Story:
    if isinstance(wish, FindFiles):
        call = Call("find_files", {"pattern": wish.pattern, "path": wish.path})
    else:
        literal = re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", wish.text)
        call = Call("grep", {"pattern": literal, "path": wish.path})
    outcome = yield call
    if outcome.failed:
        return _trouble(outcome, call.name, chinese)
    if re.match(r"(?:nothing|no (?:line|match|file|result))\w*\b", outcome.text, re.IGNORECASE):
        return say("none_found", chinese)
    return say("found", chinese, text=clipped(outcome.text, None, chinese))


def _send(wish: SendFile, chinese: bool) -> Story:
    outcome = yield Call("message", {"media": [wish.path]})
    if outcome.failed:
        return _trouble(outcome, f"message {wish.path}", chinese)
    return say("sent", chinese, path=wish.path)


def _note(wish: TakeNote, chinese: bool) -> Story:
    outcome = yield Call("note", {"text": wish.text})
    if outcome.failed:
        return _trouble(outcome, "note", chinese)
    return say("noted", chinese, text=wish.text)
