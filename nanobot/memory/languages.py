"""The languages that memory knows, read from `languages.txt`.

The file has a section each, the likelier language first if nothing else decides. Fields:

- `words`: function words and words of questions. They identify a sentence's language, and a
  question is searched without them.
- `letters`: letters beyond a to z.
- `stemmer`: the name of a Snowball algorithm. If none does it well, an ending and beginnings are
  removed. `weak` letters come and go within a word (Arabic مفتاح, "key", has the plural مفاتيح).
- `compounds`: several nouns are written as one word.
- `written_out`: letters that people also type as two others, if the stemmer does not know that.

Chinese, Japanese, Korean, Thai, Lao, Khmer and Burmese need no words: they are searched by n-grams.

The other fields are words that change a statement, compared without case and accents. `no` are
negations, as whole words. `over` are endings ("sold", "no longer"), `now` changes ("instead"),
`months` begin words, since all these are inflected; words of up to three letters are whole words.
`numbers` are the words for 1 to 12, then 20, 30 and so on to 100; `/` separates forms of one word.
`doubt`, `jest` and `people` begin words, with `=` they are whole words with their accents. `own`
are words of the first person, of languages that do not leave them out. In scripts without spaces a
run of characters is enough (`RUNS`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

ENGLISH = "english"


class Language(Struct, frozen=True):
    """Words and letters, separated by spaces. A range of letters is written `а-я`."""

    words: str = ""
    letters: str = ""
    stemmer: str = ""
    compounds: str = ""
    written_out: str = ""
    endings: str = ""
    beginnings: str = ""
    weak: str = ""
    no: str = ""
    over: str = ""
    now: str = ""
    months: str = ""
    numbers: str = ""
    doubt: str = ""
    jest: str = ""
    people: str = ""
    own: str = ""


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
