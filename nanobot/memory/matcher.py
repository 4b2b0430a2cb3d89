r"""Find a text in any spelling, and remove it. Pure.

These make no difference: letter case, composed or decomposed accents, straight or curved quotes,
runs of blanks and line breaks, and the escapes of JSON and Python (`\u00fc`, `\n`, `\"`) at any
depth. A text of fewer than six letters and digits must be a whole word: "Ann" is not in "channel".

JSON is parsed before a replacement. Field names never change, nor do the values that identify
records (see `redact_json`). A match there stays, and the later search reports it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from unicodedata import normalize

from nanobot.errors import NanobotError
from nanobot.memory.documents import redact_json
from nanobot.memory.line_changes import blocks_of
from nanobot.memory.taint import is_own_note
from nanobot.tasks import pace

ERASED = "[erased]"

LEAST, _SYLLABLES = 3, "\u2e80"
"""Minimum size of a text to search for. Characters from U+2E80 on count twice."""

LONGEST = 4096
"""Maximum length of an occurrence, with all its blanks and escapes."""

_PIECE = 256 * 1024
_WHOLE_WORD = 6

# A whole run of backslashes: a search that restarted within one would take quadratic time.
_SLASHES = r"(?<!\\)\\+"

_CONTROL = r"\s\x00-\x1f\x7f-\x9f"
# Blanks and control characters of any kind, and the marks in front of continued lines.
_BLANKS = (
    rf"(?:[{_CONTROL}]|(?<=\n)[>+]|{_SLASHES}(?:[nrtbf]|x(?:[0189].|7f|a0)|"
    r"u(?:00[0189].|007f|00a0|1680|20(?:0[0-9a]|2[89f]|5f)|3000)))+"
)

# Other spellings of a letter or mark.
_ALSO = {"'": "’‘ʼ", '"': "“”„", "ss": "ß", "i": "ıİ", "σ": "ς"}

# Letters of alphabets. Punctuation ends a word, and so do scripts without blanks (from U+2000).
_IN_WORD = r"[0-9a-z_\u00c0-\u1fff]"

_WORD_BEGINS = (
    rf"(?:(?<!{_IN_WORD})|(?<=\\[bfnrt])|(?<=\\u(?:[2-9a-f][0-9a-f]{{3}}|00[01ab][0-9a-f])))"
)
_WORD_ENDS = rf"(?!{_IN_WORD}|\\+u(?:00[c-f]|0[1-9a-f]|1))"


def _fold(text: str) -> str:
    """Return the text with one spelling of each letter and mark."""
    folded = normalize("NFC", text.casefold()).replace("i\u0307", "i")
    for same, others in _ALSO.items():
        folded = re.sub(f"[{others}]", same, folded)
    return folded


class TextMatcher:
    """Matcher of one text. Raises `NanobotError` if the text is too short to search for."""

    def __init__(self, text: str) -> None:
        folded = _fold(text)
        words = list(filter(None, re.split(rf"[{_CONTROL}]+", folded)))
        letters = sum(letter.isalnum() for letter in folded)
        # A name may have two characters if each is a syllable.
        size = sum(1 + (letter >= _SYLLABLES) for letter in " ".join(words))
        if size < LEAST or not letters:
            raise NanobotError(
                f"a text with fewer than {LEAST} characters matches too much",
                hint="Give more of the exact text.",
            )
        self.is_short = letters < _WHOLE_WORD
        before, after = (
            self.is_short and re.fullmatch(_IN_WORD, letter)
            for letter in (words[0][0], words[-1][-1])
        )
        spelled = ("".join(map(spelling_pattern, re.findall("ss|.", word))) for word in words)
        self._pattern = re.compile(
            (_WORD_BEGINS if before else "")
            + _BLANKS.join(spelled)
            + (_WORD_ENDS if after else ""),
            re.IGNORECASE,
        )
        # These letters have one spelling, so they are fast to find.
        self._surely = max(re.findall(r"[a-hj-rt-z0-9]+", folded), key=len, default="")

    def is_in(self, text: str) -> bool:
        return self._may_be_in(text) and any(True for _ in self._find(normalize("NFC", text)))

    def redact(self, text: str) -> str:
        """Remove the text from stored content: JSON, lines of JSON, or plain text."""
        if not self._may_be_in(text):
            return text
        document = redact_json(text, self.redact_plain)
        if document is not None:
            return document
        lines = text.split("\n")
        records = [redact_json(line, self.redact_plain) if line else "" for line in lines]
        known = [record for record in records if record is not None]
        return "\n".join(known) if len(known) == len(lines) else self.redact_plain(text)

    def redact_plain(self, text: str) -> str:
        """Remove the text from plain text."""
        if not self._may_be_in(text):
            return text
        normal = normalize("NFC", text)
        redacted = self._replace(normal, lambda _: ERASED)
        return text if redacted == normal else redacted

    def blot(self, text: str) -> str:
        """Remove the text, but keep the length in UTF-8."""

        def cover(found: re.Match[str]) -> str:
            length = len(found[0].encode("utf-8", "surrogateescape"))
            return ERASED[:length].ljust(length, "*")

        return self._replace(text, cover)

    def remove_lines(self, text: str) -> str:
        """Remove every line of a memory file that has a part of the text, with its indented lines.
        The person's own notes keep the rest."""
        if not self.is_in(text):
            return text
        text = normalize("NFC", text)
        spans = list(map(re.Match[str].span, self._find(text)))
        kept, end = list[str](), 0
        for block in blocks_of(text):
            start, end = end, end + len(block)
            held = [span for span in spans if span[0] < end and span[1] > start]
            if not held:
                kept.append(block)
            elif is_own_note(block) and start <= held[0][0] and held[-1][1] <= end:
                kept.append(self.redact_plain(block))
        return "".join(kept)

    def _replace(self, text: str, put: Callable[[re.Match[str]], str]) -> str:
        pieces, end = list[str](), 0
        for found in self._find(text):
            pieces += [text[end : found.start()], put(found)]
            end = found.end()
        return "".join([*pieces, text[end:]])

    def _find(self, text: str) -> Iterator[re.Match[str]]:
        """Yield all occurrences, piece by piece."""
        end = 0
        # One search of a large file would block every other thread for seconds.
        for start in pace(range(0, len(text), _PIECE)):
            following, most = start + _PIECE, start + _PIECE + 4 * LONGEST
            found = self._pattern.search(text, max(start, end), most)
            while found and found.start() < following:
                yield found
                end = found.end()
                found = self._pattern.search(text, end, most)

    def _may_be_in(self, text: str) -> bool:
        return self._surely in text.lower()


def spelling_pattern(letter: str) -> str:
    """Return a pattern for the ways to write a letter: composed or not, either case, escapes."""
    if letter.isascii() and letter not in _ALSO:
        return escape_pattern(letter)
    forms = {*_ALSO.get(letter, "")}
    for one in (letter, letter.upper(), *forms):
        forms |= {normalize("NFC", one), normalize("NFD", one)}
    return f"(?:{'|'.join(''.join(map(escape_pattern, form)) for form in sorted(forms))})"


def escape_pattern(character: str) -> str:
    """Return a pattern for a character and its escapes. A backslash before a mark has no
    meaning."""
    code = ord(character)
    if character.isalnum() and character.isascii():
        return character
    marked = f"(?:{_SLASHES})?" if character.isascii() else ""
    ways = [marked + re.escape(character), rf"{_SLASHES}U{code:08x}"]
    if code > 0xFFFF:
        high, low = divmod(code - 0x10000, 0x400)
        ways.append(rf"{_SLASHES}u{0xD800 + high:04x}\\+u{0xDC00 + low:04x}")
    else:
        ways += [rf"{_SLASHES}u{code:04x}", *([rf"{_SLASHES}x{code:02x}"] if code < 0x100 else [])]
    return f"(?:{'|'.join(ways)})"
