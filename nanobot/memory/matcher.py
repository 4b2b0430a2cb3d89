"""Finding a text however it is spelled, and taking it out.

Both sides are folded before they are compared: letter case, accents in one character or several,
straight or curved quotation marks, any run of blanks and line breaks, and the escapes of JSON and
Python (`\\u00fc`, `\\n`, `\\"`), however often they are nested; any other backslash counts for
nothing. A text of fewer than six letters and digits only counts as a word of its own: "Ann" does
not stand in "channel".

JSON is parsed before anything in it is replaced. Names of fields are never changed, nor the values
by which records are told apart (see `redacted_json`); a text that stands there stays, and a search
afterwards says so. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

from nanobot.errors import NanobotError
from nanobot.memory.files import redacted_json
from nanobot.memory.lines import blocks_of

ERASED = "[erased]"

LEAST = 3
"""Characters that a text needs to be searched for."""

LONGEST = 4096
"""Characters that an occurrence may take, with all its blanks and escapes."""

_WHOLE_WORD = 6
_WINDOW = 16 * LONGEST
"""Characters that are looked at at once: the interpreter is held meanwhile."""

_ESCAPE = re.compile(
    r"\\+(?:u([dD][89abAB][0-9a-fA-F]{2})\\+u([dD][c-fC-F][0-9a-fA-F]{2})"
    r"|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U(00[01][0-9a-fA-F]{5})|([nrtbf])|([\"'/])|)"
)
_BLANKS = r"(?:[\s\x00-\x1f\x7f-\x9f]|(?<=\n)[>+])+"
"""Blanks and control characters of any kind, and the marks in front of continued lines."""

_SAME = (("i\u0307", "i"), ("\u0131", "i"), *((c, "'") for c in "’‘ʼ"), *((c, '"') for c in "“”„"))
"""What else is written in place of what."""

_IN_WORD = r"[0-9a-z_\u00c0-\u1fff]"
"""Letters of alphabets. Punctuation ends a word, and so do scripts without blanks (from U+2000)."""


class TextMatcher:
    """Finds one text. Raises `NanobotError` for one that is too short to search for."""

    def __init__(self, text: str) -> None:
        found = filter(None, re.split(_BLANKS, _folded(text)))
        folded = " ".join(found)
        letters = sum(letter.isalnum() for letter in folded)
        if len(folded) < LEAST or not letters:
            raise NanobotError(
                f"a text of fewer than {LEAST} characters stands in too many places",
                hint="Give more of the text, as it was written.",
            )
        self.is_short = letters < _WHOLE_WORD
        before, after = (
            self.is_short and re.fullmatch(_IN_WORD, letter) for letter in (folded[0], folded[-1])
        )
        self._pattern = re.compile(
            (f"(?<!{_IN_WORD})" if before else "")
            + _BLANKS.join(map(re.escape, folded.split(" ")))
            + (f"(?!{_IN_WORD})" if after else "")
        )
        # These letters are written in one way only, and quickly looked for.
        self._surely = max(re.findall(r"[a-hj-rt-z0-9]+", folded), key=len, default="")

    def is_in(self, text: str) -> bool:
        """Whether it stands in a text."""
        return self._surely in text.lower() and self._pattern.search(_folded(text)) is not None

    def is_in_bytes(self, data: bytes, *, is_first: bool = True, is_last: bool = True) -> bool:
        """Whether it stands in the text among these bytes, the first and last of a file or not:
        otherwise not at the very edge, where a part of a longer word may stand."""
        if self._surely.encode() not in data.lower():
            return False
        folded = _folded(data.decode("utf-8", "ignore"))
        found = self._pattern.finditer(folded, 0 if is_first else 1)
        return any(is_last or match.end() < len(folded) for match in found)

    def redact(self, text: str) -> str:
        """A stored text without it: JSON, lines of JSON, or plain."""
        if not self.is_in(text):
            return text
        document = redacted_json(text, self.redact_plain)
        if document is not None:
            return document
        lines = text.split("\n")
        records = [redacted_json(line, self.redact_plain) if line else "" for line in lines]
        known = [record for record in records if record is not None]
        return "\n".join(known) if len(known) == len(lines) else self.redact_plain(text)

    def redact_plain(self, text: str) -> str:
        """A text without it, whatever it means."""
        return self._replaced(text, lambda found: ERASED)

    def blot(self, text: str) -> str:
        """The same with as many bytes of UTF-8 as before."""

        def blotted(found: str) -> str:
            length = len(found.encode("utf-8", "surrogateescape"))
            return ERASED[:length].ljust(length, "*")

        return self._replaced(text, blotted)

    def without_lines(self, text: str) -> str:
        """A file of facts without the lines in which it stands, wholly or in part, and without
        what belongs to them."""
        spans = list(self._spans(text)) if self.is_in(text) else []
        kept, end = list[str](), 0
        for block in blocks_of(text) if spans else (text,):
            start, end = end, end + len(block)
            if not any(first < end and last > start for first, last in spans):
                kept.append(block)
        return "".join(kept)

    def fills(self, text: str) -> bool:
        """Whether a text says nothing else."""
        left = self.redact_plain(text)
        return left != text and not any(c.isalnum() for c in left.replace(ERASED, ""))

    def _replaced(self, text: str, replacement: Callable[[str], str]) -> str:
        done, position = list[str](), 0
        while position < len(text):
            window = text[position : position + _WINDOW]
            is_last = position + len(window) == len(text)
            # Occurrences that begin behind this are left to the next window.
            settled = len(window) if is_last else _last_line(window[:-LONGEST])
            kept = 0
            for start, end in self._spans(window) if self.is_in(window) else ():
                if start >= settled:
                    break
                done += [window[kept:start], replacement(window[start:end])]
                kept = end
            done.append(window[kept:settled])
            position += max(kept, settled)
        return "".join(done)

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where it begins and ends."""
        folded, places = list[str](), list[tuple[int, int]]()
        for start, end, letters in _clusters(text):
            piece = letters.lower() if letters.isascii() else _folded(letters)
            folded.append(piece)
            places += [(start, end)] * len(piece)
        for found in self._pattern.finditer("".join(folded)):
            yield places[found.start()][0], places[found.end() - 1][1]


def _folded(text: str) -> str:
    """What all spellings of a text have in common."""
    if "\\" in text:
        text = _ESCAPE.sub(_unescaped, text)
    text = unicodedata.normalize("NFC", text.casefold())
    for other, same in _SAME:
        text = text.replace(other, same)
    return text


def _unescaped(escape: re.Match[str]) -> str:
    high, low, unit, byte, code, blank, mark = escape.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if unit or byte or code:
        return chr(min(int(unit or byte or code, 16), 0x10FFFF))
    return "\n" if blank else mark or ""


def _clusters(text: str) -> Iterator[tuple[int, int, str]]:
    """The pieces of a text that fold by themselves, such as a letter with its accents or a Korean
    syllable; each with where it begins and ends."""
    start, end, letters = 0, 0, ""
    while end < len(text):
        escape = _ESCAPE.match(text, end)
        letter = _unescaped(escape) if escape else text[end]
        joins = not letter or unicodedata.combining(letter) or "\u1160" <= letter <= "\u11ff"
        if letters and not joins:
            yield start, end, letters
            start, letters = end, ""
        letters += letter
        end = escape.end() if escape else end + 1
    if letters:
        yield start, end, letters


def _last_line(text: str) -> int:
    """Where the last line of a text begins, or its end where it is one line."""
    return text.rfind("\n") + 1 or len(text)
