"""The forms in which models write tool calls as text: their grammar. Pure.

The forms, each as the model's chat template has it and as servers read it:

- `<tool_call>{"name":…,"arguments":{…}}</tool_call>`: Hermes, Qwen (vLLM's hermes parser); with
  `<tools>` around it from Qwen2.5-Coder.
- the same objects, or a list of them, in `<tool_calls>` (MiniMax M1, Hunyuan), `<TOOLCALL>`
  (Nemotron), `<longcat_tool_call>` (LongCat), `<|tool_call|>` (Phi 4, Granite), `<|python_tag|>`
  (Llama 3.1) and `<|START_ACTION|>` (Command A, with `tool_name`).
- `<function=NAME>{…}</function>`: Llama 3.1's custom tools (Meta's prompt format);
  `<function=NAME><parameter=K>V</parameter></function>`: Qwen3-Coder (SGLang's qwen3_coder).
- `[TOOL_CALLS][{…}]` and `[TOOL_CALLS]NAME[ARGS]{…}`: Mistral (vLLM's mistral parser).
- `<｜tool▁calls▁begin｜>…`: DeepSeek V3 and V3.1 (SGLang's deepseekv3 and deepseekv31 detectors).
- `<|tool_calls_section_begin|>…`: Kimi K2 (Moonshot's tool_call_guidance.md).
- `<tool_call>NAME<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>`: GLM 4.5 (SGLang's
  glm4_moe detector).
- `<minimax:tool_call><invoke name="…"><parameter name="…">…`: MiniMax M2 (SGLang's minimax_m2), and
  `<invoke …>` with `<function_calls>` around it or nothing; with `｜DSML｜` in each tag from
  DeepSeek V3.2 (SGLang's deepseekv32).
- `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>`: gpt-oss
  (OpenAI's harmony format).

`textcalls` decides which markup is a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from msgspec import Struct

from nanobot.providers.arguments import read_arguments

OPENERS = (
    "<tool_call>",
    "<tools>",
    "<tool_calls>",
    "<TOOLCALL>",
    "<longcat_tool_call>",
    "<seed:tool_call>",
    "<|tool_call|>",
    "<|python_tag|>",
    "<|START_ACTION|>",
    "<｜DSML｜function_calls>",
    "<｜DSML｜invoke name=",
    "<function=",
    "[TOOL_CALLS]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<minimax:tool_call>",
    "<function_calls>",
    "<invoke name=",
    "<|channel|>commentary to=",
    "<|start|>assistant<|channel|>commentary to=",
    "<|start|>assistant to=functions.",
)
MENTIONS = (*OPENERS, "<think>", "<thinking>", "<|channel|>", "</tool_call>", "<arg_key>")
"""Markup that, in the text before a call, makes it a quotation."""
MENTION = re.compile("|".join(map(re.escape, sorted(MENTIONS, key=len, reverse=True))))
NAME = r"(?:functions\.)?(?P<name>[\w.-]{1,64})"
_SPACE = re.compile(r"[\s,]*+")
CLOSED = (
    r"</(?:tool_call|tools|function|invoke|minimax:tool_call|function_calls)>|<\|call\|>"
    r"|<｜tool▁calls?▁end｜>|<\|tool_call(?:s_section)?_end\|>"
)


class Unreadable(Exception):
    """The markup is cut off or not of its form."""


class WrittenCall(Struct, frozen=True):
    """A call as written: arguments as text, or as the texts of parameters."""

    name: str
    source: str
    arguments: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()


def calls_at(text: str, start: int) -> tuple[list[WrittenCall], int]:
    """Return the calls from `start` on, and their end. Raises `Unreadable`."""
    calls: list[WrittenCall] = []
    end = start
    while True:
        at = _skip(text, end)
        form = next((form for opener, form in _FORMS if opener.match(text, at)), None)
        if form is None:
            return calls, end
        more, end = form(text, at)
        calls += more


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def object_at(text: str, at: int) -> tuple[str, int]:
    """Return the text of the JSON object at `at` as written, and its end. Raises `Unreadable`."""
    from nanobot.providers.repair import first_object

    found = first_object(text, at) if text.startswith("{", at) else None
    if found is None:
        raise Unreadable
    return text[at : found[1]], found[1]


def call_in(source: str) -> WrittenCall:
    """Return the call that a JSON object is. Raises `Unreadable`."""
    try:
        fields = msgspec.json.decode(read_arguments(source) or "", type=dict[str, msgspec.Raw])
        if "function" in fields and bytes(fields["function"])[:1] == b"{":
            fields = msgspec.json.decode(fields["function"], type=dict[str, msgspec.Raw])
        named = fields.get("name", fields.get("tool_name", b"null"))
        name = msgspec.json.decode(named, type=str)
    except (msgspec.MsgspecError, RecursionError):
        raise Unreadable from None
    given = fields.get("arguments", fields.get("parameters"))
    arguments = "{}" if given is None else bytes(given).decode()
    return WrittenCall(name.removeprefix("functions."), source, arguments)


_IN_TAGS = re.compile(
    r"(?P<tag><(?:tool_call|tools|tool_calls|TOOLCALL|longcat_tool_call|seed:tool_call)>"
    r"|<\|(?:tool_call|python_tag|START_ACTION)\|>)\s*+"
)
_FUNCTION = re.compile(rf"<function={NAME}\s*+>\s*+")
_PARAMETER = re.compile(
    r"<parameter=(?P<key>[^>\n]{1,100})>(?P<value>.*?)</parameter>(?=\s*(?:<parameter=|</function>))\s*+",
    re.DOTALL,
)
_GLM_NAME = re.compile(rf"{NAME}\s*+(?=<arg_key>|</tool_call>)")
_GLM_PAIR = re.compile(
    r"<arg_key>(?P<key>[^<]{1,100})</arg_key>\s*+<arg_value>(?P<value>.*?)</arg_value>"
    r"(?=\s*(?:<arg_key>|</tool_call>))\s*+",
    re.DOTALL,
)
_MISTRAL = re.compile(r"\[TOOL_CALLS\]\s*+")
_MISTRAL_NAME = re.compile(rf"{NAME}(?:\[CALL_ID\]\w++)?(?:\[ARGS\])?\s*+(?=\{{)")
_DEEPSEEK = re.compile(r"<｜tool▁calls▁begin｜>\s*+|(?=<｜tool▁call▁begin｜>)")
_DEEPSEEK_CALL = re.compile(
    rf"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>{NAME}\s*+(?:```(?:json)?\s*+)?"
    rf"|{NAME.replace('name', 'other')}<｜tool▁sep｜>\s*+)"
)
_DEEPSEEK_END = re.compile(r"\s*+(?:```)?\s*+(?:<｜tool▁call▁end｜>)?\s*+(?:<｜tool▁calls▁end｜>)?")
_KIMI = re.compile(r"<\|tool_calls_section_begin\|>\s*+|(?=<\|tool_call_begin\|>)")
_KIMI_CALL = re.compile(
    rf"<\|tool_call_begin\|>\s*+{NAME}(?::\d++)?\s*+<\|tool_call_argument_begin\|>\s*+"
)
_KIMI_END = re.compile(r"\s*+(?:<\|tool_call_end\|>)?\s*+(?:<\|tool_calls_section_end\|>)?")
_D = "(?:｜DSML｜)?"
_WRAPPED = re.compile(rf"<(?:minimax:tool_call|{_D}function_calls)>\s*+|(?=<{_D}invoke name=)")
_INVOKE = re.compile(rf"""<{_D}invoke name=["']?{NAME}["']?\s*+>\s*+""")
_INVOKE_END = re.compile(rf"\s*+</{_D}invoke>")
_NAMED = re.compile(
    rf"""<{_D}parameter name=["']?(?P<key>[^"'>\n]{{1,100}})["']?[^>\n]{{0,100}}>"""
    rf"(?P<value>.*?)</{_D}parameter>(?=\s*(?:<{_D}parameter name=|</{_D}invoke>))\s*+",
    re.DOTALL,
)
_WRAPPED_END = re.compile(rf"\s*+(?:</minimax:tool_call>|</{_D}function_calls>)?")
_HARMONY = re.compile(
    rf"(?:<\|start\|>assistant)?(?:<\|channel\|>commentary)? to={NAME}\s*+"
    r"(?:<\|channel\|>commentary)?\s*+(?:<\|constrain\|>)?\s*+(?:json)?\s*+<\|message\|>\s*+"
)


def _in_tags(text: str, at: int) -> tuple[list[WrittenCall], int]:
    """`<tool_call>` or `<tools>`: JSON objects, Qwen3-Coder's functions, or GLM's pairs."""
    opener = _IN_TAGS.match(text, at)
    assert opener is not None
    at = opener.end()
    if _FUNCTION.match(text, at):
        calls, end = _repeated(_function, _FUNCTION, text, at)
    elif found := _GLM_NAME.match(text, at):
        pairs, end = _pairs(_GLM_PAIR, text, found.end())
        end = _expect("</tool_call>", text, end)
        calls = [WrittenCall(found["name"], text[at:end], None, pairs)]
    else:
        calls, end = objects_at(text, at)
    tag = opener["tag"]
    closing = {"<|tool_call|>": "<|/tool_call|>", "<|START_ACTION|>": "<|END_ACTION|>"}.get(
        tag, tag.replace("<", "</")
    )
    after = _skip(text, end)
    return calls, after + len(closing) if text.startswith(closing, after) else end


def objects_at(text: str, at: int) -> tuple[list[WrittenCall], int]:
    """Return the calls that one or more JSON objects are, or a list of them, and their end. Raises
    `Unreadable`."""
    listed = text[at : at + 1] == "["
    end = _skip(text, at + listed)
    calls: list[WrittenCall] = []
    while not calls or text.startswith("{", _skip(text, end)):
        source, end = object_at(text, _skip(text, end))
        calls.append(call_in(source))
    return calls, _expect("]", text, end) if listed else end


def _function(text: str, at: int) -> tuple[list[WrittenCall], int]:
    found = _FUNCTION.match(text, at)
    if found is None:
        raise Unreadable
    if text[found.end() : found.end() + 1] == "{":
        arguments, end = object_at(text, found.end())
        after = _skip(text, end)
        end = after + 11 if text.startswith("</function>", after) else end
        return [WrittenCall(found["name"], text[at:end], arguments)], end
    pairs, end = _pairs(_PARAMETER, text, found.end())
    end = _expect("</function>", text, end)
    return [WrittenCall(found["name"], text[at:end], None, pairs)], end


def _mistral(text: str, at: int) -> tuple[list[WrittenCall], int]:
    opener = _MISTRAL.match(text, at)
    at = opener.end() if opener else at
    if text[at : at + 1] in ("[", "{"):
        return objects_at(text, at)
    return _named_object(_MISTRAL_NAME, re.compile(""), text, at)


def _named_object(
    head: re.Pattern[str], tail: re.Pattern[str], text: str, at: int
) -> tuple[list[WrittenCall], int]:
    """A head with the name, the arguments, a tail."""
    found = head.match(text, at)
    if found is None:
        raise Unreadable
    arguments, end = object_at(text, found.end())
    name = found["name"] or found.groupdict().get("other") or ""
    return [WrittenCall(name, text[at:end], arguments)], tail.match(text, end).end()  # type: ignore[union-attr]


def _deepseek(text: str, at: int) -> tuple[list[WrittenCall], int]:
    at = _DEEPSEEK.match(text, at).end()  # type: ignore[union-attr]
    return _repeated(
        lambda text, at: _named_object(_DEEPSEEK_CALL, _DEEPSEEK_END, text, at),
        re.compile("<｜tool▁call▁begin｜>"),
        text,
        at,
    )


def _kimi(text: str, at: int) -> tuple[list[WrittenCall], int]:
    at = _KIMI.match(text, at).end()  # type: ignore[union-attr]
    return _repeated(
        lambda text, at: _named_object(_KIMI_CALL, _KIMI_END, text, at),
        re.compile(r"<\|tool_call_begin\|>"),
        text,
        at,
    )


def _harmony(text: str, at: int) -> tuple[list[WrittenCall], int]:
    return _named_object(_HARMONY, re.compile(r"(?:<\|call\|>)?"), text, at)


def _invoke(text: str, at: int) -> tuple[list[WrittenCall], int]:
    at = _WRAPPED.match(text, at).end()  # type: ignore[union-attr]
    calls, end = _repeated(_invoked, re.compile(f"<{_D}invoke name="), text, at)
    return calls, _WRAPPED_END.match(text, end).end()  # type: ignore[union-attr]


def _invoked(text: str, at: int) -> tuple[list[WrittenCall], int]:
    found = _INVOKE.match(text, at)
    if found is None:
        raise Unreadable
    pairs, end = _pairs(_NAMED, text, found.end())
    closed = _INVOKE_END.match(text, end)
    if closed is None:
        raise Unreadable
    end = closed.end()
    return [WrittenCall(found["name"], text[at:end], None, pairs)], end


_Form = Callable[[str, int], tuple[list[WrittenCall], int]]


def _repeated(
    form: _Form, opener: re.Pattern[str], text: str, at: int
) -> tuple[list[WrittenCall], int]:
    calls, end = form(text, at)
    while opener.match(text, after := _skip(text, end)):
        more, end = form(text, after)
        calls += more
    return calls, end


def _pairs(pattern: re.Pattern[str], text: str, at: int) -> tuple[tuple[tuple[str, str], ...], int]:
    pairs = []
    while found := pattern.match(text, at):
        value = found["value"].removeprefix("\n").removesuffix("\n")
        pairs.append((found["key"].strip(), value))
        at = found.end()
    return tuple(pairs), at


def _expect(closing: str, text: str, at: int) -> int:
    at = _skip(text, at)
    if not text.startswith(closing, at):
        raise Unreadable
    return at + len(closing)


_FORMS: tuple[tuple[re.Pattern[str], _Form], ...] = (
    (_IN_TAGS, _in_tags),
    (re.compile("<function="), _function),
    (_MISTRAL, _mistral),
    (_DEEPSEEK, _deepseek),
    (_KIMI, _kimi),
    (_WRAPPED, _invoke),
    (re.compile(r"<\|channel\|>commentary to=|<\|start\|>assistant"), _harmony),
)
