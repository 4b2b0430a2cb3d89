"""The answer of the consolidating model, and the changes that may follow from it. Pure.

The model returns the whole long-term file, against the version in its request. Only lines that
differ count, so that concurrent changes survive. Each change is checked against the conversation
(`evidence`). Rejected changes are in the entry, with the reasons. If the stretch has untrusted
content, every change is held back for approval, except the person's lines, which code copied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.errors import ToolError
from nanobot.memory import guard
from nanobot.memory.answers import json_object
from nanobot.memory.consolidation.summariser import SAVE_MEMORY, Chunk, Draft
from nanobot.memory.evidence import Screen
from nanobot.memory.history import STAMP, HistoryEntry, with_stamp
from nanobot.memory.importance import without_importance
from nanobot.memory.line_changes import Operation, is_heading, operations_between
from nanobot.memory.model_text import (
    MOST_ANSWER,
    Echoes,
    clean_line,
    distinct_lines,
    junk_reason,
    remove_thinking,
)
from nanobot.memory.statements import is_part_of
from nanobot.memory.support import Talk
from nanobot.memory.taint import is_foreign, quotation, quote_line
from nanobot.providers.port import Reply

MOST_LINES = 200
"""New lines in one answer. An answer with more is no consolidation."""
MOST_OPERATIONS = 100
_MOST_SET_ASIDE = 20
_LONGEST_HEADING = 60
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_MOST_FACTS, _MOST_LISTED = 40, 400
_LONGEST_FACT = 500
_LONGEST_ENTRY = 8_000
_TRANSCRIPT = re.compile(
    r"(?P<mark>\s*(?:[-*]\s+)?)[\[\]\dT:?.,+ -]{0,32}"
    r"(?:(?P<who>USER|ASSISTANT|TOOL)(?: \[[^\]\n]*\])?|\[tools: [^\]\n]*\]):\s*"
)
"""A line of the conversation in the request, also as small models copy it, with or without its
time."""
_TEXT_FIELDS = ("text", "content", "summary", "entry", "markdown", "fact", "value")


class SaveArguments(Struct, frozen=True):
    """A consolidation. `memory_update` is None if there is nothing to change. `quotes` are words of
    the person's lines to be remembered verbatim."""

    history_entry: str
    memory_update: str | None = None
    key_facts: tuple[str, ...] = ()
    quotes: tuple[str, ...] = ()


def read_draft(
    reply: Reply, chunk: Chunk, base: str, raw: HistoryEntry, end: datetime, echoes: Echoes
) -> Draft | str:
    """Return the draft in an answer about `chunk`, or the problem with the answer.

    `base` is the long-term memory in the request, `raw` the entry without a summary, `end` the
    chunk's end."""
    saved = read_reply(reply)
    if isinstance(saved, str):
        return saved
    talk = Talk(one for one in chunk.contents if not is_foreign(one))
    changes = memory_changes(
        base,
        saved.memory_update,
        talk,
        tainted=bool(chunk.origins),
        quoted=[*find_quotes(saved, chunk, end)],
        echoes=echoes,
    )
    stamp, screen = STAMP.match(saved.history_entry), Screen(talk, (), echoes)
    summary = saved.history_entry[stamp.end() if stamp else 0 :].strip()
    if not chunk.origins:  # untrusted content supports no fact, so its entry is marked
        summary = check_summary(summary, screen)
    entry = replace(
        raw,
        type="consolidation",
        summary=stamp_summary(summary, stamp, chunk, end) if summary else raw.summary,
        key_facts=tuple(
            fact
            for fact in saved.key_facts
            if not screen.junk_in(fact) and not talk.objection(fact, lenient=True)
        ),
        operations=changes.operations,
        set_aside=(*changes.set_aside, *screen.set_aside)[:_MOST_SET_ASIDE],
    )
    return Draft(entry, changes.held)


def find_quotes(saved: SaveArguments, chunk: Chunk, end: datetime) -> Iterator[str]:
    """Yield the person's lines that the model named, whole."""
    for words in saved.quotes:
        try:
            yield quotation(words, chunk.messages, end.date())
        except ToolError as error:
            logger.info("{}: quotation left out: {}", chunk.session, error)


def stamp_summary(summary: str, stamp: re.Match[str] | None, chunk: Chunk, end: datetime) -> str:
    """Return a summary with the model's time if its day is in the conversation, else with ours."""
    days = {f"{one.timestamp:%Y-%m-%d}" for one in chunk.messages if one.timestamp}
    return with_stamp(f"{stamp[0]} {summary}" if stamp and stamp[1] in days else summary, end)


def check_summary(text: str, screen: Screen) -> str:
    """Return the sentences that the conversation does not contradict, each once. A sentence with an
    unsupported number or negation becomes a quotation."""
    kept = dict[str, None]()
    for sentence in filter(None, map(str.strip, _SENTENCE.split(text))):
        if reason := screen.junk_in(sentence):
            screen.note(sentence, reason)
        elif reason := screen.talk.objection(sentence, lenient=True):
            screen.note(sentence, reason)
            if quote := screen.talk.quote(sentence):
                kept[quote_line(*quote)] = None
        else:
            kept[sentence] = None
    return " ".join(filter(None, kept))


def read_reply(reply: Reply) -> SaveArguments | str:
    """Read a call of `save_memory`, or return the problem with it, worded for the model.

    Models send arguments as a string in a string, as a list, with objects instead of text, with
    missing fields, in a code fence, cut off, or as text without a call. Readable parts are used."""
    # The first call of each name counts.
    calls = {call.name: call.malformed or call.arguments for call in reversed(reply.tool_calls)}
    is_call, text = SAVE_MEMORY.name in calls, calls.get(SAVE_MEMORY.name, reply.text)
    if len(text) > MOST_ANSWER:
        return f"the answer has more than {MOST_ANSWER:,} characters"
    try:
        fields = json_object(text, () if is_call else {"history_entry"})
        if fields is not None:
            return _read_fields(fields)
    except RecursionError:
        return "the arguments of save_memory are nested too deeply"
    if not is_call:
        return explain_missing_call(reply)
    problem = "were cut off: be shorter" if reply.finish == "length" else "are not a JSON object"
    return f"the arguments of save_memory {problem}"


def explain_missing_call(reply: Reply) -> str:
    if reply.tool_calls:
        return f"{reply.tool_calls[0].name[:60]!r} was called instead of save_memory"
    from nanobot.providers.refusals import is_filter  # not needed at the start

    if is_filter(reply.finish):
        return f"the provider's filter withheld the answer ({reply.finish})"
    came = "there was text instead of a call" if reply.text.strip() else "there was no call"
    return f"{came}; save_memory must be called"


def _read_fields(fields: Mapping[str, object]) -> SaveArguments | str:
    entry = clean_line(remove_thinking(_text(fields.get("history_entry"))))[:_LONGEST_ENTRY]
    if not STAMP.sub("", entry, count=1).strip():
        return "history_entry is missing or empty; it must be a paragraph of text"
    update = _text(fields.get("memory_update"), "\n")
    update = strip_transcript(remove_thinking(update))
    key_facts, quotes = (_lines(fields.get(key)) for key in ("key_facts", "quotes"))
    return SaveArguments(entry, update.strip("\n") if update.strip() else None, key_facts, quotes)


def strip_transcript(update: str) -> str:
    """Return a memory update without fences and lines of the conversation, which models copy.
    The person's own words stay, without the time and name in front of them."""
    lines = ((line, _TRANSCRIPT.match(line)) for line in update.split("\n"))
    kept = (
        f"{found['mark']}{line[found.end() :]}" if found else line
        for line, found in lines
        if (not found or found["who"] == "USER") and not line.lstrip().startswith("```")
    )
    return "\n".join(kept)


def _text(value: object, between: str = " ") -> str:
    """Return the text of a value that should be a string."""
    match value:
        case str():
            return value
        case list():
            return between.join(filter(None, (_text(item, between) for item in value)))
        case dict():
            texts = (_text(value.get(name), between) for name in _TEXT_FIELDS)
            return next(filter(None, texts), "")
    return ""


def _lines(value: object) -> tuple[str, ...]:
    """Return each fact once, on one line."""
    listed = value.splitlines() if isinstance(value, str) else value
    if not isinstance(listed, list):
        return ()
    texts = (clean_line(_text(item)).removeprefix("- ") for item in listed[:_MOST_LISTED])
    return tuple(dict.fromkeys(text[:_LONGEST_FACT] for text in texts if text))[:_MOST_FACTS]


Operations = tuple[Operation, ...]


class Changes(Struct, frozen=True):
    """Changes to make, changes `held` for approval, and rejected changes (`set_aside`) with
    reasons."""

    operations: Operations = ()
    held: Operations = ()
    set_aside: tuple[str, ...] = ()


def memory_changes(
    base: str,
    update: str | None,
    talk: Talk,
    *,
    tainted: bool = False,
    quoted: Sequence[str] = (),
    echoes: Echoes | None = None,
) -> Changes:
    """Compare `update` with `base`, the file in the request, and add the person's `quoted` lines.

    Headings stay, and are created if a fact needs one. A placeholder is no fact."""
    own = tuple(Operation(new=f"- {line}") for line in quoted if not guard.find_line(line, base))
    if update is None:
        return Changes(own)
    standing, facts = {*map(str.rstrip, base.split("\n"))}, guard.fact_lines(base)
    screen, lines = Screen(talk, facts, echoes), list[str]()
    for line in distinct_lines(without_importance(update)):
        if line not in standing and (reason := explain_rejection(line, echoes, screen)):
            screen.note(line, reason)
        else:
            lines.append(line)
    if len({*lines} - standing) > MOST_LINES:
        said = f"an answer with {len(lines):,} lines"
        return Changes(own, set_aside=(said,))
    changes = select_fact_changes(base, "\n".join(lines), standing, tainted=tainted)
    made, held = own, changes
    if not tainted:
        made = (*screen_changes(screen, changes, len(facts)), *own)
        held = screen.asked
    aside = tuple(screen.set_aside[:_MOST_SET_ASIDE])
    return Changes(made[:MOST_OPERATIONS], tuple(held[:MOST_OPERATIONS]), aside)


def select_fact_changes(
    base: str, new: str, standing: set[str], *, tainted: bool
) -> list[Operation]:
    """Return the changes of facts, under headings that exist or may be created. Without approval no
    line is removed and no heading created."""
    every = operations_between(base, new)
    renamed = {change.new: change.old for change in every if change.old and is_heading(change.new)}
    changes = list[Operation]()
    for change in every:
        if guard.fact_lines(change.new if tainted else change.new or change.old):
            heading = renamed.get(change.section, change.section)
            may_stand = heading in standing if tainted else _may_be_heading(heading, standing)
            changes.append(replace(change, section=heading if may_stand else ""))
    return changes


def screen_changes(screen: Screen, changes: Sequence[Operation], facts: int) -> list[Operation]:
    """Return the permitted changes to a file with so many facts.

    A line that the model left out stays, unless another line states the same: models omit lines by
    carelessness far more often than by intent."""
    left_out = [one for one in changes if not one.new]
    # If the answer is not the whole file, a similar line is not a replacement.
    is_whole = len(left_out) <= max(1, facts // 2)
    made = list[Operation]()
    for change in changes:
        if change.rewords:
            made += screen.screen_replacement(change, replaces=is_whole)
        elif change.new:
            made += screen.screen_new(change)
    return made + [one for one in left_out if _is_within(one.old, made)]


def _is_within(line: str, made: Sequence[Operation]) -> bool:
    """Return True if a new line that is no quotation contains everything in `line`."""
    lines = (one.new for one in made if not guard.without_list_mark(one.new).startswith("“"))
    return any(is_part_of(line, new) for new in lines)


def _may_be_heading(heading: str, standing: set[str]) -> bool:
    is_fit = len(heading) <= _LONGEST_HEADING and not junk_reason(heading.lstrip("# "))
    return heading in standing or is_fit


def explain_rejection(line: str, echoes: Echoes | None, screen: Screen) -> str:
    """Return the reason to reject a line of an answer, or ""."""
    if not line.strip() or is_heading(line):
        return "it copies the instructions" if echoes and echoes.has(line) else ""
    return screen.junk_in(line)
