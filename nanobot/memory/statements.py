"""The meaning of a line or clause: content words, figures, negation, and whether it is a plain
statement. Pure.

Two words count as forms of one if they have the same stem in English, if one begins or ends the
other, or if they share most of their letters, as forms do in other languages.

A plain statement is not a question, supposition, memory of the past or hearsay, and names only the
people in the fact. In languages without cues for people, only names identify other people."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nanobot.memory.analysis import (
    bases,
    is_stop_word,
    language_of,
    languages_of,
    vocabulary,
    words_of,
)
from nanobot.memory.figures import MONTHS, Figures, begins_with_month, figures_of, fold_word
from nanobot.memory.importance import without_importance
from nanobot.memory.languages import ENGLISH, LANGUAGES, RUNS
from nanobot.memory.similarity import similar

_CLAUSE = re.compile(r"[,;:(){}\[\]«»“”\"、，：；]\s*|\s[-–—]\s|\s(?=but\b)|\s(?=aber\b)")
_NOT = re.compile(r"n[’']t\b", re.IGNORECASE)
_MARK = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+")
_NAME = r"[^\W\d_]+(?:['’-][^\W\d_]+)*"
_PART = 5  # minimum letters for the beginning or the end of a longer word
_SHORT = 3  # maximum letters of a cue that must be a whole word
_LABELS = frozenset({"user", "users", "since", "now", "currently", "anymore"})
_THEY = (
    "he she his her er sein seine ihr ihre elle ils elles ella ele ela lui lei hij zij zijn haar"
    " он она его ее onun"
)
_PRONOUNS = frozenset(_THEY.split())
_HEARSAY = (
    "says said claims claimed thinks thought believes insists sagt sagte meint meinte behauptet dit"
    " pense dice dijo cree diz disse pensa zegt zei mowi говорит сказал diyor dedi"
)
_HEARSAY_WORDS = frozenset(_HEARSAY.split())
_FREELY_CAPITAL = "german"  # all its nouns are capitalized like names


class Clause(Struct, frozen=True):
    """The meaning of a line or clause, with its content words in order. `over` and `now` mark words
    for an end or a change. In a conversation, `turn` is the number of the message, and `asks` marks
    a part of a question."""

    words: tuple[str, ...]
    figures: Figures = Figures()
    negated: bool = False
    over: bool = False
    now: bool = False
    turn: int = 0
    asks: bool = False

    def news(self, known: Clause) -> list[str]:
        """Return its words that `known` does not have."""
        return [word for word in self.words if not is_in(word, known.words)]

    def adds_to(self, known: Clause) -> bool:
        """Return True if it has news, another figure, or another polarity than `known`."""
        is_negated = self.negated != known.negated
        return is_negated or bool(self.news(known) or self.figures.missing_in([known.figures]))


def clause_of(text: str, languages: Sequence[str], *, figures: bool = True) -> Clause:
    tokens = _tokens(text)
    spoken = (*languages, language_of(text, languages[0]))
    no = vocabulary("no", spoken).keys()  # a few words may be in any language
    idle = _idle_words(tuple(languages))
    words = [word for word in tokens if not (word in no or word in idle or word.isdecimal())]
    return Clause(
        tuple(dict.fromkeys(words)),
        figures_of(text, spoken) if figures else Figures(),
        not no.isdisjoint(tokens) or bool(_runs_in(text, "no")),
        has_cue(text, "over", spoken),
        has_cue(text, "now", spoken),
    )


def clauses_of(sentence: str) -> Iterator[str]:
    """Split a sentence into parts that may be about different things."""
    return filter(str.strip, _CLAUSE.split(sentence))


class KnownFacts:
    """The facts of a file, compared by their meaning."""

    def __init__(self, facts: Iterable[str], languages: tuple[str, ...]) -> None:
        self._languages = languages
        self._facts: list[tuple[str, Clause, frozenset[str]]] = []
        for fact in facts:
            self.add(fact)

    def add(self, fact: str) -> None:
        stated = self.read(fact)
        self._facts.append((fact, stated, _beginnings(stated)))

    def read(self, line: str) -> Clause:
        return clause_of(bare(line), self._languages)

    def has(self, line: str) -> bool:
        """Return True if one fact covers all of `line`."""
        stated = self.read(line)
        return bool(stated.words) and any(
            stated.negated == other.negated
            and not (stated.figures.missing_in([other.figures]) or stated.news(other))
            for _, other in self._near(stated)
        )

    def find_affected(self, line: str) -> str:
        """Return the fact that `line` extends, negates or gives another number, or ""."""
        stated = self.read(line)
        for fact, other in self._near(stated):
            shared = len(stated.words) - len(stated.news(other))
            is_within = shared == len(stated.words) or not other.news(stated)
            if shared and (is_within or 2 * shared >= max(len(stated.words), len(other.words))):
                return fact
        return ""

    def _near(self, stated: Clause) -> Iterator[tuple[str, Clause]]:
        beginnings = _beginnings(stated)
        for fact, other, begins in self._facts:
            if 2 * len(beginnings & begins) >= min(len(beginnings), len(begins)):
                yield fact, other


def _beginnings(stated: Clause) -> frozenset[str]:
    return frozenset(stem_of(word)[:4] for word in stated.words)


def still_says(new: str, old: str) -> bool:
    """Return True if a rewording of `old` keeps its numbers, names and polarity."""
    new, old = bare(new), bare(old)
    languages = languages_of((old, new))
    was, becomes = clause_of(old, languages), clause_of(new, languages)
    if was.figures.missing_in([becomes.figures]):
        return False
    clauses = [clause_of(one, languages, figures=False) for one in (new, *clauses_of(new))]
    if all(one.negated != was.negated for one in closest(was.words, clauses)):
        return False
    capital = [word for word in re.findall(r"[^\W_]+", old)[1:] if word[0].isupper()]
    return all(is_in(name, becomes.words) for name in map(fold_word, capital) if name in was.words)


def is_part_of(part: str, whole: str) -> bool:
    """Return True if `whole` has the words of `part` in order, with one more word at most in
    between, so that nothing can be swapped."""
    inner, outer = (
        [stem_of(word) for word in _tokens(bare(line)) if not is_stop_word(word)]
        for line in (part, whole)
    )
    spans = (iter(outer[at : at + len(inner) + 1]) for at in range(len(outer)))
    return bool(inner) and any(all(word in span for word in inner) for span in spans)


def _tokens(text: str) -> list[str]:
    return [fold_word(word) for word in words_of(_NOT.sub(" not", text))]


def bare(line: str) -> str:
    """Return a line without list mark and importance. A number may be a day (`3. Mai`)."""
    text = without_importance(line)
    found = _MARK.match(text)
    rest = text[found.end() :] if found else text
    return text if found and found[0].strip()[0].isdigit() and begins_with_month(rest) else rest


@lru_cache(maxsize=1 << 14)
def is_same(one: str, other: str) -> bool:
    """Return True if two words may be forms of one, or one is part of the other."""
    short, long = sorted((stem_of(one), stem_of(other)), key=len)
    is_part = long.startswith(short) or long.endswith(short)
    return short == long or (len(short) >= _PART and (is_part or similar(short, long)))


@lru_cache(maxsize=1 << 14)
def stem_of(word: str) -> str:
    return next(bases(word, ENGLISH), word)


def is_in(word: str, words: Collection[str]) -> bool:
    return word in words or any(is_same(word, one) for one in words)


def hits(words: Collection[str], said: Collection[str]) -> int:
    """Count the words that have a form in `said`."""
    return sum(is_in(word, said) for word in words)


def closest(words: Collection[str], clauses: Iterable[Clause]) -> list[Clause]:
    """Return the clauses that hold most of the words."""
    counts = [(hits(words, one.words), one) for one in clauses]
    most = max((count for count, _ in counts), default=0)
    return [one for count, one in counts if count == most]


def asks(sentence: str) -> bool:
    return sentence.rstrip().endswith(("?", "？"))


def is_plain(sentence: str, languages: tuple[str, ...], about: Collection[str]) -> bool:
    """Return True if a sentence, in the first of these languages, is a plain statement and names
    only people in `about`. A pronoun may refer to one of them."""
    spoken = _letters(sentence)
    is_hearsay = not _HEARSAY_WORDS.isdisjoint(spoken[1:2])
    if asks(sentence) or is_hearsay or has_cue(sentence, "doubt", languages):
        return False
    known = [is_in(one, about) for one in find_people(sentence, languages)]
    return all(known) if any(known) else not known and _PRONOUNS.isdisjoint(spoken)


def is_about_same(sentence: str, line: str, languages: tuple[str, ...]) -> bool:
    """Return True if a person's `sentence` is about the same people as the fact on `line`, which
    does not name its person."""
    said, known = _roles_in(sentence, languages), _roles_in(line, languages)
    likely = languages[0] if " " in sentence.strip() else ""
    own = vocabulary("own", (language_of(sentence, likely),)).keys()
    if said != known:
        return False
    if not own or not own.isdisjoint(_letters(sentence)):
        return True
    first = clause_of(bare(sentence), languages).words[:1]  # else a name of another person
    return bool(hits(first, clause_of(bare(line), languages).words))


def has_one_at_a_time(was: Sequence[str], shared: Sequence[str], *, changes: bool) -> bool:
    """Return True if a fact with the words `was` ends because another has its first words, the
    `shared` ones: a favourite, or a person's place in a sentence of change."""
    begins_so = tuple(was[: len(shared)]) == tuple(shared)
    favourite, lives = _forms_of("favourite"), _forms_of("lives")
    if not begins_so or not shared:
        return False
    is_favourite = len(shared) > 1 and shared[0] in favourite
    return is_favourite or (changes and any(word in lives for word in shared))


def unify_verbs(was: Clause, becomes: Clause) -> Clause:
    """Return `was` with the verbs for living somewhere in the form of `becomes`."""
    forms = _forms_of("lives")
    named = {forms[word]: word for word in becomes.words if word in forms}
    unified = (named.get(forms.get(word, -1), word) for word in was.words)
    return replace(was, words=tuple(unified))


@cache
def _forms_of(kind: str) -> Mapping[str, int]:
    """Return the forms of these words in all languages, with the numbers of their words."""
    runs = {run: at for at, one in enumerate(getattr(RUNS, kind).split()) for run in one.split("/")}
    return {**vocabulary(kind, tuple(LANGUAGES)), **runs}


def _roles_in(text: str, languages: tuple[str, ...]) -> frozenset[str]:
    """Return the base forms of words for people, such as "sister"."""
    roles = (stem_of(word) for word in _letters(text) if has_cue(word, "people", languages))
    return frozenset((*roles, *_runs_in(text, "people")))


def find_people(sentence: str, languages: tuple[str, ...]) -> list[str]:
    """Return the words for people, such as "sister", and the names."""
    spoken, names = _letters(sentence), re.findall(_NAME, sentence)
    own = vocabulary("own", languages[:1]).keys()
    begins_with_name = own and own.isdisjoint(spoken) and names[:1] != ["New"]
    if _FREELY_CAPITAL in languages:
        del names[1:]
    if not begins_with_name:  # it is the verb, or an object
        del names[:1]
    roles = [word for word in spoken if has_cue(word, "people", languages)]
    called = [fold_word(name) for name in names if _may_name(name, languages)]
    return [*roles, *_runs_in(sentence, "people"), *called]


def _may_name(word: str, languages: Iterable[str]) -> bool:
    plain = fold_word(word)
    if len(word) < 2 or not word[0].isupper() or plain in MONTHS or plain.endswith("day"):
        return False
    return not any(is_stop_word(part, one) for part in plain.split("'") for one in languages)


def has_cue(
    text: str,
    kind: Literal["over", "now", "doubt", "jest", "people"],
    languages: tuple[str, ...],
) -> bool:
    """Return True if `text` has a word of this kind in one of the languages."""
    cues, beginnings = vocabulary(kind, languages).keys(), _long_cues(kind, languages)
    exact = {f"={word.casefold()}" for word in re.findall(r"[^\W\d_]+", text) if word != "May"}
    plain = _letters(text)
    if not cues.isdisjoint((*exact, *plain)) or any(w.startswith(beginnings) for w in plain):
        return True
    return bool(_runs_in(text, kind))


@lru_cache(maxsize=256)
def _long_cues(kind: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    """Return the cues that words may begin with."""
    every = vocabulary(kind, languages)
    return tuple(cue for cue in every if cue[0] != "=" and len(cue) > _SHORT)


@lru_cache(maxsize=256)
def _idle_words(languages: tuple[str, ...]) -> frozenset[str]:
    """Return the words without a meaning."""
    kinds = (vocabulary(kind, languages) for kind in ("words", "numbers"))
    return _LABELS.union(*kinds)


def _runs_in(text: str, kind: str) -> list[str]:
    """Return the words of this kind in `text`, of scripts without spaces."""
    runs = () if text.isascii() else getattr(RUNS, kind).split()
    return [run for run in runs if run in text]


def _letters(text: str) -> list[str]:
    return [fold_word(word) for word in re.findall(r"[^\W\d_]+", text)]
