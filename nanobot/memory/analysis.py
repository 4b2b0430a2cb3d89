"""Words of the full-text table, by script and language. Pure.

SQLite's `porter unicode61` separates words at spaces, folds case, drops diacritics of Latin letters
and removes English endings. The rest is done here, for stored texts and for questions alike:

- scripts without spaces, and Korean, become single characters and pairs (`_singles_and_pairs`);
- messages in other languages than English become stems (`language_of`, `stem_word`);
- words of a question are also searched by their beginnings and in compounds (`word_forms`).

English text in ASCII is stored unchanged, which is cheap. Width and compatibility forms are unified
(NFKC): `ＡＢＣ１２３` is `ABC123`."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, pairwise, zip_longest
from string import ascii_letters
from typing import NamedTuple

from nanobot.memory.languages import ENGLISH, LANGUAGES, Language
from nanobot.memory.spelling import join_codes, join_hyphenated, spell_code

_CJK = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3040-\u30fa\u30fc-\u30ff"
    "\u3100-\u312f\u3131-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
    "\u2600-\u27bf\U0001f1e6-\U0001f1ff\U0001f300-\U0001f3fa\U0001f400-\U0001faff"
)
"""Chinese, Japanese and Korean characters, and emoji without their skin tones."""

_SYLLABIC = "\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1050-\u1084\u1780-\u17d3\u17dc\u17dd"
"""Thai, Lao, Burmese and Khmer."""

_BEFORE = "\u0e40-\u0e44\u0ec0-\u0ec4"
_BESIDE = (
    "\u0e30-\u0e3a\u0e45\u0e47-\u0e4e\u0eb0-\u0ebc\u0ec8-\u0ece"
    "\u102b-\u1038\u103a-\u103e\u1056-\u1059\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u1084"
    "\u17b4-\u17d1\u17d3\u17dd"
)
_JOINED = "\u1039\u17d2"
"""Characters before, after and around a consonant, and characters that join the next one to it."""

# Compiled and cached by `re` at their first use, because that would delay the start.
_SYLLABLE = f"[{_BEFORE}]?.(?:[{_JOINED}].|[{_BESIDE}])*"
_RUN = f"[{_CJK}]+|[{_SYLLABIC}]+"
_FIRST_RUN = "\u0e00"
_KANA = r"[\u3040-\u309f]+\Z"

_SAMPLE = 100
"""Characters of a message that are examined for its language."""

_TWINS = str.maketrans({
    "ı": "i", "đ": "d", "ø": "o", "ł": "l", "ß": "ss", "æ": "ae", "œ": "oe", "ё": "е", "ς": "σ",
    "ة": "ه", "ى": "ي", "ی": "ي", "ک": "ك", "ـ": "", "ँ": "ं", "़": "",
    "ך": "כ", "ם": "מ", "ן": "נ", "ף": "פ", "ץ": "צ",
})  # fmt: skip
"""Letters that are written for each other, in addition to letters that differ by a mark."""

_MARKS = "(?<![\u0400-\u04ff])[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670]+"
"""Accents (not the breve of й), and the vowel points of Hebrew and Arabic."""

_BACKWARDS = {code: code + 0xE000 for code in range(ord("a"), ord("z") + 1)}
"""Maps to letters of private use, so that a word stored backwards is no other word."""

_WORDS = {code: chr(code).lower() if chr(code).isalpha() else " " for code in range(128)}
"""Reduces ASCII text to its words in lower case."""

_ROOT = 3
"""Letters of a word that remain when affixes and weak letters are removed."""

_PART, _COMPOUND, _LONGEST = 4, 7, 60
"""Letters of a part of a compound, of a compound, and of the longest word that is stemmed."""


def prepare_text(text: str, language: str = "") -> str:
    """Return `text` for the full-text table."""
    whole = join_hyphenated(text) + join_codes(text)
    if language in ("", ENGLISH) and text.isascii():
        return " ".join([text, *whole]) if whole else text
    words = [*re.findall(_piece(text), _unify(text)), *whole]
    return " ".join([
        encode_word(word, language) if word < _FIRST_RUN and len(word) <= _LONGEST
        else " ".join(_singles_and_pairs(word)) if re.match(_RUN, word)
        else stem_word(word, language)  # too long to be worth caching
        for word in words
    ])  # fmt: skip


def words_of(text: str, language: str = "") -> list[str]:
    """Return the words of a question in order, lower case. Runs without spaces become their
    keys."""
    whole = (_lower(_unify(word), language) for word in join_hyphenated(text))
    return [*chain.from_iterable(word_groups(text, language)), *whole]


def word_groups(text: str, language: str = "") -> Iterator[list[str]]:
    """Yield the words of `text` like `words_of`, with the keys of each run together."""
    for piece in re.findall(_piece(text), _lower(_unify(text), language)):
        if not re.match(_RUN, piece):
            yield [piece]
            continue
        units = split_run(piece)
        pairs = [one + other for one, other in pairwise(units)] or units
        # Pairs of grammar (hiragana) only count without others.
        yield [pair for pair in pairs if not re.match(_KANA, pair)] or pairs


def content_words(words: list[str], language: str = "") -> list[str]:
    """Return `words` without stop words and repetitions, or all if nothing else is left."""
    distinct = list(dict.fromkeys(words))
    return [word for word in distinct if not is_stop_word(word, language)] or distinct


def distinct_words(text: str, language: str = "") -> set[str]:
    """Return the words of `text` without stop words, quickly for ASCII."""
    if text.isascii():
        return set(text.translate(_WORDS).split()) - _stop_words(language or ENGLISH)
    return {word for word in words_of(text, language) if not is_stop_word(word, language)}


def is_stop_word(word: str, language: str = "") -> bool:
    """Return True if a word of a question in `language` does not help to find anything."""
    return _fold(word) in _stop_words(language or ENGLISH)


@lru_cache(maxsize=256)
def vocabulary(field: str, languages: tuple[str, ...]) -> Mapping[str, int]:
    """Return the words in a field of these languages, without case and accents, and their places in
    it. A cue with `=` in front keeps its accents."""
    known = (LANGUAGES[one] for one in languages if one in LANGUAGES)
    return {
        form if form[0] == "=" else stem_word(form, ""): at
        for language in known
        for at, forms in enumerate(getattr(language, field).split())
        for form in forms.split("/")
    }


_ASCII = frozenset(ascii_letters)


def language_of(text: str, likely: str = "") -> str:
    """Return the language of `text`: `likely`, unless it lacks a letter or another is twice as
    likely. Function words and letters decide. A wrong guess does little harm, because questions are
    stemmed in every language of the searched conversations."""
    sample, letters = text[:_SAMPLE], set[str]()
    if sample.isascii():
        words = set(sample.translate(_WORDS).split())
        if likely in ("", ENGLISH) and _foreign_words().isdisjoint(words):
            return likely if _stop_words(ENGLISH).isdisjoint(words) else ENGLISH
    else:
        sample = _unify(sample).lower()
        letters = {*filter(str.isalpha, set(sample))} - _ASCII
        words = set(re.findall(_piece(sample), _fold(sample)))
    shown = score_languages(words, letters)
    best = max(shown.values(), default=0.0)
    staying = 2 if letters <= _letters(likely) else 1
    if staying * shown.get(likely, 0.0) >= best:
        return likely
    return next(name for name in LANGUAGES if shown.get(name) == best)


def score_languages(words: Collection[str], letters: Collection[str]) -> dict[str, float]:
    """Return the likelihood of each language with these words and letters."""
    evidence = _evidence()
    seen = Counter(evidence[word] for word in words if word in evidence)
    # Letters of the same languages count once.
    seen.update({evidence[letter] for letter in letters if letter in evidence})
    counts, scores = defaultdict[str, int](int), defaultdict[str, float](float)
    for names, count in sorted(seen.items()):  # sums of fractions depend on their order
        for name in names:
            counts[name] += count
            scores[name] += count / len(names)
    # A single word proves nothing ("take care"), nor do a few in a long text.
    least = max(2, len(words) / 4)
    return {name: score for name, score in scores.items() if counts[name] >= least}


def languages_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the languages of texts, the language of the last text first."""
    likely, found = ENGLISH, dict[str, None]()
    for text in texts:
        found[likely := language_of(text, likely)] = None
    return tuple(dict.fromkeys((likely, *found)))


class WordForms(NamedTuple):
    """The matches of a word in the full-text table: its `forms` and its relatives. Relatives are
    words with one of the `beginnings`, or the two `halves` of a compound in one text."""

    forms: tuple[str, ...]
    beginnings: tuple[str, ...] = ()
    halves: tuple[tuple[str, str], ...] = ()

    def closeness(self, said: Collection[str]) -> int:
        """Return how closely a text with these `tokens` matches, by the nearest form: 2 for a form,
        1 for a relative, else 0. All words must be in the form that the table's own stemmer
        leaves."""
        if any(form in said for form in self.forms):
            return 2
        begun = any(word.startswith(self.beginnings) for word in said)
        return int(begun or any(one in said and other in said for one, other in self.halves))

    def stem(self) -> WordForms:
        """Return the forms after the table's own stemmer."""
        return WordForms(
            tuple(map(_porter, self.forms)),
            tuple(map(_porter, self.beginnings)),
            tuple((_porter(one), _porter(other)) for one, other in self.halves),
        )


def word_forms(word: str, asked: tuple[str, ...], searched: tuple[str, ...]) -> WordForms:
    """Return the matches of a word for a question in the languages `asked` and messages in
    `searched`."""
    forms, beginnings, halves = [_fold(word)], list[str](), list[tuple[str, str]]()
    if not re.match(_RUN, word):
        forms += [
            stem_word(one, language)
            for language in searched
            if language != ENGLISH
            for one in vary_spelling(word, language)
        ]
        for language in asked:
            stem, known = stem_word(word, language), LANGUAGES.get(language)
            if known and language != ENGLISH and stem.isalpha():
                forms.append(stem)
                beginnings += _beginning(stem)
                if known.compounds:
                    beginnings += _end(stem)
                    halves += cut_compound(word, stem, language)
    return WordForms(tuple(forms), tuple(beginnings), tuple(halves))


def expressions(
    word: str, asked: Iterable[str], searched: Iterable[str]
) -> Iterator[tuple[str, bool]]:
    """Yield queries for a word (see `word_forms`): its forms, its relatives, and its possible
    halves. The halves are a last resort, flagged True, for when nothing else matches."""
    found = word_forms(word, tuple(asked), tuple(searched))
    yield _any(map(_term, (*found.forms, *spell_code(word)))), False
    halves = [(_term(one), _term(other)) for one, other in found.halves]
    relatives = [f"{_term(beginning)} *" for beginning in found.beginnings]
    relatives += [f"({one} AND {other})" for one, other in halves]
    if relatives:
        yield _any(relatives), False
    if halves:
        yield _any(chain.from_iterable(halves)), True


def tokens(text: str, language: str = "") -> Iterator[str]:
    """Yield the words of `text` in the form of the full-text table."""
    for piece, is_run in _pieces(text):
        yield from _singles_and_pairs(piece) if is_run else _tokens_of(piece, language)
    for word in join_hyphenated(text):
        yield from _tokens_of(word, language)


def bases(text: str, language: str = "") -> Iterator[str]:
    """Yield the base form of each word of `text` except stop words, and single characters of
    runs."""
    for piece, is_run in _pieces(text):
        if is_run:
            yield from split_run(piece)
        elif not is_stop_word(piece.lower(), language):
            yield from _tokens_of(piece, language)[:1]


def plain_words(text: str) -> Iterator[str]:
    """Yield every word of `text` without case and accents, and the single characters of runs."""
    for piece, is_run in _pieces(text):
        yield from split_run(piece) if is_run else (_fold(piece.lower()),)


def outline(text: str) -> str:
    """Return `text` without case, accents and hyphens, and with one letter for two (`ue` for `ü`).
    It contains the `core` of each word of the text, which quickly rules texts out."""
    plain = text.lower() if text.isascii() else _fold(_unify(text).lower())
    for letter in "aou":
        plain = plain.replace(f"{letter}e", letter)
    return plain.replace("aa", "a").replace("-", "").replace("\u2011", "")


@lru_cache(maxsize=1 << 10)
def core(word: str, language: str = "") -> str:
    """Return the common part of the outlines of all forms of a word in its base form."""
    known, plain = LANGUAGES.get(language), outline(word)
    if re.match(_RUN, word):
        return plain
    # Their forms differ at the beginning or within.
    if known and (known.weak or known.beginnings or known.stemmer in ("indonesian", "tamil")):
        return ""
    return plain[: max(1, min(_ROOT, len(plain) - 1))]


def vary_spelling(word: str, language: str) -> Iterator[str]:
    """Yield a word, and its spelling with one letter for two or two for one (Ålborg, Aalborg)."""
    yield word
    for pair in LANGUAGES[language].written_out.split() if language in LANGUAGES else ():
        one, _, two = pair.partition("=")
        if one in word or two in word:
            yield word.replace(one, two) if one in word else word.replace(two, one)


def _any(terms: Iterable[str]) -> str:
    return " OR ".join(dict.fromkeys(terms))


def _term(word: str) -> str:
    return f'"{word}"'


def _beginning(stem: str) -> list[str]:
    """Return three quarters of a stem: stems miss changes within a word (Polish sąsiad,
    sąsiedzi)."""
    length = max(_PART, len(stem) - len(stem) // 4)
    return [stem[:length]] if len(stem) >= _PART else []


def _end(stem: str) -> list[str]:
    """Return a stem backwards, to find `Zahnarzttermin` by `Termin`: long words are stored so
    too."""
    return [stem[::-1].translate(_BACKWARDS)] if len(stem) >= _ROOT else []


def cut_compound(word: str, stem: str, language: str) -> list[tuple[str, str]]:
    """Return the two parts of a compound for each possible cut. Only parts in the index match, so
    the words of the index are the dictionary."""
    cuts = range(_PART, min(len(stem), _LONGEST) - _PART + 1)
    return [(stem_word(word[:cut], language), stem[cut:]) for cut in cuts]


def stem_word(word: str, language: str) -> str:
    """Return the part that the forms of `word` share."""
    known = LANGUAGES.get(language)
    word = _lower(word, language)
    if known is None or len(word) > _LONGEST:
        return _fold(word)
    if known.stemmer:
        return _fold(_stemmer(known.stemmer)(word))
    return strip_affixes(_fold(word), known)


def strip_affixes(word: str, known: Language) -> str:
    """Return `word` without an ending, beginnings and weak letters."""
    beginnings = tuple(known.beginnings.split())
    while beginnings:
        rest = next((word[len(b) :] for b in beginnings if word.startswith(b)), "")
        if len(rest) < _ROOT:
            break
        word = rest
    for ending in known.endings.split():
        if word.endswith(ending) and len(word) - len(ending) >= _ROOT:
            word = word.removesuffix(ending)
            break
    if known.weak:
        strong = word[:1] + re.sub(f"[{known.weak}]", "", word[1:])
        word = strong if len(strong) >= _ROOT else word
    return word


@lru_cache(maxsize=1 << 14)
def encode_word(word: str, language: str) -> str:
    if language in ("", ENGLISH):
        return word if word.isascii() else _fold(word.lower())
    stem = stem_word(word, language)
    found = [stem]
    # Many words have another stem if they are typed without accents (pão, pao).
    if not word.isascii() and stem != (plain := stem_word(_fold(word.lower()), language)):
        found.append(plain)
    if len(stem) >= _COMPOUND and LANGUAGES[language].compounds and stem.isalpha():
        found.append(stem[: _COMPOUND - _PART - 1 : -1].translate(_BACKWARDS))
    return " ".join(found)


@lru_cache(maxsize=1 << 14)
def _tokens_of(word: str, language: str) -> tuple[str, ...]:
    """Return the stem of a word, also backwards if it may be a compound."""
    if len(word) > _LONGEST:
        return (_fold(word.lower()),)
    return tuple(map(_porter, encode_word(word, language).lower().split()))


def _porter(word: str) -> str:
    return _stemmer("porter")(word) if word.isascii() and 2 < len(word) <= 64 else word


def split_run(run: str) -> list[str]:
    """Return the characters of a run, each with the marks around it."""
    return re.findall(_SYLLABLE, run, re.DOTALL)


def _singles_and_pairs(run: str) -> Iterator[str]:
    """Yield `東 東京 京 京都 都` for `東京都`. A question of one character matches it, one of two
    matches the pair, and a longer one matches by shared pairs."""
    units = split_run(run)
    for unit, following in zip_longest(units, units[1:]):
        yield unit
        if following:
            yield unit + following


def _unify(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _lower(text: str, language: str) -> str:
    if language == "turkish":
        text = text.replace("I", "ı").replace("İ", "i")
    return text.lower()


def _fold(word: str) -> str:
    """Return a word in lower case without accents and points."""
    if word.isascii():
        return word
    bare = re.sub(_MARKS, "", unicodedata.normalize("NFD", word))
    return unicodedata.normalize("NFC", bare).translate(_TWINS)


@cache
def _stemmer(name: str) -> Callable[[str], str]:
    from Stemmer import Stemmer  # only needed for other languages than English

    stem: Callable[[str], str] = Stemmer(name).stemWord
    return stem


@cache
def _stop_words(language: str) -> frozenset[str]:
    return frozenset(vocabulary("words", (language,)))


@cache
def _evidence() -> dict[str, tuple[str, ...]]:
    """Return the languages that have each function word or letter."""
    found = defaultdict[str, set[str]](set)
    for name in LANGUAGES:
        for token in _stop_words(name) | _letters(name):
            found[token].add(name)
    return {token: tuple(sorted(names)) for token, names in found.items()}


@cache
def _foreign_words() -> frozenset[str]:
    """Return the function words of other languages that are not English as well."""
    return frozenset(filter(str.isascii, _evidence())) - _stop_words(ENGLISH)


@cache
def _letters(language: str) -> frozenset[str]:
    """Return the letters of a language beyond a to z."""
    known = LANGUAGES.get(language)
    ranges = known.letters.split() if known else []
    return frozenset(chr(code) for one in ranges for code in range(ord(one[0]), ord(one[-1]) + 1))


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the words and runs of `text`, and whether each is a run."""
    for piece in re.findall(_piece(text), _unify(text)):
        yield piece, piece >= _FIRST_RUN and re.match(_RUN, piece) is not None


def _piece(text: str) -> str:
    """Return the pattern of a run, or of letters with their marks, which `\\w` leaves out."""
    return r"[^\W_]+" if text.isascii() else _any_piece()


@cache
def _any_piece() -> str:
    codes = range(0x300, 0xE00)
    marks = "".join(chr(code) for code in codes if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    letters = f"[^\\W_{_CJK}{_SYLLABIC}]"
    return f"{_RUN}|{letters}+(?:[{marks}\u0640]+{letters}*)*"


def cut_window(text: str, most: int, terms: Sequence[str]) -> str:
    """Return at most so many characters of `text`, from its part with the most search terms."""
    if len(text) <= most:
        return text
    low = text.lower()
    # Only the beginnings, because words are found in other forms.
    begun = [term.lower()[: max(4, len(term) * 3 // 4)] for term in terms]
    places = sorted(place for term in begun if (place := low.find(term)) >= 0)
    best = max(
        places,
        key=lambda start: sum(start <= place < start + most - 100 for place in places),
        default=0,
    )
    start = max(0, min(best - 80, len(text) - most))
    end = start + most
    return f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"
