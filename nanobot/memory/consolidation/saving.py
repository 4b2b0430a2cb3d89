"""The tool by which a model hands over a consolidation, and what its version of memory means. Pure.

Models send arguments as a JSON string in a string, as a list, with objects where text is due, with
fields missing, in a code fence, cut off, or as text instead of a call. Whatever says what was meant
is taken; for the rest there is a reason that the model can act on.

The model returns the whole long-term file, against the version that it was shown; what counts is
the lines that differ, so that changes which others made meanwhile survive. Consolidation learns and
rewords. It forgets nothing: a line that the model merely left out stays (models leave lines out by
carelessness far more often than by intent), and is taken out only where another line of the update
says it. Where the stretch holds foreign text, every change is held back for the person to confirm,
except lines of their own, which code copied.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from nanobot.memory import guard
from nanobot.memory.answers import json_object
from nanobot.memory.lines import Operation, operations_between
from nanobot.providers.port import Reply, ToolSpec

SAVE_MEMORY = ToolSpec(
    name="save_memory",
    description="Save the consolidation of the conversation to memory.",
    parameters={
        "type": "object",
        "properties": {
            "history_entry": {
                "type": "string",
                "description": (
                    "A paragraph of 2 to 5 sentences on key events, decisions and topics. Starts "
                    "with [YYYY-MM-DD HH:MM]. With detail that a text search would look for."
                ),
            },
            "memory_update": {
                "type": "string",
                "description": (
                    "The full updated long-term memory as Markdown: all existing facts and the new "
                    "ones. Unchanged if nothing is new."
                ),
            },
            "key_facts": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Facts of one line each, with dates resolved.",
            },
            "quotes": {
                "type": "array",
                "items": {"type": "string"},
                "description": "First words of lines of USER's that are kept whole, as written.",
            },
        },
        "required": ["history_entry", "memory_update"],
    },
)

_MOST_FACTS = 40
_LONGEST_FACT = 500
_LONGEST_ENTRY = 8_000
_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d\]")
_FENCE = re.compile(r"\A\s*```[\w-]*[ \t]*\n(?P<inside>.*?)\n?\s*```\s*\Z", re.DOTALL)
_TEXT_FIELDS = ("text", "content", "summary", "entry", "markdown", "fact", "value")


class Saved(Struct, frozen=True):
    """A consolidation. `memory_update` None: there is nothing to change. `quotes` are words of
    lines of the person's to be remembered as they stand."""

    history_entry: str
    memory_update: str | None = None
    key_facts: tuple[str, ...] = ()
    quotes: tuple[str, ...] = ()


def read_reply(reply: Reply) -> Saved | str:
    """What a model's reply saves, or why it saves nothing, told to the model."""
    names = [call.name for call in reply.tool_calls]
    if SAVE_MEMORY.name in names:
        arguments = reply.tool_calls[names.index(SAVE_MEMORY.name)].arguments
        if (fields := json_object(arguments)) is not None:
            return _read_fields(fields)
        cut = reply.finish == "length"
        problem = "were cut off: be shorter" if cut else "are no JSON object"
        return f"the arguments of save_memory {problem}"
    if (fields := json_object(reply.text, {"history_entry"})) is not None:
        return _read_fields(fields)
    if names:
        return f"{names[0][:60]!r} was called instead of save_memory"
    said = "text came instead of a call" if reply.text.strip() else "no call came"
    return f"{said}; save_memory must be called"


def with_stamp(entry: str, when: datetime) -> str:
    """`entry` with `[YYYY-MM-DD HH:MM]` in front, taken from `when` where the model forgot it."""
    stamp = _STAMP.match(entry)
    if stamp is None:
        return f"[{when:%Y-%m-%d %H:%M}] {entry}"
    return entry[: stamp.end()].replace("T", " ") + entry[stamp.end() :]


def _read_fields(fields: Mapping[str, object]) -> Saved | str:
    entry = " ".join(_text(fields.get("history_entry")).split())[:_LONGEST_ENTRY]
    if not _STAMP.sub("", entry, count=1).strip():
        return "history_entry is missing or empty; it must be a paragraph of text"
    update = _text(fields.get("memory_update"), "\n")
    if fenced := _FENCE.match(update):
        update = fenced["inside"]
    key_facts, quotes = (_lines(fields.get(key)) for key in ("key_facts", "quotes"))
    return Saved(entry, update.strip("\n") if update.strip() else None, key_facts, quotes)


def _text(value: object, between: str = " ") -> str:
    """What `value` says, as text."""
    match value:
        case str():
            return value
        case bool() | None:
            return ""
        case int() | float():
            return str(value)
        case list():
            return between.join(filter(None, (_text(item, between) for item in value)))
        case dict():
            texts = (_text(value.get(name), between) for name in _TEXT_FIELDS)
            return next(filter(None, texts), "")
    return ""


def _lines(value: object) -> tuple[str, ...]:
    """Each fact once, on one line."""
    listed = value.splitlines() if isinstance(value, str) else value
    if not isinstance(listed, list):
        return ()
    texts = (" ".join(_text(item).split()).removeprefix("- ") for item in listed)
    return tuple(dict.fromkeys(text[:_LONGEST_FACT] for text in texts if text))[:_MOST_FACTS]


_HEADING = re.compile(r"\s*#{1,6}\s")
_PLACEHOLDER = re.compile(r"\s*\([^()]*\)\s*")

Operations = tuple[Operation, ...]


def learned(
    base: str, update: str | None, *, tainted: bool, quoted: Sequence[str] = ()
) -> tuple[Operations, Operations]:
    """What `update` changes in `base`, the file as the model knew it, with what lines of the
    person's that were `quoted` add to it; and what waits for the person."""
    own = tuple(Operation(new=f"- {line}") for line in quoted if not guard.standing(line, base))
    if update is None:
        return own, ()
    every = operations_between(base, update)
    names = {change.new: change.old for change in every if change.old and _is_heading(change)}
    changes = [
        replace(change, section=names.get(change.section, change.section))
        for change in every
        if _is_about_facts(change)
    ]
    if tainted:
        known = {line.strip() for line in base.splitlines()}
        held = (
            change if change.section in known else replace(change, section="")
            for change in changes
            if change.new
        )
        return own, tuple(held)
    sections = {change.section for change in changes if change.new}
    lost = set(guard.lost_facts(base, update))
    kept = (change for change in changes if change.new or _may_go(change, sections, lost))
    return (*kept, *own), ()


def _may_go(removal: Operation, sections: set[str], lost: set[str]) -> bool:
    """Whether a line that the update lacks may be taken out."""
    if _PLACEHOLDER.fullmatch(removal.old):
        return removal.section in sections
    return bool(guard.fact_lines(removal.old)) and removal.old.strip() not in lost


def _is_about_facts(change: Operation) -> bool:
    """Whether a change adds or rewords a fact, or takes a line out. Headings stay as they are and
    are made where a fact needs one; order is the person's; a placeholder is nothing to learn."""
    if change.moves or _is_heading(change):
        return False
    return not change.new or bool(guard.fact_lines(change.new))


def _is_heading(change: Operation) -> bool:
    return bool(_HEADING.match(change.old) or _HEADING.match(change.new))
