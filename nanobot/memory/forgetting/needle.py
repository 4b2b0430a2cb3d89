"""Finding a text wherever it may stand, and taking it out. Pure.

The same text is found in each spelling of its letters (`forms`), with any run of blanks or line
breaks between its words, as UTF-8 and in the escapes of JSON (`\u00fc`, `\n`, `\"`), however often
they are nested. A text of fewer than six letters and digits only counts as a word of its own: "Ann"
does not stand in "channel".

JSON is taken apart before anything in it is replaced. Names of fields are never changed, nor the
values by which records are told apart and found again; a text that stands there stays, and a search
afterwards says so.

The ways in which one letter may be written: its case, its accents in one character or several
and in any order, quotation marks straight or curved, the escapes of JSON and of Python. Pure.

Finding a text in bytes of any length, block by block.

A search holds the interpreter until it ends, so that nobody else in the process runs meanwhile: it
must never be longer than a block. A file may grow or be cut short while it is read. A match is
found wherever the blocks part it, unless it takes more than `LONGEST` bytes (thousands of blanks
between two words). Pure but for `read`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import permutations
from typing import cast, get_args

from nanobot.errors import NanobotError
from nanobot.io import json_line
from nanobot.memory.history.entries import EntryType
from nanobot.memory.text.layout import blocks_of
from nanobot.memory.versions.version import TAGS
from nanobot.session.records import JsonValue, moment

_SAME = (
    ("i", "I", "\u0130", "\u0131", "i\u0307"),  # with and without a dot
    ("\u03c3", "\u03c2", "\u03a3"),  # sigma, also at the end of a word
    ("\u00df", "\u1e9e", "ss", "SS", "Ss", "sS"),
    ("'", "\u2019", "\u2018", "\u02bc"),
    ('"', "\u201c", "\u201d", "\u201e"),
)
"""Spellings of the same that case alone does not make."""

_MOST_ACCENTS = 3
"""Of more on one letter only some orders are looked for."""


def clusters(word: str) -> Iterator[str]:
    """The letters of a composed word, each with the accents that follow it; `ss` is one where it
    may be written with one letter."""
    cluster = ""
    for number, letter in enumerate(word):
        doubles = (cluster + letter).lower() == "ss" and number > 1
        if cluster and not doubles and not unicodedata.combining(letter):
            yield cluster
            cluster = ""
        cluster += letter
    if cluster:
        yield cluster


def is_plain(cluster: str) -> bool:
    """Whether it is always one byte, in one case or the other."""
    return len(cluster) == 1 and cluster.isascii() and cluster.isalnum() and cluster not in "iI"


def pattern_of(cluster: str) -> bytes:
    """A pattern for it in each way in which it may be written."""
    cased = {cluster, cluster.lower(), cluster.upper()}
    cased |= {form for same in _SAME if not cased.isdisjoint(same) for form in same}
    ways = {way for form in cased for spelled in _spellings(form) for way in _written(spelled)}
    if all(len(way) == 1 for way in ways):
        return b"[" + b"".join(sorted(ways)) + b"]"
    return b"(?:" + b"|".join(sorted(ways, reverse=True)) + b")"


def _spellings(form: str) -> Iterator[str]:
    """The same with as many of its accents in the first character as may be, or fewer."""
    base, *accents = list(unicodedata.normalize("NFD", form))
    orders = permutations(accents) if len(accents) <= _MOST_ACCENTS else (tuple(accents),)
    for order in orders:
        parts = (base, *order)
        for number in range(1, len(parts) + 1):
            composed = unicodedata.normalize("NFC", "".join(parts[:number]))
            yield composed + "".join(parts[number:])


def _written(form: str) -> Iterator[bytes]:
    if form in "\"'\\/":
        yield rb"\\*" + re.escape(form.encode())
        return
    yield re.escape(form.encode("utf-8", "surrogatepass"))
    if not form.isascii():
        yield b"".join(map(_escaped, form))


def _escaped(letter: str) -> bytes:
    """The escapes of JSON, and those that Python shows in a log."""
    if letter.isascii():
        return re.escape(letter.encode())
    units = letter.encode("utf-16-be", "surrogatepass")
    codes = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    json_way = b"".join(rb"\\+u" + _any_case(code) for code in codes)
    number = ord(letter)
    width, mark = (2, b"x") if number < 0x100 else (8, b"U")
    return b"(?:" + json_way + rb"|\\+" + mark + _any_case(f"{number:0{width}x}") + b")"


def _any_case(code: str) -> bytes:
    return b"".join(
        f"[{digit}{digit.upper()}]".encode() if digit.isalpha() else digit.encode()
        for digit in code
    )


ERASED = "[erased]"

LEAST = 3
"""Characters that a text needs to be searched for."""

AROUND = 16
"""Bytes on either side of a match that may decide whether it is one."""

_WHOLE_WORD = 6
_BLANK = (
    rb"(?:[\x00-\x20\x7f]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f"
    rb"|\xe3\x80\x80|\\+[nrtbf]|\\+u(?:00(?:[01][0-9a-fA-F]|20|7[fF]|85|[aA]0)|1680"
    rb"|20(?:0[0-9aA]|2[89fF]|5[fF])|3000)|\\+x(?:[01][0-9a-fA-F]|20|7[fF]|85|[aA]0)"
    rb"|(?<=\n)[>+])"
)
"""What may stand between two words: blanks and control characters of any kind, escaped or not, and
the marks in front of continued lines."""

_BEFORE = (
    rb"(?:(?<![0-9A-Za-z_].)(?<![\xc3-\xdf][\x80-\xbf].)(?<!\xe1[\x80-\xbf][\x80-\xbf].)"
    rb"|(?<=\\[nrtbf].)|(?<=\\u[2-9a-fA-F][0-9a-fA-F]{3}.)|(?<=\\u00[0-9abAB][0-9a-fA-F].))"
)
_AFTER = (
    rb"(?![0-9A-Za-z_]|[\xc3-\xdf][\x80-\xbf]|\xe1[\x80-\xbf]"
    rb"|\\+u(?:00[c-fC-F]|0[1-9a-fA-F]|1))"
)
"""No letter or digit of an alphabet on this side. Punctuation and scripts that write no blanks
(from U+2000 on) end a word."""

_TYPES = frozenset(get_args(EntryType))
_FIELDS = (
    "_type role type kind state id key session session_key session_override turn_id tool_call_id "
    "channel chat_id sender_id event_id message_id thread_id group_id answers timestamp created_at "
    "updated_at received_at epoch inbox_id salt author commit version cursor range origin mime "
    "event_ids platform_id scope new_hash sender chat created_by"
)
_STRUCTURE = frozenset(_FIELDS.split())
"""Fields by which records are found again; their values are never changed."""


class Needle:
    """A text to be found. Raises `NanobotError` for one that is too short to search for."""

    def __init__(self, text: str) -> None:
        plain = unicodedata.normalize("NFC", text)
        plain = "".join(" " if unicodedata.category(c) == "Cc" else c for c in plain)
        self.text = " ".join(plain.split())
        letters = [c for c in self.text if c.isalnum()]
        if len(self.text) < LEAST or not letters:
            raise NanobotError(
                f"a text of fewer than {LEAST} characters stands in too many places",
                hint="Give more of the text, as it was written.",
            )
        spelled = [list(clusters(word)) for word in self.text.split()]
        pattern = (_BLANK + rb"+").join(b"".join(map(pattern_of, word)) for word in spelled)
        self.is_short = len(letters) < _WHOLE_WORD
        if self.is_short:
            # Behind the first letter, which the search can jump to, not in front of it.
            first = pattern_of(spelled[0][0])
            pattern = first + _edge(self.text[0], _BEFORE) + pattern[len(first) :]
            pattern += _edge(self.text[-1], _AFTER)
        self._pattern = re.compile(pattern)
        plainly = (c if is_plain(c) else " " for word in spelled for c in (*word, " "))
        self._surely = max("".join(plainly).lower().encode().split(), key=len, default=b"")

    def spans(self, data: bytes, begin: int = 0) -> Iterator[tuple[int, int]]:
        """Where it begins and ends in raw bytes, from `begin` on."""
        # To look for what surely stands there is far quicker.
        if self._surely in data.lower():
            yield from (match.span() for match in self._pattern.finditer(data, begin))

    def is_in(self, text: str) -> bool:
        """Whether it stands in a text."""
        return self._pattern.search(_encoded(text)) is not None

    def redact(self, text: str) -> str:
        """A stored text without it: JSON, lines of JSON, or plain."""
        if not self.is_in(text):
            return text
        lines = text.split("\n")
        if all(_is_json(line) for line in lines if line.strip()):
            return "\n".join(self._redact_json(line) if line.strip() else line for line in lines)
        if _is_json(text):
            return self._redact_json(text, indent=2) + ("\n" if text.endswith("\n") else "")
        return self.redact_plain(text)

    def redact_plain(self, text: str) -> str:
        """A text without it, whatever it means."""
        return _decoded(self.redact_bytes(_encoded(text)))

    def redact_bytes(self, data: bytes) -> bytes:
        """The same for bytes."""
        return self._pattern.sub(ERASED.encode(), data)

    def without_lines(self, text: str) -> str:
        """A file of facts without the lines in which it stands, wholly or in part, and without
        what belongs to them."""
        found = deque(match.span() for match in self._pattern.finditer(_encoded(text)))
        kept, position = list[str](), 0
        for block in blocks_of(text) if found else (text,):
            start, position = position, position + len(_encoded(block))
            while found and found[0][1] <= start:
                found.popleft()
            if not found or found[0][0] >= position:
                kept.append(block)
        return "".join(kept)

    def redact_version(self, text: str) -> str:
        """A file of facts or the message of a version, as the versions keep them."""
        if text.startswith(tuple(TAGS.values())):
            return self.redact_plain(text)
        return self.without_lines(text)

    def fills(self, text: str) -> bool:
        """Whether a text says nothing else."""
        return self.is_in(text) and not any(
            letter.isalnum() for letter in self.redact_plain(text).replace(ERASED, "")
        )

    def _redact_json(self, text: str, indent: int | None = None) -> str:
        value = cast("JsonValue", json.loads(text))
        redacted = self._clean(value)
        if redacted == value:
            return text
        spaced = '": ' in text
        if not (indent or text.isascii()):
            return json_line(redacted, compact=not spaced)
        separators = None if indent or spaced else (",", ":")
        return json.dumps(
            redacted, ensure_ascii=text.isascii(), indent=indent, separators=separators
        )

    def _clean(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self.redact_plain(value)
        if isinstance(value, list):
            return [self._clean(item) for item in value]
        if isinstance(value, dict):
            return {
                name: field if _is_structure(name, value) else self._clean(field)
                for name, field in value.items()
            }
        return value


def keeping_structure(
    redact: Callable[[str], str], sessions: Collection[str]
) -> Callable[[str], str]:
    """`redact` for a history that hands over each value by itself: what tells its entries apart
    (their types, times and the keys of `sessions`) stays."""

    def guarded(text: str) -> str:
        is_structure = text in _TYPES or text in sessions or moment(text) is not None
        return text if is_structure else redact(text)

    return guarded


def blot(length: int) -> bytes:
    """So many bytes to put in its place."""
    return ERASED.encode()[:length].ljust(length, b"*")


def _is_structure(name: str, fields: Mapping[str, JsonValue]) -> bool:
    is_call = name == "name" and ("arguments" in fields or "tool_call_id" in fields)
    return is_call or (name in _STRUCTURE and not isinstance(fields[name], dict | list))


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _edge(letter: str, boundary: bytes) -> bytes:
    return boundary if letter.isascii() and letter.isalnum() else b""


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


BLOCK = 256 * 1024
LONGEST = 16 * 1024

Read = Callable[[int, int], bytes]
"""The bytes from a position on, at most so many; empty where there are none."""


def matches(read: Read, needle: Needle) -> Iterator[tuple[int, bytes]]:
    """Where the text stands, and in which form."""
    base, data, begin, more = 0, b"", 0, True
    while more:
        block = read(base + len(data), BLOCK)
        data += block
        more = bool(block)
        # What begins behind this may end in the next block.
        settled = len(data) - LONGEST - AROUND if more else len(data)
        for start, end in needle.spans(data, begin):
            if start >= settled:
                break
            yield base + start, data[start:end]
            begin = end
        begin = max(begin, settled)
        cut = max(0, begin - AROUND)
        base, data, begin = base + cut, data[cut:], begin - cut


def count_in(data: bytes, needle: Needle) -> int:
    """How often the text stands in these bytes."""
    return sum(1 for _ in matches(lambda position, size: data[position : position + size], needle))
