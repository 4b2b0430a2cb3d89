"""Grammar of the forms in which models write tool calls as text. Pure.

The forms, as in each model's chat template and in servers' parsers:

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

They are one grammar: tags around calls, and calls that are a JSON object with a name, a name with a
JSON object, or a name with parameters. `textcalls` decides which markup is a call.
"""

from __future__ import annotations

import json
import re

from msgspec import Struct

from nanobot.providers.arguments import first_object, read_arguments
from nanobot.providers.fields import mapping, string

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
"""Markup that makes a later call a quotation."""
MENTION = re.compile("|".join(map(re.escape, sorted(MENTIONS, key=len, reverse=True))))
_D = "(?:｜DSML｜)?"  # DeepSeek V3.2
_AROUND = re.compile(
    r"(?:[\s,\]]++|\[(?=\s*+\{)|```"
    r"|</?(?:tool_calls?|tools|TOOLCALL|longcat_tool_call|seed:tool_call|minimax:tool_call)>"
    rf"|</?{_D}function_calls>|</(?:function|{_D}invoke|s)>|\[TOOL_CALLS\]"
    r"|<\|/?(?:tool_call|python_tag|START_ACTION|END_ACTION|tool_call_end|call|return|user"
    r"|tool_calls_section_(?:begin|end)|observation|im_end|eot_id|eom_id|end|endoftext)\|>"
    r"|<｜(?:tool▁calls▁(?:begin|end)|tool▁call▁end|end▁of▁sentence)｜>)*+"
)
"""Tags around calls, and tokens with which models end a message."""
_NAME = r"(?:functions\.)?([\w.-]{1,64})"
_HEAD = re.compile(
    rf"""(?:<function={_NAME}\s*+>|<{_D}invoke\ name=["']?{_NAME}["']?\s*+>
    |(?:(?<=<tool_call>)|(?<=<tool_call>\n)){_NAME}\s*+(?=<arg_key>|</tool_call>)
    |(?:(?<=\[TOOL_CALLS\])|(?<=\[TOOL_CALLS\]\ )){_NAME}(?:\[CALL_ID\]\w++)?(?:\[ARGS\])?\s*+(?={{)
    |<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?{_NAME}(?:<｜tool▁sep｜>)?\s*+(?:```(?:json)?)?
    |<\|tool_call_begin\|>\s*+{_NAME}(?::\d++)?\s*+<\|tool_call_argument_begin\|>
    |(?:<\|start\|>assistant)?(?:<\|channel\|>commentary)?\ to={_NAME}\s*+
     (?:<\|channel\|>commentary)?\s*+(?:<\|constrain\|>)?\s*+(?:json)?\s*+<\|message\|>)\s*+""",
    re.VERBOSE,
)
"""The name of a call, up to its arguments."""
_PAIR = re.compile(
    rf"""<(?:{_D}parameter(?:=|\ name=["']?)|arg_key>)(?P<key>[^"'<>\n]{{1,100}})
    (?:["']?[^<>\n]{{0,100}}>|</arg_key>\s*+<arg_value>)(?P<value>.*?)</(?:{_D}parameter|arg_value)>
    (?=\s*(?:<(?:{_D}parameter|arg_key)\b|</(?:function|{_D}invoke|tool_call)>))\s*+""",
    re.DOTALL | re.VERBOSE,
)
_PAIRS_END = re.compile(rf"</(?:function|{_D}invoke|tool_call)>")


class Unreadable(Exception):
    """The markup is truncated or does not match its form."""


class WrittenCall(Struct, frozen=True):
    """A call as written: arguments as text, or as the texts of parameters, or none."""

    name: str
    source: str
    arguments: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()


def skip_tags(text: str, at: int) -> int:
    """Return the position after the tags and white space at `at`."""
    found = _AROUND.match(text, at)
    return found.end() if found else at


def calls_at(text: str, start: int) -> tuple[list[WrittenCall], int]:
    """Return the calls from `start` on and the end of the tags after them. Raise `Unreadable`."""
    calls: list[WrittenCall] = []
    at = skip_tags(text, start)
    while True:
        if text.startswith("{", at):
            source, end = read_object(text, at)
            calls.append(parse_call(source))
        elif head := _HEAD.match(text, at):
            call, end = read_headed_call(text, head)
            calls.append(call)
        elif calls:
            return calls, at
        else:
            raise Unreadable
        at = skip_tags(text, end)


def read_object(text: str, at: int) -> tuple[str, int]:
    """Return the text of a JSON object as written, and its end."""
    found = first_object(text, at)
    if found is None:
        raise Unreadable
    return text[at : found[1]], found[1]


def parse_call(source: str) -> WrittenCall:
    """Return the call in a JSON object."""
    fields = mapping(json.loads(read_arguments(source) or "{}"))
    fields = mapping(fields.get("function")) or fields
    name = string(fields.get("name")) or string(fields.get("tool_name"))
    if not name:
        raise Unreadable
    given = fields.get("arguments", fields.get("parameters"))
    if given is not None and not isinstance(given, str):
        given = json.dumps(given, ensure_ascii=False)
    return WrittenCall(name.removeprefix("functions."), source, given)


def read_headed_call(text: str, head: re.Match[str]) -> tuple[WrittenCall, int]:
    """Return the call with this head, and its end. A JSON object or parameters follow the head."""
    name, at = head[head.lastindex or 0], head.end()
    if text.startswith("{", at):
        arguments, end = read_object(text, at)
        return WrittenCall(name, text[head.start() : end], arguments), end
    pairs = []
    while found := _PAIR.match(text, at):
        value = found["value"].removeprefix("\n").removesuffix("\n")
        pairs.append((found["key"].strip(), value))
        at = found.end()
    closed = _PAIRS_END.match(text, at)
    if closed is None:
        raise Unreadable
    end = closed.end()
    return WrittenCall(name, text[head.start() : end], None, tuple(pairs)), end
