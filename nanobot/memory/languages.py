"""The languages that memory knows, read from `languages.txt`.

It has a section for each language, the likelier ones first if nothing else decides. Chinese,
Japanese, Korean, Thai, Lao, Khmer and Burmese need no words: they are searched by n-grams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

ENGLISH = "english"


class Language(Struct, frozen=True):
    """Words and letters, separated by spaces. A range of letters is written `а-я`.

    The fields from `no` on are words that change a statement, compared without case and accents.
    `over`, `now` and `months` begin words, because they are inflected, but up to three letters are
    whole words. `doubt`, `jest` and `people` begin words, or with `=` are whole words with their
    accents. In scripts without spaces a run of characters is enough (`RUNS`)."""

    words: str = ""  # function words and words of questions, which show a sentence's language
    letters: str = ""  # beyond a to z
    stemmer: str = ""  # the name of a Snowball algorithm
    compounds: str = ""  # not empty: several nouns are written as one word
    written_out: str = ""  # letters also typed as two others, if the stemmer does not know it
    endings: str = ""  # one is removed if there is no stemmer
    beginnings: str = ""  # removed if there is no stemmer
    weak: str = ""  # letters that come and go within a word (Arabic مفتاح, plural مفاتيح)
    no: str = ""  # negations, as whole words
    over: str = ""  # "sold", "no longer"
    now: str = ""  # "instead"
    lives: str = ""  # verbs that have one object at a time, `/` separates forms of one word
    favourite: str = ""
    months: str = ""
    numbers: str = ""  # for 1 to 12, then 20, 30 … 100; `/` separates forms of one word
    doubt: str = ""
    jest: str = ""
    people: str = ""
    own: str = ""  # first person, in languages that do not leave it out
    agent: str = ""  # regular expressions of questions about the agent's words


def _languages() -> Iterator[tuple[str, Language]]:
    text = Path(__file__).with_name("languages.txt").read_text("utf-8")
    for section in text.removeprefix("[").split("\n\n["):
        name, _, body = section.partition("]\n")
        lines = body.replace("\n  ", " ").splitlines()
        fields = dict(line.split(": ", 1) for line in lines)
        yield name, Language(**fields)


LANGUAGES = dict(_languages())
RUNS = LANGUAGES.pop("without spaces")
"""Words of scripts that are written without spaces, and of Korean."""
