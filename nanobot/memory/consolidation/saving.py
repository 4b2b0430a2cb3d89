"""The tool by which a model hands over a consolidation, and what its version of memory means. Pure.

Models send arguments as a JSON string in a string, as a list, with objects where text is due, with
fields missing, in a code fence, cut off, or as text instead of a call. Whatever says what was meant
is taken; the rest is `Unusable`, with a reason that the model can act on.

The model returns the whole long-term file, against the version that it was shown; what counts is
the lines that differ, so that changes which others made meanwhile survive. Consolidation learns and
rewords. It forgets nothing: a line that the model merely left out stays (models leave lines out by
carelessness far more often than by intent), and is taken out only where another line of the update
says it. Where the stretch holds foreign text, every change is held back for the person to confirm,
except lines of their own, which code copied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from nanobot.memory.store import guard
from nanobot.memory.text.lines import Operation, operations_between
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
_CUT_ENTRY = re.compile(r'"history_entry"\s*:\s*("(?:[^"\\]|\\.)*")', re.DOTALL)
_TEXT_FIELDS = ("text", "content", "summary", "entry", "markdown", "fact", "value")


@dataclass(frozen=True, slots=True)
class Saved:
    """A consolidation. `memory_update` None: there is nothing to change. `quotes` are words of
    lines of the person's to be remembered as they stand."""

    history_entry: str
    memory_update: str | None = None
    key_facts: tuple[str, ...] = ()
    quotes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unusable:
    """No consolidation, and why, told to the model; `partial` is what can be kept all the same."""

    reason: str
    partial: Saved | None = None


def read_reply(reply: Reply) -> Saved | Unusable:
    """What a model's reply saves."""
    call = next((call for call in reply.tool_calls if call.name == SAVE_MEMORY.name), None)
    if call is None:
        return _read_text(reply)
    fields = _object_in(call.arguments)
    if fields is None:
        cut = reply.finish == "length"
        problem = "were cut off: be shorter" if cut else "are no JSON object"
        return Unusable(f"the arguments of save_memory {problem}", _rescued(call.arguments))
    return _read_fields(fields)


def with_stamp(entry: str, when: datetime) -> str:
    """`entry` with `[YYYY-MM-DD HH:MM]` in front, taken from `when` where the model forgot it."""
    stamp = _STAMP.match(entry)
    if stamp is None:
        return f"[{when:%Y-%m-%d %H:%M}] {entry}"
    return entry[: stamp.end()].replace("T", " ") + entry[stamp.end() :]


def _read_text(reply: Reply) -> Saved | Unusable:
    """A consolidation that came as text, if it did."""
    fields = _object_in(reply.text)
    if fields is not None and "history_entry" in fields:
        return _read_fields(fields)
    if reply.tool_calls:
        return Unusable(f"{reply.tool_calls[0].name[:60]!r} was called instead of save_memory")
    said = "text came instead of a call" if reply.text.strip() else "no call came"
    return Unusable(f"{said}; save_memory must be called")


def _read_fields(fields: Mapping[str, object]) -> Saved | Unusable:
    entry = " ".join(_text(fields.get("history_entry")).split())[:_LONGEST_ENTRY]
    update = _unfenced(_markdown(fields.get("memory_update"))).strip("\n")
    if not _STAMP.sub("", entry, count=1).strip():
        return Unusable("history_entry is missing or empty; it must be a paragraph of text")
    key_facts, quotes = (tuple(_facts(fields.get(key))) for key in ("key_facts", "quotes"))
    return Saved(entry, update if update.strip() else None, key_facts, quotes)


def _object_in(text: str) -> Mapping[str, object] | None:
    """The object that `text` holds: as JSON, encoded twice, first in a list, fenced, or somewhere
    in prose."""
    for candidate in (text, _unfenced(text), _braced(text)):
        value: object = candidate
        for _ in range(3):
            if not isinstance(value, str):
                break
            value = _loaded(value)
        if isinstance(value, list):
            value = next((item for item in value if isinstance(item, dict)), None)
        if isinstance(value, dict):
            return value
    return None


def _loaded(text: str) -> object:
    try:
        value: object = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value


def _braced(text: str) -> str:
    """From the first brace to the last."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else ""


def _unfenced(text: str) -> str:
    fenced = _FENCE.match(text)
    return fenced["inside"] if fenced else text


def _rescued(arguments: str) -> Saved | None:
    """The history entry of arguments that were cut off after it."""
    entry = _CUT_ENTRY.search(arguments)
    value = _loaded(entry[1]) if entry else None
    return Saved(" ".join(value.split())) if isinstance(value, str) and value.strip() else None


def _text(value: object) -> str:
    """What `value` says, as text."""
    match value:
        case str():
            return value
        case None | bool():
            return ""
        case int() | float():
            return str(value)
        case list():
            return " ".join(filter(None, map(_text, value)))
        case dict():
            named = [inner for name in _TEXT_FIELDS if (inner := _text(value.get(name)))]
            return named[0] if named else _joined(value)
        case _:
            return ""


def _joined(fields: Mapping[str, object]) -> str:
    told = ((name, _text(value)) for name, value in fields.items())
    return "; ".join(f"{name}: {text}" for name, text in told if text)


def _markdown(value: object) -> str:
    """A memory as Markdown; an object is read as headings with what stands below them."""
    match value:
        case list():
            return "\n".join(filter(None, (_markdown(item) for item in value)))
        case dict():
            texts = [inner for name in _TEXT_FIELDS if isinstance(inner := value.get(name), str)]
            if texts:
                return texts[0]
            return "\n\n".join(_section(str(name), below) for name, below in value.items())
        case _:
            return _text(value)


def _section(name: str, below: object) -> str:
    heading = name if name.startswith("#") else f"## {name}"
    if not isinstance(below, list):
        return f"{heading}\n\n{_markdown(below)}"
    lines = (_text(item).strip() for item in below)
    return "\n".join([f"{heading}\n", *(f"- {line.removeprefix('- ')}" for line in lines if line)])


def _facts(value: object) -> Iterable[str]:
    """Each fact once, on one line."""
    lines = value.splitlines() if isinstance(value, str) else value
    if not isinstance(lines, list):
        return ()
    texts = (" ".join(_text(item).split()).removeprefix("- ") for item in lines)
    return list(dict.fromkeys(text[:_LONGEST_FACT] for text in texts if text))[:_MOST_FACTS]


_HEADING = re.compile(r"\s*#{1,6}\s")
_PLACEHOLDER = re.compile(r"\s*\([^()]*\)\s*")


@dataclass(frozen=True, slots=True)
class Learned:
    """The changes to make, and those that wait for the person."""

    operations: tuple[Operation, ...] = ()
    held: tuple[Operation, ...] = ()


def learned(base: str, update: str | None, *, tainted: bool, quoted: Sequence[str] = ()) -> Learned:
    """What `update` changes in `base`, the file as the model knew it, and what lines of the
    person's that were `quoted` add to it."""
    own = [Operation(new=f"- {line}") for line in quoted if not guard.standing(line, base)]
    if update is None:
        return Learned(tuple(own))
    every = operations_between(base, update)
    standing = {change.new: change.old for change in every if change.old and _is_heading(change)}
    changes = [
        replace(change, section=standing.get(change.section, change.section))
        for change in every
        if _is_about_facts(change)
    ]
    if tainted:
        known = {line.strip() for line in base.splitlines()}
        held = [
            change if change.section in known else replace(change, section="")
            for change in changes
            if change.new
        ]
        return Learned(tuple(own), tuple(held))
    sections = {change.section for change in changes if change.new}
    lost = set(guard.lost_facts(base, update))
    kept = [change for change in changes if change.new or _may_go(change, sections, lost)]
    return Learned((*kept, *own))


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
