"""Which skills a person's words call for. Pure.

A trigger is a word or a phrase. It is found whatever its case and spaces, as whole words; in
scripts that put no spaces between words, it is found anywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from nanobot.skills.values import Skill

MOST_NAMED = 3
_MOST_READ = 4_000
"""Characters of a message that are looked at: what it is about is said at its beginning."""


def mentioned(skills: Iterable[Skill], text: str) -> tuple[str, ...]:
    """The names of the skills that can be used, are not in the prompt anyway, and have a trigger
    in `text`; in the order of their triggers there, at most `MOST_NAMED`."""
    said = _folded(text[:_MOST_READ])
    found = []
    for skill in skills:
        if skill.available and not skill.always:
            places = [place for trigger in skill.triggers if (place := _place(trigger, said)) >= 0]
            if places:
                found.append((min(places), skill.name))
    return tuple(name for _, name in sorted(found)[:MOST_NAMED])


def _place(trigger: str, said: str) -> int:
    """Where a trigger begins in the folded text; -1 where it is not."""
    wanted = _folded(trigger)
    start = said.find(wanted) if wanted else -1
    while start >= 0:
        end = start + len(wanted)
        before, after = said[start - 1 : start], said[end : end + 1]
        if not _joined(before, wanted[0]) and not _joined(wanted[-1], after):
            return start
        start = said.find(wanted, start + 1)
    return -1


def _joined(left: str, right: str) -> bool:
    """Whether two neighbouring characters are inside one word."""
    return _is_spelled(left) and _is_spelled(right)


def _is_spelled(character: str) -> bool:
    """Whether it is a letter or digit of a script whose words stand apart."""
    return bool(character) and character.isalnum() and not _unspaced().match(character)


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@cache
def _unspaced() -> re.Pattern[str]:
    # Thai, Lao, Myanmar, Khmer, kana, Han, Hangul (particles follow its words without a space).
    return re.compile(
        "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
        "\uf900-\ufaff\U00020000-\U0003ffff]"
    )
