"""Replacing an exact piece of text, and saying why it was not found. Pure.

Models quote from memory: they lose indentation, change line endings, or remember an older version.
So a miss shows the lines that come closest, with their numbers; the cost of looking for them is
bounded by the number and the length of the lines that are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

from nanobot.errors import ToolError

_MAX_COMPARED = 4_000
_MAX_COMPARED_LENGTH = 200
_MAX_SHOWN = 12
_ALIKE = 0.6


@dataclass(frozen=True, slots=True)
class Edited:
    """The new text, and the lines (from 1) at which something was replaced."""

    text: str
    lines: tuple[int, ...]


def replace_exactly(text: str, old: str, new: str, *, everywhere: bool) -> Edited:
    """Replace `old` by `new`; raises `ToolError` unless it is clear which place is meant.

    In a file that ends its lines with CR LF throughout, so do the texts given.
    """
    if not old:
        raise ToolError("old_text is empty; write_file creates files")
    if "\r\n" in text and text.count("\n") == text.count("\r\n"):
        old, new = _with_crlf(old), _with_crlf(new)
    if old == new:
        raise ToolError("old_text and new_text are the same; nothing would change")
    places = _places(text, old)
    if not places:
        raise ToolError(f"old_text was not found. {_why_not_found(text, old)}")
    lines = _line_numbers(text, places)
    if len(places) > 1 and not everywhere:
        at = ", ".join(map(str, lines[:10])) + (", …" if len(lines) > 10 else "")
        raise ToolError(
            f"old_text stands there {len(places)} times (lines {at}); give more of the text "
            "around the one that is meant, or set replace_all"
        )
    return Edited(text.replace(old, new), lines)


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _places(text: str, old: str) -> list[int]:
    places, at = [], text.find(old)
    while at >= 0:
        places.append(at)
        at = text.find(old, at + len(old))
    return places


def _line_numbers(text: str, places: list[int]) -> tuple[int, ...]:
    numbers, line, counted = [], 1, 0
    for place in places:
        line += text.count("\n", counted, place)
        counted = place
        numbers.append(line)
    return tuple(numbers)


def _why_not_found(text: str, old: str) -> str:
    reason = ""
    if " ".join(old.split()) in " ".join(text.split()):
        reason = "Only spaces, indentation or line endings differ. "
    elif old.casefold() in text.casefold():
        reason = "Only upper and lower case differ. "
    lines = text.split("\n")
    wanted = old.strip("\n").split("\n")
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    best = _most_similar(lines, wanted[anchor])
    if best is None:
        return f"{reason}Nothing like it stands there; read the file again."
    start = max(0, best - anchor)
    shown = lines[start : start + min(len(wanted), _MAX_SHOWN)]
    region = "\n".join(f"{start + i}: {line[:500]}" for i, line in enumerate(shown, 1))
    return f"{reason}The closest lines are (with their numbers in front):\n{region}"


def _most_similar(lines: list[str], wanted: str) -> int | None:
    wanted = wanted.strip()[:_MAX_COMPARED_LENGTH]
    matcher = SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(wanted)
    best, best_ratio = None, _ALIKE
    for index, line in enumerate(lines[:_MAX_COMPARED]):
        stripped = line.strip()[:_MAX_COMPARED_LENGTH]
        if stripped == wanted:
            return index
        matcher.set_seq1(stripped)
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
            ratio = matcher.ratio()
            if ratio > best_ratio:
                best, best_ratio = index, ratio
    return best
