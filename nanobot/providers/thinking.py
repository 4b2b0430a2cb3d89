"""Filter for thinking that a server leaves in the text of a reply. Pure.

Templates and models mark it in several ways:

- `<think>…</think>` at the beginning (DeepSeek R1, Qwen 3), also `<thinking>`, `<thought>`,
  `<reasoning>`, `<seed:think>` (Seed-OSS), `<longcat_think>` (LongCat), `[THINK]` (Magistral),
  `◁think▷` (Kimi-VL), `<|START_THINKING|>` (Command A), `<|channel>thought` (Gemma 4) and
  `<unused94>thought` (MedGemma). Without a closing tag everything is thinking. The answer behind it
  may have tags as well: `<answer>` (Hunyuan), `<response>` (Granite).
- Only a closing tag: the template opened the tag in the prompt (DeepSeek R1, QwQ), so everything
  before it is thinking. It counts once and outside of code, and the shown text is retracted.
- gpt-oss's channels: `<|channel|>analysis<|message|>…<|end|>`, then
  `<|start|>assistant<|channel|>final<|message|>…<|return|>` (OpenAI's harmony format). A message to
  a tool stays as it is, for `textcalls`.

The visible text does not depend on how the reply was cut, and it can be encoded: surrogate halves
in two pieces are joined, stray ones replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from nanobot.text import valid_unicode

_NAMES = (
    "thinking",
    "think",
    "thought",
    "reasoning",
    "seed:think",
    "mm:think",
    "longcat_think",
    "antthinking",
)
_PAIRS = {
    **{f"<{name}>": f"</{name}>" for name in _NAMES},
    "[think]": "[/think]",
    "◁think▷": "◁/think▷",
    "<|start_thinking|>": "<|end_thinking|>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|channel>thought": "<channel|>",
    "<unused94>thought": "<unused95>",
}
_ANSWERS = {
    "<answer>": "</answer>",
    "<response>": "</response>",
    "<|start_response|>": "<|end_response|>",
    "<|begin_of_solution|>": "<|end_of_solution|>",
}
"""Tags that some models put around the answer after their thinking."""


def any_of(tags: Iterable[str]) -> str:
    return "|".join(map(re.escape, tags))


@cache
def compile_tags(pattern: str) -> re.Pattern[str]:
    """Compile at the first use, because the patterns of all tags would take a tenth of a
    megabyte."""
    return re.compile(pattern, re.IGNORECASE | re.ASCII)


_OPENING, _ANSWER = any_of(_PAIRS), any_of(_ANSWERS)
_SIGNS = (
    rf"(?P<code>`+|~{{3,}})|(?P<line>\n)|(?P<close>{any_of(_PAIRS.values())})|(?P<open>{_OPENING})"
)
_TAGS = (*_PAIRS, *_PAIRS.values())
_LONGEST_TAG = max(map(len, (*_TAGS, *_ANSWERS, *_ANSWERS.values())))

_HEADS = ("<|channel|>", "<|start|>")
_MESSAGE = "<|message|>"
_LONGEST_HEAD = 200  # characters before `<|message|>`
_END_OF_ANALYSIS = re.compile(r"<\|end\|>|<\|return\|>|(?=<\|start\|>|<\|channel\|>)")
_END_OF_ANSWER = re.compile(r"<\|end\|>|<\|return\|>|(?=<\|start\|>)")
_END_TOKENS = ("<|end|>", "<|return|>", "<|start|>", "<|channel|>")
_FIRST_OF_TAGS = "<[\n"  # characters that may begin a tag
_WHITESPACE = " \t\r\n"
_FENCE = 3  # characters that begin a code fence
_MOST_HELD = 500
"""Characters of white space or of a fence that are held back, because some models repeat one
forever."""


class VisibleText(NamedTuple):
    """Text that may be shown now. If `restart`, it replaces everything shown before."""

    text: str
    restart: bool = False


class ThinkingFilter:
    """Visible text of one reply. `thought` is True once thinking has been found."""

    def __init__(self) -> None:
        self._half = self._held = ""
        self._state = self._begin
        self._closing, self._end = _END_OF_ANALYSIS, _END_OF_ANSWER
        self._end_tokens: tuple[str, ...] = _END_TOKENS
        self._code = ""
        self._trim = self._any = self._void = self._ended = False
        self.thought = False

    def feed(self, piece: str) -> VisibleText:
        piece, self._half = self._half + piece, ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]  # half of a surrogate pair
        return self._run(valid_unicode(piece), last=False)

    def close(self) -> VisibleText:
        """Return the text that was held back."""
        return self._run(valid_unicode(self._half), last=True)

    def _run(self, piece: str, *, last: bool) -> VisibleText:
        self._held += piece
        self._void = False
        shown: list[str] = []
        state = None
        while state != self._state:
            state = self._state
            text = state(last)
            if self._void and text is None:
                shown.clear()
            if text:
                shown.append(text)
        whole = "".join(shown)
        self._any = self._any or bool(whole)
        return VisibleText(whole, self._void)

    def _begin(self, last: bool) -> str | None:
        """Handle the beginning, or the end of thinking: more thinking, a head of a channel, or
        text."""
        text = self._held.lstrip(_WHITESPACE)
        if not text:
            self._held = self._held[-_MOST_HELD:]
        if found := compile_tags(_OPENING).match(text):
            self._think(compile_tags(re.escape(_PAIRS[found[0].lower()])), text[found.end() :])
        elif self.thought and (found := compile_tags(_ANSWER).match(text)):
            end = _ANSWERS[found[0].lower()]
            self._enter(re.compile(rf"\n?{re.escape(end)}", re.IGNORECASE), (end, f"\n{end}"))
            self._held, self._state = text[found.end() :], self._lead
        elif text.startswith(_HEADS):
            self._read_head(text, last)
        elif last or (text and not self._may_be_tag(text)):
            self._begin_text(text)
        return ""

    def _begin_text(self, text: str) -> None:
        self._held = text if self._trim else self._held
        self._state = self._pass if self.thought else self._watch

    def _may_be_tag(self, text: str) -> bool:
        low = text[:_LONGEST_TAG].lower()
        tags = (*_TAGS, *_HEADS, *(_ANSWERS if self.thought else ()))
        return any(tag.startswith(low) for tag in tags)

    def _enter(self, end: re.Pattern[str], tokens: tuple[str, ...]) -> None:
        """Begin the answer, up to its end."""
        self._state, self._end, self._end_tokens = self._answer, end, tokens

    def _read_head(self, text: str, last: bool) -> None:
        """Read the head of a message in a channel, up to its `<|message|>`."""
        end = text.find(_MESSAGE, 0, _LONGEST_HEAD)
        if end < 0:
            if last and "analysis" in text:
                self._think(_END_OF_ANALYSIS, "")
            elif last or len(text) >= _LONGEST_HEAD:
                self._state = self._pass
            return
        head, body = text[:end], text[end + len(_MESSAGE) :]
        if " to=" in head:
            self._state = self._pass
        elif "analysis" in head:
            self._think(_END_OF_ANALYSIS, body)
        else:
            self._enter(_END_OF_ANSWER, _END_TOKENS)
            self._held = body

    def _think(self, closing: re.Pattern[str], rest: str) -> None:
        self.thought = self._trim = True
        self._held, self._closing, self._state = rest, closing, self._skip

    def _skip(self, last: bool) -> str | None:
        found = self._closing.search(self._held)
        if found:
            self._held, self._state = self._held[found.end() :], self._begin
        else:
            self._held = "" if last else self._held[-_LONGEST_TAG:]
        return ""

    def _lead(self, last: bool) -> str | None:
        """Skip white space before the answer."""
        self._held = self._held.lstrip(_WHITESPACE)
        if self._held or last:
            self._state = self._answer
        return ""

    def _answer(self, last: bool) -> str | None:
        """Return the text of a channel, up to its end."""
        if found := self._end.search(self._held):
            text, self._held = self._held[: found.start()], self._held[found.end() :]
            self._trim, self._state = True, self._begin
        else:
            text = self._release(self._end_tokens, last)
        between = "\n\n" if text and self._ended else ""
        self._ended = (bool(found) and (self._any or bool(text))) or (self._ended and not text)
        self._any = self._any or bool(text)
        return between + text

    def _pass(self, last: bool) -> str | None:
        text, self._held = self._held, ""
        return text

    def _watch(self, last: bool) -> str | None:
        """Return text without thinking so far. A closing tag makes all of it thinking."""
        whole, self._held = self._held, self._held
        kept = self._release(_TAGS, last, also="`~")
        for found in compile_tags(_SIGNS).finditer(kept):
            if found["close"] and not self._code:
                self.thought = self._trim = True
                self._void = self._any
                self._any = False
                self._held, self._state = whole[found.end() :], self._begin
                return None if self._void else ""
            if found["open"] and not self._code:
                self._state = self._pass
                return kept
            self._count_code(found)
        return kept

    def _count_code(self, sign: re.Match[str]) -> None:
        if sign["line"]:
            self._code = self._code if len(self._code) >= _FENCE else ""
        elif run := sign["code"]:
            if not self._code:
                self._code = run
            elif run == self._code or (
                run[0] == self._code[0] and len(run) >= len(self._code) >= _FENCE
            ):
                self._code = ""

    def _release(self, tags: tuple[str, ...], last: bool, also: str = "") -> str:
        """Return the held text, except for an end that may begin a tag."""
        held = self._held
        end = len(held)
        if not last:
            tail = max(0, end - _LONGEST_TAG)
            low = held[tail:].lower()
            begins = (at for at, letter in enumerate(low) if letter in _FIRST_OF_TAGS)
            start = next(
                (at for at in begins if any(tag.startswith(low[at:]) for tag in tags)), len(low)
            )
            end = tail + start
            if also:
                end = max(len(held[:end].rstrip(also)), end - _MOST_HELD)
        self._held = held[end:]
        return held[:end]
