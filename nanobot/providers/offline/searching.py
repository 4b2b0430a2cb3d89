"""Answering from a memory search: what was said in earlier conversations, quoted with its date.

A result of `search_memory` is read back into passages: who, when, and the sentences. Questions are
no answers, and of two answers that are as good the later one counts. A result of another shape is
taken line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nanobot.providers.offline import lexicon
from nanobot.providers.offline.grammar import second_person, third_person
from nanobot.providers.offline.intents import Remember, Statement, TakeNote
from nanobot.providers.offline.recall import ENOUGH, Passage, Profile, Search
from nanobot.providers.offline.steps import Call, Outcome, Story
from nanobot.providers.offline.summarise import dated
from nanobot.providers.offline.texts import say
from nanobot.providers.offline.understand import is_question, understand
from nanobot.providers.offline.words import is_chinese, known, sentences, terms

SEARCH = "search_memory"

_HIT = re.compile(
    r"^\[\d+\] (?P<when>\d{4}-\d\d-\d\d|no date)(?: \w+)?(?: (?P<time>\d\d:\d\d))? · "
    r"(?P<who>[^·\n]{1,120}) · (?P<where>[^·\n]{1,400})"
)
_NEIGHBOUR = re.compile(r"^  (?:before|after): user(?: \([^)\n]*\))?(?: \d\d:\d\d)?: (?P<text>.*)$")
_RETIRED = re.compile(r"^  - retired (?P<when>\d{4}-\d\d-\d\d): (?P<text>.*)$")
_OURS = re.compile(
    r"^(?:\d+ found for |Around |Nothing found for |No longer true \(|\d+ more had )"
)
_BAR = "  | "
_TOLD = re.compile(
    r"(?:(?P<when>(?:when|(?:on )?(?:what|which) (?:day|date)) did)|"
    r"what(?: else| all| exactly)?(?: did| have)?|did|have)"
    r" (?:i|we) (?:ever |already |just |last |first |once )?"
    r"(?:tell|told|say|said|mention(?:ed)?|talk(?:ed)?|discuss(?:ed)?|speak|spoke|spoken|ask(?:ed)?|"
    r"write|wrote|written|shared?)"
    r"(?: to| with)?(?: you)?(?: anything| something)?(?: about| of| that| regarding| on| for)?"
    r" (?P<topic>(?!just\b|before\b|last\b)\S.*?)[?.! ]*$",
    re.IGNORECASE,
)
_TOLD_ZH = re.compile(
    r"(?:关于(?P<about>.+?)[，, ]?)?我们?(?P<when>什么时候|何时|哪天|几号)?"
    r"(?:以前|之前|上次|曾经|有没有|是不是|都)*(?:跟|对|和|向)?你?(?:说|提|提到|讲|告诉|聊)(?:过|了)?"
    r"你?(?:关于|有关)?(?P<topic>.*?)(?:的)?(?:什么|哪些|啥|吗|没有|事情|事)*[？?。]*$"
)
_LONGEST = 300
_MOST_QUOTES = 3

Kind = Literal["told", "summary", "note", "document", "retired", "line"]


@dataclass(frozen=True, slots=True)
class Found:
    """One sentence of a result. `when` is a date as text, empty where there is none."""

    kind: Kind
    text: str
    when: str = ""
    where: str = ""

    def quoted(self, chinese: bool) -> str:
        """The sentence to the person, saying when and where it was said."""
        kind = self.kind if self.when or self.kind in ("document", "line") else "line"
        text = second_person(self.text) if kind == "retired" else self.text
        return say(f"found_{kind}", chinese, text=text, when=self.when, where=self.where)


@dataclass(frozen=True, slots=True)
class PastQuestion:
    """ "What did I tell you about the boat?": about what, and whether the day is what is asked."""

    topic: str
    when: bool = False


def past_question(question: str) -> PastQuestion | None:
    """What a question about the conversation itself asks for; None for any other question."""
    text = question.strip()
    if is_chinese(text):
        match = _TOLD_ZH.search(text)
        topic = (match["about"] or match["topic"]).strip() if match else ""
        return PastQuestion(topic, bool(match and match["when"])) if topic else None
    match = _TOLD.search(text)
    if match is None or not terms(match["topic"]):
        return None
    return PastQuestion(match["topic"], bool(match["when"]))


def tell_past(past: PastQuestion, chinese: bool) -> Story:
    """What was said about a topic, oldest first; empty where nothing was found."""
    result = yield Call(SEARCH, {"query": past.topic})
    if result.failed:
        return ""
    search = Search(past.topic, [])
    found = [item for item in _found(result) if item.kind != "line"]
    about = [item for item in found if search.overlap(Profile(item.text)) >= ENOUGH]
    about = [item for item in about if item.kind in ("told", "note")] or about
    about.sort(key=lambda item: item.when)
    distinct: dict[tuple[str, ...], Found] = {}
    for item in about:
        distinct.setdefault(tuple(terms(item.text)), item)
    kept = list(distinct.values())
    if past.when:
        kept = kept[:1]
    return "\n".join(item.quoted(chinese) for item in kept[-_MOST_QUOTES:])


def search_answer(question: str, chinese: bool) -> Story:
    """The sentence of earlier conversations that answers a question; empty where none does. A
    search that finds nothing is made once more, in other words."""
    for query in dict.fromkeys((question, _other_words(question))):
        result = yield Call(SEARCH, {"query": query})
        if result.failed:
            return ""
        if best := _best(question, list(_found(result))):
            return best.quoted(chinese)
    return ""


def _best(question: str, found: list[Found]) -> Found | None:
    # Equals are told apart by age: a list in the order of the result says nothing of it.
    found.sort(key=lambda item: (item.kind != "retired", item.when))
    stated = [(statement, item) for item in found for statement in _statements(item)]
    passages = [Passage(statement, order) for order, (statement, _) in enumerate(stated)]
    best = Search(question, passages).best(1)
    return stated[best[0].order][1] if best else None


def _statements(item: Found) -> Iterator[str]:
    """What a sentence states, as a memory would have it; with its day, which may be the answer."""
    intents = [wish.intent for wish in understand(item.text)]
    stated = [
        third_person(intent.statement if isinstance(intent, Remember) else intent.text)
        for intent in intents
        if isinstance(intent, Remember | Statement | TakeNote)
    ]
    for text in stated or [third_person(item.text)]:
        fact = dated(text, item.when)
        yield f"{fact} ({item.when})" if item.when and item.kind == "told" else fact


def _found(result: Outcome) -> list[Found]:
    """The sentences of a result that are no questions, each once."""
    lines = result.text.splitlines()[:600]
    found = _hits(lines) if any(_HIT.match(line) or _OURS.match(line) for line in lines) else []
    if not found and not any(_OURS.match(line) for line in lines):
        bare = (line.strip(" -*>\t")[:600] for line in lines)
        found = [Found("line", line) for line in reversed(list(bare)) if line]
    return [item for item in dict.fromkeys(found) if not is_question(item.text)]


def _hits(lines: list[str]) -> list[Found]:
    found: list[Found] = []
    kind: Kind | None = None
    when = where = ""
    for line in lines:
        if hit := _HIT.match(line):
            kind = _kind(hit["who"])
            when = "" if hit["when"] == "no date" else hit["when"]
            where = hit["where"].strip()
        elif retired := _RETIRED.match(line):
            found.append(Found("retired", retired["text"], retired["when"]))
        elif neighbour := _NEIGHBOUR.match(line):
            found += _split("told", neighbour["text"], when, where)
        elif line.startswith(_BAR) and kind:
            found += _split(kind, line.removeprefix(_BAR), when, where)
    return found


def _kind(who: str) -> Kind | None:
    """What a passage is by its speaker; nanobot's own words and tool results answer nothing."""
    word = who.split(maxsplit=1)[0]
    kinds: dict[str, Kind] = {"user": "told", "summary": "summary", "note": "note"}
    return kinds.get(word, "document" if word == "document" else None)


def _split(kind: Kind, text: str, when: str, where: str) -> list[Found]:
    text = re.sub(r"^\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d\] |^- \d\d:\d\d ", "", text)
    return [Found(kind, part[:_LONGEST], when, where) for part in sentences(text)[:40]]


def _other_words(question: str) -> str:
    """The telling words of a question with what may be meant by them."""
    lists = known()
    groups = lexicon.SAME.split("\n")
    words: list[str] = []
    for run in re.findall(r"[^\W_]+", question):
        for term in terms(run):
            words.append(term if is_chinese(run) else run)
            for group in sorted(lists.same.get(term, ())):
                words += groups[group].split()[:6]
    return " ".join(dict.fromkeys(words)) or question
