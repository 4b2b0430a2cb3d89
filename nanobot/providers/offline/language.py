"""English and Chinese for the offline model: requests, facts and questions.

A fact is one sentence in the third person, as in MEMORY.md ("User's name is Ada", "用户住在上海").
Its subject decides whether it replaces another one. The words that a question shares with a line
decide whether the line answers it. All of this is pattern matching on single sentences: a sentence
that fits no pattern is no fact and no request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

ENOUGH = 0.6
"""The share of a question's words that an answering line must have."""

_SENTENCE = re.compile(
    r"(?i)(?<=[.!?])(?<!\bDr\.)(?<!\bMr\.)(?<!\bMs\.)(?<!\bMrs\.)(?<!\b[ap]\.m\.)\s+(?=\S)|(?<=[。！？])|\n+|[，,](?=我)"
    r"|,? and (?=(?:my|our) |i(?:'m| am| live| like| love| have| work| prefer) )"
)
_OPENING = r"(?i)^(?:(?:and|but|also|actually,?)\s|(?:no|hey|hi|hello), (?=.+ )|其实|不对?[，,])\s*"
_QUESTION = re.compile(
    r"(?i)(?:what|where|when|who|whose|which|why|how|is|are|am|was|were|do|does|did|have|has|can|could|"
    r"will|would|should|(?:tell|remind) me (?:about|what|where|who|when))(?:'s|'re)?\b"
)
_QUESTION_ZH = re.compile(r"什么|啥|哪|谁|怎么|几|多少|吗|[呢嘛]$")
_NAMED = r"(?-i:[A-Z][a-z]+)(?<!an|sh|ch|ic)$"  # "I'm German" is no name
_OWN = re.compile(
    r"(?i)(?:my|our) (?!god|goodness|bad\b)[\w' -]{1,60}? (?:is|are|was|were)\b|"
    r"i(?:'m| am) (?:\d|an? |the |from |called |named |allergic |afraid |vegetarian|vegan|married)|"
    rf"i(?:'m| am) {_NAMED}|"
    r"i (?:now |also |really |always |usually |never )?(?:live|work|like|love|prefer|hate|dislike|"
    r"enjoy|have (?:an? |\w+ (?:children|kids|cats|dogs|sons|daughters))|own|use|drive|speak|study|"
    r"play|park|was born|moved to|can't stand|don't (?:like|eat|drink))\b|"
    r"(?:please )?(?:always |never )?(?:call me|answer (?:me )?in|speak \w+ (?:to|with) me)\b"
)
_OWN_ZH = re.compile(
    r"我(?:们)?(?:现在|也|很|最|非常|今年)?"
    r"(?:叫|姓|住|搬|来自|喜欢|不喜欢|讨厌|爱|养|有|在.+(?:工作|上班)|是(?!说|不是)|\d+岁|对.+过敏"
    r"|(?:的|爸|妈|老[婆公]|女儿|儿子|[姐哥弟妹]).{0,12}(?:是|叫|在))|叫我(?!起)"
)
_LASTING = re.compile(
    r"(?:[A-Z][\w']*(?: [a-z]+)?'s|[Tt]he|[Oo]ur) [\w' -]{1,60}? (?:is|are) "
    r"(?:called|named|on|at|in|under|behind|near|next|due|\d|[A-Z])|"
    r"[A-Z]\w+ (?:lives?|works?|is (?:my|the|allergic|\d))\b"
)
_LASTING_ZH = re.compile(r"^[^我你]{1,16}(?:在|是|叫|住)[^什么]{1,30}$")
_SMALL_TALK = re.compile(r"(?i)\b(?:weather|time|day) (?:is|was)\b|天气")
_PREFERENCE = re.compile(
    r"(?i)\b(?:favou?rite|likes?|loves?|enjoys?|prefers?|hates?|dislikes?|wants? nanobot)\b"
    r"|喜欢|最爱|讨厌|偏好"
)
_PROJECT = re.compile(
    r"(?i)\b(?:project|deadline|repo(?:sitory)?|server|deploy\w*|release|client|milestone)\b"
    r"|项目|截止|服务器|客户|发布"
)
_PERSONAL = re.compile(r"(?i)(?:the )?user\b|用户")
_MONTHS = "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
_MONTHS += "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
_WHEN = re.compile(
    r"(?i)\b(?:remember|memori[sz]e|keep in mind|don't forget|note(?: that|:)|important)"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)? (?:{_MONTHS})\b|\b(?:{_MONTHS})\.? \d"
    r"|\b\d{4}-\d\d(?:-\d\d)?\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b|\bin (?:19|20)\d\d\b"
    r"|\b(?:today|tonight|tomorrow|yesterday|(?:mon|tues|wednes|thurs|fri|satur|sun)days?)\b"
    r"|\b(?:last|next|this) (?:week|weekend|month|year|spring|summer|autumn|fall|winter)\b"
    r"|记住|记得|别忘|记一下|重要|\d ?[年月日号]|今[天晚]|明天|后天|昨天|前天|[今明去后前]年"
    r"|[上下本这]个?(?:周|星期|礼拜|月)|(?:周|星期|礼拜)[一二三四五六日天]"
)

_PAST = "was were had did went got made bought came left lost won met saw said told took gave found"
_MODAL = "will would can can't could should might must may never always also really now just"
_UNCHANGED = frozenset(f"{_PAST} {_MODAL}".split())
_AGREES = {"am": "is", "are": "is", "have": "has", "do": "does", "don't": "doesn't", "go": "goes"}
_RETURNS = {third: first for first, third in _AGREES.items()} | {"is": "are", "was": "were"}
_ADVERB_VERB = r"((?:now|also|really|always|usually) )?([\w']+)"

NAME = "name"
"""The term for every way to give or ask a name."""

_COMMON = (
    "a an the is are am was were be been do does did have has had of in on at to for from with by"
    " and or but that this it its what where when who whose which why how i you me my your we our"
    " user tell about know remember called there please can could should would will many much"
)
_STOP = frozenset(_COMMON.split())
_ALIKE = {
    "color": "colour", "favorite": "favourite", "went": "go", "bought": "buy", "met": "meet",
    "saw": "see", "ate": "eat", "kept": "keep", "left": "leave", "kids": "children",
    "years": "age", "year": "age", "old": "age", "named": NAME, "names": NAME, "moved": "live",
}  # fmt: skip
_STOP_ZH = re.compile(
    r"什么时候|知道|记得|什么|啥|哪里|哪儿|哪|谁|怎么|多少|几|吗|呢|请问|我们?|你们?|用户|的|了|是|在|[^\u4e00-\u9fff]"
)


def is_chinese(text: str) -> bool:
    """Return True if a text has Chinese characters."""
    return re.search(r"[\u4e00-\u9fff]", text) is not None


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, without the marks that end them."""
    parts = (re.sub(_OPENING, "", part.strip()) for part in _SENTENCE.split(text))
    return [part.rstrip(" .!。！") for part in parts if part.rstrip(" .!。！")]


def is_question(sentence: str) -> bool:
    """Return True if a sentence asks something."""
    asks = _QUESTION_ZH.search if is_chinese(sentence) else _QUESTION.match
    return sentence.rstrip().endswith(("?", "？")) or asks(sentence.strip()) is not None


def is_own_fact(sentence: str) -> bool:
    """Return True if the person plainly states something lasting about themselves."""
    pattern = _OWN_ZH if is_chinese(sentence) else _OWN
    return not is_question(sentence) and pattern.match(sentence.strip()) is not None


def is_lasting(sentence: str) -> bool:
    """Return True if a sentence on any subject will still be true next month."""
    pattern = _LASTING_ZH if is_chinese(sentence) else _LASTING
    states = not is_question(sentence) and not _SMALL_TALK.search(sentence)
    return states and (is_own_fact(sentence) or pattern.match(sentence) is not None)


def third_person(sentence: str) -> str:
    """Turn a sentence of the person into a line of memory: "My dog is Rex" into "User's dog is
    Rex"."""
    text = sentence.strip().rstrip(".!。！")
    if is_chinese(text):
        return re.sub("^叫我", "我叫", text).replace("你", "nanobot").replace("我", "用户")
    for pattern, replacement in _TO_THIRD:
        text = re.sub(pattern, replacement, text, flags=re.IGNORECASE)
    text = text[:1].upper() + text[1:]
    return re.sub(r"(?<!^)\bThe user\b", "the user", text)


def conjugate_third(match: re.Match[str]) -> str:
    adverb, verb = match[1] or "", match[2].lower()
    if verb in _AGREES:
        verb = _AGREES[verb]
    elif verb not in _UNCHANGED and not verb.endswith("ed"):
        verb = f"{verb}es" if re.search(r"(?:s|x|ch|sh|o)$", verb) else f"{verb}s"
        verb = re.sub(r"([^aeiou])ys$", r"\1ies", verb)
    return f"The user {adverb}{verb}"


_HIS_NAME = r"(?i)^(?:(?:no|sorry),? )?(?:his|her|its) name|^(?:不对?[，,])?[它他她](?=叫)"
_TO_THIRD: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"^(?:please )?call me ", "I am called "),
    (r"^to (?=\w)", "I want to "),
    (rf"^I(?:'m| am) (?={_NAMED})", "My name is "),
    (r"\bI'm\b", "I am"),
    (r"\bI've\b", "I have"),
    (rf"\bI {_ADVERB_VERB}", conjugate_third),
    (r"^(?:my|our)\b", "User's"),
    (r"\b(?:my|our)\b", "their"),
    (r"\bme\b", "them"),
)


def insert_name(text: str, before: Iterable[str]) -> str:
    """Insert the subject into "No, his name is Max" if a message `before` has "my dog"."""
    things = [one for said in before for one in re.findall(r"(?i)\bmy (\w+)|我的(.+?)[叫是]", said)]
    for english, chinese in things[-1:]:
        text = re.sub(_HIS_NAME, f"my {english}'s name" if english else f"我的{chinese}", text)
    return text


def second_person(fact: str) -> str:
    """Address a line of memory to the person: "User's dog is Rex" becomes "Your dog is Rex"."""
    if is_chinese(fact):
        return f"{fact.replace('nanobot', '我').replace('用户', '你').rstrip('。')}。"
    text = re.sub(r"\b(?:the )?user's\b", "your", fact, flags=re.IGNORECASE)
    text = re.sub(rf"\bthe user {_ADVERB_VERB}", conjugate_second, text, flags=re.IGNORECASE)
    if text != fact:
        text = re.sub(r"\btheir\b", "your", re.sub(r"\bthem\b", "you", text))
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def conjugate_second(match: re.Match[str]) -> str:
    adverb, verb = match[1] or "", match[2].lower()
    if verb in _RETURNS:
        verb = _RETURNS[verb]
    elif verb not in _UNCHANGED and verb.endswith("s"):
        verb = re.sub(r"ies$", "y", verb)
        verb = re.sub(r"(?<=s|x|h|o)es$|(?<!s)s$", "", verb)
    return f"you {adverb}{verb}"


def plain(line: str) -> str:
    """Return a line of a memory file as a fact, without its mark and full stop."""
    return re.sub(r"^\s*[-*+]\s+", "", line).strip().rstrip(".。")


def key_of(fact: str) -> str:
    """Return a key that ignores letter case, articles and punctuation of a fact."""
    return re.sub(r"\bthe\b|[^\w]", "", plain(fact).lower())


_TASTE = re.compile(
    r"(?i)the user (?:now |really |does(?:n't| not) )*(?:like|love|hate|dislike|enjoy)s? (.*)"
    r"|用户(?:也|很)?(?:不喜欢|喜欢|讨厌)(.{1,20})"
)
# Subjects of facts, as patterns. Only one fact on each subject can be true.
_SUBJECTS = (
    ("age", re.compile(r"([\w' ]{1,40}'s [\w -]{1,60}?) (?:is|are) \d{1,3}(?: years old)?$")),
    ("is", re.compile(r"([\w' ]{1,40}'s [\w -]{1,60}?) (?:is|are|was|were)\b")),
    ("is", re.compile(r"用户的(.{1,12}?)(?:是|叫|在)")),
    ("name", re.compile(r"(?i)the user is (?:called|named) |用户(?:现在)?叫")),
    ("age", re.compile(r"(?i)the user is (?:now )?\d+(?: years old)?$|用户(?:今年)?\d+岁")),
    ("home", re.compile(r"(?i)the user (?:now )?(?:live|move|reside)|用户(?:现在|已经)?(?:住|搬)")),
    ("work", re.compile(r"(?i)the user (?:now )?works? (?:at|for|as)\b")),
    ("taste", _TASTE),
)


def subject(fact: str) -> tuple[str, ...]:
    """Return the subject of a fact that replaces others, or nothing if such facts add up."""
    text = plain(fact)
    for kind, pattern in _SUBJECTS:
        if match := pattern.match(text):
            about = terms(" ".join(filter(None, match.groups())))
            is_name = (kind, about) == ("is", [NAME])
            return (NAME,) if is_name else (kind, *(one for one in about if one != NAME))
    return ()


def section_of(fact: str) -> int:
    """Return the section of a fact: 0 the person, 1 preferences, 2 projects, 3 anything else."""
    if _PREFERENCE.search(fact):
        return 1
    if _PROJECT.search(fact):
        return 2
    return 0 if _PERSONAL.match(plain(fact)) else 3


def is_personal(fact: str) -> bool:
    """Return True if a fact is about the person."""
    return _PERSONAL.match(plain(fact)) is not None


def terms(text: str) -> list[str]:
    """Return the significant words of a text, each once: English words without endings, Chinese
    characters."""
    text = re.sub(r"(?<=is |re |am )\d{1,3}$", r"\g<0> years", text)
    words = (word.removesuffix("'s") for word in re.findall(r"[a-z0-9][\w'.-]*", text.lower()))
    english = [stem_word(word.rstrip(".-'")) for word in words if word.rstrip(".-'") not in _STOP]
    chinese, names = re.subn(r"(?i)名字|姓名|叫做?|我是谁|who am i$", "", text.rstrip("?？"))
    chinese = _STOP_ZH.sub("", chinese.replace("搬到", "住").replace("上班", "工作"))
    return list(dict.fromkeys([*english, *([NAME] if names else []), *chinese]))


def stem_word(word: str) -> str:
    word = _ALIKE.get(word, word)
    return re.sub(r"(?:ings?|ed|es|s|e)$", "", word) if len(word) > 3 and word != NAME else word


def best(question: str, lines: Iterable[str]) -> str:
    """Return the line that answers best, or an empty text. Of equals the shorter or later one
    wins."""
    wanted, counts = terms(question), {subject(line) or line: line for line in lines}.values()
    scored = ((share(wanted, line), -len(terms(line)), at, line) for at, line in enumerate(counts))
    score, _, _, line = max(scored, default=(0.0, 0, 0, ""))
    return line if score >= ENOUGH else ""


def share(wanted: list[str], line: str) -> float:
    """Return the share of the `wanted` words in a line, 0 without any. A wanted name only adds a
    tenth, because a name may be given without the word ("my dog is Rex"). The person's own name is
    only found in a fact about it."""
    if wanted == [NAME]:
        return float(subject(third_person(plain(line))) == (NAME,))
    has, things = set(terms(plain(line))), [term for term in wanted if term != NAME]
    return sum(term in has for term in things) / max(len(things), 1) + (NAME in has) / 10


_STATEMENT = r"(?i)\b(?:is|are|was|were|am|has|have|had|will|i|i'm|my|we|our)\b|我|是|在|了|有"

_REMEMBER = re.compile(
    r"(?i)(?:please |can you |and )*(?:remember|memori[sz]e|keep in mind|don't forget)"
    r"(?! to remind)(?::|,| that\b:?)?\s+(?P<fact>\S.*)$"
    r"|(?:请|帮我)?(?:记住了?|记得|记一下(?![:：，, ])|别忘了?)[:：，,]?\s*(?P<zh>.+)$"
)
_BEFORE = r"(?:^|(?<![\s,;.!])[\s,;.!]+)"  # possessive row of marks, so that a long one is fast

_AFTERWARDS = re.compile(
    rf"(?i)(?:^(?:please |and )*(?:save|store)|{_BEFORE}(?:and |so |please ){{0,3}}"
    r"(?:remember|memori[sz]e|keep|don't forget)) (?:that|this|it)(?: in mind)?(?: please)?$"
    r"|(?:(?<![，,。\s])[，,。\s]+)?(?:请|帮我)?记(?:住|得|一下)(?:这个|它|了)?$"
    rf"|{_BEFORE}(?:and )?(?:this|that|it)(?:'s| is) (?:very |really )?important$"
    r"|^这.{0,2}很?重要$"
)
_NAME = r"[`\"“]?(?P<text>[^\s`\"”，。]{1,200})[`\"”]?"
_NAME_ZH = _NAME.replace("text", "zh")
_PATTERNS: Mapping[str, str] = {
    "note": r"(?:take a )?note(?::| that)\s*(?P<text>\S.*)|记一下[:：，, ](?P<zh>.+)",
    "send": rf"(?:please )?send me (?:the file )?{_NAME}|请?把 ?{_NAME_ZH} ?发给我",
    "help": r"(?:can you )?help(?: me)?|what (?:else )?(?:can|do) you do|what can i (?:do|ask|say)|"
    r"how (?:do|can) i use (?:you|this)|(?:who|what) are you|are you an? .{1,40}|帮助|"
    r"what(?:'s| is) (?:this|your name)|你[能会][做干]?(?:什么|啥|嘛)|你[是叫](?:谁|什么.*)|怎么用",
    "forget": r"(?:please )?forget (?!it$)(?:that )?(?P<text>\S.*)|请?忘[记掉了](?P<zh>.{1,40})",
    "memory": r"what do you (?:know|remember)(?: about me)?|你(?:知道|记得)我?的?什么",
    "reminders": r"(?:what|list|show|cancel|delete)\b.{0,40}\breminders?|(?:取消|有什么).{0,8}提醒",
    "greeting": r"(?:(?:hi|hello|hey|good (?:morning|afternoon|evening|day)|how are you|what's up)"
    r"[ ,]{0,2}(?:there|nanobot|again)?[ ,]{0,2})+|[你您]好[啊吗]?|嗨|哈喽|在吗|.{2}好|早安?",
    "thanks": r"(?:(?:ok(?:ay)?|great|nice|perfect|good|many|no(?=,? )|thanks|thank you|thx|cool|"
    r"cheers|job|nanobot|a lot|(?:so|very) much)[ ,]{0,2})+|(?:[好的谢嗯太啦你您了，,]|多谢|辛苦)+",
    "bye": r"(?:good ?)?bye(?: bye)?|good night|see you(?: later| soon| tomorrow)?|再见|拜拜|晚安",
}
_CLOCK = r"(?:noon|midnight|\d{1,2}(?::\d\d)?(?: ?[ap]\.?m\b\.?)?)"
_DUE = (
    r"(?:in|every) (?:\d+|an?|half an|one|two|three|five|ten) ?\w{1,7}(?: and \w{1,5} \w{1,7})?|"
    r"(?:today|tomorrow|daily|(?:(?:on|this|next|every) )?\w{0,7}days?|\d{4}-\d\d-\d\d|"
    rf"(?:on )?\d{{1,2}} [a-z]{{3,9}}|on the \w{{1,5}} of every month)(?:,? (?:at )?{_CLOCK})?"
    rf"|every hour|at {_CLOCK}"
)
_TO = r"(?:,? (?:to|that|about|of|for)|[:,])"
_TEXT = r"\S.{0,999}"
_NUMERAL = "[一二两三四五六七八九十]"
_HOUR = rf"(?:\d{{1,2}}|{_NUMERAL}{{1,3}})"
_DUE_ZH = (
    rf"(?:半|{_HOUR})个?(?:小时|分钟|天)[之以]?后|(?:今天?|[明后每]天|明(?=早))?"
    rf"(?:早上?|上午|中午(?=12|十二)|(?:下午|晚上?)(?!12|十二))?"
    rf"{_HOUR}(?:点半|点钟?|[点:：]{_HOUR}分?)"
)
_PLEASE = "(?:please |(?:don't forget|remember) to |(?:can|could) you |请|帮我)*"
_REMIND = (
    rf"{_PLEASE}remind me (?P<due>{_DUE}){_TO} (?P<text>{_TEXT})",
    rf"{_PLEASE}remind me{_TO} (?P<text>{_TEXT}?),? (?P<due>{_DUE})",
    rf"{_PLEASE}(?P<due>{_DUE}),? (?:please )?remind me{_TO} (?P<text>{_TEXT})",
    rf"{_PLEASE}(?P<due>{_DUE_ZH})[，,]?(?:请|再)?(?:提醒|叫)我[，,:：]?(?P<text>{_TEXT})",
    rf"{_PLEASE}提醒我在?(?P<due>{_DUE_ZH})[，,:：]?(?P<text>{_TEXT})",
)
_UNCLEAR = rf"(?i){_PLEASE}(?:remind me\b(?! wh)|set an? (?:r|al)|wake me)|.*(?:提醒|后叫)我"
_DUE_ENGLISH = (
    (r"(.+?)[之以]?后$", r"in \1"), ("半个?小时", "30 minutes"), ("个?小时", " hours"),
    ("分钟", " minutes"), (r"(\d)天", r"\1 days"), ("今天?", "today "), ("明天?", "tomorrow "),
    ("后天", "the day after tomorrow "), ("每天", "every day "), ("点半", ":30"), ("点钟?$", ":00"),
    (r"[点：](\d+)分?", r":\1"), (r"(?:下午|晚上?)(\S+)", r"\1pm"), ("早上?|[上中]午", ""),
    (r"^(?=\d)", "at "),
)  # fmt: skip
"""Substitutions that turn a Chinese time into the English words of reminders, in this order."""


class Request(Struct, frozen=True):
    """One request. `facts` are to be remembered (empty if "remember that" refers to the message
    before). `due` is the time of a reminder, empty if none was understood."""

    kind: str
    text: str
    facts: tuple[str, ...] = ()
    due: str = ""


def facts_to_remember(text: str) -> list[str]:
    """Return the facts that a text asks to remember or states about the person."""
    return [fact for request in requests_in(text) for fact in request.facts]


def stands_out(sentence: str) -> bool:
    """Return True if a statement names a day or its own importance."""
    return not is_question(sentence) and _WHEN.search(_AFTERWARDS.sub("", sentence)) is not None


def requests_in(text: str) -> Iterator[Request]:
    """Yield the first eight requests. All facts are one request, and small talk next to them is
    none."""
    facts: list[str] = []
    rest: list[Request] = []
    before = ""
    is_note = _matches("note", text.strip())
    for sentence in [text.strip()] if is_note else sentences(text):
        asked, stated = _REMEMBER.match(sentence), _AFTERWARDS.sub("", sentence)
        if not stated:  # "remember that", "this is important": refers to the previous sentence
            rest += [] if before else [Request("remember", sentence)]
            facts += [before] if before else []
        elif asked:
            facts.append((asked["fact"] or asked["zh"]).strip())
        elif stated != sentence or is_own_fact(sentence):
            facts.append(stated)
        else:
            rest.append(parse_request(sentence))
        before = stated
    if facts:
        yield Request("remember", text, tuple(dict.fromkeys(facts)))
    small_talk = ("greeting", "thanks", "bye", "unclear", "heard") if facts else ()
    yield from [one for one in rest if one.kind not in small_talk][:8]


def _matches(kind: str, text: str) -> re.Match[str] | None:
    return re.fullmatch(_PATTERNS[kind], text, re.IGNORECASE | re.DOTALL)


def parse_request(sentence: str) -> Request:
    for form in _REMIND:
        if found := re.fullmatch(form, sentence, re.IGNORECASE | re.DOTALL):
            return Request("remind", found["text"], due=translate_time(found["due"]))
    for kind in _PATTERNS:
        if match := _matches(kind, sentence.rstrip(" ?？")):
            return Request(kind, next(filter(None, match.groups()), sentence))
    if re.match(_UNCLEAR, sentence):
        return Request("when", sentence)
    if is_question(sentence):
        return Request("ask", sentence)
    return Request("heard" if re.search(_STATEMENT, sentence) else "unclear", sentence)


def translate_time(due: str) -> str:
    if not is_chinese(due):
        return due
    due = re.sub(rf"{_NUMERAL}+", read_numeral, due)
    for pattern, english in _DUE_ENGLISH:
        due = re.sub(pattern, english, due)
    return due


def read_numeral(numerals: re.Match[str]) -> str:
    tens, ten, ones = numerals[0].rpartition("十")
    value = ["", *"一二三四五六七八九"].index
    return str((value(tens) or 1) * 10 * bool(ten) + value(ones.replace("两", "二")))
