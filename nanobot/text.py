"""Texts as people write and read them: one line, safe within lines of ours, times, paths. Quick to
load: every command line begins with this.

Notes, names and quotes stand in bracketed lines, which are nanobot's: what people choose freely
(names, titles, questions) never holds a bracket or a line end of its own.

A name that is not valid UTF-8 is text with lone surrogates, as everywhere in Python. It is shown
with its escapes (`caf\\udce9.txt`), which stand for the same name when a model puts them in JSON.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from nanobot.errors import NanobotError

LONGEST_NAME = 128
"""Characters of the name of a person, a group or a file."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
"""Control characters, line ends, and what changes the direction of writing."""
_BRACKETS = str.maketrans("[]\uff3b\uff3d", "()()")


def close_matches(word: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """Those of `known` that somebody who wrote `word` may have meant, at most `n`, the likeliest
    first; `cutoff` from 0 (anything) to 1."""
    from difflib import get_close_matches  # only where somebody mistyped

    return get_close_matches(word, list(known), n, cutoff)


def valid_unicode(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates replaced: JSON can hold them, files,
    SQLite and UTF-8 cannot. The length in UTF-16 units stays the same."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def without_brackets(text: str) -> str:
    """`text` with its square brackets made round."""
    return text.translate(_BRACKETS)


def one_line(text: str, limit: int | None = LONGEST_NAME) -> str:
    """What others wrote as one line of at most `limit` characters (None: all of it), for a
    bracketed line: it cannot end that, nor pass for what the person said."""
    line = " ".join(without_brackets(_UNSEEN.sub(" ", valid_unicode(text))).split())
    return line if limit is None or len(line) <= limit else shortened(line, limit)


def shortened(text: str, limit: int) -> str:
    """The beginning of `text` as one line of at most `limit` characters."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else f"{line[: max(0, limit - 1)]}…"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 fact`, `2,000 facts`; `many` where that is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def duration(seconds: int) -> str:
    """`3 d 4 h`, `5 min`: the two largest units."""
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    found = []
    for name, size in units:
        count, seconds = divmod(seconds, size)
        if count:
            found.append(f"{count} {name}")
    return " ".join(found[:2]) or "0 s"


def expanduser(text: str, user_home: str = "") -> Path:
    """A path that may begin with `~` or `~name`, where `user_home` is the folder of a user other
    than the one who runs this. Raises `NanobotError` for one who is not known here."""
    if user_home and (text == "~" or text.startswith("~/")):
        return Path(user_home, text[2:])
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise NanobotError(
            f"the home folder of the user in {text!r} is not known",
            hint="Write the path in full, from / on.",
        ) from None


_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DRAWN_AS_NOTHING = re.compile(
    r"\b(?:BLANK|FILLER|NULL|VARIATION SELECTOR|GRAPHEME JOINER|VOWEL INHERENT)\b"
)
"""In the names of letters, marks and symbols that show nothing. Python knows no property for them;
with the categories this has all of Default_Ignorable_Code_Point, and U+2800, U+13441, U+1D159."""

_BLANKS, _BLANK_LINES = re.compile("[ \t]{33,}"), re.compile("\n(?:[ \t]*\n){3,}")


def printable(name: str) -> str:
    """`name` on one line and as valid UTF-8, shortened where it is endless."""
    text = name if len(name) <= 300 else f"{name[:297]}..."
    text = text.encode("utf-8", "backslashreplace").decode()
    return _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


def escape_invisible(text: str) -> str:
    """`text` for somebody who must judge it: what cannot be seen, or turns the reading direction
    round, is written as its escape. Lines, tabs and spaces stay."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return "".join(map(_escape_unseen, text))


def escape_for_review(text: str) -> str:
    """`escape_invisible`, and nothing is pushed out of sight: many blanks or empty lines are a
    number."""
    text = _BLANKS.sub(lambda run: f"[{len(run[0])} blanks]", escape_invisible(text))
    return _BLANK_LINES.sub(lambda run: f"\n[{run[0].count(chr(10)) - 1} empty lines]\n", text)


@lru_cache(maxsize=4_096)
def _escape_unseen(character: str) -> str:
    """The character, or its escape: unseen are control, format, unassigned and private ones, all
    blanks but the space, and what is drawn as nothing."""
    if character in " \n\t" or "!" <= character <= "~":
        return character
    unseen = unicodedata.category(character)[0] in "CZ" or _DRAWN_AS_NOTHING.search(
        unicodedata.name(character, "")
    )
    return character.encode("unicode_escape").decode() if unseen else character
