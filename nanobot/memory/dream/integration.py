"""Phase 2 of Dream: the request for edits of one file, and the changes that these may make. Pure.

The updates, not the model, decide about an edit: a line goes only if an update ends it or a new
fact replaces it, and then to the retired ones. A line is added or reworded only in the words of an
update. Small changes of form are free, but not of a number, a link, or the name of a file or an
address. So a model that obeys an attacker can lose nothing and add nothing.

An update is an `Operation` whose `new` is the fact without a list mark, and whose `old` is the
outdated or replaced line of the file. An edit is an `Operation` in the model's words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from nanobot.memory.analysis import languages_of
from nanobot.memory.answers import json_object
from nanobot.memory.dream.extraction import MOST_ITEMS, bare_line
from nanobot.memory.dream.state import Write
from nanobot.memory.guard import fact_lines, find_line, find_lost_facts, with_words, without_bullet
from nanobot.memory.importance import importance_mark, without_importance
from nanobot.memory.line_changes import Operation, find_heading, is_heading, lines_of
from nanobot.memory.similarity import share, similar, words
from nanobot.memory.statements import KnownFacts, is_part_of, still_says
from nanobot.providers.fields import items, mapping
from nanobot.providers.port import ToolSpec

_LONGEST_HEADING = 40
_KEPT = 0.6
"""Share of an update's words that an edit must have to state it."""

_TEXT = {"type": "string"}
_EDIT = {
    "type": "object",
    "properties": {"old": _TEXT, "new": _TEXT, "section": _TEXT},
    "required": ["old", "new", "section"],
}
EDITS = ToolSpec(
    "edits",
    "The edits of phase 2.",
    {
        "type": "object",
        "properties": {"edits": {"type": "array", "items": _EDIT}},
        "required": ["edits"],
    },
)


_TOKEN = re.compile(r"[^\s,;!?()\[\]<>\"'`*]+")
_DATA = re.compile(r"[\w-][@/\\:.=#]+\w|^[@/#~]\w|\d")


def data_tokens(line: str) -> frozenset[str]:
    """Return tokens that must be copied verbatim: numbers, links, paths, addresses, handles."""
    tokens = (token.strip(".:-").casefold() for token in _TOKEN.findall(line))
    return frozenset(token for token in tokens if _DATA.search(token))


def is_supported(line: str, *sources: str) -> bool:
    """Return True if `line` has no data and no content word beyond `sources`."""
    said = "\n".join(sources)
    if not data_tokens(line) <= data_tokens(said):
        return False
    known = words(said)
    return all(any(similar(word, other) for other in known) for word in words(line))


def integration_request(path: str, text: str, updates: Sequence[Operation]) -> str:
    """Return the message that shows the file and the updates."""
    numbered = "\n".join(
        f"[{number}] {render_update(update)}" for number, update in enumerate(updates)
    )
    file = text.strip() or "(empty)"
    return f"## File: {path}\n\n## Current text\n\n{file}\n\n## Updates\n\n{numbered}"


def render_update(update: Operation) -> str:
    old, new = update.old.strip(), without_importance(update.new)
    if not new:
        return f"obsolete: {old}"
    return f"replace: {new} (instead of: {old})" if old else f"add: {new}"


def read_edits(answer: str) -> list[Operation] | None:
    """Return the edits of an answer, or None if it is unreadable."""
    whole = f'{{"edits": {answer.strip()}}}'
    found = json_object(answer, {"edits"}) or json_object(whole, {"edits"})
    if found is None:
        return None
    edits = []
    for raw in items(found.get("edits"))[:MOST_ITEMS]:
        old, new, section = (bare_line(mapping(raw).get(key)) for key in ("old", "new", "section"))
        if old or new:
            edits.append(Operation(old, new, section))
    return edits


def integrate(
    path: str, text: str, updates: Sequence[Operation], edits: Sequence[Operation] | None
) -> Write:
    """Convert updates and edits of the file `text` to a write. An update that no edit states (or
    all, without `edits`) is added unchanged. An outdated line goes."""
    sections = dict(lines_of(text))
    known = KnownFacts(() if edits is None else fact_lines(text), languages_of([text]))
    made, retired, changed = dict[Operation, None](), list[str](), set[str]()
    for update in updates:
        old, step = update.old, choose_step(update, edits or (), text, changed)
        if not step.old and known.has(without_importance(update.new)):
            continue
        if step.new:
            made[step] = None
            changed |= {step.old} - {""}
        if old not in retired and loses_content(old, step):
            retired.append(old)
            if step.old != old:
                made[replace(update, new="", section=sections.get(old, ""))] = None
    return Write(path, tuple(made), tuple(retired))


def choose_step(
    update: Operation, edits: Sequence[Operation], text: str, changed: set[str]
) -> Operation:
    """Return the change of `text` for an update, from the first permitted edit whose line is not
    `changed` yet. It is empty if there is nothing to add."""
    if not update.new:
        return Operation()
    bare = replace(update, new=without_importance(update.new))
    fitting = (fit_edit(edit, bare, text) for edit in edits)
    step = next((one for one in fitting if one and one.old not in changed), None)
    if step is None:
        step = make_addition(bare.new, dict(lines_of(text)).get(bare.old, ""), bare)
    if not step.old and find_line(step.new, text):
        return Operation()
    return replace(step, new=f"{step.new}{importance_mark(update.new)}")


def fit_edit(edit: Operation, update: Operation, text: str) -> Operation | None:
    """Return the change of `text` that an edit makes, or None. It must state the update and nothing
    beyond it, and keep the content of the line that it joins."""
    old = find_line(edit.old, text)
    if not states_update(edit, update, old) or (edit.old and not old):
        return None
    if not old:
        return make_addition(edit.new, _section(edit.section, text), update)
    new = with_words(old, edit.new)
    joins = (
        is_part_of(old, edit.new) and still_says(edit.new, old) and not find_lost_facts(old, new)
    )
    if update.old != old and not joins:
        return None
    return replace(update, old=old, new=new, section=dict(lines_of(text))[old])


def make_addition(line: str, section: str, update: Operation) -> Operation:
    item = line if line != without_bullet(line) else f"- {line}"
    return replace(update, old="", new=item, section=section)


def states_update(edit: Operation, update: Operation, old: str) -> bool:
    """Return True if an edit states the update, and nothing beyond it and the line `old`."""
    return (
        not is_heading(edit.new)
        and share(words(update.new), edit.new) >= _KEPT
        and still_says(edit.new, update.new)
        and is_supported(edit.new, old, update.new)
    )


def loses_content(old: str, step: Operation) -> bool:
    """Return True if a line is retired: the step drops it, or its replacement states less."""
    keeps = step.old == old and data_tokens(old) <= data_tokens(step.new)
    return bool(old) and not (keeps and share(words(old), step.new) >= 1.0)


def _section(wanted: str, text: str) -> str:
    """Return the matching or new heading, or ""."""
    is_new = is_heading(wanted) and len(wanted) <= _LONGEST_HEADING
    return find_heading(wanted, text) or (wanted if is_new else "")
