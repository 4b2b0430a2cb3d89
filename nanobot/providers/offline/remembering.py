"""Stories about the long-term memory: learn facts, forget one, answer a question, recite."""

from __future__ import annotations

from nanobot.providers.offline.facts import (
    Learned,
    apart,
    fact_lines,
    has_sections,
    learn,
    subject,
    without_line,
)
from nanobot.providers.offline.grammar import second_person, third_person
from nanobot.providers.offline.intents import Ask, Forget, Recite, Remember, Statement
from nanobot.providers.offline.library import answers, may_have_changed, stored
from nanobot.providers.offline.patterns import FORGET_ALL
from nanobot.providers.offline.prompt import MEMORY, STAMP, View
from nanobot.providers.offline.recall import Passage, Search
from nanobot.providers.offline.searching import past_question, search_answer, tell_past
from nanobot.providers.offline.steps import Call, Outcome, Part, Story, read_whole
from nanobot.providers.offline.texts import say
from nanobot.providers.offline.understand import understand
from nanobot.providers.offline.words import is_chinese

_TRIES = 2
_INSTEAD = "update_memory"
"""Where this is named in a refusal, foreign text was read: the memory is changed by it then."""


def remember(statements: list[str], chinese: bool) -> Story:
    """Store facts, all of them in one change of the file."""
    facts = list(dict.fromkeys(third_person(statement) for statement in statements))
    outcome = Outcome("", failed=True)
    for _ in range(_TRIES):  # the file may change between reading and writing
        memory = yield from read_whole(MEMORY)
        if memory.failed and not memory.absent:
            return _not_stored(memory, chinese)
        text = "" if memory.absent else memory.text
        new, learned = learn(text, facts)
        if new == text:
            return _learned(learned, chinese)
        outcome = yield from _change(text, new)
        if not outcome.failed:
            return _learned(learned, chinese)
        if outcome.missing or _INSTEAD in outcome.text:
            break
    if _INSTEAD in outcome.text:
        return (yield from _quote(statements, facts, chinese))
    return _not_stored(outcome, chinese)


def _quote(statements: list[str], facts: list[str], chinese: bool) -> Story:
    """Have what the person stated copied as they wrote it; what cannot be found there waits."""
    outcome = yield Call(_INSTEAD, {"quote": statements})
    if not outcome.failed:
        return say("remembered", chinese, facts=_spoken(facts, chinese))
    return (yield from _held({"add": facts}, chinese))


def _held(change: dict[str, object], chinese: bool) -> Story:
    """A change that waits for the person's word."""
    outcome = yield Call(_INSTEAD, change)
    return _not_stored(outcome, chinese) if outcome.failed else say("waits", chinese)


def _change(text: str, new: str) -> Part:
    """An edit of the lines that differ; the whole file where there is nothing to edit in."""
    whole = Call("write_file", {"path": MEMORY, "content": new})
    if not text.strip() or not has_sections(text):
        return (yield whole)
    old_text, new_text = _smallest_edit(text, new)
    edit = Call("edit_file", {"path": MEMORY, "old_text": old_text, "new_text": new_text})
    outcome = yield edit
    if outcome.missing:
        outcome = yield whole
    return outcome


def _not_stored(outcome: Outcome, chinese: bool) -> str:
    if outcome.missing:
        return say("cannot_store", chinese)
    return say("store_failed", chinese, reason=outcome.reason)


def _learned(learned: list[Learned], chinese: bool) -> str:
    lines: list[str] = []
    added = [item.fact for item in learned if not item.known and not item.old]
    if added:
        lines.append(say("remembered", chinese, facts=_spoken(added, chinese)))
    lines.extend(
        say("updated", chinese, facts=_spoken([item.fact], chinese), old=second_person(item.old))
        for item in learned
        if item.old
    )
    known = [item.fact for item in learned if item.known]
    if known:
        lines.append(say("known", chinese, facts=_spoken(known, chinese)))
    return _joined(lines, chinese)


def _spoken(facts: list[str], chinese: bool) -> str:
    return _joined([second_person(fact) for fact in facts], chinese)


def _joined(parts: list[str], chinese: bool) -> str:
    return ("" if chinese else " ").join(parts)


def updates(view: View, statement: str) -> bool:
    """Whether a statement says something else of what is stored: then it changes the memory."""
    about = subject(third_person(statement))
    if not about or len(statement) > 400:
        return False
    told = [said for said in view.before() if stored(said)][:50]
    lines = [*view.stored, *(line for said in told for line in said.added)]
    for said in told:
        for done in said.done:
            if done.arguments.get("path") == MEMORY:
                lines.extend(fact_lines(str(done.arguments.get("new_text", ""))))
                lines.extend(fact_lines(str(done.arguments.get("content", ""))))
    return any(subject(line) == about for line in lines)


def forget(wish: Forget, chinese: bool) -> Story:
    """Take the line that fits best out of the file."""
    if FORGET_ALL.match(wish.about.rstrip(" .!。！")):
        return say("forget_all", chinese)
    memory = yield from read_whole(MEMORY)
    if memory.failed and not memory.absent:
        return _not_stored(memory, chinese)
    text = "" if memory.absent else apart(memory.text)
    lines = fact_lines(text)
    found = Search(wish.about, [Passage(line, order) for order, line in enumerate(lines)]).best(1)
    if not found:
        return say("nothing_to_forget", chinese)
    outcome = yield from _change(memory.text, without_line(text, found[0].text))
    if outcome.failed and _INSTEAD in outcome.text:
        return (yield from _held({"remove": [found[0].text]}, chinese))
    if outcome.failed:
        return _not_stored(outcome, chinese)
    return say("forgotten", chinese, old=second_person(found[0].text))


def previous_statements(view: View) -> list[str]:
    """What the person stated in the message before this turn's: what "remember that" points at."""
    for said in view.before():
        if said.content:
            wishes = [wish.intent for wish in understand(said.content)]
            return [
                intent.statement if isinstance(intent, Remember) else intent.text
                for intent in wishes
                if isinstance(intent, Remember | Statement)
            ]
    return []


def answer(view: View, wish: Ask, chinese: bool) -> Story:
    """Answer from the prompt, else from the file as it is now, else from a search; or admit it.

    What was told, and when, is asked of the conversations themselves first.
    """
    question = wish.question
    if past := past_question(question):
        told = yield from tell_past(past, chinese)
        if told:
            return told
        question = past.topic
    found = [] if may_have_changed(view) else answers(view, question)
    if not found:
        memory = yield from read_whole(MEMORY)
        unknown = memory.failed and not memory.absent
        fresh = None if unknown else [] if memory.failed else fact_lines(memory.text)
        found = answers(view, question, fresh)
    if found:
        return _joined([_answered(passage.text, chinese) for passage in found], chinese)
    searched = "" if past else (yield from search_answer(question, chinese))
    return searched or say("unknown", chinese)


def _answered(fact: str, chinese: bool) -> str:
    if is_chinese(fact) != chinese and chinese:
        return say("on_record", chinese, text=second_person(fact))
    return second_person(fact)


def _smallest_edit(old: str, new: str) -> tuple[str, str]:
    """The lines that differ, with as many before them as make the old text unique in the file."""
    before, after = old.split("\n"), new.split("\n")
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    while True:
        cut = "\n".join(before[start : len(before) - end])
        if (cut.strip() and old.count(cut) == 1) or start == 0:
            return cut, "\n".join(after[start : len(after) - end])
        start -= 1


def recite(view: View, wish: Recite, chinese: bool) -> Story:
    """Everything stored and noted today, or today's notes alone."""
    if wish.notes:
        lines = [*view.notes, *_added_today(view)]
        return _listed(lines, "all_notes", "no_notes", chinese)
    memory = yield from read_whole(MEMORY)
    lines = view.stored if memory.failed else [*fact_lines(memory.text), *view.notes]
    lines = [*lines, *(STAMP.sub("", line) for line in _added_today(view))]
    return _listed([second_person(line) for line in lines], "all_known", "nothing_known", chinese)


def _added_today(view: View) -> list[str]:
    """Notes taken since the system prompt was made, as message headers and calls tell."""
    told = [*view.before(), *(said for segment in view.segments for said in segment)]
    noted = [line[6:] for said in told for line in said.added if STAMP.match(line)]
    today = [said for said in told if said.date == view.newest.date]
    noted.extend(
        str(done.arguments.get("text", ""))
        for said in reversed(today)
        for done in said.done
        if done.name == "note"
    )
    return [line for line in noted if line]


def _listed(lines: list[str], some: str, none: str, chinese: bool) -> str:
    if not lines:
        return say(none, chinese)
    return say(some, chinese, lines="\n".join(f"- {line}" for line in dict.fromkeys(lines)))
