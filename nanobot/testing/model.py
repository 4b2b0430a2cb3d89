"""A scripted language model and a scripted person for tests."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nanobot.channel import WentBack
from nanobot.errors import ProviderError
from nanobot.messages import ToolCall
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink, Usage


class ScriptExhausted(AssertionError):
    """The model was called more often than the test expected."""


class Failure(Struct, frozen=True):
    """The call fails, after `text` was streamed."""

    error: ProviderError
    text: str = ""


_NO_USAGE = Usage()
_PIECE = 12
"""Characters per piece of a stream."""
Line = Reply | Failure
"""The result of one call."""
Author = Callable[[Prompt], Line]
"""Chooses the result from the prompt."""


def says(text: str, *, usage: Usage = _NO_USAGE, finish: str = "stop") -> Reply:
    """Return a reply with `text`."""
    return Reply(text, usage=usage, finish=finish)


def calls(name: str, /, **arguments: object) -> Reply:
    """Return a reply that calls one tool. Its id is set when it is played: `call_1`, `call_2`, …"""
    return Reply("", (ToolCall("", name, json.dumps(arguments)),), finish="tool_calls")


def together(*replies: Reply) -> Reply:
    """Join several replies: their texts and their calls."""
    tool_calls = tuple(call for reply in replies for call in reply.tool_calls)
    finish = "tool_calls" if tool_calls else "stop"
    return Reply("".join(reply.text for reply in replies), tool_calls, finish=finish)


def fails(error: ProviderError, *, after: str = "") -> Failure:
    """Return a failed call, with text that was streamed before in `after`."""
    return Failure(error, after)


class ScriptedModel:
    """Implements `nanobot.providers.port.Provider`.

    `script` is played in order, one line per call. A function in it is called with the prompt.
    `author` handles all later calls. `hold` is awaited before each answer, so a test can delay a
    reply. `prompts` and `options` record the calls."""

    def __init__(
        self,
        *script: Line | Author,
        author: Author | None = None,
        hold: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._script = list(script)
        self._author = author
        self._hold = hold
        self._ids = 0
        self.prompts: list[Prompt] = []
        self.options: list[CallOptions] = []
        self.closed = False

    def then(self, *script: Line | Author) -> None:
        self._script += script

    @property
    def remaining(self) -> int:
        """Number of lines not played yet."""
        return len(self._script)

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        self.prompts.append(prompt)
        self.options.append(options)
        line = self._next(prompt)
        if self._hold is not None:
            await self._hold()
        if on_text is not None:
            for start in range(0, len(line.text), _PIECE):
                on_text(line.text[start : start + _PIECE], False)
        if isinstance(line, Failure):
            raise line.error
        calls = list[ToolCall]()
        for call in line.tool_calls:
            if call.id:
                calls.append(call)
            else:
                self._ids += 1
                calls.append(replace(call, id=f"call_{self._ids}"))
        return replace(line, tool_calls=tuple(calls))

    async def close(self) -> None:
        self.closed = True

    def _next(self, prompt: Prompt) -> Line:
        line = self._script.pop(0) if self._script else self._author
        if line is None:
            last = prompt.messages[-1] if prompt.messages else None
            raise ScriptExhausted(
                f"call {len(self.prompts)} of the model has no line in its script; "
                f"the prompt ends with {f'{last.role}: {last.text[:200]!r}' if last else 'nothing'}"
            )
        return line(prompt) if callable(line) else line


class ScriptedPerson:
    """A person who answers a setup, for `nanobot.channel.Setup`.

    Gives one answer after the other. An empty one takes the default, as Enter does. A choice is
    answered by its number from 1, or by a part of its words. The answer `<` goes back.

    `said` has all texts and questions in order."""

    def __init__(self, *answers: str) -> None:
        self._answers = deque(answers)
        self.said: list[str] = []

    @property
    def remaining(self) -> int:
        """Answers not used yet."""
        return len(self._answers)

    def say(self, text: str) -> None:
        """See `nanobot.channel.Person`, here and below."""
        self.said.append(text)

    async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
        return self._next(question) or default

    async def confirm(self, question: str, *, default: bool = True) -> bool:
        answer = self._next(question)
        return answer == "y" if answer else default

    async def choose(self, question: str, choices: Sequence[str], default: int = 0) -> int:
        answer = self._next("\n".join([question, *choices]))
        if answer.isdecimal():
            return int(answer) - 1
        fitting = [at for at, choice in enumerate(choices) if answer in choice]
        return fitting[0] if answer else default

    def _next(self, question: str) -> str:
        self.said.append(question)
        if not self._answers:
            raise AssertionError(f"nobody expected: {question}")
        answer = self._answers.popleft()
        if answer == "<":
            raise WentBack
        return answer
