"""Words, as the index stores them and as questions use them.

SQLite's `porter unicode61` finds words where a language separates them: it folds case, drops
diacritics and takes off English endings. It finds next to nothing in Chinese, Japanese and Korean,
where a run of characters without a space counts as one word. So `prepared` spells such a run out
before it is stored, as single characters and as pairs: `東京都` becomes `東 東京 京 京都 都`. A
question of one character then matches it, one of two matches the pair, and a longer one matches by
the pairs that it shares, best where it shares most. Korean words carry their particles
(`서울에서`), so they are treated alike.

Width and compatibility forms are unified (NFKC): `ＡＢＣ１２３` is `ABC123`, half-width katakana is
katakana. What is ASCII is stored as it is, which also makes this cheap.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from nanobot.memory.text.patterns import late

_CJK = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3040-\u30fa\u30fc-\u30ff"
    "\u3100-\u312f\u3131-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_RUN = late(f"[{_CJK}]+")
_PIECE = late(f"[{_CJK}]+|(?:(?![{_CJK}])[^\\W_])+")
_KANA = re.compile(r"[\u3040-\u309f]+\Z")

_STOP_WORDS = """
    a about above after again against all am an and any are aren as at be because been before
    being below between both but by can cannot could couldn d did didn do does doesn doing don
    down during each few for from further had hadn has hasn have haven having he her here hers
    herself him himself his how i if in into is isn it its itself just ll m me might more most
    must my myself need no nor not now of off on once only or other our ours ourselves out over
    own re s same shall shan she should shouldn so some such t than that the their theirs them
    themselves then there these they this those through to too under until up us ve very was
    wasn we were weren what when where which while who whom whose why will with won would wouldn
    you your yours yourself yourselves also y say says said saying tell tells told mention
    mentions mentioned talk talks talked know knows got get gets
"""
STOP = frozenset(_STOP_WORDS.split())
"""Words that say nothing about what is looked for: English function words, and the words in which a
question speaks of the conversation itself."""


def prepared(text: str) -> str:
    """`text` as it is given to the full-text table."""
    if text.isascii():
        return text
    return _RUN().sub(_spelled_out, unicodedata.normalize("NFKC", text))


def words_of(text: str) -> list[str]:
    """The words of a question in order, lower case, CJK runs as the keys that find them."""
    found: list[str] = []
    for piece in _PIECE().findall(unicodedata.normalize("NFKC", text).lower()):
        found.extend(_keys(piece) if _RUN().match(piece) else [piece])
    return found


def content_words(words: list[str]) -> list[str]:
    """`words` without stop words and repetitions; all of them where nothing else would be left."""
    distinct = list(dict.fromkeys(words))
    telling = [word for word in distinct if word not in STOP]
    return telling or distinct


def match_any(words: list[str]) -> str:
    """The expression that matches any of `words`, for a full-text table; empty for none."""
    return " OR ".join(f'"{word}"' for word in words)


def _spelled_out(match: re.Match[str]) -> str:
    run = match[0]
    return f" {' '.join(_singles_and_pairs(run))} "


def _singles_and_pairs(run: str) -> Iterator[str]:
    for at, character in enumerate(run):
        yield character
        if at + 1 < len(run):
            yield run[at : at + 2]


def _keys(run: str) -> list[str]:
    """A character alone, or pairs; pairs of grammar only (hiragana) where there is nothing else."""
    if len(run) == 1:
        return [run]
    pairs = [run[at : at + 2] for at in range(len(run) - 1)]
    return [pair for pair in pairs if not _KANA.match(pair)] or pairs
