"""What of a text belongs to no word and to no data, so that nobody can be named for it. Pure.

A secret needs no words: it can stand there letter by letter, as flags, as Braille, as a series of
dates or as characters that nobody sees. All that is counted here as loose; ordinary punctuation is
counted by itself, and numbers below a hundred, single letters and pictures are loose as well, a few
of which every fact may hold.
"""

from __future__ import annotations

import re
import unicodedata

from nanobot.memory.text.patterns import late

RUNS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
)
"""The letters of scripts that put no spaces between words, for a character class."""

_INVISIBLE = late("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe0e\ufe0f\ufeff]")
_GENERIC = late("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe2f]")
_RUN = late(rf"[{RUNS}]")
_SPACED = late(rf"(?<![^\W_])(?<!['’])[^\W\d_{RUNS}](?:[\W_]{{1,4}}[^\W\d_{RUNS}]){{2,}}(?![^\W_])")
_ORDINARY = r"!-/:-@\[-`{-~¡§«°±·»¿×÷–—‘’‚“”„†•′″€£¥→←،؛؟।、。〈〉《》「」『』【】〜・￥"
_ODD = late(rf"[^\W_]|[^\w\s{_ORDINARY}]")
_PUNCTUATION = late(rf"[_{_ORDINARY}]")
_FLAGS = {0x1F1E6 + at: ord("a") + at for at in range(26)}


def folded(text: str) -> tuple[str, tuple[str, ...]]:
    """`text` as it is compared, and what was left out of it because it cannot be seen.

    Letters in disguise (full width, in circles, as flags) become letters, and the vowel signs of
    Indic, Arabic and Hebrew script go, as they part words for `re`.
    """
    plain = unicodedata.normalize("NFKC", text).casefold().translate(_FLAGS)
    unseen = tuple(_INVISIBLE().findall(plain))
    plain = _INVISIBLE().sub("", plain)
    signs = {ord(sign): None for sign in set(plain) if _is_sign(sign)}
    if not signs:
        return plain, unseen
    bare = plain.translate(signs)
    if len(plain) - len(bare) > len(bare):  # heaped up on a few letters
        unseen += tuple(letter for letter in plain if ord(letter) in signs)
    return bare, unseen


def spelled(text: str) -> tuple[str, ...]:
    """The words in folded `text` that stand there letter by letter (`e v i l`, `e-v-i-l`)."""
    return tuple(re.sub(r"[\W_]+", "", match) for match in _SPACED().findall(text))


def loose(text: str) -> tuple[str, ...]:
    """The letters, digits and symbols in what is left of a text without its words and data."""
    return tuple(_ODD().findall(text))


def punctuation(text: str) -> int:
    """How many ordinary marks of punctuation `text` holds."""
    return len(_PUNCTUATION().findall(text))


def unspelled(text: str) -> str:
    """Folded `text` without the words of `spelled`."""
    return _SPACED().sub(" ", text)


def _is_sign(character: str) -> bool:
    if character < "\u0300" or _RUN().match(character) or _GENERIC().match(character):
        return False
    return unicodedata.category(character)[0] == "M"
