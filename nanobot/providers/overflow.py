"""Detection of refusals because a prompt is too long, with the numbers in them.

Every server has its own sentence, so sentences are not listed here. A sentence counts if it has a
subject (the prompt, its tokens, the context), an excess (exceeds, longer than, at most, reduce),
and nothing that makes it about something else: the length of the answer (`max_tokens`), a picture,
a name, a call id, a deadline. A limit per minute is about other requests too, unless this request
exceeds the whole limit.

The numbers are the server's count and maximum. If only one is given, the other is 0. Numbers of
other units (characters, bytes) are left out."""

from __future__ import annotations

import re

from msgspec import Struct

_MOST = 100_000_000  # tokens; larger numbers are something else


class Overflow(Struct, frozen=True):
    """A prompt that does not fit. `tokens` is the server's count, `window` its maximum, 0 if
    unknown."""

    tokens: int = 0
    window: int = 0


_CODES = re.compile(
    r"context_(length|window)_exceeded|exceed_context_size|max_prompt_tokens_exceeded"
    r"|tokens_limit_reached|(prompt|input|request)_too_(long|large)|\b1261\b",
    re.I,
)
_SENTENCE = re.compile(r"(?<=[.;!?。；！])\s+|\n+|(?<=[。；！])")
_SUBJECT = re.compile(
    r"\b(prompts?|inputs?|request|messages?|context|conversation|history|tokens?|text|sequence"
    r"|n_keep|n_ctx|query|payload|max_seq_len)\b",
    re.I,
)
_EXCESS = re.compile(
    r"\bexceed(s|ed|ing)?\b|\b(longer|greater|larger|more|higher) than\b"
    r"|[0-9]\)? *>=? *[a-z_: (]*[0-9]|<= *[0-9]"
    r"|\btoo (long|large|big)\b|\btoo many (input |prompt |total )*tokens\b"
    r"|\bout of (context|room)\b"
    r"|\bmust (have|be|contain) (less|fewer|at most|smaller)|\bless than or equal\b"
    r"|\b(cannot|can't|do(es)? not|do(es)?n't) fit\b|\boverflow(s|ed)?\b"
    r"|\b(over|above|beyond) the (limit|maximum)\b|\bout(side)? (of )?(the )?range\b"
    r"|\b(reduce|shorten|trim|decrease)\b|\b(limit|maximum|max)\b.{0,60}\b(is|was|of)\b.{0,40}[0-9]"
    r"|\bshould be \[\s*[0-9]+\s*,\s*[0-9]+|\bbut the configured\b|\b(limit|maximum) (was )?reached"
    r"|\bonly supports? up to\b",
    re.I,
)
_CJK_SUBJECT = re.compile(
    r"输入|輸入|上下文|提示词|提示詞|消息|对话|對話|文本|长度|長度|入力|プロンプト|コンテキスト"
    r"|입력|프롬프트|컨텍스트|토큰|トークン|token|prompt",
    re.I,
)
_CJK_EXCESS = re.compile(
    r"超|[过過太]长|[过過太]長|大于|大於|上限|压缩|壓縮|精简|長すぎ|초과|너무 (길|깁|긴)"
)
_CJK_ELSEWHERE = re.compile(
    r"[超逾][时時]|每分|每秒|每天|每日|今日|分钟|频率|頻率|速率|限流|并发|並發|次数|次數|请求数|条数"
    r"|图|圖|文件|视频|音频|余额|餘額|额度|額度|欠费|敏感|max_\w*tokens"
    r"|画像|ファイル|リクエスト数|回数|요청 (한도|수)|이미지|파일",
    re.I,
)
_STRONG = re.compile(
    r"(maximum|max|available|model'?s?|configured) context (length|size|window)"
    r"|context (length|size|window|limit).{0,40}(exceed|overflow|reached|is only|of only)"
    r"|(exceed|greater than|longer than|larger than|larger|increase).{0,60}context"
    r" ?(length|size|window|limit)|physical batch size|max(imum)? length exceeded"
    r"|\binput_length_error\b",
    re.I,
)
_ELSEWHERE = re.compile(
    r"\b(header|uri|url|timeout|timed out|took|takes?|taking|deadline|wait|time limit|seconds"
    r"|minutes|temperature|top_[pk]|safety|risk|threshold|polic(y|ies)|violat\w+"
    r"|stop|penalty|budget_tokens|cached?|caching|cache_control|schema|enum|nesting|depth|states"
    r"|names?|ids?|description|arguments?|tools?|functions?|metadata|tool_calls?|credits?|afford"
    r"|balance|quota|users?|file|files|audio|video|pdf|documents?|attachments?|pages?)\b"
    r"|\btoo small\b|\btoo short\b|\bat least\b|\.id\b|_id\b",
    re.I,
)
_PICTURE = re.compile(
    r"\b(images?|pictures?|pixels?|dimensions?|bytes|[KMG]i?B|megabytes?)\b", re.I
)
_ANSWER = re.compile(
    r"`?'?\b(max_(completion_|new_|output_)?tokens|maximum tokens|max tokens you requested"
    r"|completion tokens|(maximum )?output tokens|generated tokens|(in|for) the completion)\b",
    re.I,
)
_WITH_PROMPT = re.compile(r"\b(prompt|inputs?|messages?|context (length|limit|window))\b", re.I)
_PREFIX = re.compile(
    r"input validation error:?|max_\w*tokens\W.{0,40}too large: *[0-9]+\.?|error code: [0-9]+", re.I
)
"""Prefixes that could be mistaken for a part of the reason."""
_PYDANTIC = re.compile(r"input should (be|have)", re.I)
_FIELD_TOO_LONG = re.compile(r"'([^']+)'\s*:\s*(string|array) too long", re.I)
_SPOKEN_FIELD = re.compile(r"^(input|prompt|messages\[\d+\]\.content(\[\d+\](\.text)?)?)$")
_RATE = re.compile(
    r"rate.?limit|\bper (second|min|minute|hour|day|week|month)\b|\b[RT]P[MD]\b|throttl"
    r"|too many requests|concurren|\b(daily|weekly|monthly)\b|\b(request|message) (limit|quota)\b"
    r"|try again (in|after)|please wait",
    re.I,
)
_WAITS = re.compile(r"(try again|retry) (in|after) [0-9]|please wait|\bused\b:? [0-9]", re.I)
_ONE_REQUEST = re.compile(r"request (is )?too large|must be reduced|reduce your message", re.I)


def overflow_in(codes: str, message: str) -> Overflow | None:
    """Return the overflow in an error's text, or None if it is about something else."""
    reason = _PREFIX.sub("", message)
    numbers = read_numbers(reason)
    if _RATE.search(message):
        alone = _ONE_REQUEST.search(message) or numbers.tokens > numbers.window > 0
        return numbers if alone and not _WAITS.search(message) else None
    field = _FIELD_TOO_LONG.search(message)
    if field:  # the numbers are characters
        return Overflow() if _SPOKEN_FIELD.match(field[1]) else None
    if blames_answer(message):
        return None
    if _CODES.search(codes) or any(map(reports_overflow, _SENTENCE.split(reason))):
        return numbers
    return None


def reports_overflow(sentence: str) -> bool:
    if reports_overflow_in_cjk(sentence):
        return True
    if _PYDANTIC.search(sentence) or (_ANSWER.search(sentence) and not mentions_prompt(sentence)):
        return False
    if _PICTURE.search(sentence) and "token" not in sentence.lower():
        return False
    if _STRONG.search(sentence):
        return not re.search(r"deadline|cache", sentence, re.I)
    if _ELSEWHERE.search(sentence):
        return False
    return bool(_SUBJECT.search(sentence) and _EXCESS.search(sentence))


def reports_overflow_in_cjk(sentence: str) -> bool:
    return bool(
        _CJK_SUBJECT.search(sentence) and _CJK_EXCESS.search(sentence)
    ) and not _CJK_ELSEWHERE.search(sentence)


def mentions_prompt(sentence: str) -> bool:
    """Return True if a sentence about the length of the answer is about the prompt too."""
    rest = _ANSWER.sub("", sentence)
    return bool(_WITH_PROMPT.search(rest)) and "context_window" not in sentence


def blames_answer(message: str) -> bool:
    """Return True if the requested answer is too long for the model, however short the prompt is:
    `max_tokens` has to be lowered."""
    asked = _ANSWER.search(message)
    if not asked or _RATE.search(message):
        return False
    numbers = read_numbers(_PREFIX.sub("", message))
    if numbers.tokens and numbers.window:
        return 2 * numbers.tokens <= numbers.window
    return bool(_EXCESS.search(message)) and not mentions_prompt(_PREFIX.sub("", message))


_NUMBER = r"(?<![0-9,_])([0-9][0-9,_]{0,14})(?![0-9,_])"
_SUM = re.compile(
    rf"{_NUMBER} *\+ *{_NUMBER} *(?:>=?|is greater than|exceeds)[^0-9]{{0,40}}{_NUMBER}"
)
_COMPARED = re.compile(
    rf"{_NUMBER}(?: tokens)? *>=? *(?:[a-z_]+: *)?{_NUMBER}(?! -)"
    rf"|{_NUMBER}(?: tokens)?\)? (?:has )?exceed[^0-9.;]{{0,60}}(?<!by ){_NUMBER}"
    rf"|{_NUMBER}\)? *(?:超|大于|大於)[^0-9。]{{0,30}}{_NUMBER}",
    re.I,
)
_WINDOW = re.compile(
    r"(?:context|limit|maximum|max|window|max_seq_len|n_ctx|allowed|cannot exceed|less than"
    rf"|at most|no more than|up to|<=|should be \[ *[0-9]+ *,|longer than|greater than|exceeds?"
    rf"|最大|最多|上限|최대)[^0-9.;+]{{0,45}}(?<!by ){_NUMBER}"
    rf"(?! *(?:input )?tokens? (?:in|of))|{_NUMBER} (?:tokens is the )?maximum",
    re.I,
)
_TOKENS = (
    re.compile(
        rf"{_NUMBER} (?:tokens )?(?:in (?:the|your) (?:messages|prompt|input)|of text input"
        r"|from the input)"
    ),
    re.compile(rf"{_NUMBER} *`?(?:input|inputs|prompt)`? tokens"),
    re.compile(rf"{_NUMBER} `?inputs`? "),
    re.compile(
        r"(?:resulted in|contains?|has|have|given|received|got|requested|current length is"
        r"|currently|現在|当前|目前|count"
        r"|too long:|count of|first|n_keep|request|input|prompt|length|tokens)"
        rf"[ :(]*(?:at least |about |over |tokens? |length |count |of |is )*\(?{_NUMBER}",
        re.I,
    ),
)
_MINIMAX_CODE = "(2013)"
_OTHER_UNIT = re.compile(
    r"[0-9][^.;\n]{0,40}\b(characters?|bytes)\b|\b(characters?|bytes)\b[^.;\n]{0,20}[0-9]", re.I
)


def read_numbers(message: str) -> Overflow:
    """Return the server's count and maximum, as far as they can be distinguished."""
    if _OTHER_UNIT.search(message):
        return Overflow()
    message = message.replace(_MINIMAX_CODE, "")
    if summed := _SUM.search(message):
        return Overflow(parse_tokens(summed[1]), parse_tokens(summed[3]))
    if compared := _COMPARED.search(message):
        tokens, window = filter(None, compared.groups())
        return Overflow(parse_tokens(tokens), parse_tokens(window))
    limits = (number for pair in _WINDOW.findall(message) for number in map(parse_tokens, pair))
    window = next(filter(None, limits), 0)
    if in_prompt := _TOKENS[0].search(message):
        return Overflow(parse_tokens(in_prompt[1]), window)
    found = (number for shape in _TOKENS for number in map(parse_tokens, shape.findall(message)))
    tokens = next((number for number in found if number not in (0, window)), 0)
    return Overflow(tokens if window else 0, window)  # a single number is the maximum


def parse_tokens(text: str) -> int:
    """Return a plausible number of tokens, else 0."""
    value = int(re.sub(r"[,_]", "", text) or 0)
    return value if 16 <= value <= _MOST else 0
