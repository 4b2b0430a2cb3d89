"""Error bodies of model servers: one reader for all shapes, and the decision that their text
implies.

OpenAI-compatible servers agree on little when they refuse. The reason is in `error.message`, in
`error` itself, `message`, `msg`, `detail` (text, or FastAPI's list), in `error.metadata.raw`
(OpenRouter, as JSON in text), in `base_resp` (MiniMax), with an array around it, or as JSON inside
another message. Any of these also arrives with status 200.

Statuses are no more reliable. llama.cpp reports a broken template as its own failure, LM
Studio a missing path with 200. So the meaning of the text counts: see `ErrorBody.status`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from nanobot.errors import ProviderError, ProviderFiltered, ProviderGarbage, ProviderRejected
from nanobot.providers.fields import count, items, mapping, string
from nanobot.providers.port import Reply

if TYPE_CHECKING:
    from nanobot.providers.overflow import Overflow

_DEEPEST = 12  # levels of JSON in JSON
_LONGEST = 2_000  # characters of a reason; the rest is an echo of the request
_LONGEST_PAGE = 100_000  # characters
_GENERIC = re.compile(r"^(upstream|provider) returned (an )?error\.?$", re.I)
_NO_REASON = "the model's provider returned an error without a reason"
_MINIMAX = {
    **dict.fromkeys((1000, 1001, 1013, 1024, 1033), 503),
    **dict.fromkeys((1002, 1039, 1041, 2056), 429),
    **dict.fromkeys((1004, 2049), 401),
    **dict.fromkeys((1026, 1027, 1042, 1043, 1044, 2013), 400),
    1008: 402,
}
"""HTTP statuses for MiniMax's codes. Source:
https://platform.minimax.io/docs/api-reference/errorcode"""
_FINE = frozenset({"", "0", "200", "ok", "success", "none", "true"})


class ErrorBody(Struct, frozen=True):
    """Content of an error answer. `named` is the status in it, 0 if none. `generation` is the
    model's text that the server could not parse (Groq's `failed_generation`). `prompt_tokens` and
    `window` are numbers in separate fields (llama.cpp)."""

    message: str = ""
    code: str = ""
    kind: str = ""
    named: int = 0
    generation: str = ""
    prompt_tokens: int = 0
    window: int = 0

    @classmethod
    def of(cls, error: object) -> ErrorBody:
        """Read JSON of any shape, without repetition and reasons that only state that something
        failed. `message` is empty if nothing looks like a reason."""
        codes: dict[str, Any] = {}
        texts = list(filter(None, map(str.strip, find_reasons(error, _DEEPEST, codes))))
        known: list[str] = []
        for text in texts:
            if not _GENERIC.match(text) and not any(text in other for other in known):
                known = [*(other for other in known if other not in text), text]
        message = ": ".join(known) or (_NO_REASON if texts else "")
        return cls(message[:_LONGEST], **codes)

    @classmethod
    def in_body(cls, body: bytes) -> ErrorBody:
        text = body.decode("utf-8", "replace").strip().removesuffix(_DONE)
        found = cls.of(text_of_page(text))
        return found if found.message else replace(found, message=text[:_LONGEST])

    @property
    def words(self) -> str:
        return f"{self.code}\n{self.kind}\n{self.message}"

    @property
    def overflow(self) -> Overflow | None:
        """The excess of a prompt that is too long, or None for other errors."""
        from nanobot.providers.overflow import Overflow, overflow_in  # slow to compile

        found = overflow_in(f"{self.code} {self.kind}", self.message)
        if found is None or not (self.prompt_tokens or self.window):
            return found
        return Overflow(self.prompt_tokens or found.tokens, self.window or found.window)

    def meaning(self, status: int) -> int | Literal["busy", "failed", "blamed"]:
        """Return the kind of failure, or the status that a refusal amounts to. Waiting does not
        help if an account has no money or a gateway has no server for the model (new-api)."""
        no_money = _matches(_NO_MONEY, self.words)
        if status in (429, 449) and not no_money:
            return "busy"
        if status in (500, 501) and self.blames_request:
            return "blamed"
        if status >= 500:
            return 404 if _matches(_NO_CHANNEL, self.words) else "failed"
        if status in (408, 409):
            return "failed"
        if status in (400, 403) and _matches(_NO_KEY, self.message):
            return 401
        return 402 if no_money else status

    @property
    def blames_answer(self) -> bool:
        """True if the requested answer is too long for the model."""
        from nanobot.providers.overflow import blames_answer

        return blames_answer(self.message)

    @property
    def blames_request(self) -> bool:
        """True if the same request will always fail: a template that rejects the order of roles,
        text that should be JSON, a schema or parameter that isn't supported."""
        return _matches(_BLAMES_REQUEST, self.words) and not _matches(_PASSING, self.message)

    @property
    def status(self) -> int:
        """The HTTP status that this amounts to if it came with status 200, or 0 if unknown."""
        if self.named:
            return self.named
        meanings = (
            (self.overflow is not None, 400),
            (_matches(_NO_KEY, self.message), 401),
            (_matches(_NO_MONEY, self.words), 402),
            (_matches(_RATE, self.words), 429),
            (_matches(_PASSING, self.message), 503),
            (_matches(_MISSING, self.message), 404),
            (self.kind == "invalid_request_error", 400),
            (self.blames_request, 400),
        )
        return next((status for applies, status in meanings if applies), 0)


def error_in(fields: Mapping[str, object]) -> ErrorBody | None:
    """Return the error in an event or a whole body that came with status 200. None for a
    completion, a usage report, or anything else that isn't an error."""
    base = mapping(fields.get("base_resp"))
    choice = mapping(next(iter(items(fields.get("choices"))), None))
    for place in (fields, choice):
        error = next(filter(None, map(place.get, ("error", "errors"))), None)
        if error and ErrorBody.of(error) != ErrorBody():
            found = ErrorBody.of(place)
            return found if found.message else replace(found, message=json.dumps(error))
    if count(base.get("status_code")):
        return ErrorBody.of(base)
    found = ErrorBody() if choice or base or reports_success(fields) else ErrorBody.of(fields)
    return found if found.message else None


def reports_success(fields: Mapping[str, object]) -> bool:
    """Return True if an object contains an answer, reports success, or has no message."""
    outcome = {str(fields[key]).lower() for key in ("code", "status", "success") if key in fields}
    says = any(map(fields.get, ("message", "msg", "detail")))
    is_answer = any(map(fields.get, ("data", "text", "usage")))
    return is_answer or not says or (bool(outcome) and outcome <= _FINE)


_DONE = "data: [DONE]"
_UNSEEN = r"(?is)<(head|script|style|svg)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)|<[^<>]*>"


def text_of_page(text: str) -> str:
    """Return the visible text of a web page or XML, and any other text unchanged."""
    if not text.startswith("<"):
        return text
    from html import unescape

    return " ".join(unescape(re.sub(_UNSEEN, " ", text[:_LONGEST_PAGE])).split()) or text


_JSON_BEGINS = re.compile(r"[\[{\"]")
_TRACE = re.compile(r"^.*\b(?=Jinja Exception:)", re.DOTALL)
"""The source of a chat template, which llama.cpp quotes before the reason."""
_TEXTS = (
    *("message", "msg", "status_msg", "error_msg", "errormessage", "errmsg", "error_description"),
    *("detail", "description", "reason", "title"),
)
_NESTED = ("error", "base_resp", "errors")
_CODES = ("code", "status_code", "error_code", "err_code", "status")


def find_reasons(value: object, depth: int, codes: dict[str, Any]) -> list[str]:
    """Return the reasons in JSON of any shape, inner ones first, and add its fields of `ErrorBody`
    to `codes`."""
    if depth > 0 and isinstance(value, str):
        return find_text_reasons(value.strip(), depth - 1, codes)
    if depth > 0 and isinstance(value, list):
        return find_list_reasons(value, depth - 1, codes)
    if depth > 0 and isinstance(value, dict):
        lower = {str(key).lower(): one for key, one in value.items()}
        return find_object_reasons(lower, depth - 1, codes)
    return []


def find_text_reasons(text: str, depth: int, codes: dict[str, Any]) -> list[str]:
    """Read text that may be JSON, or end in JSON (`Error from provider: {"error": …}`)."""
    found = _JSON_BEGINS.search(text)
    start = found.start() if found else len(text)
    before, end = text[:start].removeprefix("data:").strip(), 0
    inner: object = None
    with suppress(ValueError, RecursionError):
        inner, end = json.JSONDecoder().raw_decode(text[start:])
    is_all = not text[start + end :].strip(" \n).") and (isinstance(inner, dict) or not before)
    reasons = find_reasons(inner, depth, codes) if is_all else []
    if reasons:
        return [f"{before} {reasons[0]}".strip(), *reasons[1:]]
    return [] if end and is_all and not before else [_TRACE.sub("", text)[:_LONGEST]]


def find_list_reasons(values: list[object], depth: int, codes: dict[str, Any]) -> list[str]:
    """Read FastAPI's list of faults with their places, or one error in an array."""
    faults = [fault for fault in map(mapping, values) if "loc" in fault and "msg" in fault]
    if faults:
        codes |= {"kind": string(faults[0].get("type")), "named": 422}
        return ["; ".join(f"{place_of(one)}{one['msg']}" for one in faults[:8])]
    return next(filter(None, (find_reasons(one, depth, codes) for one in values)), [])


def find_object_reasons(
    fields: Mapping[str, object], depth: int, codes: dict[str, Any]
) -> list[str]:
    reasons = [one for key in _NESTED for one in find_reasons(fields.get(key), depth, codes)]
    reasons += find_upstream_reasons(fields, depth, codes)
    for key in _TEXTS:
        reasons += find_reasons(fields.get(key), depth, codes)
    if " " in (param := string(fields.get("param"))):  # a sentence (Xiaomi), not a name
        reasons.append(param)
    if not reasons:
        others = (one for one in fields.values() if not isinstance(one, str))
        reasons = [reason for one in others for reason in find_reasons(one, depth, codes)]
    note_codes(fields, codes)
    return reasons


def note_codes(fields: Mapping[str, object], codes: dict[str, Any]) -> None:
    own = {
        "code": next((str(one) for one in map(fields.get, _CODES) if is_code(one)), ""),
        "kind": string(fields.get("type")) or string(fields.get("status")),
        "generation": string(fields.get("failed_generation")),
        "prompt_tokens": count(fields.get("n_prompt_tokens")),
        "window": count(fields.get("n_ctx")),
    }
    for name, one in own.items():
        codes[name] = codes.get(name) or one
    codes["named"] = find_status(fields) or codes.get("named", 0)


def is_code(value: object) -> bool:
    return bool(value) and isinstance(value, str | int)


def find_upstream_reasons(
    fields: Mapping[str, object], depth: int, codes: dict[str, Any]
) -> list[str]:
    """Return the reasons of the provider behind OpenRouter, with that provider's name.

    Source: https://openrouter.ai/docs/api/reference/errors-and-debugging
    """
    metadata = mapping(fields.get("metadata"))
    reasons = find_reasons(metadata.get("raw"), depth, codes)
    if listed := items(metadata.get("reasons")):  # moderation
        reasons.append("; ".join(map(str, listed)))
    name = string(metadata.get("provider_name"))
    if name and reasons:
        reasons[0] = f"{name}: {reasons[0]}"
    elif name and _GENERIC.match(string(fields.get("message"))):
        reasons.append(f"{name} returned an error without a reason")
    return reasons


def place_of(fault: Mapping[str, object]) -> str:
    place = ".".join(str(step) for step in items(fault.get("loc")) if step != "body")
    return f"{place}: " if place else ""


def find_status(fields: Mapping[str, object]) -> int:
    """Return the HTTP status in an error, or 0."""
    if own := _MINIMAX.get(count(fields.get("status_code")), 0):
        return own
    for key in _CODES:
        text = str(fields.get(key) or "")
        if text.isdecimal() and len(text) == 3 and 400 <= int(text) < 600:
            return int(text)
    return 0


def _matches(pattern: str, text: str) -> bool:
    # Compiled at the first use and cached by `re`, to keep the import fast.
    return re.search(pattern, text, re.IGNORECASE) is not None


_NO_MONEY = (
    r"insufficient[_ ](quota|balance|credits?|funds)|billing_(not_active|hard_limit_reached)"
    r"|exceeded_current_quota|exceeded your current quota|requires more credits"
    r"|credit balance is too low|余额不足|欠费"
)
_NO_KEY = (
    r"(invalid|incorrect|not valid|missing|wrong|expired).{0,20}api.?(key|token)"
    r"|api.?key.{0,20}(not valid|invalid|expired)"
)
_RATE = (
    r"rate.?limit|too many (requests|concurrent)|requests per (second|minute|hour|day)"
    r"|tokens per (second|min|minute|hour|day)|\b[RT]P[MD]\b|throttl|限流|频率"
)
_PASSING = (
    r"overload|temporarily|try again|retry (later|shortly|in)|capacity|timed? ?out|unavailable"
    r"|loading model|starting up|out of memory"
)
_MISSING = r"unexpected endpoint|unknown (path|route)|(model|route|path).{0,80}not found"
_NO_CHANNEL = r"无可用渠道|no available channel|\bmodel_not_found\b"
_BLAMES_REQUEST = (
    r"jinja|chat.?template|\btemplate\b.{0,60}(error|exception|fail|pars)|raise_exception"
    r"|roles? must alternate|must (be|come) (at the beginning|first)|only user and assistant roles"
    r"|unexpected role|unknown (role|method)|json\.exception|failed to parse|parse.?error"
    r"|error while parsing|invalid tool call arguments|cannot pass both content and"
    r"|unable to generate parser|(grammar|schema).{0,40}(error|invalid|fail|unsupported|not )"
    r"|(failed|error|invalid|unsupported|unable).{0,40}(grammar|schema)"
    r"|unsupported (param|content|type|value|field)|unrecognized (request )?(argument|param|field)"
    r"|param(eter)?.{0,60}(not supported|unsupported)|does not support (tools|images|system)"
    r"|(image|tool)s?( input)? (is|are) not supported"
    r"|\b(Type|Value|Key|Attribute|Undefined|Index|JSONDecode|Validation)Error\b"
    r"|type must be|object is not (iterable|subscriptable)|can only concatenate str"
    r"|object has no attribute|index out of range|can't evaluate field|ValidationException"
    r"|\b(must|should) (not )?(be|have|contain|match)\b|\bis (required|not (supported|allowed))\b"
    r"|\bwithout (a )?\w*(result|response)|\bmissing\b.{0,40}\b(image|required|field|param)"
    r"|expected (a )?(string|array|object|str|list|dict)|invalid_request_error"
)


_FILTERED = (
    r"filter|safety|prohibit|block|spii|recitation|refus|sensitive|moderat|guardrail|violat|risk"
    r"|inspection|censor"
)
"""Finish reasons of filters: `content_filter`, Gemini's `SAFETY`, `PROHIBITED_CONTENT`,
`RECITATION`, Anthropic's `refusal`, GLM's `sensitive`, Bedrock's `guardrail_intervened`."""


_VERDICTS = {
    *("native_finish_reason", "promptFeedback", "prompt_feedback", "prompt_filter_results"),
    *("content_filter_results", "content_filter_result"),
}


def is_filter(finish: str) -> bool:
    return bool(finish) and _matches(_FILTERED, finish)


def filter_in(fields: Mapping[str, object]) -> str:
    """Return a filter's reason for withholding an answer, in a choice or in the whole body, or an
    empty text. Any finish reason may accompany it.

    Sources: OpenRouter's `native_finish_reason` (openrouter.ai/docs/api-reference/overview),
    Azure's `content_filter_results` and `prompt_filter_results` (learn.microsoft.com, "Content
    filtering"), Gemini's `promptFeedback.blockReason` (ai.google.dev/api/generate-content)."""
    if _VERDICTS.isdisjoint(fields):  # as in most events
        return ""
    native = string(fields.get("native_finish_reason"))
    if is_filter(native):
        return native
    feedback = mapping(fields.get("promptFeedback") or fields.get("prompt_feedback"))
    if reason := string(feedback.get("blockReason") or feedback.get("block_reason")):
        return reason
    prompts = map(mapping, items(fields.get("prompt_filter_results")))
    judged = [fields.get("content_filter_results"), fields.get("content_filter_result")]
    judged += [prompt.get("content_filter_results") for prompt in prompts]
    for verdicts in map(mapping, judged):
        names = [name for name, one in verdicts.items() if mapping(one).get("filtered") is True]
        if names:
            return f"content_filter: {', '.join(names)}"
    return ""


def filter_error(reason: str) -> ProviderFiltered:
    return ProviderFiltered(
        f"the provider's filter withheld the answer ({reason})",
        status=0,
        hint="Rephrase the message, or use another model.",
    )


_MORE_TOKENS = "Raise model.max_completion_tokens, or lower model.reasoning_effort."


def empty_reply_error(reply: Reply) -> ProviderError:
    """Return the cause of a reply without text and calls. Only a `ProviderGarbage` is worth one
    retry."""
    if is_filter(reply.finish):
        return filter_error(reply.finish)
    if reply.finish == "length":
        what = "reached its token limit before the first word"
        if reply.thought or reply.usage.completion:
            what = "used all of its output tokens for thinking"
        return ProviderRejected(f"the model {what}", status=0, hint=_MORE_TOKENS)
    if reply.finish not in ("stop", "tool_calls", "function_call"):
        ended = f"the provider ended the answer before the first word ({reply.finish}), twice"
        return ProviderGarbage(ended)
    what = "thought but wrote no answer" if reply.thought else "gave an empty answer"
    return ProviderGarbage(f"the model {what}, twice")
