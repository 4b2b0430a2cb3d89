r"""Text helpers: single lines, untrusted text, paths and durations. Loads fast, as every command
imports it.

Bracketed lines hold nanobot's notes, names and quotes, so text that people choose freely (names,
titles, questions) must not hold a bracket or a line end in them.

A name that is not valid UTF-8 is text with lone surrogates, as usual in Python. It is shown with
escapes (`caf\udce9.txt`), which mean the same name when a model puts them in JSON."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from nanobot.errors import NanobotError

LONGEST_NAME = 128
"""Characters in the name of a person, a group or a file."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
"""Control characters, line ends, and characters that change the writing direction."""
_BRACKETS = str.maketrans("[]\uff3b\uff3d", "()()")


def close_matches(word: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return up to `n` words of `known` that `word` may mean, the likeliest first. `cutoff` is from
    0 (anything) to 1."""
    from difflib import get_close_matches  # only needed for typing errors

    return get_close_matches(word, list(known), n, cutoff)


def valid_unicode(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, which JSON can hold, but not files, SQLite
    and UTF-8. The length in UTF-16 units stays the same."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def without_brackets(text: str) -> str:
    """Replace square brackets by round ones."""
    return text.translate(_BRACKETS)


def one_line(text: str, limit: int | None = LONGEST_NAME) -> str:
    """Return untrusted text as one line of at most `limit` characters (None: all of it) for a
    bracketed line. It can't end that line or pass for the person's own words."""
    if limit is not None:
        text = text[: 16 * limit]  # anything beyond could only matter after many blanks
    line = " ".join(without_brackets(clean(_UNSEEN.sub(" ", valid_unicode(text)))).split())
    return line if limit is None or len(line) <= limit else shorten(line, limit)


def shorten(text: str, limit: int) -> str:
    """Return the beginning of `text` as one line of at most `limit` characters."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else f"{line[: max(0, limit - 1)]}…"


def capitalize(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def pluralize(number: int, one: str, many: str = "") -> str:
    """Return `1 fact` or `2,000 facts`. `many` is the plural if it is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def format_size(size: int) -> str:
    """Return `812 bytes`, `14 kB` or `2.5 MB`."""
    if size < 1000:
        return pluralize(size, "byte")
    return f"{size / 1000:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"


def join_some(texts: Sequence[str], most: int) -> str:
    """Join at most `most` of the texts with commas: `a, b and 3 more`."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{more}"


def duration(seconds: int) -> str:
    """Return the two largest units: `3 d 4 h`, `5 min`."""
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    found = []
    for name, size in units:
        count, seconds = divmod(seconds, size)
        if count:
            found.append(f"{count} {name}")
    return " ".join(found[:2]) or "0 s"


def expanduser(text: str, user_home: str = "") -> Path:
    """Return a path, with a leading `~` or `~name` replaced. `user_home` overrides the home folder
    for `~`. Raises `NanobotError` for an unknown user."""
    if user_home and (text == "~" or text.startswith("~/")):
        return Path(user_home, text[2:])
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise NanobotError(
            f"the home folder of the user in {text!r} is unknown",
            hint="Write the full path, beginning with /.",
        ) from None


_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DRAWN_AS_NOTHING = r"\b(?:BLANK|FILLER|NULL|VARIATION SELECTOR|GRAPHEME JOINER|VOWEL INHERENT)\b"
"""Name parts of letters, marks and symbols that show nothing. Python has no property for them. With
the categories, this covers Default_Ignorable_Code_Point and U+2800, U+13441, U+1D159."""

_BLANKS, _BLANK_LINES = re.compile("[ \t]{33,}"), re.compile("\n(?:[ \t]*\n){3,}")

# Compiled by `re` on first use, because an import should not pay for them.
# No part runs over the beginning of another one, so hostile text is searched in linear time.
_SEQUENCE = (
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, clearing
    "|(?:\x1b[]P^_X]|[\x9d\x90\x9e\x9f\x98])[^\x07\x1b\x80-\x9f\n]*"  # titles, links
    "(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]+[0-~]"  # character sets
)
_PLAIN = (
    "[\n\t -~\xa1-\xac\xae-\u02ff\u0370-\u0482\u048a-\u052f\u2010-\u2027\u3000-\u3029\u3030-\u303f"
    "\u3041-\u3096\u309b-\u312f\u3131-\u3163\u3165-\u318e\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff9f]*"
)
"""Letters without marks. Most text has only these and is not checked further."""
_LINES_OF_UNICODE = str.maketrans({"\r": "\n", "\u2028": "\n", "\u2029": "\n"})
_FLAG = "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f"
"""Flag of a region, such as Wales: the only use of tag characters."""

MOST_MARKS = 5
"""Marks on one letter: more than any living script stacks."""
_MOST_MARKS_FOR_REVIEW = 3
_OVERLAY = 1
"""Combining class of marks that are drawn through their letter."""


def clean(text: str) -> str:
    """Return untrusted text for people, without terminal controls, direction changes, invisible
    characters and characters drawn over others. Lines, tabs, emoji, and the marks and joiners of
    scripts stay. Linear and idempotent."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    if re.fullmatch(_PLAIN, text):
        return text
    text = re.sub(_SEQUENCE, "", text).replace("\r\n", "\n").translate(_LINES_OF_UNICODE)
    text = text.encode("utf-8", "backslashreplace").decode()
    pieces, at = list[str](), 0
    for flag in re.finditer(_FLAG, text):
        pieces += (_without_hidden(text[at : flag.start()], pieces), flag[0])
        at = flag.end()
    return "".join((*pieces, _without_hidden(text[at:], pieces)))


def _without_hidden(text: str, before: Sequence[str]) -> str:
    """Drop all that is not plainly visible from `text`, which follows on `before`."""
    kept, marks = list[str](), 0 if before else MOST_MARKS
    last = "".join(before[-1:])[-1:]
    for at, character in enumerate(text):
        kind = _kind(character)
        if kind == "mark":
            marks += 1
            shown = marks <= MOST_MARKS
        elif kind == "joiner":
            shown = _joins(last, character, text[at + 1 : at + 2])
        elif kind == "overlay":
            shown = len(unicodedata.normalize("NFC", last + character)) == len(last) == 1
        elif kind == "selector":
            shown = _selects(last, character)
        else:
            shown = kind != "hidden"
            if shown:
                marks = MOST_MARKS if character.isspace() else 0
        if shown:
            kept.append(last := character)
    return "".join(kept)


@lru_cache(maxsize=4_096)
def _kind(character: str) -> str:
    """Return how a character shows: `seen`, `mark`, `overlay`, `joiner`, `selector` or `hidden`."""
    if kind := _KINDS.get(character):
        return kind
    category, name = unicodedata.category(character), unicodedata.name(character, "")
    if "VARIATION SELECTOR" in name:
        return "selector"
    if category == "Me" or unicodedata.combining(character) == _OVERLAY:
        return "overlay"
    unseen = category in ("Cc", "Cs", "Cf") or ord(character) & 0xFFFF >= 0xFFFE
    if unseen or re.search(_FILLERS, name):
        return "hidden"
    return "mark" if category == "Mn" else "seen"


_KEYCAP = "\u20e3"
_KEYS = frozenset("0123456789#*")
_SEEN_FORMATS = (
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
"""Visible format characters: the signs before numbers in Arabic and Kaithi."""
_KINDS = {
    **dict.fromkeys(("", "\n", "\t", *map(chr, range(0x20, 0x7F)), *_SEEN_FORMATS), "seen"),
    **dict.fromkeys("\u200c\u200d", "joiner"),
    _KEYCAP: "selector",
}
_FILLERS = r"\b(?:FILLER|GRAPHEME JOINER|VOWEL INHERENT|NULL NOTEHEAD)\b"


def _selects(last: str, selector: str) -> bool:
    """Return True if a variation selector or a keycap belongs to the character before it."""
    if last in _KEYS or selector == _KEYCAP:
        return last in _KEYS or last == "\ufe0f"
    symbols = ("So", "Sm", "Sk", "Po", "Lo", "Pd", "No")
    return _kind(last) == "seen" and unicodedata.category(last or " ") in symbols


def _joins(last: str, joiner: str, following: str) -> bool:
    """Return True if a joiner is between two emoji, or within a word of a script that needs it."""
    if not last or _kind(last) in ("joiner", "hidden"):
        return False
    if _needs_joiners(last):
        virama = unicodedata.combining(last) == 9
        return virama or _needs_joiners(following)
    emoji = ("So", "Sk")
    before = _kind(last) == "selector" or unicodedata.category(last) in emoji
    after = bool(following) and unicodedata.category(following) in (*emoji, "Sm")
    return joiner == "\u200d" and before and after


def _needs_joiners(character: str) -> bool:
    """Return True for letters and marks of the scripts from Hebrew to Mongolian, and later ones of
    India and its neighbours."""
    if not character or unicodedata.category(character) not in ("Lo", "Mn", "Mc"):
        return False
    code = ord(character)
    return (
        0x590 <= code < 0x1100
        or 0x1700 <= code < 0x1D00
        or 0xA800 <= code < 0xAC00
        or (0xFB1D <= code < 0xFE00 or 0x10A00 <= code < 0x12000)
    )


def printable(name: str) -> str:
    """Return `name` on one line and as valid UTF-8, shortened if very long."""
    text = name if len(name) <= 300 else f"{name[:297]}..."
    text = text.encode("utf-8", "backslashreplace").decode()
    return _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


def escape_invisible(text: str) -> str:
    """Return `text` for review: invisible characters, overlays and direction changes are escaped.
    Lines, tabs and spaces stay."""
    text = text.encode("utf-8", "backslashreplace").decode()
    shown, marks = list[str](), _MOST_MARKS_FOR_REVIEW
    for character in text:
        hidden = _is_unseen(character)
        if unicodedata.category(character) in ("Mn", "Me"):
            marks += 1
            hidden |= marks > _MOST_MARKS_FOR_REVIEW or _kind(character) != "mark"
        else:
            marks = _MOST_MARKS_FOR_REVIEW if character.isspace() else 0
        shown.append(character.encode("unicode_escape").decode() if hidden else character)
    return "".join(shown)


def escape_for_review(text: str) -> str:
    """Do `escape_invisible`, and replace many blanks or empty lines by their number, so that
    nothing is pushed out of sight."""
    text = _BLANKS.sub(lambda run: f"[{len(run[0])} blanks]", escape_invisible(text))
    return _BLANK_LINES.sub(lambda run: f"\n[{run[0].count(chr(10)) - 1} empty lines]\n", text)


@lru_cache(maxsize=4_096)
def _is_unseen(character: str) -> bool:
    """Return True for control, format, unassigned and private characters, blanks other than the
    space, and characters drawn as nothing."""
    if character in " \n\t" or "!" <= character <= "~":
        return False
    if unicodedata.category(character)[0] in "CZ":
        return True
    return re.search(_DRAWN_AS_NOTHING, unicodedata.name(character, "")) is not None
