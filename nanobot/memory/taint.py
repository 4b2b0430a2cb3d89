"""Taint: the origin of untrusted content in a conversation, and how facts enter memory next to it.
Pure.

Everything is untrusted but the words of the conversation's person, the model and nanobot: a web
page, a file, a forwarded message, another person in a group. It taints a conversation.

A mark is the name of a source (`tool:web_fetch`, `person:7`, `forwarded`), or of a relay with the
sources behind it: `helper:1a (person:7; tool:grep)`. The model's words carry the marks of
everything that it had read, and a relay passes them on. Marks stay small: each names a source once,
and beyond a maximum the rest becomes `others`. No message has that origin, so its carrier counts as
untrusted from then on.

A note that untrusted content may have caused carries a mark, `(from tool:web_fetch, unconfirmed)`,
and counts as untrusted in prompts and searches.

In a tainted conversation, only a quotation enters memory without approval: the model names some
words of a line of the person's, and code copies the whole line. So nothing can be added, and no
words can be cut off that reverse its meaning ("not", "if", "says Bob"). The model's own wording
needs approval."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date

from nanobot.errors import CallRefused
from nanobot.memory.importance import without_importance
from nanobot.memory.line_changes import blocks_of
from nanobot.memory.model_text import clean_line
from nanobot.messages import ATTACHED, EDITED, Message

OTHERS = "others"

_NANOBOT = "nanobot"
_MOST = 16


def is_foreign(message: Message) -> bool:
    """Return True if a message is not by its person, the model or nanobot."""
    return message.role != "assistant" and message.origin not in {"", _NANOBOT, ATTACHED}


def origins_of(messages: Iterable[Message]) -> tuple[str, ...]:
    """Return the sources of untrusted content in, or behind, `messages`, each once."""
    found, known = dict[str, None](), set[tuple[str, bool]]()
    for message in messages:
        # The model's words carry the origins of everything that it read.
        mark = message.origin, message.role == "assistant"
        if mark not in known:  # few differ in a long conversation
            known.add(mark)
            found |= dict.fromkeys(message.origin.split(",") if mark[1] else [message.origin])
        # A memory notice may have an unconfirmed note, cut within its mark.
        if message.notice and _SAYS_UNCONFIRMED.search(message.notice):
            found[NOTE] = None
    return foreign_in(found)


def foreign_in(origins: Iterable[str]) -> tuple[str, ...]:
    return tuple(origin for origin in origins if origin not in {"", _NANOBOT})


def origin_of_relay(by: str, marks: Iterable[str]) -> str:
    """Return the origin of a relay `by` that read text with these marks."""
    return f"{by} ({'; '.join(sources_of(marks))})"


def combine_marks(marks: Iterable[str]) -> str:
    """Join marks for one message."""
    return ",".join(_limit(marks))


def sources_of(marks: Iterable[str]) -> tuple[str, ...]:
    """Return the sources behind all these marks: at most 17 names."""
    found = list[str]()
    for mark in marks:
        _, opened, behind = mark.partition(" (")
        relayed = behind.split("; ") if opened and mark.endswith(")") else ()
        found += [one.rpartition(" (")[2].rstrip(")") for one in relayed] or [mark]
    return tuple(_limit(found))


def _limit(marks: Iterable[str]) -> list[str]:
    """Return each mark once, sources first. `OTHERS` replaces those beyond the maximum."""
    every = set(marks) - {""}
    known = sorted(every - {OTHERS}, key=lambda mark: (" (" in mark, mark))
    more = OTHERS in every or len(known) > _MOST
    return [*known[:_MOST], OTHERS] if more else known


_LONGEST_QUOTE = 1_000  # characters: a longer line is not a fact
_SHOWN = 80


def quotation(words: str, messages: Iterable[Message], today: date) -> str:
    """Return the person's only line with `words`, whole, as a fact with its day: `“…”
    (2026-11-23)`. Case and spaces make no difference. Raise `ToolError` for no or several lines, or
    a long one."""
    line, day = _find_line(words, messages)
    if text := quote_line(line, day or today):
        return text
    raise CallRefused(
        f"this line has {len(line):,} characters, but the limit is {_LONGEST_QUOTE:,}"
    )


def _find_line(words: str, messages: Iterable[Message]) -> tuple[str, date | None]:
    wanted = _plain(words)
    found = {line: day for line, day in _lines(messages) if wanted and wanted in _plain(line)}
    if not found:
        raise CallRefused(
            f"no line of the person has the words {words.strip()[:_SHOWN]!r}",
            hint="Give the first words of a line that the person wrote, exactly.",
        )
    lines = [line for line in found if _plain(line) == wanted] or list(found)
    if len(lines) > 1:
        shown = "; ".join(line[:_SHOWN] for line in lines[:3])
        raise CallRefused(f"more than one line has these words: {shown}", hint="Quote more of it.")
    return lines[0], found[lines[0]]


def quote_line(line: str, day: date | None) -> str:
    """Return a line of the person's as a fact, or "" if it is too long."""
    if len(line) > _LONGEST_QUOTE:
        return ""
    said = f"“{without_importance(clean_line(line))}”"
    return f"{said} ({day})" if day else said


_QUOTED = r"“(.*)”(?: \((\d{4}-\d\d-\d\d)\))?"


def read_quotation(line: str) -> tuple[str, date | None]:
    """Return the words of a line, and the day if it is a quotation with one."""
    bare = without_importance(line).strip().removeprefix("- ")
    found = re.fullmatch(_QUOTED, bare)
    if found is None:
        return bare, None
    try:
        return found[1], date.fromisoformat(found[2] or "")
    except ValueError:  # none, or an impossible one, typed by hand
        return found[1], None


def days_of_quotations(lines: Iterable[str]) -> dict[str, date]:
    """Return the quotations among the lines, with their days."""
    found = ((line, read_quotation(line)[1]) for line in lines)
    return {line: day for line, day in found if day}


def _lines(messages: Iterable[Message]) -> Iterator[tuple[str, date | None]]:
    """Yield the person's lines and their days, the latest last, but none before an edit: the edit
    may have removed them."""
    own = [message for message in messages if message.own_words]
    edited = [at for at, message in enumerate(own) if EDITED in message.content.split("\n")]
    for message in own[max(edited, default=0) :]:
        day = message.timestamp.date() if message.timestamp else None
        for line in message.own_words.split("\n"):
            if line != EDITED and (text := " ".join(line.split())):
                yield text, day


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


NOTE = "note"
"""The origin of text in such a note. Its mark may name more, but only for people."""

_MARKED = re.compile(r"- \d\d:\d\d \(from [^\n]{1,300}, unconfirmed\) ")
_NOTED = re.compile(r"- \d\d:\d\d ")
_SAYS_UNCONFIRMED = re.compile(r"\d\d:\d\d \(from ")
_LONGEST_MARK = 280


def mark_of(origins: Iterable[str]) -> str:
    """Return the mark of such a note, or "" without origins."""
    named = ", ".join(" ".join(origin.split()) for origin in dict.fromkeys(origins))
    return f"(from {named[:_LONGEST_MARK]}, unconfirmed) " if named else ""


def is_unconfirmed(note: str) -> bool:
    return _MARKED.match(note) is not None


def is_own_note(text: str) -> bool:
    """Return True for a piece of a file that is a day's note without the mark."""
    return _NOTED.match(text) is not None and not is_unconfirmed(text)


def find_unconfirmed(notes: str) -> str:
    """Return the day's notes that carry the mark, with their indented lines."""
    if ", unconfirmed) " not in notes:  # a fast path, called for every message
        return ""
    return "".join(block for block in blocks_of(notes) if is_unconfirmed(block)).rstrip()
