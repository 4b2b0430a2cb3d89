"""Tool calls that a model writes as text, because of its template or its server. Pure.

The forms are in `textforms`. A reply that is only a JSON object with `name` and `arguments` or
`parameters` (Qwen2.5-Coder, Llama 3.x and others), or a list of them, is a call too, also in a
fence.

Markup is a call and not a quotation if all of this holds:

- It begins the reply or a line, outside of code fences, and the reply ends with it.
- It is the first thing in the reply that looks like markup of any form.
- The text before it does not explain: it names no model family, no example and no way of writing.
- The person has not just asked how calls are written.
- It does not occur in the prompt, and its opening tag not in the newest turn's messages of the
  person and of tools.
- It names an offered tool. If the arguments can't be read, the call has a `problem`.

The input must be without thinking (`thinking.ThinkingFilter`)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from nanobot.providers.arguments import read_arguments
from nanobot.providers.fields import items, mapping
from nanobot.providers.port import Prompt, ToolSpec
from nanobot.providers.textforms import (
    MENTION,
    MENTIONS,
    OPENERS,
    Unreadable,
    WrittenCall,
    calls_at,
)
from nanobot.text import valid_unicode

_LONGEST = max(map(len, MENTIONS))
_BEGINS = re.compile(r"[<\[]")
_WRAPPER = "<tool_response>"
"""Qwen's template wraps tool results in these tags, and its small models imitate that."""
_MOST_BLANK = 500
"""Characters of white space that are held back, because some models write it forever."""
_INDENTED = 4  # spaces before a line that make it code
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$", re.MULTILINE)
_BARE = re.compile(
    r"""(?:```[\w-]{0,20}[ \t]{0,9}\n\s{0,50}+)?(?=\[?\s{0,50}+\{\s{0,50}+"""
    r"""["'](?:name|arguments|parameters|type|id|function)["'])"""
)
_LONGEST_BARE = 300
"""Characters, after leading white space, that decide whether a reply may be `_BARE`."""
_CLOSED = re.compile(
    r"</(?:tool_call|tools|function|invoke|minimax:tool_call|function_calls)>|<\|call\|>"
    r"|<｜tool▁calls?▁end｜>|<\|tool_call(?:s_section)?_end\|>"
)
_BEGUN = re.compile(r"\{|<parameter|<arg_key>|<\|message\|>")  # the beginning of arguments
# Rarely needed, so compiled at the first use and cached by `re`.
_EXPLAINS = (
    r"(?im)^[^\S\n]*(?:usage|sample|the (?:structure|pattern|notation|tag)|muster|vorlage)\b"
    r"|\b(?:e\.?g\.|examples?|for instance|syntax|format|template|markup|notation|looks? like|would"
    r"|appears? as|like (?:this|so)|as follows|(?:is|are|be) written|typical|internally"
    r"|to illustrate"
    r"|(?:output|structure|pattern|string|text,? (?:this|it|that)) (?:then )?is|the tags?"
    r"|(?:I|you|we|one) (?:then )?(?:writes?|emits?|produce)|(?:invoke|call) it"
    r"|(?:the|a) model|(?:tool|function)[ _-]?calls?|Beispiel|z\.\s?B\.|etwa so"
    r"|Schreibweise|sieht\b.{0,20}\baus|Ausgabe (?:ist|lautet)|schreib\w* (?:das|man|dann)"
    r"|(?:das|man) schreib\w*"
    r"|exemple|par ex|s['’]écri\w+|comme (?:ceci|ça)|syntaxe|balises?|ejemplo|se escribe\w*"
    r"|sintaxis|así se|como est[aeo]|esempio|si scrive|sintassi|exemplo|escreve-se|sintaxe"
    r"|voorbeeld|bijvoorbeeld|schrijf je|przykład\w*|zapisuje się|пример\w*|например|пиш\w+ся"
    r"|синтаксис\w*|выглядит|наприклад|örne\w+|yazılır|contoh\w*|misalnya|ví dụ|chẳng hạn"
    r"|exempel|eksempel|skrive?s|například|příklad\w*|például|esimerk\w+|exemplu|παράδειγμα"
    r"|(?:Werkzeug|Funktions)aufruf\w*|Modell|modèle|modelo|modello|модел\w+|вызов\w*"
    r"|appels? (?:d['’]outil|de fonction)|llamadas? a|chiamat[ae]"
    r"|Qwen|Hermes|Llama|Mistral|DeepSeek|Kimi|GLM|MiniMax|gpt-oss|harmony)\b"
    r"|例|比如|格式|形式|语法|語法|写法|寫法|这样写|這樣寫|标记|標記|模型|调用|調用|呼び出し|モデル|書き|たとえば"
    r"|構文|예시|예를|형식|구문|씁니다|호출|모델|مثال|استدعاء|يكتب|उदाहरण|लिखते|דוגמה|ตัวอย่าง"
    r"|<(?:pre|code|example|xmp)\b|\'\'\'|\"\"\""
)
"""Words and tags before markup that show that the text is about markup. A missing word may run a
call that was an example, and an extra word shows a call as text."""
_ASKS = (
    r"(?i)(?<![</])\b(?:tool|function)s?[ -]?call(?:s|ing)?\b"
    r"|\bcall(?:ing|s)? (?:your |of )?(?:tool|function)s\b"
    r"|\bhow\b[^.?!]{0,40}\b(?:call|invoke|use)\b[^.?!]{0,30}\b(?:tools?|functions?)\b"
    r"|\bmarkup\b|\bchat template|\bspecial tokens?\b|(?:tool|werkzeug|funktions)-?aufruf"
    r"|\bwie\b[^.?!]{0,40}\b(?:werkzeuge?|tools?)\b|appels? (?:d['’]outils?|de fonctions?)"
    r"|\bcomment\b[^.?!]{0,40}\boutils?\b|llamadas? a (?:la )?(?:herramienta|función|funciones)"
    r"|\bcómo\b[^.?!]{0,40}\bherramientas?\b|chiamat[ae] \w+ (?:uno )?(?:strument|funzion)"
    r"|chamadas? de (?:ferramenta|função|funções)|вызов\w* (?:инструмент|функци)"
    r"|\bкак\b[^.?!]{0,40}инструмент|(?:工具|函数|函數)(?:的?[调調]用|呼叫)|(?:[调調]用|呼叫)(?:工具|函数|函數)"
    r"|(?:ツール|関数)の?呼び出|(?:도구|함수)\s?호출|araç çağ|wywołani\w+ (?:narzędzi|funkcji)"
    r"|استدعاء"
)
"""Words of a person who asks about calls and not for one. In English only nouns count: "call the
tool" is an order."""
_QUESTION = (
    r"(?i)[?？؟]|\b(?:show|explain|describe|demonstrate|tell|write down|zeig\w*|erklär\w*|montre\w*"
    r"|expli\w+|muestra\w*|muéstra\w*|mostra\w*|mostre|покажи\w*|объясни\w*|pokaż|wyjaśnij|göster"
    r"|açıkla)\b|展示|显示|顯示|解释|解釋|看看|給我看|给我看|見せ|教え|説明|보여|설명|اشرح|أرني"
)
"""Words that make a mention of calls a question: "fix the function call in a.py" is none."""


class TextCall(Struct, frozen=True):
    """A call written as text. `arguments` is the text of a JSON object. If there is a `problem`,
    the call must not run: the model gets the problem and its `markup` back."""

    name: str
    arguments: str
    markup: str
    problem: str = ""


class TextCalls(Struct, frozen=True):
    """Text of a reply before its calls, and the calls."""

    text: str
    calls: tuple[TextCall, ...] = ()


def read_text_calls(text: str, tools: Sequence[ToolSpec], prompt: Prompt) -> TextCalls:
    """Return the text of a whole reply, and the calls at its end."""
    if text.strip().startswith(_WRAPPER):
        text = text.strip().removeprefix(_WRAPPER).removesuffix("</tool_response>").strip()
    specs = {spec.name: spec for spec in tools}
    if calls := read_bare_calls(text, specs, prompt):
        return TextCalls("", calls)
    found = MENTION.search(text)
    if found and found[0] in OPENERS and begins_line(text, found.start()):
        before = text[: found.start()]
        if not explains(before) and (
            calls := read_marked_calls(text, found.start(), specs, prompt)
        ):
            return TextCalls(before.rstrip(), calls)
    return TextCalls(text)


def read_marked_calls(
    text: str, start: int, specs: Mapping[str, ToolSpec], prompt: Prompt
) -> tuple[TextCall, ...]:
    """Return the calls from `start` on, if the reply ends with them."""
    is_alone = not text[:start].strip()
    try:
        written, end = calls_at(text, start)
    except Unreadable:
        return report_unreadable(text[start:], specs, prompt, alone=is_alone)
    # An unknown tool after text is an example. Alone or with known ones it is a mistake.
    is_meant = is_alone or any(one.name in specs for one in written)
    sources = [one.source for one in written]
    if end < len(text) or not is_meant or is_quoted(text[start:], sources, prompt):
        return ()
    return tuple(check_call(one, specs) for one in written)


class TextCallFilter:
    """Streamed text of a reply that may be shown. Text that may become a call is held back."""

    def __init__(self, tools: Sequence[ToolSpec], prompt: Prompt) -> None:
        self._tools, self._prompt = tools, prompt
        self._pieces: list[str] = []
        self._held, self._shown, self._state = "", 0, "start"

    def feed(self, piece: str) -> str:
        """Add the next piece of the reply, and return the text that may be shown now."""
        self._pieces.append(piece)
        if self._state == "held":
            return ""
        self._held += piece
        text = self._take_decided()
        self._held = self._held[len(text) :]
        self._shown += len(text)
        return text

    def close(self) -> TextCalls:
        """Return the rest of the text, and the calls."""
        read = read_text_calls("".join(self._pieces), self._tools, self._prompt)
        return TextCalls(read.text[self._shown :], read.calls)

    def _take_decided(self) -> str:
        """Return the beginning of the held text that is certainly not part of a call."""
        if self._state == "start":
            self._state = self._choose_state()
        if self._state in ("start", "held"):
            return ""
        if self._state == "text":
            return self._held
        end = find_undecided(self._held)
        found = MENTION.search(self._held)
        if found is None or found.start() >= end:
            return self._held[:end]
        if found[0] in OPENERS and begins_line("".join(self._pieces), self._shown + found.start()):
            self._state = "held"
            return self._held[: found.start()].rstrip()
        self._state = "text"
        return self._held

    def _choose_state(self) -> str:
        head = self._held.lstrip()
        if head.startswith((_WRAPPER, "{{")) or _BARE.match(head):
            return "held"
        may_become = _WRAPPER.startswith(head) or head[0] in "{[`"
        is_short = len(head) < _LONGEST_BARE and (head or len(self._held) < _MOST_BLANK)
        return "start" if may_become and is_short else "lines"


def begins_line(text: str, at: int) -> bool:
    """Return True if markup may begin here: at the beginning of a line outside of code fences, or
    at the reply's first text, if that isn't indented."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    if line and (text[:at].strip() or len(line) >= _INDENTED or "\t" in line):
        return False
    fence = ""
    for found in _FENCE.finditer(text[:at]):
        if not fence:
            fence = found[1]
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
    return not fence


def find_undecided(text: str) -> int:
    """Return the position from which `text` may begin markup, or white space before it."""
    end = len(text)
    tail = text[-_LONGEST:]
    for found in _BEGINS.finditer(tail):
        if any(mark.startswith(tail[found.start() :]) for mark in MENTIONS):
            end -= len(tail) - found.start()
            break
    return max(len(text[:end].rstrip()), end - _MOST_BLANK)


def read_bare_calls(
    text: str, specs: Mapping[str, ToolSpec], prompt: Prompt
) -> tuple[TextCall, ...]:
    """Return the calls if the whole reply is a JSON object or a list of them."""
    text = text.strip()
    if text.startswith("{{") and text.endswith("}}"):  # an escaped brace of a template
        text = text[1:-1]
    start = _BARE.match(text)
    if start is None:
        return ()
    try:
        written, end = calls_at(text, start.end())
    except Unreadable:
        return ()
    is_meant = all(one.name in specs and one.arguments for one in written)
    if end < len(text) or not is_meant or shows_arguments(prompt):
        return ()
    sources = [one.source for one in written]
    return (
        () if is_quoted("", sources, prompt) else tuple(check_call(one, specs) for one in written)
    )


def shows_arguments(prompt: Prompt) -> bool:
    """Return True if the newest turn contains such an object."""
    return any('"name"' in one and _ARGUMENTS.search(one) for one in find_newest_texts(prompt))


_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"')


def report_unreadable(
    markup: str, specs: Mapping[str, ToolSpec], prompt: Prompt, *, alone: bool
) -> tuple[TextCall, ...]:
    """Return the call that `markup` was probably meant to be, if the reply ends with it and it
    names an offered tool, or is `alone` in the reply and closed."""
    named = re.search(rf"\b(?:{'|'.join(map(re.escape, specs))})\b", markup)
    closed = max((found.end() for found in _CLOSED.finditer(markup)), default=0)
    is_prose = markup[closed:].lstrip()[:1] not in ("", "<", "[") if closed else False
    is_meant = (named and _BEGUN.search(markup)) or (alone and closed)
    if not is_meant or is_prose or is_quoted(markup, [markup], prompt):
        return ()
    problem = "it is truncated or malformed"
    return (TextCall(named[0] if named else "", "{}", markup, problem),)


def check_call(written: WrittenCall, specs: Mapping[str, ToolSpec]) -> TextCall:
    spec = specs.get(written.name)
    if spec is None:
        return TextCall(written.name, "{}", written.source, f"no tool is named {written.name!r}")
    if written.arguments is None:  # values of other types are read as JSON
        properties = mapping(spec.parameters.get("properties"))
        pairs = written.parameters
        values = {key: read_value(text, mapping(properties.get(key))) for key, text in pairs}
        return TextCall(spec.name, json.dumps(values, ensure_ascii=False), written.source)
    arguments = read_arguments(written.arguments)
    if arguments is None:
        return TextCall(spec.name, "{}", written.source, "its arguments are not a JSON object")
    return TextCall(spec.name, arguments, written.source)


def read_value(text: str, schema: Mapping[str, object]) -> object:
    kinds = [schema.get("type"), *items(schema.get("type"))]
    options = [*items(schema.get("anyOf")), *items(schema.get("oneOf"))]
    kinds += [mapping(one).get("type") for one in options]
    if "string" in kinds or not any(kinds):
        return text
    words = {"True": True, "False": False, "None": None}
    try:
        return words[text.strip()] if text.strip() in words else json.loads(text)
    except (ValueError, RecursionError):
        return text


def explains(text: str) -> bool:
    """Return True if a text explains the markup after it."""
    return re.search(_EXPLAINS, text) is not None


def is_quoted(markup: str, sources: Sequence[str], prompt: Prompt) -> bool:
    """Return True if calls are in the prompt, their opening tags are in the newest turn, or the
    person asks about calls."""
    if asks_about_calls(prompt):
        return True
    squeezed = [squeeze_text(source) for source in sources]
    marks = {squeeze_text(found[0]) for found in MENTION.finditer(markup)}
    if marks and contains_any(find_newest_texts(prompt), marks):
        return True
    given = (one.text for one in prompt.messages if one.role != "assistant")
    return contains_any(given, squeezed)


def contains_any(texts: Iterable[str], squeezed: Collection[str]) -> bool:
    return any(piece in text for text in map(squeeze_text, texts) for piece in squeezed)


def asks_about_calls(prompt: Prompt) -> bool:
    """Return True if the person's latest message asks about calls, or is a follow-up
    question."""
    asked = [one.text for one in prompt.messages if one.role == "user"][-2:]
    questions = [text for text in asked if re.search(_QUESTION, text)]
    return questions[-1:] == asked[-1:] and any(re.search(_ASKS, text) for text in questions)


def find_newest_texts(prompt: Prompt) -> Iterator[str]:
    """Yield the texts of the person and of tools since the last answer."""
    for message in reversed(prompt.messages):
        if message.role == "assistant" and not message.tool_calls:
            return
        if message.role in ("user", "tool"):
            yield message.text


def squeeze_text(text: str) -> str:
    """Return `text` without white space and without escapes of JSON and HTML."""
    if "&" in text:
        from html import unescape  # loads a large table

        text = unescape(text)
    if "\\" in text:
        text = valid_unicode(
            re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
        )
        text = re.sub(r"\\[nrt]?", "", text)
    return "".join(text.split())
