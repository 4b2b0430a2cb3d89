"""Which sentences state something, and which of those are lasting facts about the person."""

from __future__ import annotations

import re

from nanobot.providers.offline import lexicon
from nanobot.providers.offline.words import fold, is_chinese, terms

_STANDS = re.compile(
    r"\b(?:is|are|lives?|works?|costs?|means|opens?|closes?|starts?|ends?|needs?|has|belongs?|goes|"
    r"runs?|sits?|lies?|stands?|will be)\b|[:=]\s",
    re.IGNORECASE,
)
_ZH_STANDS = re.compile(r"是|在|叫|属于|需要|位于|[:：=]")
_POINTS_BACK = re.compile(
    r"(?:it|its|this|that|these|those|there|he|she|they|his|her|their|you|your|here)\b|"
    r"[它他她这那你此]",
    re.IGNORECASE,
)
_HABITS = frozenset(lexicon.HABITS.split())
_PAST_LIFE = frozenset(lexicon.PAST_LIFE.split())
_PASSING = frozenset(lexicon.PASSING.split())
_IS = re.compile(
    r"\b(?:is|are|was|were|am|'s|'re|'m|has|have|had|lives?|works?|likes?|goes|costs?|"
    r"means|starts?|ends?|"
    r"opens?|closes?|needs?|wants?|will|can|must|should|prefers?|uses?|runs?|\w{2,15}ed)\b|:\s|=",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r"(?:i|i'm|i've|i'd|i'll|my|mine|we|our|he|she|they|it|the|this|there|his|her)\b", re.IGNORECASE
)
_MY = re.compile(
    r"(?:my|our)\s+(?P<what>[^.!?]{1,80}?)(?:\s+(?:is|are|was|were|will be|has|have|"
    r"lives?|works?|likes?|loves?|"
    r"hates?|plays?|speaks?|goes|starts|studies|drives|prefers|became|changed|turns|"
    r"moved|was born)\b|'s\s+(?:called|named)\b|\s*[:=])",
    re.IGNORECASE,
)
_NOT_ABOUT_ONESELF = re.compile(
    r"(?:question|point|guess|bad|problem|issue|idea|request|task|plan today|head|"
    r"turn|pleasure|mistake|"
    r"apologies|understanding|opinion|goal here)\b",
    re.IGNORECASE,
)
_NOW = re.compile(
    r"\b(?:today|tonight|right now|at the moment|this (?:morning|afternoon|evening|"
    r"week)|just now|yesterday|"
    r"a (?:minute|moment|second) ago|for now)\b|今天|现在|刚才|刚刚|昨天|此刻|目前正在",
    re.IGNORECASE,
)
_I_AM = re.compile(
    r"i(?:'m| am)\s+(?:now\s+|also\s+|currently\s+)?(?P<what>[\w'-]+)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_I = re.compile(
    r"(?:i|we)\s+(?P<habitually>(?:usually|always|never|often|mostly|mainly)\s+)?"
    r"(?:(?:also|really|currently|now|still|sometimes|only|no longer|used to)\s+)?"
    r"(?P<verb>[a-z']+)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_HAVE = re.compile(
    r"\s+(?:an?|two|three|four|five|six|seven|no|some|\d+|got)\s+(?!question|problem|"
    r"doubt|request|idea|look|"
    r"issue|feeling|hunch|moment|minute|second|lot of questions)",
    re.IGNORECASE,
)
_SINCE = re.compile(
    r"(?:i've|i have|we've|we have) been\b.{1,200}\b(?:since|for)\b", re.IGNORECASE | re.DOTALL
)
_POINTLESS = re.compile(r"\s+(?:it|this|that|you|your|them|these|those)\b", re.IGNORECASE)
_CONDITIONS = frozenset(
    ["living", "working", "studying", "learning", "married", "engaged", "divorced"]
)
_ZH_FACT = re.compile(
    r"(?:我|咱)(?:们|家)?(?:其实|也|还|更|非常|特别|很|真的|通常|一般|总是|从不|已经){0,3}"
    r"(?:的|属|现在|平时|最|一直|从来|是|叫|姓|住|搬|喜欢|爱|讨厌|不喜欢|"
    r"不吃|不喝|对|在|有|养|来自|每天|每周|"
    r"今年|出生|会|习惯|不能|妹妹|姐姐|弟弟|哥哥|妈妈|爸爸|妻子|丈夫|老婆|老公|儿子|女儿|"
    r"孩子|朋友|女朋友|男朋友|老板|奶奶|爷爷)"
)
_ZH_VERB = re.compile(
    r"是|叫|姓|属|住|搬|喜欢|爱|讨厌|过敏|工作|上班|上学|读书|来自|养|有|岁|出生|生日|不吃|不喝|"
    r"吃|喝|学|会|习惯|在|开|每"
)
_ZH_PASSING = re.compile(
    r"我(?:们)?(?:在想|是说|是想|有(?:个|一个)?(?:问题|疑问)|在等|在问|在看|有点|会的|在(?:这|吗))"
)


def is_statement(text: str) -> bool:
    """Whether `text` states something, judged by its shape."""
    text = text.strip()
    if is_chinese(text):
        return (
            len(text) >= 4 and re.search(r"是|在|有|叫|住|喜欢|爱|会|了|要|的|对", text) is not None
        )
    words = text.split()
    if len(words) < 3:
        return len(words) == 2 and _SUBJECT.match(text) is not None
    return _SUBJECT.match(text) is not None or _IS.search(text) is not None


def has_verb(text: str) -> bool:
    """Whether a part of a sentence can stand by itself."""
    if is_chinese(text):
        return is_statement(text)
    return re.match(r"(?:i|we|i'm|i've)\b", text, re.IGNORECASE) is not None or bool(
        _IS.search(text)
    )


_ZH_SELF = re.compile(
    r"(?P<self>我|用户)(?=现在|今年|目前|也|还|是|叫|姓|住|搬|在|来自|喜欢|爱|讨厌|养|有|会|不|对|出生|"
    r"每|最喜欢|从|平时|一直|已经)"
)
_ZH_CLAUSE = re.compile(
    r"(?:现在|今年|目前|也|还|并|并且|而且|同时){0,2}(?:住|搬|叫|姓|来自|喜欢|爱|讨厌|养|会|最喜欢|\d+岁|"
    r"属|是|有|不吃|不喝|不喜欢|每[天周月年]|从事|在.{1,20}(?:工作|上班|读书|上学|做事)|对.{1,12}过敏)"
)


def chinese_clauses(text: str) -> list[str]:
    """ "我叫李雷，住在北京": the statements about oneself that share one subject, each whole."""
    opening = _ZH_SELF.match(text)
    parts = re.split(r"[，；]", text) if opening and len(text) <= 500 else []
    if opening is None or len(parts) < 2:
        return [text]
    whose = opening["self"]
    if not all(part.startswith(whose) or _ZH_CLAUSE.match(part.strip()) for part in parts[1:]):
        return [text]
    rest = [re.sub(r"^(?:并且|而且|同时|并)", "", part.strip()) for part in parts[1:]]
    return [parts[0], *(part if part.startswith(whose) else whose + part for part in rest)]


def is_personal(text: str) -> bool:
    """Whether a statement is a lasting fact about the person: worth keeping without being asked."""
    if len(text) > 400 or (
        _NOW.search(text) and not re.match(r"我(?:们)?现在(?:住|叫|在.+工作)", text)
    ):
        return False
    if is_chinese(text):
        text = fold(text)
        told = _ZH_FACT.match(text) and _ZH_VERB.search(text)
        return told is not None and _ZH_PASSING.match(text) is None
    return _is_personal(text)


def is_lasting(text: str) -> bool:
    """Whether a plain statement may still matter in a month and makes sense by itself: it says
    something definite about something named, and of no passing moment."""
    text = text.strip()
    if len(text) > 400 or _NOW.search(text) or _POINTS_BACK.match(text):
        return False
    stands = (_ZH_STANDS if is_chinese(text) else _STANDS).search(fold(text))
    if stands is None or stands.start() == 0:
        return False
    value = text[stands.end() :]
    named = re.search(r"\d|\b[A-Z]|《", value) is not None
    return named or len(terms(value)) > 1


def _is_personal(text: str) -> bool:
    if match := _MY.match(text):
        return _NOT_ABOUT_ONESELF.match(match["what"]) is None
    if match := _I_AM.match(text):
        return _lasting(match["what"].lower(), match["rest"])
    if _SINCE.match(text) or re.match(r"(?:you can )?call me [\w'-]+", text, re.IGNORECASE):
        return True
    match = _I.match(text)
    if match is None:
        return False
    return bool(match["habitually"]) or _habit(match["verb"].lower(), match["rest"])


def _lasting(state: str, rest: str) -> bool:
    if state in ("not", "very") and re.match(r"\s+(?:a|an|allergic|able to eat|fond)\b", rest):
        return True
    if state == "in" or state in _PASSING:
        return False
    return state in _CONDITIONS or not state.endswith("ing")


def _habit(verb: str, rest: str) -> bool:
    if verb in ("have", "got", "'ve"):
        return _HAVE.match(rest) is not None
    if verb in ("don't", "can't", "cannot", "do", "am"):
        return (
            re.match(r"\s+(?:not\s+)?(?:eat|drink|like|drive|smoke|speak|tolerate|stand)\b", rest)
            is not None
        )
    if verb == "was":
        return re.match(r"\s+(?:born|raised)\b", rest) is not None
    return verb in _HABITS | _PAST_LIFE and rest.strip() != "" and _POINTLESS.match(rest) is None
