"""Whether a conversation says what a model would remember of it: one check for consolidation, Dream
and the agent's own tool. Pure.

A line is compared with the messages behind it, clause by clause:

- its words: a line that shares next to none of them with the conversation says nothing that can be
  checked (junk, an echo, a translation);
- its figures (`figures`): each must be named near those words;
- its negation: it is negated if the clause that says most of it is.

A line that is remembered already changes only by the person's own words, which must name the news
and the topic plainly (`certainty`). It is over only if they speak of it as over, and of no more.
Not covered: to which of two people in one sentence a word belongs, and a negation that is part of
a word ("dislikes").
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date
from functools import lru_cache
from itertools import groupby

from msgspec import Struct

from nanobot.memory.analysis import bases, is_stop_word, language_of, stemmed, words_of
from nanobot.memory.certainty import is_doubtful, is_jest, speaks_of_others
from nanobot.memory.figures import (
    Figures,
    begins_with_month,
    figures_of,
    folded,
    is_number_word,
)
from nanobot.memory.importance import without_importance
from nanobot.memory.languages import ENGLISH, LANGUAGES, RUNS, Language
from nanobot.memory.similarity import similar
from nanobot.messages import Message
from nanobot.tasks import paced

_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])|\n+")
_CLAUSE = re.compile(r"[,;:(){}\[\]«»“”\"、，：]\s*|\s[-–—]\s|\s(?=but\b)|\s(?=aber\b)")
_NOT = re.compile(r"n[’']t\b", re.IGNORECASE)
_MARK = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+")
_MOST_CHARACTERS = 400_000
"""Of messages that are compared; later ones come first."""
_LEAST, _HALF, _MUCH, _NEARLY = 1 / 3, 0.5, 0.65, 0.75
_FEW, _PART = 8, 5
"""Words from which on a text shows its language; letters that are enough to be the beginning or
the end of a longer word."""

_LABELS = frozenset({"user", "users", "since", "now", "currently", "anymore"})
UNSAID = "nothing in the conversation says it"


class Stated(Struct, frozen=True):
    """What a line or a clause says, by its content words in order."""

    words: tuple[str, ...]
    figures: Figures = Figures()
    negated: bool = False
    over: bool = False
    now: bool = False

    def news(self, known: Stated) -> list[str]:
        """Its words that `known` does not have."""
        return [word for word in self.words if not _is_in(word, known.words)]


class Known:
    """The facts of a file, found again by what they say."""

    def __init__(self, facts: Iterable[str], languages: tuple[str, ...]) -> None:
        self._languages = languages
        self._facts: list[tuple[str, Stated, frozenset[str]]] = []
        for fact in facts:
            self.add(fact)

    def add(self, fact: str) -> None:
        """Know one more."""
        stated = self.read(fact)
        self._facts.append((fact, stated, _beginnings(stated)))

    def read(self, line: str) -> Stated:
        """What a line says."""
        return stated_in(_bare(line), self._languages)

    def has(self, line: str) -> bool:
        """Whether a fact says all that `line` does."""
        stated = self.read(line)
        return any(says_same(stated, other) for _, other in self._near(stated))

    def touched_by(self, line: str) -> str:
        """The fact that `line` adds to, or says with another number or negated; empty for none."""
        stated = self.read(line)
        for fact, other in self._near(stated):
            if other.words and not other.news(stated):
                return fact
            shared = sum(_is_in(word, other.words) for word in stated.words)
            if shared and 2 * shared >= max(len(stated.words), len(other.words)):
                return fact
            differs = stated.negated != other.negated or not stated.figures.same_as(other.figures)
            if stated.words and not stated.news(other) and differs:
                return fact
        return ""

    def is_turned(self, one: str, other: str) -> bool:
        """Whether one of two lines is negated and the other is not."""
        return self.read(one).negated != self.read(other).negated

    def _near(self, stated: Stated) -> Iterator[tuple[str, Stated]]:
        beginnings = _beginnings(stated)
        for fact, other, begins in self._facts:
            if 2 * len(beginnings & begins) >= min(len(beginnings), len(begins)):
                yield fact, other


def _beginnings(stated: Stated) -> frozenset[str]:
    return frozenset(word[:4] for word in stated.words)


class _Clause(Struct, frozen=True):
    stated: Stated
    turn: int
    sentence: int
    asks: bool


class _Turn(Struct, frozen=True):
    """A message; `own` if the person wrote it. `first` is the number of its first clause."""

    text: str
    own: bool
    day: date | None
    figures: Figures
    first: int


class Talk:
    """A conversation of trusted messages. `material` is further text to rest on
    (a day's notes, an entry of an imported home), which counts as the person's own."""

    def __init__(self, messages: Iterable[Message], material: Iterable[str] = ()) -> None:
        said = [(one.own_words or one.content, bool(one.own_words), one) for one in messages]
        texts = [(t, own, m.timestamp.date() if m.timestamp else None) for t, own, m in said if t]
        texts += [(text, True, None) for text in material]
        self.languages = languages_of(text for text, _, _ in texts)
        self._turns: list[_Turn] = []
        self._clauses: list[_Clause] = []
        self._places: dict[str, list[int]] = defaultdict(list)
        self._forms: dict[str, list[str]] = defaultdict(list)
        self._own_lines = {
            _plain(part)
            for text, own, _ in texts
            if own
            for line in text.split("\n")
            for part in (line, *_SENTENCE.split(line))
        } - {""}
        room = _MOST_CHARACTERS
        kept = list[tuple[str, bool, date | None]]()
        for text, own, day in reversed(texts):
            kept.append((text[: max(0, room)], own, day))
            room -= len(text)
        for text, own, day in paced(reversed(kept)):
            self._add(text, own, day)

    def objection(
        self, line: str, *, own: bool = False, lenient: bool = False, counted: int = 0
    ) -> str:
        """Why the conversation does not support `line`, as part of a sentence; empty if it does.
        `own` counts the person's words only; a `lenient` check takes a paraphrase; `counted` is a
        number that the line may name without one."""
        stated = self._read(line)
        places = self._places_of(stated.words, own=own)
        if not stated.words and stated.figures.is_empty:
            return "" if lenient else "it says nothing"
        if not lenient and len(places) < min(len(stated.words), max(1, len(stated.words) * _LEAST)):
            return UNSAID
        turns = {self._clauses[at].turn for ids in places.values() for at in ids}
        near = [*self._figures_near(turns), Figures(said=frozenset({str(counted)}))]
        missing = stated.figures.missing_in(near)
        if missing:
            return f"the conversation does not name {', '.join(missing[:3])}"
        return self._polarity_objection(stated, places)

    def objection_to_change(self, old: str, new: str) -> str:
        """Why `new` may not take the place of the line `old`; empty if the person said it, or only
        the form changes."""
        was, becomes = self._read(old), self._read(new)
        news = becomes.news(was)
        is_same = becomes.figures.same_as(was.figures) and becomes.negated == was.negated
        if not news and is_same:
            return "it only leaves something out, or changes the form"
        if any(self._is_news(turn, was, becomes, news) for turn in self._own_turns()):
            return ""
        return "the person did not say so"

    def names_change(self, old: str, new: str) -> bool:
        """Whether a message of the person's names all that `new` changes in `old`, so that it is
        worth a question."""
        was, becomes = self._read(old), self._read(new)
        news, turns = becomes.news(was), becomes.negated != was.negated
        if not (news or turns or becomes.figures.missing_in([was.figures])):
            return False  # it only leaves something out
        for turn in self._own_turns():
            near = self._words_near(turn)
            figures = [was.figures, self._turns[turn].figures]
            about = [
                one
                for one in self._clauses_of(turn)
                if any(self._is_said(word, one.stated.words) for word in was.words)
            ]
            if (
                all(self._is_said(word, near) for word in news)
                and not becomes.figures.missing_in(figures)
                and any(not turns or self._is_negated(one) == becomes.negated for one in about)
            ):
                return True
        return False

    def ends(self, old: str, new: str) -> bool:
        """Whether `new`, which the person said, means that the line `old` is over."""
        was, becomes = self._read(old), self._read(new)
        news, only_old = becomes.news(was), was.news(becomes)
        if not news:  # the same words with another number, or negated
            return True
        shared = [word for word in was.words if word not in only_old]
        for turn in self._own_turns():
            if self._is_news(turn, was, becomes, news):
                near = self._words_near(turn)
                whole = all(self._is_said(word, near) for word in shared)
                if len(shared) > 1 and whole and was.words[: len(shared)] == tuple(shared):
                    return True  # the same about the same, but for how it ends
                clauses = self._clauses_of(turn)
                if any(self._is_changed(one, news) for one in clauses):
                    return True
                if only_old and any(self._is_left(one, only_old) for one in clauses):
                    return True
        return False

    def says_over(self, line: str) -> bool:
        """Whether the person spoke of the fact on `line`, and of nothing else, as over."""
        stated = self._read(line)
        return any(self._is_over(turn, stated) for turn in self._own_turns())

    def _is_over(self, turn: int, stated: Stated) -> bool:
        for _, group in groupby(self._clauses_of(turn), key=lambda one: one.sentence):
            clauses = list(group)
            said = {word: None for one in clauses for word in one.stated.words}
            hits = sum(self._is_said(word, said) for word in stated.words)
            if hits <= _HALF * len(stated.words):
                continue
            best = max(clauses, key=lambda one: _hits(stated.words, one.stated.words))
            turned = self._is_negated(best) != stated.negated
            over = any(one.stated.over for one in clauses)
            others = [word for word in said if not _is_in(word, stated.words)]
            idle = [word for word in others if _has_cue([word], _cues(self.languages).over)]
            if (turned or (over and len(others) == len(idle))) and self._is_plain(
                turn, stated.words
            ):
                return True
        return False

    def quote(self, line: str) -> tuple[str, date | None] | None:
        """The line of the person's that says most of `line`, and its day; None if none does."""
        words, best = self._read(line).words, (0, 0)
        found: tuple[str, date | None] | None = None
        for at in self._own_turns() if words else ():
            turn = self._turns[at]
            for text in filter(str.strip, turn.text.split("\n")):
                said = stated_in(text, self.languages).words
                hits = _hits(words, said)
                if hits >= _MUCH * len(words) and (hits, at) > best:
                    best, found = (hits, at), (" ".join(text.split()), turn.day)
        return found

    def is_told(self, line: str) -> bool:
        """Whether one message says nearly all of `line`, so that it is no copy of an example."""
        words = self._read(line).words
        hits = Counter(
            turn
            for ids in self._places_of(words, own=False).values()
            for turn in {self._clauses[at].turn for at in ids}
        )
        return bool(hits) and max(hits.values()) >= _NEARLY * len(words)

    def has_own_line(self, line: str) -> bool:
        """Whether the person wrote just this, as a line or a sentence."""
        return _plain(line) in self._own_lines

    # What is said where

    def _add(self, text: str, own: bool, day: date | None) -> None:
        at, sentence = len(self._turns), self._clauses[-1].sentence if self._clauses else 0
        figures = figures_of(text, (*self.languages, language_of(text)), day)
        self._turns.append(_Turn(text, own, day, figures, len(self._clauses)))
        for part in filter(str.strip, _SENTENCE.split(text)):
            sentence += 1
            asks = part.rstrip().endswith(("?", "？"))
            for clause in filter(str.strip, _CLAUSE.split(part)):
                stated = stated_in(clause, self.languages, figures=False)
                for word in dict.fromkeys(stated.words):
                    if not self._places[word]:
                        for form in {word[:4], word[-4:]}:
                            self._forms[form].append(word)
                    self._places[word].append(len(self._clauses))
                self._clauses.append(_Clause(stated, at, sentence, asks))

    def _read(self, line: str) -> Stated:
        languages = {*self.languages, _language_of(line, self.languages[-1])} - {""}
        return stated_in(_bare(line), tuple(sorted(languages)))

    def _own_turns(self) -> Iterator[int]:
        return (at for at, turn in enumerate(self._turns) if turn.own)

    def _clauses_of(self, turn: int) -> list[_Clause]:
        end = self._turns[turn + 1].first if turn + 1 < len(self._turns) else None
        return self._clauses[self._turns[turn].first : end]

    def _words_near(self, turn: int) -> frozenset[str]:
        """The words of a message and of the one before it, which it may answer."""
        clauses = self._clauses_of(turn) + (self._clauses_of(turn - 1) if turn else [])
        return frozenset(word for one in clauses for word in one.stated.words)

    def _figures_near(self, turns: Collection[int]) -> list[Figures]:
        near = {at + step for at in turns for step in (-1, 0, 1)} or set(range(len(self._turns)))
        return [turn.figures for at, turn in enumerate(self._turns) if at in near]

    def _forms_of(self, word: str) -> list[str]:
        """The words that were said and may be this one."""
        near = {*self._forms.get(word[:4], ()), *self._forms.get(word[-4:], ())}
        return [one for one in near if _is_same(word, one)]

    def _places_of(self, words: Sequence[str], *, own: bool) -> dict[str, set[int]]:
        """The clauses that hold each of the words; words that none holds are left out."""
        found = dict[str, set[int]]()
        for word in words:
            ids = {at for form in self._forms_of(word) for at in self._places[form]}
            if own:
                ids = {at for at in ids if self._turns[self._clauses[at].turn].own}
            if ids:
                found[word] = ids
        return found

    def _is_said(self, word: str, words: Collection[str]) -> bool:
        return word in words or any(form in words for form in self._forms_of(word))

    def _polarity_objection(self, stated: Stated, places: dict[str, set[int]]) -> str:
        hits = Counter(at for ids in places.values() for at in ids)
        if not hits:
            return "nobody said “not”" if stated.negated else ""
        sentences = defaultdict[int, set[str]](set)
        for word, ids in places.items():
            for at in ids:
                sentences[self._clauses[at].sentence].add(word)
        best = max(map(len, sentences.values()))
        top = {one for one, words in sentences.items() if len(words) == best}
        most = max(count for at, count in hits.items() if self._clauses[at].sentence in top)
        fair = [
            self._clauses[at]
            for at, count in hits.items()
            if self._clauses[at].sentence in top and (count == most or most < best)
        ]
        if any(self._is_negated(one) == stated.negated for one in fair):
            return ""
        if stated.negated:
            return "nobody said “not”"
        return "it was said with “not”" if best >= _HALF * len(stated.words) else ""

    def _is_negated(self, clause: _Clause) -> bool:
        """Of a question its answer counts."""
        if clause.asks and clause.turn + 1 < len(self._turns):
            answer = self._clauses_of(clause.turn + 1)[:1]
            return any(one.stated.negated for one in answer)
        return clause.stated.negated

    def _is_news(self, turn: int, was: Stated, becomes: Stated, news: Sequence[str]) -> bool:
        """Whether this message of the person's brings what is new in `becomes`."""
        clauses = self._clauses_of(turn)
        said = frozenset(word for one in clauses for word in one.stated.words)
        near = self._words_near(turn)
        told = [word for word in news if self._is_told_of(word, turn, was, becomes)]
        if len(told) < _NEARLY * len(news):
            return False
        figures = [was.figures, self._turns[turn].figures]
        figures += [self._turns[turn - 1].figures] if turn else []
        if becomes.figures.missing_in(figures):
            return False
        topic = [word for word in was.words if self._is_said(word, near)]
        if not topic or len(topic) < _LEAST * len(was.words):
            return False
        counts_anew = bool(becomes.figures.missing_in([was.figures]))
        is_over = any(one.stated.over for one in clauses)
        if was.figures.missing_in([becomes.figures]) and not (counts_anew or is_over):
            return False  # it leaves a number out
        about = [word for word in becomes.words if self._is_said(word, said)]
        share = len(about) / len(becomes.words) if becomes.words else 0.0
        if share < (_MUCH if news else _HALF) and not self._is_moved(clauses, was, becomes, news):
            return False  # what is named there may be about something else
        is_turned = becomes.negated != was.negated
        return self._is_said_so(clauses, becomes, is_turned=is_turned) and self._is_plain(
            turn, (*was.words, *becomes.words)
        )

    def _is_plain(self, turn: int, about: Collection[str]) -> bool:
        """Whether a message says plainly what is `about` these words: it asks, supposes and jests
        not, and names no one else."""

        def is_known(name: str) -> bool:
            return _is_in(_base(name), about)

        later = next((one for one in self._own_turns() if one > turn), turn)
        if any(is_jest(self._turns[at].text, self.languages) for at in (turn, later)):
            return False
        sentences = [
            (part, stated_in(part, self.languages, figures=False).words)
            for part in filter(str.strip, _SENTENCE.split(self._turns[turn].text))
        ]
        near = [part for part, words in sentences if any(_is_in(word, about) for word in words)]
        for part in near or [part for part, _ in sentences]:
            languages = (language_of(part, self.languages[-1]), *self.languages)
            if is_doubtful(part, languages) or speaks_of_others(part, languages, is_known):
                return False
        return True

    def _is_told_of(self, word: str, turn: int, was: Stated, becomes: Stated) -> bool:
        """Whether a message says a new word of what the line is about: next to another word of it,
        with a word of change, or as the answer to a question."""
        about = (*was.words, *becomes.words)
        before = self._clauses_of(turn - 1)[-1:] if turn else []
        for _, clauses in groupby(self._clauses_of(turn), key=lambda one: one.sentence):
            sentence = list(clauses)
            said = [one for clause in sentence for one in clause.stated.words]
            places = [at for at, one in enumerate(said) if self._is_said(word, (one,))]
            near = {
                one for at in places for one in (*said[max(0, at - 1) : at], *said[at + 1 :][:1])
            }
            answers = any(one.asks for one in before) and not self._strange(said, about)
            if places and (answers or any(_is_in(one, about) for one in near)):
                return True
            if places and any(self._is_changed(one, (word,)) for one in sentence):
                return True
        return False

    def _is_left(self, clause: _Clause, only_old: Sequence[str]) -> bool:
        """Whether a clause says that these words no longer hold."""
        over = clause.stated.over or clause.stated.negated
        return over and all(self._is_said(word, clause.stated.words) for word in only_old)

    def _strange(self, said: Iterable[str], about: Collection[str]) -> bool:
        return any(not _is_in(word, about) for word in said)

    def _is_changed(self, clause: _Clause, news: Sequence[str]) -> bool:
        """Whether a clause names some of the news, with a word of change."""
        changes = clause.stated.now or clause.stated.over
        return changes and any(self._is_said(word, clause.stated.words) for word in news)

    def _is_moved(
        self, clauses: Sequence[_Clause], was: Stated, becomes: Stated, news: Sequence[str]
    ) -> bool:
        """Whether a clause says of the news that they take another's place: it names what they take
        it from, or the word before them, and a word of change."""
        only_old = was.news(becomes)
        for clause in clauses:
            said = clause.stated.words
            if not self._is_changed(clause, news):
                continue
            at = becomes.words.index(news[0])
            before = becomes.words[at - 1] if at else ""
            beside = [one for one in clauses if one.sentence == clause.sentence]
            whole = frozenset(word for one in beside for word in one.stated.words)
            from_old = only_old and all(self._is_said(word, whole) for word in only_old)
            if from_old or (before and self._is_said(before, said)):
                return True
        return False

    def _is_said_so(self, clauses: Sequence[_Clause], stated: Stated, *, is_turned: bool) -> bool:
        """Whether these clauses say it with or without negation, as it does."""
        counts = [sum(self._is_said(w, one.stated.words) for w in stated.words) for one in clauses]
        best = max(counts, default=0)
        fair = [one for one, count in zip(clauses, counts, strict=True) if count == best]
        agrees = any(self._is_negated(one) == stated.negated for one in fair)
        share = best / len(stated.words) if stated.words else 0.0
        if is_turned:
            changes = any(one.stated.now for one in fair)
            return agrees and share >= (_MUCH if changes else _NEARLY)
        return agrees or share <= _HALF


def stated_in(text: str, languages: Sequence[str], *, figures: bool = True) -> Stated:
    """What `text`, in one of these languages, says."""
    tokens = _tokens(text)
    spoken = (*languages, language_of(text, languages[-1]))  # a few words may be of any
    known = _cues(spoken)
    no = known.no
    words = [
        _base(word)
        for word in tokens
        if not (word in no or _is_idle(word, tuple(languages)) or word.isdecimal())
    ]
    runs = not text.isascii()
    return Stated(
        tuple(dict.fromkeys(words)),
        figures_of(text, spoken) if figures else Figures(),
        any(word in no for word in tokens)
        or (runs and any(run in text for run in RUNS.no.split())),
        _has_cue(tokens, known.over) or (runs and any(run in text for run in RUNS.over.split())),
        _has_cue(tokens, known.now) or (runs and any(run in text for run in RUNS.now.split())),
    )


def says_same(one: Stated, other: Stated) -> bool:
    """Whether `one` says nothing that `other` does not."""
    if one.negated != other.negated or one.figures.missing_in([other.figures]):
        return False
    return bool(one.words) and not one.news(other)


def still_says(new: str, old: str) -> bool:
    """Whether a rewording of `old` has its numbers and names, and is negated as it is."""
    new, old = _bare(new), _bare(old)
    languages = languages_of((old, new))
    was, becomes = stated_in(old, languages), stated_in(new, languages)
    if was.figures.missing_in([becomes.figures]):
        return False
    clauses = [stated_in(one, languages, figures=False) for one in (new, *_CLAUSE.split(new))]
    hits = [_hits(was.words, one.words) for one in clauses]
    said = zip(clauses, hits, strict=True)
    if not any(one.negated == was.negated for one, count in said if count == max(hits)):
        return False
    return all(_is_in(key, becomes.words) for key in _keys(old) if key in was.words)


def is_part_of(part: str, whole: str) -> bool:
    """Whether `whole` says `part` as it is, word by word, with one more word at most in between:
    so that nothing can be swapped."""
    inner, outer = _spoken(part), _spoken(whole)
    starts = range(len(outer) - len(inner) + 1)
    return bool(inner) and any(_begins(outer[at : at + len(inner) + 1], inner) for at in starts)


def _begins(words: list[str], inner: list[str]) -> bool:
    without_one = (words[:at] + words[at + 1 :] for at in range(1, len(inner)))
    return words[: len(inner)] == inner or any(one == inner for one in without_one)


def _spoken(line: str) -> list[str]:
    said = map(_base, _tokens(_bare(line)))
    return [word for word in said if not is_stop_word(word)]


def languages_of(texts: Iterable[str]) -> tuple[str, ...]:
    """The languages that these texts are in, English first."""
    found, likely = {ENGLISH: None}, ""
    for text in texts:
        likely = _language_of(text, likely)
        found |= dict.fromkeys(filter(None, [likely]))
    return tuple(found)


def _language_of(text: str, likely: str) -> str:
    """The language of a text; a few words in ASCII may be of any."""
    is_short = text.isascii() and len(text.split()) < _FEW
    return (likely or ENGLISH) if is_short else language_of(text, likely)


class _Cues(Struct, frozen=True):
    no: frozenset[str]
    over: tuple[frozenset[str], tuple[str, ...]]
    now: tuple[frozenset[str], tuple[str, ...]]


@lru_cache(maxsize=128)
def _cues(languages: tuple[str, ...]) -> _Cues:
    known = [LANGUAGES.get(language, Language()) for language in languages]

    def cue(texts: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...]]:
        words = [stemmed(word, "") for text in texts for word in text.split()]
        return frozenset(words), tuple(word for word in words if len(word) > 3)

    own = {stemmed(word, "") for one in known for word in one.no.split()}
    # A negation of another language is one as well, unless the word is usual in this.
    usual = (word for word in _negations() if any(is_stop_word(word, one) for one in languages))
    foreign = _negations() - {*usual}
    no = frozenset(own | foreign)
    return _Cues(no, cue(one.over for one in known), cue(one.now for one in known))


@lru_cache(maxsize=1)
def _negations() -> frozenset[str]:
    """Words that negate in one language and mean nothing else in another."""
    no = {name: {stemmed(word, "") for word in one.no.split()} for name, one in LANGUAGES.items()}
    months = {
        stemmed(form, "") for one in LANGUAGES.values() for form in re.split(r"[\s/]", one.months)
    }
    every = {word for words in no.values() for word in words if len(word) > 3} - months
    every -= {"sense", "pole", "chang", "dung"}  # which are English
    other = {
        word
        for word in every
        if any(is_stop_word(word, name) and word not in no[name] for name in no)
    }
    return frozenset(every - other)


def _has_cue(tokens: Iterable[str], cue: tuple[frozenset[str], tuple[str, ...]]) -> bool:
    words, beginnings = cue
    return any(token in words or token.startswith(beginnings) for token in tokens)


def _tokens(text: str) -> list[str]:
    return [folded(word) for word in words_of(_NOT.sub(" not", text))]


@lru_cache(maxsize=1 << 14)
def _is_idle(word: str, languages: tuple[str, ...]) -> bool:
    """Whether a word says nothing by itself."""
    if word in _LABELS or is_number_word(word, languages):
        return True
    return any(is_stop_word(word, one) for one in languages)


@lru_cache(maxsize=1 << 14)
def _base(word: str) -> str:
    """A word without the plural ending of English, which many languages share."""
    if not word.isascii() or len(word) <= 3 or word.endswith("ss"):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")


@lru_cache(maxsize=1 << 14)
def _is_same(one: str, other: str) -> bool:
    """Whether two words may be forms of one, or one is part of the other."""
    if one == other or _stem(one) == _stem(other):
        return True
    short, long = sorted((one, other), key=len)
    if len(short) < _PART:
        return False
    is_end = long.endswith(short) and len(long) >= len(short) + _PART - 2
    return similar(one, other) or long.startswith(short) or is_end


@lru_cache(maxsize=1 << 14)
def _stem(word: str) -> str:
    return next(iter(bases(word, ENGLISH)), word)


def _is_in(word: str, words: Collection[str]) -> bool:
    return word in words or any(_is_same(word, one) for one in words)


def _hits(words: Iterable[str], said: Collection[str]) -> int:
    return sum(_is_in(word, said) for word in words)


def _bare(line: str) -> str:
    """A line without list mark and importance. A number in front may be a day (`3. Mai`)."""
    text = without_importance(line)
    found = _MARK.match(text)
    rest = text[found.end() :] if found else text
    return text if found and found[0].strip()[0].isdigit() and begins_with_month(rest) else rest


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip("-*+ .!?")


def _keys(line: str) -> list[str]:
    """The names on a line, by their capitals."""
    _, *spoken = re.findall(r"[^\W_]+", _bare(line)) or [""]
    return [_base(stemmed(word, "")) for word in spoken if word[0].isupper()]
