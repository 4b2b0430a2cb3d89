"""Tool calls that a model writes as text, because of its template or its server. Pure.

The forms are in `textforms`. A reply that is only a JSON object with `name` and `arguments` or
`parameters` (Qwen2.5-Coder, Llama 3.x and others), or a list of them, is one too, also in a fence.

What makes markup a call and not a quotation:

- It begins the reply or a line, outside of code fences, and the reply ends with it.
- It is the first thing in the reply that looks like markup of any form.
- The text before it does not explain: it names no model family, no example and no way of writing.
- The person has not just asked how calls are written.
- It does not occur in the prompt, and its opening tag not in the newest turn's messages of the
  person and of tools.
- It names an offered tool. If the arguments can't be read or don't fit, the call has a `problem`.

Give it the text without thinking (`thinking.ThinkingFilter`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from nanobot.providers.arguments import read_arguments
from nanobot.providers.port import Prompt, ToolSpec
from nanobot.providers.textforms import (
    CLOSED,
    MENTION,
    MENTIONS,
    NAME,
    OPENERS,
    Unreadable,
    WrittenCall,
    calls_at,
    objects_at,
)

_LONGEST = max(map(len, MENTIONS))
_BEGINS = re.compile(r"[<\[]")

_AFTER_CALLS = re.compile(
    r"(?:\s++|<\|im_end\|>|</s>|<\|eot_id\|>|<\|eom_id\|>|<\|end\|>|<\|call\|>|<\|return\|>"
    r"|<\|endoftext\|>|<｜end▁of▁sentence｜>|</tool_call>|</tools>|</function_calls>"
    r"|<\|user\|>|<\|observation\|>)*+"
)
_LONGEST_LINE = 200
"""Characters of a line that are looked at for a code fence."""
_WRAPPER = "<tool_response>"
"""Qwen's template has tool results in these tags, and its small models imitate that."""
_MOST_BLANK = 500
"""Characters of white space that are held back: some models write it for ever."""
_INDENTED = 4
"""Spaces in front of a line that make it code."""
_BARE_KEYS = ("name", "arguments", "parameters", "type", "id")
_BARE = re.compile(r"\s*+(?:```[\w-]*+[ \t]*+\n\s*+)?(?=\{|\[\s*+\{)")
_BARE_END = re.compile(r"\s*+(?:```)?\s*+")


class TextCall(Struct, frozen=True):
    """A call that was written as text. `arguments` is the text of a JSON object. If there is a
    `problem`, the call must not run: the model gets the problem and its `markup` back."""

    name: str
    arguments: str
    markup: str
    problem: str = ""


class TextCalls(Struct, frozen=True):
    """The text of a reply before its calls, and the calls."""

    text: str
    calls: tuple[TextCall, ...] = ()


def read_text_calls(text: str, tools: Sequence[ToolSpec], prompt: Prompt) -> TextCalls:
    """Return the text of a whole reply, and the calls that it ends with."""
    if (inside := text.strip()).startswith(_WRAPPER):
        text = inside.removeprefix(_WRAPPER).removesuffix("</tool_response>").strip()
    specs = {spec.name: spec for spec in tools}
    inside = text.strip()
    doubled = inside.startswith("{{") and inside.endswith("}}")  # as templates write a brace
    if (bare := _read_bare(inside[1:-1] if doubled else text, specs, prompt)) is not None:
        return bare
    start = _start_of_calls(text)
    if start < 0:
        return TextCalls(text)
    from nanobot.providers.quotations import explains  # its patterns take a while, and are rare

    if explains(text, start):
        return TextCalls(text)
    try:
        written, end = calls_at(text, start)
    except Unreadable:
        alone = not text[:start].strip()
        calls = _unreadable(text[start:], specs, prompt, alone=alone)
    else:
        calls = _accepted(written, text[start:end], specs, prompt)
        # An unknown tool behind text is an example; alone or with known ones it is a mistake.
        is_known = any(one.name in specs for one in written) or not text[:start].strip()
        calls = calls if is_known and not _after_calls(text, end) else ()
    return TextCalls(text[:start].rstrip(), calls) if calls else TextCalls(text)


def _accepted(
    written: Sequence[WrittenCall], markup: str, specs: Mapping[str, ToolSpec], prompt: Prompt
) -> tuple[TextCall, ...]:
    from nanobot.providers.quotations import is_quoted

    if is_quoted(markup, [one.source for one in written], prompt):
        return ()
    return tuple(_checked(one, specs) for one in written)


def _after_calls(text: str, end: int) -> str:
    """Return what comes behind calls, white space and end tokens aside."""
    found = _AFTER_CALLS.match(text, end)
    return text[found.end() :] if found else ""


class TextCallFilter:
    """The text of a reply that may be shown as it streams. What may become a call is held back."""

    def __init__(self, tools: Sequence[ToolSpec], prompt: Prompt) -> None:
        self._tools, self._prompt = tools, prompt
        self._pieces: list[str] = []
        self._held = ""
        self._waiting: list[str] = []
        self._waited = self._next_look = self._shown = 0
        self._place = _Place()
        self._state = "start"

    def feed(self, piece: str) -> str:
        """Take the next piece of the reply; return the text that may be shown now."""
        self._pieces.append(piece)
        if self._state == "text":
            return self._count(piece)
        if self._state in ("call", "bare"):
            self._waiting.append(piece)
            self._waited += len(piece)
            return self._look_again() if self._waited >= self._next_look else ""
        if self._state == "wrapped":
            return ""
        self._held += piece
        return self._scan()

    def close(self) -> TextCalls:
        """Return the rest of the text, and the calls."""
        read = read_text_calls("".join(self._pieces), self._tools, self._prompt)
        return TextCalls(read.text[self._shown :], read.calls)

    def _scan(self) -> str:
        if self._state == "start":
            head = self._held.lstrip()
            if head.startswith((_WRAPPER, "{{")):
                self._state = "wrapped"
            if self._state == "wrapped" or (head and _WRAPPER.startswith(head)):
                return ""
            may_be_bare = head or len(self._held) <= _MOST_BLANK
            if may_be_bare and _may_be_bare(head):
                if _BARE.match(self._held):
                    self._wait("bare", self._held)
                return ""
            self._state = "lines"
        end = _undecided(self._held)
        found = MENTION.search(self._held)
        if found is None or found.start() >= end:
            text, self._held = self._held[:end], self._held[end:]
            self._place.pass_over(text)
            return self._count(text)
        before, rest, self._held = self._held[: found.start()], self._held[found.start() :], ""
        self._place.pass_over(before)
        if found[0] in OPENERS and self._place.begins_line:
            text = before.rstrip()
            self._wait("call", before[len(text) :] + rest)
            return self._count(text)
        self._state = "text"
        return self._count(before + rest)

    def _wait(self, state: str, text: str) -> None:
        self._state, self._waiting = state, [text]
        self._waited, self._next_look = len(text), 2 * len(text)

    def _look_again(self) -> str:
        """Whether it has turned out to be no call, each time that twice as much has come."""
        held = "".join(self._waiting)
        self._waiting, self._next_look = [held], 2 * self._waited
        if self._state == "bare" and not (_may_be_bare(held) and not _bare_is_over(held)):
            self._state, self._held, self._waiting = "lines", held, []
            return self._scan()
        if self._state == "call" and _is_followed(held, len(held) - len(held.lstrip())):
            self._state, self._waiting = "text", []
            return self._count(held)
        return ""

    def _count(self, text: str) -> str:
        self._shown += len(text)
        return text


class _Place:
    """Where a reading of lines is: at the beginning of a line, in a code fence."""

    def __init__(self) -> None:
        self._line = ""
        self._fence = ""
        self._is_blank = True

    @property
    def begins_line(self) -> bool:
        """Whether a marker may come here."""
        is_indented = len(self._line) >= _INDENTED or "\t" in self._line
        at_first_text = self._is_blank and not self._line.strip() and not is_indented
        return not self._fence and (not self._line or at_first_text)

    def pass_over(self, text: str) -> None:
        """Go on behind `text`."""
        first, *others = text.split("\n")
        self._line = (self._line + first[:_LONGEST_LINE])[:_LONGEST_LINE]
        for line in others:
            self._end_line(self._line)
            self._line = line[:_LONGEST_LINE]

    def _end_line(self, line: str) -> None:
        self._is_blank = self._is_blank and not line.strip()
        found = re.match(r" {0,3}(`{3,}|~{3,})", line)
        if found is None:
            return
        if not self._fence:
            self._fence = found[1]
        elif found[1].startswith(self._fence) and not line[found.end() :].strip():
            self._fence = ""


def _start_of_calls(text: str) -> int:
    """Return the position of the first markup if calls may begin there, else -1."""
    found = MENTION.search(text)
    if found is None or found[0] not in OPENERS:
        return -1
    place = _Place()
    place.pass_over(text[: found.start()])
    return found.start() if place.begins_line else -1


def _undecided(text: str) -> int:
    """Return the position from which `text` may be the beginning of markup, or white space in front
    of it."""
    end = len(text)
    tail = text[-_LONGEST:]
    for found in _BEGINS.finditer(tail):
        if any(mark.startswith(tail[found.start() :]) for mark in MENTIONS):
            end -= len(tail) - found.start()
            break
    return max(len(text[:end].rstrip()), end - _MOST_BLANK)


def _read_bare(text: str, specs: Mapping[str, ToolSpec], prompt: Prompt) -> TextCalls | None:
    """The calls that the whole reply is, as a JSON object or a list of them."""
    start = _BARE.match(text)
    if start is None or not _may_be_bare(text):
        return None
    try:
        written, end = objects_at(text, start.end())
    except Unreadable:
        return None
    are_calls = all(one.name in specs and _has_arguments(one.source) for one in written)
    if not are_calls or _after_bare(text, end):
        return None
    from nanobot.providers.quotations import is_quoted, newest_texts

    shown = any('"name"' in one and _ARGUMENTS.search(one) for one in newest_texts(prompt))
    if shown or is_quoted("", [one.source for one in written], prompt):
        return None
    return TextCalls("", tuple(_checked(one, specs) for one in written))


def _has_arguments(source: str) -> bool:
    given = msgspec.json.decode(read_arguments(source) or "{}")
    return not given.keys().isdisjoint(("arguments", "parameters", "function"))


_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"')


def _after_bare(text: str, end: int) -> str:
    found = _BARE_END.match(text, end)
    return _after_calls(text, found.end() if found else end)


def _may_be_bare(text: str) -> bool:
    """Whether `text` may be the beginning of a bare or fenced object that is a call."""
    rest = text.lstrip()
    if rest[:3] == "```"[: len(rest)] and rest:
        fence, ended, rest = rest.partition("\n")
        if not ended:
            return re.fullmatch(r"`{1,3}|```[\w-]{0,20}[ \t]*", fence) is not None
        if not re.fullmatch(r"```[\w-]{0,20}[ \t]*", fence):
            return False
        rest = rest.lstrip()
    rest = rest[1:].lstrip() if rest[:1] == "[" else rest
    if not rest:
        return True
    key = rest[1:].lstrip()
    if rest[0] != "{":
        return False
    quote = key[:1] if key[:1] in ('"', "'") else '"'
    keys = [f"{quote}{name}{quote}" for name in (*_BARE_KEYS, "function")]
    return any(one.startswith(key) or key.startswith(one) for one in keys)


def _bare_is_over(held: str) -> bool:
    """Whether an object that might have been a call is followed by text."""
    start = _BARE.match(held)
    try:
        end = objects_at(held, start.end() if start else 0)[1]
    except Unreadable:
        return False
    rest = _after_bare(held, end)
    return bool(rest) and rest[0] not in "<`"


def _is_followed(held: str, start: int) -> bool:
    """Whether calls have ended and other text comes after them."""
    try:
        end = calls_at(held, start)[1]
    except Unreadable:
        return False
    rest = _after_calls(held, end)
    return bool(rest) and rest[0] not in "<["


def _unreadable(
    markup: str, specs: Mapping[str, ToolSpec], prompt: Prompt, *, alone: bool
) -> tuple[TextCall, ...]:
    """The call that `markup` was meant to be, if the reply ends with it and it names an offered
    tool, or is `alone` in the reply and closed."""
    head = _HEAD.match(markup)
    names = [head["name"] if head else "", *_NAMED_INSIDE.findall(markup)]
    name = next((one for one in names if one in specs), "")
    closed = max((found.end() for found in re.finditer(CLOSED, markup)), default=0)
    begun = _BEGUN.search(markup) is not None
    after = _after_calls(markup, closed or len(markup))
    is_prose = bool(after) and not after.startswith(OPENERS)
    is_meant = (name and begun) or (alone and closed)
    from nanobot.providers.quotations import is_quoted

    if not is_meant or is_prose or is_quoted(markup, [markup], prompt):
        return ()
    problem = "it is cut off, or not of its form"
    return (TextCall(name, "{}", markup, problem),)


_HEAD = re.compile(rf"(?:<[^>\n]*>|\[TOOL_CALLS\])\s*+{NAME}")
_NAMED_INSIDE = re.compile(
    r"""(?:["']name["']\s*:\s*["']|<function=|<invoke name=["']?|to=|function<｜tool▁sep｜>"""
    r"""|<｜tool▁call▁begin｜>|<\|tool_call_begin\|>\s*)(?:functions\.)?([\w.-]{1,64})"""
)
_BEGUN = re.compile(r"\{|<parameter|<arg_key>|<\|message\|>")


def _checked(written: WrittenCall, specs: Mapping[str, ToolSpec]) -> TextCall:
    spec = specs.get(written.name)
    if spec is None:
        return TextCall(written.name, "{}", written.source, f"no tool is named {written.name!r}")
    if written.arguments is None:
        arguments: str | None = _from_pairs(written.parameters, spec)
    else:
        arguments = read_arguments(written.arguments)
    if arguments is None:
        return TextCall(spec.name, "{}", written.source, "its arguments are no JSON object")
    problem = _misfit(arguments, spec)
    return TextCall(spec.name, "{}" if problem else arguments, written.source, problem)


def _from_pairs(pairs: Sequence[tuple[str, str]], spec: ToolSpec) -> str:
    values: dict[str, object] = {}
    for key, text in pairs:
        kinds = _kinds(_properties(spec).get(key))
        values[key] = text if "string" in kinds or not kinds else _value(text)
    return json.dumps(values, ensure_ascii=False)


def _value(text: str) -> object:
    """A parameter that is no text, as JSON or as Python has it."""
    words = {"True": True, "False": False, "None": None}
    if text.strip() in words:
        return words[text.strip()]
    try:
        return msgspec.json.decode(text.strip())
    except (msgspec.MsgspecError, RecursionError):
        repaired = read_arguments(text) if text.strip() else None
        return text if repaired is None else json.loads(repaired)


_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
_IN_TEXT = {"integer": r"\s*-?\d+(?:\.0)?\s*", "boolean": r"(?i)\s*(?:true|false)\s*"}
_IN_TEXT["number"] = r"\s*-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\s*"
"""Texts that are taken for such a value, as the checks of tools take them."""


def _misfit(arguments: str, spec: ToolSpec) -> str:
    """Return why the arguments don't fit the tool's schema; empty if they do. Unknown ones are left
    to the tool."""
    given = json.loads(arguments)
    missing = [key for key in spec.parameters.get("required", ()) if key not in given]
    if missing:
        return f"{missing[0]} is missing in its arguments"
    properties = _properties(spec)
    for key, value in given.items():
        kinds = _kinds(properties.get(key))
        if kinds and not any(_is_kind(value, kind) for kind in kinds):
            return f"{key} must be {' or '.join(kinds)} in its arguments"
    return ""


def _is_kind(value: object, kind: str) -> bool:
    if isinstance(value, str) and kind in _IN_TEXT:
        return re.fullmatch(_IN_TEXT[kind], value) is not None
    if isinstance(value, bool):
        return kind == "boolean"
    whole = isinstance(value, float) and value.is_integer() and kind == "integer"
    return whole or isinstance(value, _KINDS.get(kind, object))


def _properties(spec: ToolSpec) -> Mapping[str, Any]:
    found = spec.parameters.get("properties")
    return found if isinstance(found, Mapping) else {}


def _kinds(schema: object) -> tuple[str, ...]:
    """The types that a schema allows; none if it does not say."""
    if not isinstance(schema, Mapping):
        return ()
    kind = schema.get("type")
    if isinstance(kind, str):
        return (kind,)
    if isinstance(kind, list):
        return tuple(map(str, kind))
    branches = [_kinds(one) for one in schema.get("anyOf") or schema.get("oneOf") or ()]
    return () if not all(branches) else tuple(one for branch in branches for one in branch)
