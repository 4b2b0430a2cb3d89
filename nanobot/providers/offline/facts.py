"""Facts: what a memory line is about, and where in MEMORY.md a new one belongs.

`learn` is pure: the file's text and new facts in, the new text out. A new fact takes the place of
an older one about the same subject, a known fact changes nothing, every other line stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nanobot.providers.offline.statements import chinese_clauses
from nanobot.providers.offline.words import known, stem, terms

SECTIONS = ("User Information", "Preferences", "Project Context", "Important Notes")
_ALIASES = (
    ("user", "about", "profile", "personal", "用户", "个人"),
    ("preference", "likes", "偏好", "喜好"),
    ("project", "work", "项目", "工作"),
    ("note", "important", "misc", "备注", "重要", "其他"),
)
_PREFERENCE = re.compile(
    r"\b(?:favou?rite|likes?|loves?|enjoys?|prefers?|preferred|hates?|dislikes?|wants? nanobot|"
    r"rather|adores?|detests?|can't stand|to be called)\b|喜欢|最爱|讨厌|偏好|习惯|爱吃|爱喝",
    re.IGNORECASE,
)
_PROJECT = re.compile(
    r"\b(?:project|deadline|repo|repository|codebase|server|deploy\w*|release|client|api|branch|"
    r"sprint|milestone|launch)\b|项目|截止|代码|服务器|部署|客户|发布",
    re.IGNORECASE,
)
_PERSONAL = re.compile(r"^(?:the\s+)?user\b|^用户", re.IGNORECASE)
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
_PLACEHOLDER = re.compile(r"^\s*(?:[-*]\s+)?[*_]{0,2}[(（].*[)）][*_]{0,2}\s*$|^\s*<!--.*-->\s*$")
_RULE = re.compile(r"^\s*(?:-{3,}|\*{3,}|_{3,})\s*$")
_BULLET = re.compile(r"^\s*[-*+]\s+")
COPULA = re.compile(
    r"\s+(?:(?:is|are|was|were)(?:\s+(?:called|named|now))?|has\s+changed\s+to|changed\s+to|became)"
    r"\s+|\s*=\s*|:\s+|：\s*|是|改为|改成|变成|叫",
    re.IGNORECASE,
)
SECRET = re.compile(
    r"\b(?:pass(?:word|code|phrase)|code|pin|token|key)\b|密码|密碼|口令|验证码", re.IGNORECASE
)
_MOVED = re.compile(
    r"\s+(?:has |have |was |were |is |are )?(?:been )?(?:moved|postponed|shifted|brought forward)"
    r" to\s+",
    re.IGNORECASE,
)
_LIVES = re.compile(r"(?!the user\b)(.{1,80}?)\s+(?:now )?(?:lives? (?:in|at|on)|moved to)\s", re.I)
_OWN_ZH = (
    (re.compile(r"用户(?:现在)?叫"), "name"),
    (re.compile(r"用户(?:今年|现在|已经)?(?:是)?\d+岁"), "age"),
    (re.compile(r"用户(?:现在)?在.{1,30}(?:工作|上班)"), "work"),
    (
        re.compile(
            r"用户(?:现在|也|很|非常)?(?:不喜欢|喜欢|讨厌|不爱|爱)(?:吃|喝)?([^，的]{1,30})$"
        ),
        "taste",
    ),
)
_TASTE = re.compile(
    r"(?:now |also |really )?(?:doesn't |does not |no longer )?(?:really )?(?:likes?|loves?|hates?|"
    r"enjoys?|dislikes?|adores?|detests?)\s+(.{1,60}?)(?: (?:now|anymore|any more))?$",
    re.IGNORECASE,
)
_COUNT = re.compile(r"(?:now )?has (?:\d+|no|an?|one|two|three|four|five|six|seven|eight) (\w+)$")
OVER = re.compile(r"\b(?:no longer|used to|not? .{1,40} any ?more)\b|不再|以前|曾经", re.IGNORECASE)
_WHEN = re.compile(
    r"\b(?:\w{2,6}day|\d{1,2}:\d\d|\d{1,2} ?[ap]m|(?:19|20)\d\d|noon|midnight|(?:jan|feb|mar|"
    r"apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*|morning|evening|\d{1,2}(?:st|nd|rd|th)?)\W*$",
    re.IGNORECASE,
)
_SELF = re.compile(r"^(?:the\s+)?user(?:\s+\(with others\))?\s+(?!'s)", re.IGNORECASE)
_SINGLE_VALUED = {
    "住": "live", "住在": "live", "搬到": "live", "搬到了": "live", "工作": "work", "上班": "work",
    "停在": "park", "停": "park", "叫": "name", "来自": "from",
    "live": "live", "reside": "live", "move": "live", "mov": "live", "liv": "live", "resid": "live",
    "work": "work", "park": "park", "prefer": "prefer",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Learned:
    """What became of one fact: `old` is the line it replaced; `known` that nothing was needed."""

    fact: str
    old: str = ""
    known: bool = False


def fact_lines(markdown: str) -> list[str]:
    """The facts of a memory text: no headings, placeholders, rules or what follows a last rule."""
    found: list[str] = []
    for line in markdown.splitlines():
        if not line.strip() or _HEADING.match(line) or _PLACEHOLDER.match(line):
            continue
        if _RULE.match(line) or line.startswith("[cut here"):
            continue
        if line.strip().startswith("*") and line.strip().endswith("*") and not _BULLET.match(line):
            continue
        found.append(_BULLET.sub("", line).strip())
    return found


def key_and_value(fact: str) -> tuple[str, str]:
    """What a fact is about and what it says: "User's dog" and "Rex"."""
    match = COPULA.search(fact)
    verb = _SELF.match(fact)
    if verb and not (match and match.start() <= verb.end()):
        words = fact[verb.end() :].split(maxsplit=1)
        return (words[0], words[1]) if len(words) == 2 else (fact, "")
    match = match or (None if verb else _MOVED.search(fact))
    if match:
        return fact[: match.start()], fact[match.end() :]
    if chinese := re.match(r"用户?(?:的)?(?:最?喜欢|住在?|在|喝|吃|讨厌|养了?|有)", fact):
        return fact[: chinese.end()], fact[chinese.end() :]
    if place := re.search(r"\s(?:in|at|on|with|for|to|from|near|by|under)\s", fact):
        return fact[: place.start()], fact[place.end() :]
    words = fact.split(maxsplit=3)
    return (" ".join(words[:3]), words[3]) if len(words) == 4 else (fact, "")


def subject(fact: str) -> frozenset[str]:
    """What only one fact can be true of; empty where facts add up (likes, allergies)."""
    key, value = key_and_value(fact)
    if re.match(r"用户(?:现在|已经)?(?:住|搬)", fact):
        return frozenset({"self", "live"})
    for rule, sort in _OWN_ZH:
        if match := rule.match(fact):
            return frozenset({"self", sort, *terms("".join(match.groups()))})
    if verb := _SELF.match(fact):
        return _own_subject(fact[verb.end() :])
    if (there := _LIVES.match(fact)) and not re.search(r"\d", fact):
        names = re.findall(r"(?<!^)(?<!\w)[A-Z][^\W\d_]+(?!'s)", there[1]) or [there[1]]
        return frozenset({*terms(" ".join(names)), "live"})
    about = frozenset(term for term in terms(key) if term not in ("also", "now"))
    if not about or not value or not (COPULA.search(fact) or _MOVED.search(fact)):
        return frozenset()
    return about | {_sort_of(fact, value)}


def _own_subject(predicate: str) -> frozenset[str]:
    predicate = re.sub(r"^(?:no longer|used to) ", "", predicate)
    words = [word for word in predicate.lower().split() if word not in ("now", "currently")]
    first = stem(words[0]) if words else ""
    if first in _SINGLE_VALUED and not predicate.lower().startswith(("works as", "worked as")):
        return frozenset({"self", _SINGLE_VALUED[first]})
    if taste := _TASTE.match(predicate):
        return frozenset({"self", "taste", *terms(taste[1])})
    if count := _COUNT.match(predicate):
        return frozenset({"self", "count", *terms(count[1])})
    if re.match(r"is (?:now )?\d+(?: years old)?$", predicate):
        return frozenset({"self", "age"})
    if re.match(r"(?:is called|wants to be called|goes by)\b", predicate):
        return frozenset({"self", "name"})
    return frozenset()


def _sort_of(fact: str, value: str) -> str:
    """Two facts about one thing may both hold when they say different sorts of things of it."""
    if re.search(r"\b(?:called|named)\b|叫", fact):
        return "(name)"
    being = not known().owners.isdisjoint(terms(key_and_value(fact)[0]))
    if re.match(r"(?:now )?\d+ (?:years|months) old|\d+岁", value) or (
        being and re.match(r"(?:now )?\d+$", value)
    ):
        return "(age)"
    if re.match(r"(?:an?|one of)\s", value, re.IGNORECASE):
        return "(kind)"
    if re.match(r"(?:in|at|on|near|under|behind|inside)\s", value, re.IGNORECASE):
        return "(time)" if _WHEN.search(value) else "(place)"
    if re.match(r"(?:allergic|afraid|from)\s", value, re.IGNORECASE):
        return f"({value.split(maxsplit=1)[0].lower()})"
    return "(value)"


def same_fact(one: str, other: str) -> bool:
    """Whether two lines say the same, letter case, articles and punctuation aside; in a password
    each of these counts."""
    if SECRET.search(one) and one.split()[-1:] != other.split()[-1:]:
        return False
    return plain(one) == plain(other)


def plain(fact: str) -> str:
    """`fact` without letter case, articles and punctuation."""
    words = re.findall(r"\w+", fact.lower())
    return " ".join(word for word in words if word not in ("the", "a", "an")) or fact.strip()


def learn(memory: str, facts: list[str]) -> tuple[str, list[Learned]]:
    """`memory` with `facts` in it, and what became of each."""
    lines = apart(memory).rstrip("\n").split("\n") if memory.strip() else []
    outcome = [_learn_one(lines, fact) for fact in facts]
    if all(item.known for item in outcome):
        return memory, outcome
    return "\n".join(lines) + "\n", outcome


def apart(memory: str) -> str:
    """`memory` with each statement on a line of its own, where a line of it holds several."""
    lines: list[str] = []
    for line in memory.split("\n"):
        bullet = _BULLET.match(line)
        said = chinese_clauses(line[bullet.end() :].strip()) if bullet else []
        lines.extend([f"- {clause}" for clause in said] if len(said) > 1 else [line])
    return "\n".join(lines)


def without_line(memory: str, fact: str) -> str:
    """`memory` without the line of `fact`."""
    lines = memory.split("\n")
    kept = [line for line in lines if _BULLET.sub("", line).strip() != fact]
    return "\n".join(kept)


def _learn_one(lines: list[str], fact: str) -> Learned:
    about = subject(fact)
    rivals: list[int] = []
    for number, line in enumerate(lines):
        if not fact_lines(line):
            continue
        text = _BULLET.sub("", line).strip()
        if same_fact(text, fact):
            return Learned(fact, known=True)
        if about and subject(text) == about and overtakes(fact, text):
            rivals.append(number)
    if not rivals:
        _insert(lines, fact)
        return Learned(fact)
    old = _BULLET.sub("", lines[rivals[-1]]).strip()
    lines[rivals[-1]] = f"- {fact}"
    for number in reversed(rivals[:-1]):
        del lines[number]
    return Learned(fact, old)


def overtakes(fact: str, older: str) -> bool:
    """What is over ends only what it names: "no longer in Rome" says nothing of Paris."""
    return not OVER.search(fact) or set(terms(key_and_value(older)[1])) <= set(terms(fact))


def section_of(fact: str) -> int:
    """Which of `SECTIONS` a fact belongs to."""
    if _PREFERENCE.search(fact):
        return 1
    if _PROJECT.search(fact):
        return 2
    return 0 if _PERSONAL.search(fact) else 3


def is_project(fact: str) -> bool:
    """Whether a fact is about what the person works on rather than about them."""
    return section_of(fact) == 2


def has_sections(memory: str) -> bool:
    """Whether the file has a heading that a fact can go under."""
    return any((match := _HEADING.match(line)) and len(match[1]) > 1 for line in memory.split("\n"))


def _insert(lines: list[str], fact: str) -> None:
    wanted = section_of(fact)
    heading = _find_heading(lines, wanted)
    if heading is None:
        lines.extend(["", f"## {SECTIONS[wanted]}", ""] if lines else _fresh(wanted))
        lines.append(f"- {fact}")
        return
    end = next(
        (
            n
            for n in range(heading + 1, len(lines))
            if _HEADING.match(lines[n]) or _RULE.match(lines[n])
        ),
        len(lines),
    )
    body = [line for line in lines[heading + 1 : end] if not _PLACEHOLDER.match(line)]
    while body and not body[-1].strip():
        body.pop()
    tail = [""] if end < len(lines) else []
    lines[heading + 1 : end] = [*(body or [""]), f"- {fact}", *tail]


def _fresh(wanted: int) -> list[str]:
    return ["# Long-term Memory", "", f"## {SECTIONS[wanted]}", ""]


def _find_heading(lines: list[str], wanted: int) -> int | None:
    titles = {
        number: match[2].lower()
        for number, line in enumerate(lines)
        if (match := _HEADING.match(line)) and len(match[1]) > 1
    }
    exact = [number for number, title in titles.items() if title == SECTIONS[wanted].lower()]
    alike = [
        number
        for number, title in titles.items()
        if any(alias in title for alias in _ALIASES[wanted])
    ]
    return next(iter(exact + alike), None)
