"""Check whether a conversation supports a line that a model words, for consolidation, Dream and the
agent's own tool. Pure.

A line is compared with the messages behind it, clause by clause:

- its words: a line that shares almost none with the conversation can't be checked (junk, an echo, a
  translation)
- its figures (`figures`): each must be named near those words
- its polarity: that of the clause with most of its words

A known line changes only by the person's own words, which must name the news and the topic plainly
(`statements`). It is over only if they mention it, and nothing else, as over. Not covered: which of
two people in one sentence a word belongs to, and a negation within a word ("dislikes")."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from nanobot.memory.analysis import language_of, languages_of
from nanobot.memory.figures import Figures, figures_of
from nanobot.memory.similarity import sentences
from nanobot.memory.statements import (
    Clause,
    asks,
    bare,
    clause_of,
    clauses_of,
    closest,
    has_cue,
    has_one_at_a_time,
    hits,
    is_about_same,
    is_in,
    is_plain,
    is_same,
    stem_of,
    unify_verbs,
)
from nanobot.messages import Message
from nanobot.tasks import pace

_MOST_CHARACTERS = 400_000  # maximum characters of messages to compare, the latest first
_LEAST, _HALF, _MUCH, _NEARLY = 1 / 3, 0.5, 0.65, 0.75

_OWN_RUNS = re.compile("(?:我|用户|用戶)的?")  # bigrams with the subject differ
UNSUPPORTED = "the conversation does not support it"


class _Sentence(Struct, frozen=True):
    text: str
    clauses: tuple[Clause, ...]

    @property
    def words(self) -> list[str]:
        return [word for clause in self.clauses for word in clause.words]


class _Turn(Struct, frozen=True):
    """A message and its number. `own` if the person wrote it. `near` has its words and the words of
    the message before, which it may answer."""

    number: int
    text: str
    own: bool
    day: date | None
    figures: Figures
    sentences: tuple[_Sentence, ...]
    words: frozenset[str]
    near: frozenset[str]

    @property
    def clauses(self) -> Iterator[Clause]:
        return (clause for sentence in self.sentences for clause in sentence.clauses)


class Talk:
    """A conversation of trusted messages. `material` is further text (a day's notes, an entry of an
    imported home), which counts as the person's own."""

    def __init__(self, messages: Iterable[Message], material: Iterable[str] = ()) -> None:
        texts = [*_texts_of(messages), *((text, True, None) for text in material)]
        self.languages = languages_of(text for text, _, _ in texts)
        self._turns: list[_Turn] = []
        self._own: list[_Turn] = []
        self._clauses: list[Clause] = []
        self._places: dict[str, list[int]] = defaultdict(list)
        self._forms: dict[str, set[str]] = defaultdict(set)
        lines = (line for text, own, _ in texts if own for line in text.split("\n"))
        self._own_lines = {_plain(part) for line in lines for part in (line, *sentences(line))}
        room, kept = _MOST_CHARACTERS, list[tuple[str, bool, date | None]]()
        for text, own, day in reversed(texts):
            kept.append((text[: max(0, room)], own, day))
            room -= len(text)
        for text, own, day in pace(reversed(kept)):
            self._add(text, own, day)

    def objection(
        self, line: str, *, own: bool = False, lenient: bool = False, counted: int = 0
    ) -> str:
        """Return why the conversation does not support `line`, or "". `own` counts the person's
        words only, a `lenient` check accepts a paraphrase, and `counted` is a number that needs no
        support."""
        stated = self._read(line)
        if not stated.words and stated.figures.is_empty:
            return "" if lenient else "it has no content"
        places = self._places_of(stated.words, own=own)
        if not lenient and len(places) < min(len(stated.words), max(1, len(stated.words) * _LEAST)):
            return UNSUPPORTED
        counts = Counter(chain.from_iterable(places))
        named = [*self._figures_near(counts), Figures(said=frozenset({str(counted)}))]
        if missing := stated.figures.missing_in(named):
            return f"the conversation does not mention {', '.join(missing[:3])}"
        return self._polarity_objection(stated, counts)

    def objection_to_change(self, old: str, new: str) -> str:
        """Return why `new` may not replace the line `old`, or ""."""
        was, becomes = self._read(old), self._read(new)
        if not becomes.adds_to(was) and not was.figures.missing_in([becomes.figures]):
            return "it only shortens or rewords the line"
        if any(self._says_change(turn, was, becomes) for turn in self._own):
            return ""
        return "the person did not state it"

    def names_change(self, old: str, new: str) -> bool:
        """Return True if a message of the person's names each change of `old`, so that a question
        is justified."""
        was, becomes = self._read(old), self._read(new)
        turns = becomes.negated != was.negated
        return becomes.adds_to(was) and any(
            all(self._is_said(word, turn.near) for word in becomes.news(was))
            and not becomes.figures.missing_in([was.figures, turn.figures])
            and any(
                not turns or self._is_negated(one) == becomes.negated
                for one in turn.clauses
                if self._hits(was.words, one.words)
            )
            for turn in self._own
        )

    def ends(self, old: str, new: str) -> bool:
        """Return True if `new`, which the person stated, means that the line `old` is over."""
        was, becomes = self._read(old), self._read(new)
        news, gone = becomes.news(was), was.news(becomes)
        if not news:  # only another number or a negation
            return True
        shared = tuple(word for word in was.words if word not in gone)
        begins_so = len(shared) > 1 and was.words[: len(shared)] == shared

        def is_over(turn: _Turn) -> bool:
            # Both lines begin alike and only end differently.
            is_same = begins_so and self._hits(shared, turn.near) == len(shared)
            is_left = gone and any(
                (one.over or one.negated) and self._hits(gone, one.words) == len(gone)
                for one in turn.clauses
            )
            return is_same or is_left or self._is_changed(turn, news)

        return any(self._says_change(turn, was, becomes) and is_over(turn) for turn in self._own)

    def says_over(self, line: str) -> bool:
        """Return True if the person mentioned the fact on `line`, and nothing else, as over."""
        stated = self._read(line)
        return any(
            self._ends_in(sentence, stated) and self._is_plain(turn, stated.words)
            for turn in self._own
            for sentence in turn.sentences
        )

    def contradicts(self, line: str) -> bool:
        """Return True if a sentence of the person's surely ends the fact on `line`: it says so, or
        it only negates it or changes its number, or a person has one such thing at a time."""
        was = self._read(_OWN_RUNS.sub("", line))
        return any(
            self._contradicts(turn, sentence, was)
            for turn in self._own
            for sentence in turn.sentences
            if is_about_same(sentence.text, line, self.languages)
        )

    def quote(self, line: str) -> tuple[str, date | None] | None:
        """Return the person's line most similar to `line`, and its day, or None."""
        words, best = self._read(line).words, 0
        found: tuple[str, date | None] | None = None
        for turn in self._own if words else ():
            for text in filter(str.strip, turn.text.split("\n")):
                count = hits(words, clause_of(text, self.languages, figures=False).words)
                if count >= max(best, _MUCH * len(words)):
                    best, found = count, (" ".join(text.split()), turn.day)
        return found

    def is_covered(self, line: str) -> bool:
        """Return True if one message has nearly all of `line`: it is no copy of an example."""
        words = self._read(line).words
        return bool(words) and any(
            self._hits(words, turn.words) >= _NEARLY * len(words) for turn in self._turns
        )

    def has_own_line(self, line: str) -> bool:
        """Return True if the person wrote exactly this, as a line or a sentence."""
        plain = _plain(line)
        return bool(plain) and plain in self._own_lines

    # Words and their places

    def _add(self, text: str, own: bool, day: date | None) -> None:
        number, found = len(self._turns), list[_Sentence]()
        for part in sentences(text):
            said = (clause_of(one, self.languages, figures=False) for one in clauses_of(part))
            clauses = [replace(one, turn=number, asks=asks(part)) for one in said]
            found.append(_Sentence(part, tuple(clauses)))
            for clause in clauses:
                for word in clause.words:
                    for form in _ends_of(word):
                        self._forms[form].add(word)
                    self._places[word].append(len(self._clauses))
                self._clauses.append(clause)
        figures = figures_of(text, (*self.languages, language_of(text)), day)
        words = frozenset[str]().union(*(one.words for one in found))
        near = words | (self._turns[-1].words if self._turns else frozenset())
        self._turns.append(_Turn(number, text, own, day, figures, tuple(found), words, near))
        self._own += self._turns[number:] if own else ()

    def _read(self, line: str) -> Clause:
        shown = language_of(line, self.languages[0])
        return clause_of(bare(line), tuple(dict.fromkeys((shown, *self.languages))))

    def _forms_of(self, word: str) -> list[str]:
        """Return the words of the conversation that may be this one."""
        near = {one for form in _ends_of(word) for one in self._forms.get(form, ())}
        return [one for one in near if is_same(word, one)]

    def _places_of(self, words: Sequence[str], *, own: bool) -> list[set[int]]:
        """Return the clauses with each of the words, if any has it."""
        found = []
        for word in words:
            ids = {at for form in self._forms_of(word) for at in self._places[form]}
            found.append({at for at in ids if not own or self._turns[self._clauses[at].turn].own})
        return list(filter(None, found))

    def _figures_near(self, places: Iterable[int]) -> Iterator[Figures]:
        """Yield the figures of the messages with these clauses, and next to them, or else of all
        messages."""
        near = {self._clauses[at].turn + step for at in places for step in (-1, 0, 1)}
        return (one.figures for one in self._turns if not near or one.number in near)

    def _polarity_objection(self, stated: Clause, counts: Counter[int]) -> str:
        """Compare with the clauses that have most of its words. `counts` has their number."""
        most = max(counts.values(), default=0)
        fair = (self._clauses[at] for at, count in counts.items() if count == most)
        if any(self._is_negated(one) == stated.negated for one in fair):
            return ""
        if stated.negated:
            return "a negation was added"
        return "a negation is missing" if most and most >= _HALF * len(stated.words) else ""

    def _is_said(self, word: str, words: Collection[str]) -> bool:
        return word in words or any(form in words for form in self._forms_of(word))

    def _hits(self, wanted: Iterable[str], words: Collection[str]) -> int:
        return sum(self._is_said(word, words) for word in wanted)

    def _is_negated(self, clause: Clause) -> bool:
        """Return the polarity of a clause, or for a question that of its answer."""
        if clause.asks and clause.turn + 1 < len(self._turns):
            answer = next(self._turns[clause.turn + 1].clauses, None)
            return answer is not None and answer.negated
        return clause.negated

    def _says_change(self, turn: _Turn, was: Clause, becomes: Clause) -> bool:
        """Return True if this message of the person's plainly states the news of `becomes`."""
        news, about = becomes.news(was), (*was.words, *becomes.words)
        told = sum(
            _is_beside(word, about, turn) or self._is_changed(turn, (word,)) for word in news
        )
        if told < _NEARLY * len(news):
            return False
        if self._hits(was.words, turn.near) < max(1, _LEAST * len(was.words)):
            return False
        # Otherwise the words may be about something else.
        share = self._hits(becomes.words, turn.words) / max(1, len(becomes.words))
        is_about = share >= (_MUCH if news else _HALF) or self._is_changed(turn, news)
        return (
            is_about
            and _counts_so(turn, was, becomes)
            and self._agrees(turn, was, becomes)
            and self._is_plain(turn, about)
        )

    def _contradicts(self, turn: _Turn, sentence: _Sentence, was: Clause) -> bool:
        becomes = self._read(_OWN_RUNS.sub("", sentence.text))
        was = unify_verbs(was, becomes)
        if self._ends_in(sentence, was):
            return self._is_plain(turn, was.words)
        news, gone = becomes.news(was), was.news(becomes)
        if not becomes.adds_to(was) or not self._says_change(turn, was, becomes):
            return False
        if not news:
            counted = was.figures.missing_in([becomes.figures])
            is_counted = counted and becomes.figures.missing_in([was.figures])
            return bool(is_counted) or becomes.negated != was.negated
        shared = tuple(word for word in was.words if word not in gone)
        return bool(gone) and has_one_at_a_time(was.words, shared, changes=becomes.now)

    def _agrees(self, turn: _Turn, was: Clause, becomes: Clause) -> bool:
        """Return True if the clauses with most of `becomes` have its polarity."""
        fair = closest(becomes.words, turn.clauses)
        if becomes.negated != was.negated:
            least = _MUCH * len(becomes.words)
            fair = [one for one in fair if hits(becomes.words, one.words) >= least]
        return any(self._is_negated(one) == becomes.negated for one in fair)

    def _ends_in(self, sentence: _Sentence, stated: Clause) -> bool:
        """Return True if a sentence ends or negates a fact and is about nothing else."""
        if self._hits(stated.words, sentence.words) <= _HALF * len(stated.words):
            return False
        best = closest(stated.words, sentence.clauses)
        if self._is_negated(best[0]) != stated.negated:
            return True
        others = (word for word in sentence.words if not is_in(word, stated.words))
        is_over = any(one.over for one in sentence.clauses)
        return is_over and all(has_cue(word, "over", self.languages) for word in others)

    def _is_plain(self, turn: _Turn, about: Collection[str]) -> bool:
        """Return True if a message is plain in the sentences about these words, and not a joke."""
        later = next((one for one in self._turns[turn.number + 1 :] if one.own), turn)
        if any(has_cue(one.text, "jest", self.languages) for one in (turn, later)):
            return False
        near = [one.text for one in turn.sentences if hits(about, one.words)]
        return all(
            is_plain(part, (language_of(part, self.languages[0]), *self.languages), about)
            for part in near or [turn.text]
        )

    def _is_changed(self, turn: _Turn, news: Sequence[str]) -> bool:
        """Return True if a clause names some of the news, with a word of change."""
        return any((one.now or one.over) and self._hits(news, one.words) for one in turn.clauses)


def _texts_of(messages: Iterable[Message]) -> Iterator[tuple[str, bool, date | None]]:
    """Yield the text of each message, whether it is the person's own, and its day."""
    for one in messages:
        if text := one.own_words or one.content:
            yield text, bool(one.own_words), one.timestamp.date() if one.timestamp else None


def _counts_so(turn: _Turn, was: Clause, becomes: Clause) -> bool:
    """Return True if a message names the new figures. An omitted one must have a replacement, or be
    over."""
    if becomes.figures.missing_in([was.figures, turn.figures]):
        return False
    is_replaced = bool(becomes.figures.missing_in([was.figures]))
    is_over = any(one.over for one in turn.clauses)
    return is_replaced or is_over or not was.figures.missing_in([becomes.figures])


def _is_beside(word: str, about: Collection[str], turn: _Turn) -> bool:
    """Return True if a sentence has only this word, or has it next to a known one."""
    for said in (sentence.words for sentence in turn.sentences):
        for at in (at for at, one in enumerate(said) if is_same(word, one)):
            near = (*said[max(0, at - 1) : at], *said[at + 1 : at + 2])
            if not near or any(is_in(one, about) for one in near):
                return True
    return False


def _ends_of(word: str) -> set[str]:
    stem = stem_of(word)
    return {stem[:4], stem[-4:]}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip("-*+ .!?")
