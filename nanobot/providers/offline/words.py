"""Text to words: sentences, stems, Chinese bigrams, and what is known to mean the same.

Everything here is pure and linear in the length of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from nanobot.providers.offline import lexicon

_TOKEN = re.compile(r"[\u3400-\u9fff]+|[^\W_\u3400-\u9fff]+(?:'[a-z]{1,2}\b)?")
_CJK = re.compile(r"[\u3400-\u9fff]")
_KANA = re.compile(r"[\u3040-\u30ff]")
_ASCII_WORD = re.compile(r"[^\W_\u3400-\u9fff]+(?:[./'-][^\W_\u3400-\u9fff]+)*")
_ENDS = re.compile(r"[.!?]{1,8}[\"'”’)]?(?=\s)|(?:[。？；]|！(?![A-Za-z0-9]))[”」]?|\n+|(?<=\w);\s")
_ABBREVIATION = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|st|vs|no|prof|jr|sr|e\.g|i\.e|etc|[a-z]))\.$", re.I
)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+")
_TRADITIONAL = (
    "記記愛歡顏貓書電話號碼華國學車媽爺說門開關買賣東時間點會嗎麼誰個們這裡裏住對過長飯麵魚鳥馬藍綠紅黃銀鐵樂讀寫語"
    "聽見親姊業職員醫師單網絡郵處飛機場樓層應該請別從來還沒歲現為無"
)
_SIMPLIFIED = (
    "记记爱欢颜猫书电话号码华国学车妈爷说门开关买卖东时间点会吗么谁个们这里里住对过长饭面鱼鸟马蓝绿红黄银铁乐读写语"
    "听见亲姐业职员医师单网络邮处飞机场楼层应该请别从来还没岁现为无"
)
_FOLD = str.maketrans(_TRADITIONAL, _SIMPLIFIED)
_CURLY = str.maketrans({"’": "'", "‘": "'", "＇": "'"})


def is_chinese(text: str) -> bool:
    """Whether a person who wrote `text` expects Chinese back: more Chinese than other words."""
    head = text[:2_000]
    characters = len(_CJK.findall(head))
    if characters == 0 or _KANA.search(head):
        return False
    words = len(_ASCII_WORD.findall(head))
    return characters / 2 >= words or (
        characters >= words and _CJK.match(head.lstrip()) is not None
    )


def fold(text: str) -> str:
    """`text` for matching, of the same length: traditional characters as simplified ones."""
    return text.translate(_FOLD)


def sentences(text: str) -> list[str]:
    """The sentences and lines of `text`, list bullets off, in order, none empty."""
    found: list[str] = []
    start = 0
    for match in _ENDS.finditer(text):
        if match[0].startswith(".") and _ABBREVIATION.search(
            text[max(0, match.start() - 6) : match.start() + 1]
        ):
            continue
        tail = text[max(start, match.start() - 60) : match.start()]
        if tail.rfind("《") > tail.rfind("》") and "》" in text[match.end() : match.end() + 60]:
            continue
        found.append(text[start : match.end()])
        start = match.end()
    found.append(text[start:])
    bare = (_BULLET.sub("", sentence).strip() for sentence in found)
    return [sentence for sentence in bare if sentence]


@dataclass(frozen=True, slots=True)
class Known:
    """What the lists say, by stem: groups of the same meaning, kinds it names or belongs to."""

    same: dict[str, frozenset[int]]
    kind: dict[str, frozenset[str]]
    kinds_of: dict[str, frozenset[str]]
    weight: dict[str, float]
    owners: frozenset[str]
    stop: frozenset[str]
    chinese: re.Pattern[str]


@cache
def known() -> Known:
    """The lists in the form that matching needs; made once, from constants."""
    same: dict[str, set[int]] = {}
    for number, line in enumerate(lexicon.SAME.split("\n")):
        for word in line.split():
            same.setdefault(stem(word), set()).add(number)
    kinds_of: dict[str, set[str]] = {}
    kind: dict[str, frozenset[str]] = {}
    for line in filter(None, lexicon.KINDS.split("\n")):
        head, members = line.split(":")
        head = stem(head)
        groups = same.get(head, set())
        for word in (head, *(word for word in same if not groups.isdisjoint(same[word]))):
            kind[word] = kind.get(word, frozenset()) | {head}
        for member in members.split():
            kinds_of.setdefault(stem(member), set()).add(head)
    weight = dict.fromkeys(map(stem, lexicon.VERBS.split()), 0.5)
    weight.update(dict.fromkeys(map(stem, lexicon.WEAK.split()), 0.35))
    owners = frozenset(map(stem, lexicon.OWNERS.split()))
    stop = frozenset(lexicon.STOP.split())
    return Known(
        {word: frozenset(groups) for word, groups in same.items()},
        kind,
        {word: frozenset(heads) for word, heads in kinds_of.items()},
        weight,
        owners,
        stop,
        _chinese_pattern(same.keys() | kinds_of.keys() | weight.keys() | owners),
    )


def _chinese_pattern(words: set[str]) -> re.Pattern[str]:
    """Longest match first: a stop word (group 1) or a known word (group 2) or one character."""
    known_words = [word for word in words if _CJK.match(word)]
    stop_words = lexicon.STOP_ZH.split()

    def either(choice: list[str]) -> str:
        return "|".join(map(re.escape, sorted(choice, key=len, reverse=True)))

    # 有 and 在 open stop words; a known word that begins with one must win over it.
    long = [word for word in known_words if len(word) > 1]
    short = [word for word in known_words if len(word) == 1]
    return re.compile(
        f"(?P<stop>{either([word for word in stop_words if len(word) > 1])})"
        f"|(?P<word>{either(long)})"
        f"|(?P<stop1>{either([word for word in stop_words if len(word) == 1])})"
        f"|(?P<word1>{either(short)})|(?P<other>.)"
    )


def stem(word: str) -> str:
    """A light English stem; other scripts stay as they are."""
    word = word.removesuffix("'s").removesuffix("'")
    word = lexicon.IRREGULAR.get(word, word)
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = lexicon.IRREGULAR.get(word[:-1], word[:-1])
    if len(word) > 5 and word.endswith("ing"):
        word = _undouble(word[:-3])
    elif len(word) > 4 and word.endswith("ied"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith("ed"):
        word = _undouble(word[:-2])
    elif len(word) > 5 and word.endswith("ly"):
        word = word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def _undouble(word: str) -> str:
    doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls"
    return word[:-1] if doubled else word


def terms(text: str) -> list[str]:
    """The telling words of `text` in order: stems, known Chinese words, other Chinese in pairs."""
    lists = known()
    found: list[str] = []
    for match in _TOKEN.finditer(fold(text.lower()).translate(_CURLY)):
        token = match[0]
        if _CJK.match(token):
            found.extend(_chinese_terms(token, lists))
        elif token not in lists.stop:
            found.append(stem(token))
    return [term for term in found if term not in lists.stop]


def _chinese_terms(run: str, lists: Known) -> list[str]:
    found: list[str] = []
    rest = ""
    for match in lists.chinese.finditer(run):
        if match.lastgroup == "other":
            rest += match[0]
            continue
        found.extend(_bigrams(rest))
        rest = ""
        if match.lastgroup in ("word", "word1"):
            found.append(match[0])
    return found + _bigrams(rest)


def _bigrams(run: str) -> list[str]:
    if len(run) < 2:
        return [run] if run else []
    return [run[index : index + 2] for index in range(len(run) - 1)]
