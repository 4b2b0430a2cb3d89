"""Whether tool-call markup in a reply is quoted or explained, and so no call. Pure.

The text before it explains, the person asks about calls, or the markup occurs in the prompt: see
`textcalls`, which decides the rest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from nanobot.providers.port import Prompt
from nanobot.providers.textforms import MENTION
from nanobot.text import valid_unicode

_EXPLAINS = re.compile(
    r"^[^\S\n]*(?:usage|sample|the (?:structure|pattern|notation|tag)|muster|vorlage)\b"
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
    r"|<(?:pre|code|example|xmp)\b|\'\'\'|\"\"\"",
    re.IGNORECASE | re.MULTILINE,
)
"""Words and tags that show that the text before markup is about markup. Missing one may run a call
that was meant as an example, and one too many shows a call as text."""
_ASKS = re.compile(
    r"(?<![</])\b(?:tool|function)s?[ -]?call(?:s|ing)?\b"
    r"|\bcall(?:ing|s)? (?:your |of )?(?:tool|function)s\b"
    r"|\bhow\b[^.?!]{0,40}\b(?:call|invoke|use)\b[^.?!]{0,30}\b(?:tools?|functions?)\b"
    r"|\bmarkup\b|\bchat template|\bspecial tokens?\b|(?:tool|werkzeug|funktions)-?aufruf"
    r"|\bwie\b[^.?!]{0,40}\b(?:werkzeuge?|tools?)\b|appels? (?:d['’]outils?|de fonctions?)"
    r"|\bcomment\b[^.?!]{0,40}\boutils?\b|llamadas? a (?:la )?(?:herramienta|función|funciones)"
    r"|\bcómo\b[^.?!]{0,40}\bherramientas?\b|chiamat[ae] \w+ (?:uno )?(?:strument|funzion)"
    r"|chamadas? de (?:ferramenta|função|funções)|вызов\w* (?:инструмент|функци)"
    r"|\bкак\b[^.?!]{0,40}инструмент|(?:工具|函数|函數)(?:的?[调調]用|呼叫)|(?:[调調]用|呼叫)(?:工具|函数|函數)"
    r"|(?:ツール|関数)の?呼び出|(?:도구|함수)\s?호출|araç çağ|wywołani\w+ (?:narzędzi|funkcji)"
    r"|استدعاء",
    re.IGNORECASE,
)
"""Words of a person who asks about calls and not for one. In English only nouns count: "call the
tool" is an order."""
_QUESTION = re.compile(
    r"[?？؟]|\b(?:show|explain|describe|demonstrate|tell|write down|zeig\w*|erklär\w*|montre\w*"
    r"|expli\w+|muestra\w*|muéstra\w*|mostra\w*|mostre|покажи\w*|объясни\w*|pokaż|wyjaśnij|göster"
    r"|açıkla)\b|展示|显示|顯示|解释|解釋|看看|給我看|给我看|見せ|教え|説明|보여|설명|اشرح|أرني",
    re.IGNORECASE,
)
"""What makes a mention of calls a question: "fix the function call in a.py" is none."""


def explains(text: str, end: int) -> bool:
    """Whether `text` explains markup that begins at `end`."""
    return _EXPLAINS.search(text, 0, end) is not None


def is_quoted(markup: str, sources: Sequence[str], prompt: Prompt) -> bool:
    """Whether calls are in the prompt, their opening tags in the newest turn, or the person asks
    about calls."""
    if _asks_about_calls(prompt):
        return True
    squeezed = [_squeezed(source) for source in sources]
    marks = {_squeezed(found[0]) for found in MENTION.finditer(markup)}
    if marks and _has_any(newest_texts(prompt), marks):
        return True
    given = (one.text for one in prompt.messages if one.role != "assistant")
    return _has_any(given, squeezed)


def _has_any(texts: Iterable[str], squeezed: Collection[str]) -> bool:
    return any(piece in text for text in map(_squeezed, texts) for piece in squeezed)


def _asks_about_calls(prompt: Prompt) -> bool:
    """Whether the person's latest message does, or goes on asking after one that did."""
    asked = [one.text for one in prompt.messages if one.role == "user"][-2:]
    return all(map(_QUESTION.search, asked[-1:])) and any(
        _QUESTION.search(text) and _ASKS.search(text) for text in asked
    )


def newest_texts(prompt: Prompt) -> Iterator[str]:
    """What came from the person and from tools since the last answer."""
    for message in reversed(prompt.messages):
        if message.role == "assistant" and not message.tool_calls:
            return
        if message.role in ("user", "tool"):
            yield message.text


def _squeezed(text: str) -> str:
    """`text` without white space and without escapes of JSON and HTML."""
    if "&" in text:
        from html import unescape  # its table of names is large

        text = unescape(text)
    if "\\" in text:
        text = valid_unicode(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), text))
        text = _ESCAPE.sub("", text)
    return "".join(text.split())


_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_ESCAPE = re.compile(r"\\[nrt]?")
