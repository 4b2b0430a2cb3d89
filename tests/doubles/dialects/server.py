"""The kinds of model servers, and one on a loopback port that is as strict as the real one.

    async with DialectServer(KINDS["mistral"], lambda request: Says("Hello")) as server: ...

A request that the real server would reject gets its status and its words, and is listed in
`refused`. The script answers all others. `KINDS` has each kind by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from tests.doubles.dialects import hosted, templates
from tests.doubles.dialects.replies import Manner, Says
from tests.doubles.dialects.requests import Judge, Refusal, calls_of, messages_of, obj
from tests.doubles.openai.answers import ChatRequest, Exchange, Raw, Step
from tests.doubles.openai.server import FakeOpenAI

Line = Step | Says | str
"""A line of a script: an answer in the server's form, or any step."""
Script = Sequence[Line] | Callable[[ChatRequest], Line]
TooLong = Callable[[int, int], Refusal]
_PLAIN = Manner()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of server. `too_long` makes the rejection of a prompt that does not fit (None: it is
    cut silently), and `pages` are its answers to GET requests, by path."""

    name: str
    judge: Judge
    manner: Manner = _PLAIN
    too_long: TooLong | None = None
    pages: Mapping[str, object] = field(default_factory=dict)
    model: str = "model"


def _in_words(status: int, words: str) -> TooLong:
    def refuse(tokens: int, window: int) -> Refusal:
        text = words.format(tokens=tokens, window=window)
        return Refusal.of(status, {"error": {"message": text, "type": "invalid_request_error"}})

    return refuse


_OPENAI_LONG = _in_words(
    400,
    "This model's maximum context length is {window} tokens. However, your messages resulted in "
    "{tokens} tokens. Please reduce the length of the messages.",
)
_MISTRAL_LONG = _in_words(
    400,
    "Prompt contains {tokens} tokens and 0 draft tokens, too large for model with {window} maximum "
    "context length",
)
_KIMI_LONG = _in_words(400, "Invalid request: Your request exceeded model token limit: {window}")
_GEMINI_LONG = _in_words(
    400, "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window})."
)
_NINE = Manner(ids="{short}", thinking="reasoning_content")
_LLAMA = Manner(ids="{hash}abcdefgh", progress=True)
_PROPS = {
    "default_generation_settings": {"n_ctx": 16_384},
    "chat_template_caps": {"supports_tools": True, "supports_tool_calls": True},
    "modalities": {"vision": False, "audio": False},
}
_NO_TOOLS = {
    **_PROPS,
    "chat_template_caps": {"supports_tools": False, "supports_tool_calls": False},
}


def _llama(name: str, judge: Judge, props: Mapping[str, object] = _PROPS) -> Kind:
    return Kind(name, judge, _LLAMA, templates.llama_too_long, {"/props": props}, "local.gguf")


_KINDS = (
    Kind("openai", hosted.OPENAI, too_long=_OPENAI_LONG, model="gpt-5"),
    Kind("mistral", hosted.MISTRAL, _NINE, _MISTRAL_LONG, model="mistral-large-latest"),
    Kind("deepseek", hosted.DEEPSEEK, too_long=_OPENAI_LONG, model="deepseek-v4-flash"),
    Kind("kimi", hosted.KIMI, Manner("functions.{name}:{n}"), _KIMI_LONG, model="kimi-k2.6"),
    Kind(
        "openrouter-gemini",
        hosted.OPENROUTER,
        Manner("tool_{n}_{name}_{short}", "reasoning_details"),
        _GEMINI_LONG,
        model="google/gemini-3-pro-preview",
    ),
    Kind(
        "gemini",
        hosted.GEMINI,
        Manner("function-call-{hash}", "extra_content"),
        _GEMINI_LONG,
        model="gemini-3-pro-preview",
    ),
    Kind(
        "groq",
        hosted.GROQ,
        Manner(ids="{short}", thinking="reasoning"),
        hosted.groq_too_large,
        model="openai/gpt-oss-120b",
    ),
    Kind("minimax", hosted.MINIMAX, Manner("call_function_{short}_1"), model="MiniMax-M2"),
    Kind("xai", hosted.XAI, too_long=hosted.xai_too_long, model="grok-4"),
    Kind("litellm", hosted.LITELLM, Manner("toolu_{hash}"), _OPENAI_LONG, model="claude"),
    Kind("vllm", templates.VLLM, Manner("chatcmpl-tool-{hash}00000000"), templates.vllm_too_long),
    Kind("vllm-alternating", templates.VLLM_ALTERNATING, too_long=templates.vllm_too_long),
    Kind("vllm-without-parser", templates.VLLM_WITHOUT_PARSER),
    _llama("llama.cpp", templates.LLAMA),
    _llama("llama.cpp-alternating", templates.LLAMA_ALTERNATING),
    _llama("llama.cpp-alternating-new", templates.LLAMA_ALTERNATING_NEW),
    _llama("llama.cpp-gemma", templates.LLAMA_GEMMA),
    _llama("llama.cpp-blind", templates.LLAMA_BLIND),
    _llama("llama.cpp-without-tools", templates.LLAMA_WITHOUT_TOOLS, _NO_TOOLS),
    Kind("ollama", templates.OLLAMA, Manner("call_{short}", "reasoning"), model="qwen3:8b"),
    Kind("lm-studio", templates.LM_STUDIO, Manner("{short}"), templates.lmstudio_too_long),
    Kind("lenient", hosted.common, too_long=_OPENAI_LONG),
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _KINDS}
"""Each kind by name. `lenient` has only the common rules, for irregular answers."""


@dataclass(frozen=True, slots=True)
class _Told:
    """An answer in the form of its server."""

    manner: Manner
    says: Says

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        return await self.manner.play(self.says, exchange).play(exchange)


class DialectServer(FakeOpenAI):
    """A server of one kind. `script` is played in order and then answers "fine" forever, or is a
    function of the request. `window` is its limit in tokens (about four bytes each). `refused` has
    the rejections of invalid requests, as texts."""

    def __init__(self, kind: Kind, script: Script = (), *, window: int = 0) -> None:
        super().__init__(self._answer, validate=False, models=(kind.model,), pages=kind.pages)
        self.kind = kind
        self._window = window
        self._lines = deque(() if callable(script) else script)
        self._decide = script if callable(script) else None
        self.refused: list[str] = []
        self.too_long = 0

    def then(self, *lines: Line) -> None:
        """Add to the end of the script."""
        self._lines += lines

    def clear(self) -> None:
        """Drop the rest of the script."""
        self._lines.clear()

    @property
    def left(self) -> int:
        """Return the number of lines not played yet."""
        return len(self._lines)

    def _answer(self, request: ChatRequest) -> Step:
        if refusal := self.kind.judge(request.body):
            self.refused.append(refusal.body.decode())
            return as_step(refusal)
        tokens = len(request.raw) // 4
        if 0 < self._window < tokens and self.kind.too_long:
            self.too_long += 1
            return as_step(self.kind.too_long(tokens, self._window))
        line = self._line(request)
        if isinstance(line, str):
            line = Says(line)
        return _Told(self.kind.manner, line) if isinstance(line, Says) else line

    def _line(self, request: ChatRequest) -> Line:
        if self._decide is not None:
            return self._decide(request)
        return self._lines.popleft() if self._lines else "fine"


def as_step(refusal: Refusal) -> Raw:
    """Return a rejection as an answer for a script."""
    return Raw(refusal.body, refusal.status)


def reasoning_in(body: Mapping[str, object]) -> str:
    """Return all of the model's thinking in a request."""
    found = []
    for message in messages_of(body):
        found += [str(message.get(name, "")) for name in ("reasoning_content", "reasoning")]
        found.append(str(message.get("reasoning_details", "")))
        found += [str(obj(call).get("extra_content", "")) for call in calls_of(message)]
    return "\n".join(filter(None, found))
