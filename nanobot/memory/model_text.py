"""Clean all text that a model writes to memory: no invisible characters, and no lines that are not
facts. Pure, and linear in the length of the text.

Invisible characters are escape sequences, controls, direction marks, zero-width characters and lone
surrogates. Joiners stay between letters and signs that need them (Persian, emoji).

Lines that are not facts are fences, markup, pieces of JSON, tool calls, thinking, role labels,
placeholders ("[… rest unchanged …]"), copies of our own prompts, repetitions, and lines that are
too long. Lines that the person wrote are exempt: the callers check that first."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

from nanobot.memory.importance import without_importance
from nanobot.text import valid_unicode

LONGEST_LINE = 1_000
"""Maximum characters of a memory line. A longer one is not a fact."""
MOST_ANSWER = 400_000
"""Maximum characters that are read of a model's answer."""

# Compiled and cached by `re` at first use: compiling would slow down the start.
_ESCAPES = r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|[@-Z\\^_])"
_JOINERS = "\u200c\u200d"
_BREAKS = "\r\n|[\r\x0b\x0c\x85\u2028\u2029]"


def clean_text(text: str) -> str:
    """Return `text` without invisible characters. Line ends stay."""
    text = re.sub(_BREAKS, "\n", valid_unicode(re.sub(_ESCAPES, "", text)))
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    text = text.replace("\t", " ")
    kept = (
        one
        for at, one in enumerate(text)
        if _is_seen(one) or (one in _JOINERS and _joins(text, at))
    )
    return "".join(kept)


def clean_line(text: str) -> str:
    """Return the cleaned text as one line, without blanks at its ends."""
    return " ".join(clean_text(text).split())


@lru_cache(maxsize=1 << 12)
def _is_seen(character: str) -> bool:
    if character in "\n\ufe0f":
        return True
    return unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Cn"} and character != "\ufffd"


def _joins(text: str, at: int) -> bool:
    around = text[max(0, at - 1) : at] + text[at + 1 : at + 2]
    return len(around) == 2 and not around.isascii() and all(map(_is_seen, around))


_THINKING = r"(?is)<(think(?:ing)?|reasoning|thought|scratchpad)>.*?(?:</\1>|\Z)"
_FENCE = r"^\s*(?:[-*+]\s+)?(?:`{3,}|~{3,})"
_MARK = r"^\s*(?:[-*+>•]\s+)*"
_MARKUP = (
    r"^[{}\]]"  # pieces of JSON
    r"|^#{1,6}\s|^\|.*\|$"  # a heading or a row of a table as a list item
    r"|^\[(?![ xX]\]|[^\]\n]{1,200}\]\()"  # but not a checkbox or a link
    r"|^\"[^\"\n]{1,80}\"\s*:"
    r"|[\[{]\s*\"[^\"\n]{0,80}\"\s*[:,\]]"
    r"|\\[nt\"]|\"\s*[,}\]]+\s*$"
    r"|</?[a-zA-Z_][\w-]{0,40}(?:\s[^<>\n]{0,200})?/?>|<\|[^|\n]{1,40}\|>|\[/?INST\]|<</?SYS>>"
    r"|\b[a-z]+_[a-z_]+\s*\(|^\W*[a-z_]{3,40}\([^)\n]{0,200}\)\W*$"
    r"|^(?:system|assistant|tool|function)\s*:|^(?:ASSISTANT|TOOL|SYSTEM)\b.{0,80}?:"
    r"|^\|?[\s:|-]{3,}\|?$"
)
_ELLIPSIS = r"^\W*(?:…|\.\.\.)|^\W*\(.*\)\W*$|^\W*[\[<].*(?:…|\.\.\.).*[\]>]\W*$"
_WORD = r"[^\W\d_]+"
_EMPTY = """
unchanged unmodified no none nothing change changes changed new update updates updated same as
before above previous previously existing rest remaining remains remain everything other all the
is are stays stay kept keep identical n a na null nil empty omitted see of to in and facts fact
information info memory file content lines line placeholder todo tbd added unverändert keine
änderung änderungen nichts neues neue neuen wie zuvor bisher oben gleich bleibt übrige siehe leer
inchangé inchangée sans changement aucun aucune modification rien de nouveau comme avant reste
identique sin cambios cambio ninguno ninguna nada nuevo igual que antes resto mismo sem alterações
alteração mudanças nenhuma novo inalterado como nessuna modifica invariato come prima niente nuovo
geen wijzigingen ongewijzigd niets nieuws bez zmian zmiany без изменений нет ничего нового так же
как раньше остальное değişiklik yok aynı
"""
_EMPTY_WORDS = frozenset(_EMPTY.split())  # a line with only these words is a placeholder
_RUNS = "変更なし 変わらず 同上 以下同文 无变化 無變化 没有变化 不变 同前 변경없음 변화없음 동일"
_EMPTY_RUNS = tuple(_RUNS.split())
_MOST_EMPTY = 9


def junk_reason(line: str) -> str:
    """Return why a line can't be a fact in any conversation, or ""."""
    bare = re.sub(_MARK, "", without_importance(line), count=1).strip()
    if len(bare) > LONGEST_LINE:
        return "it is too long"
    if not any(one.isalnum() for one in bare):
        return "it has no content"
    if re.match(_FENCE, line) or re.search(_MARKUP, bare):
        return "it is markup"
    if bare.endswith((":", "：")):
        return "it ends with a colon"
    if re.search(_ELLIPSIS, bare) or _is_placeholder(bare):
        return "it is a placeholder"
    return ""


def _is_placeholder(bare: str) -> bool:
    words = re.findall(_WORD, bare.casefold())
    if words and len(words) <= _MOST_EMPTY and all(word in _EMPTY_WORDS for word in words):
        return not any(one.isdigit() for one in bare)
    return len(bare) <= 12 and any(run in bare.replace(" ", "") for run in _EMPTY_RUNS)


def remove_thinking(text: str) -> str:
    """Return `text` without the model's thinking, and without everything after an unclosed tag."""
    return re.sub(_THINKING, "", text) if "<" in text else text


def distinct_lines(text: str) -> Iterator[str]:
    """Yield the lines of a model's text, cleaned, without thinking, each fact once."""
    seen = set[str]()
    for line in clean_text(remove_thinking(text)).split("\n"):
        key = " ".join(line.split()).casefold()
        if key and key in seen:
            continue
        seen.add(key)
        yield line.rstrip()


class Echoes:
    """Detector of our own prompts in a model's answer."""

    def __init__(self, prompts: Iterable[str]) -> None:
        self._said = " ".join(map(_letters, prompts))

    def has(self, line: str) -> bool:
        """Return True if a line, or most of a long one, is a copy of a prompt."""
        letters = _letters(line)
        return len(letters) >= _ECHO and letters in self._said


_ECHO = 12


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))
