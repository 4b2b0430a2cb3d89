"""Everything a question may be answered from, oldest first, so that newer statements win."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import nlargest

from nanobot.providers.offline.facts import OVER, same_fact, subject
from nanobot.providers.offline.grammar import third_person
from nanobot.providers.offline.intents import (
    Forget,
    Intent,
    Remember,
    RememberThat,
    Statement,
    TakeNote,
)
from nanobot.providers.offline.prompt import MEMORY, STAMP, Done, Said, View
from nanobot.providers.offline.recall import Passage, Profile, Search
from nanobot.providers.offline.steps import Call, outcome_of
from nanobot.providers.offline.understand import is_question, understand
from nanobot.providers.offline.words import sentences

_SCANNED = 400_000
"""Characters of the conversation that a question looks through, newest first."""

_PER_MESSAGE = 4_000
_PER_MESSAGE_SENTENCES = 60
_PARSED = 60


def answers(view: View, question: str, fresh: Sequence[str] | None = None) -> list[Passage]:
    """The passages that answer `question`; `fresh` is what long-term memory holds right now."""
    search = Search(question, passages(view, question, fresh))
    return search.best()


def passages(view: View, question: str, fresh: Sequence[str] | None = None) -> list[Passage]:
    """What is stored, what was said, and what changed, in the order in which it became true.

    The system prompt is made at the beginning of a day, so it is newer than what was said on
    earlier days and older than what was said today. A `fresh` memory is the newest of all, and
    what was stored counts only as far as it is still there.
    """
    stored = view.stored if fresh is None else view.beside_memory
    today = view.newest.date
    said = _conversation(view)
    near = _near(said, question)
    old = [item for item in said if item.date and today and item.date != today]
    known: list[str] = []
    for number, item in enumerate(said):
        if number == len(old):
            known.extend(stored)
        added = [] if number < len(old) else _added(item, fresh is not None)
        kept = _kept(said, number) if fresh is not None else ()
        known = _heard([*_without(known, item.removed), *added], near.get(number, []), kept=kept)
    if len(old) == len(said):
        known.extend(stored)
    known.extend(fresh or ())
    return _in_force(known)


def may_have_changed(view: View) -> bool:
    """Whether the prompt does not show all of what long-term memory holds now."""
    return any(item.shortened or stored(item) for item in _conversation(view))


def stored(item: Said) -> bool:
    """Whether the turn of a message put what it says into memory, or found it there."""
    changed = [done for done in item.done if done.name in ("edit_file", "write_file")]
    memory = [done for done in item.done if done.arguments.get("path") == MEMORY]
    if any(done in changed for done in memory):
        return any(done in changed and _worked(done) for done in memory)
    return any(done.name == "read_file" and _worked(done) for done in memory)


def _worked(done: Done) -> bool:
    return not outcome_of(Call(done.name, done.arguments), done.result).failed


def _kept(said: list[Said], number: int) -> tuple[type[Intent], ...]:
    """What of a message is in memory, by its own turn or by a "remember that" after it."""
    if number + 1 < len(said) and stored(said[number + 1]):
        wishes = understand(said[number + 1].content[:200])
        if any(isinstance(wish.intent, RememberThat) for wish in wishes):
            return (Remember, Statement)
    if not stored(said[number]):
        return ()
    intents = [wish.intent for wish in understand(said[number].content)]
    return (Statement,) if all(isinstance(i, Statement) for i in intents) else (Remember,)


def _added(item: Said, memory_is_known: bool) -> list[str]:
    """What a notice adds: of a memory that is known, only the notes of the day."""
    lines = [line for line in item.added if not memory_is_known or STAMP.match(line)]
    return [STAMP.sub("", line) for line in lines]


def _near(said: list[Said], question: str) -> dict[int, list[str]]:
    """The sentences that have most in common with the question, by message; the newer of equals."""
    search = Search(question, [])
    found = [
        (search.overlap(Profile(sentence)), number, sentence)
        for number, item in enumerate(said)
        for sentence in sentences(item.content[:_PER_MESSAGE])[:_PER_MESSAGE_SENTENCES]
    ]
    near: dict[int, list[str]] = {}
    best = set(nlargest(_PARSED, range(len(found)), key=lambda at: (found[at][0], at)))
    for at, (overlap, number, sentence) in enumerate(found):
        if overlap > 0 and at in best and not is_question(sentence):
            near.setdefault(number, []).append(sentence)
    return near


def _in_force(known: list[str]) -> list[Passage]:
    """What was not overtaken by a newer statement about the same."""
    kept: list[Passage] = []
    settled: set[frozenset[str]] = set()
    for order in range(len(known) - 1, -1, -1):
        about = subject(known[order])
        if about not in settled:
            kept.append(Passage(known[order], order))
        if about and not OVER.search(known[order]):
            settled.add(about)
    return kept[::-1]


def _conversation(view: View) -> list[Said]:
    """The person's messages, oldest first, as far back as is worth it."""
    found: list[Said] = []
    room = _SCANNED
    for said in view.before():
        room -= len(said.content)
        if room < 0:
            break
        found.append(said)
    found.reverse()
    for segment in view.segments:
        found.extend(replace(said, done=tuple(view.done)) for said in segment)
    return found


def _without(known: list[str], removed: tuple[str, ...]) -> list[str]:
    """`known` after lines were removed from the memory."""
    if not removed:
        return known
    return [fact for fact in known if not any(_is(fact, old) for old in removed)]


def _is(fact: str, old: str) -> bool:
    if old.endswith("…"):
        return fact.replace('"', "'").startswith(old[:-1])
    return same_fact(fact, old)


def _heard(known: list[str], told: list[str], *, kept: tuple[type[Intent], ...]) -> list[str]:
    """`known` after these sentences: what they state comes to it, as it would be stored, and what
    the person wanted forgotten goes. What was `kept` is for memory to say."""
    for sentence in told:
        for intent in (wish.intent for wish in understand(sentence)):
            if isinstance(intent, kept):
                continue
            if isinstance(intent, Remember):
                known.append(third_person(intent.statement))
            elif isinstance(intent, Statement | TakeNote):
                known.append(third_person(intent.text))
            elif isinstance(intent, Forget):
                lines = [Passage(fact, order) for order, fact in enumerate(known)]
                hits = Search(intent.about, lines).best()
                known = _without(known, tuple(hit.text for hit in hits))
    return known
