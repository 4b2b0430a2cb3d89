"""A trial of one model, for `nanobot doctor --ask-model`: an answer, a tool call, a structured
answer, a picture.

It begins with nothing learned of the server, so that it shows how the server is today. Everything
is harmless: nothing runs that the model calls.
"""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from nanobot.channel import CheckFinding as Finding
from nanobot.clock import Clock
from nanobot.config.model import ModelSettings
from nanobot.errors import NanobotError, ProviderError
from nanobot.text import shortened

if TYPE_CHECKING:
    from nanobot.providers.dialect import Dialect, Rung
    from nanobot.providers.discovery import ModelFacts
    from nanobot.providers.port import Image, Reply, ToolSpec

_ANSWER_TOKENS = 2_000
"""Enough to think before an answer of a few words."""
_SHOWN = 60
_ANOTHER = "Try another model."
_BETTER = "A model whose server parses its tool calls is more reliable."

_BY: Mapping[Rung, str] = {
    "name": "by a forced tool call",
    "required": "by a required tool call",
    "schema": "by a JSON Schema",
    "text": "as JSON in its text",
}
_HABITS: Mapping[str, str] = {
    "strict_roles=True": "takes turns strictly",
    "system_role=False": "has no system role",
    "call_ids=nine": "takes only ids of nine letters and digits for tool calls",
    "call_ids=kimi": "numbers its tool calls",
    "reasoning_content=True": "wants its thinking back",
    "signatures=True": "wants its signatures back",
    "stream=False": "cannot stream",
    "new_limit=True": "takes max_completion_tokens",
    "plain_schemas=True": "takes only simple tool schemas",
    "native_calls=True": "returns tool calls as such",
    "reports_reading=True": "reports how far it has read",
}
"""The fields of a dialect in words, without those that no person would notice."""


def dialect_text(dialect: Dialect | None) -> str:
    """Return how a server wants requests, for people; empty if nothing is special."""
    from nanobot.providers.dialect import changes_of

    if dialect is None:
        return ""
    words = [_HABITS[change] for change in changes_of(dialect) if change in _HABITS]
    if dialect.dropped:
        words.append(f"refuses {', '.join(sorted(dialect.dropped))}")
    if dialect.rung != "name":
        words.append(f"gives structured answers {_BY[dialect.rung]}")
    return ", ".join(words)


class ModelTrial:
    """One model on its server. `answered` is whether it answered at all, `learned` the dialect that
    the trial has shown (None: what is documented of the server is right)."""

    def __init__(self, model: ModelSettings, facts: ModelFacts, clock: Clock) -> None:
        from nanobot.app.base import build_adapter
        from nanobot.providers.dialect import Dialects

        self._model, self._facts, self._clock = model, facts, clock
        self._dialects = Dialects(clock)
        self._provider = build_adapter(model, self._dialects)
        self.answered = False

    @property
    def learned(self) -> Dialect | None:
        found = next(iter(self._dialects.learned().values()), None)
        return found.dialect if found else None

    def run(self) -> Iterator[Finding]:
        """Try everything, the findings as they come. Blocks."""
        with asyncio.Runner() as runner:
            try:
                yield runner.run(self._answer())
                self.answered = True
                for attempt in (self._call, self._structure, self._see):
                    yield runner.run(attempt())
                if text := dialect_text(self.learned):
                    yield Finding("ok", f"learned: {text}")
            except NanobotError as error:
                yield Finding("fail", str(error), error.hint)
            finally:
                runner.run(self._provider.close())

    async def _answer(self) -> Finding:
        began = self._clock.monotonic()
        reply = await self._ask("This is a test. Answer with the one word: ready")
        took = self._clock.monotonic() - began
        tokens = f"{reply.usage.prompt} tokens in, {reply.usage.completion} out"
        if not reply.text.strip():
            return Finding("fail", f"its answer is empty ({tokens})", _ANOTHER)
        return Finding("ok", f"it answers {_quoted(reply)} after {took:.1f} s ({tokens})")

    async def _call(self) -> Finding:
        from nanobot.providers.port import ToolSpec

        city = {"type": "string", "description": "The name of a city."}
        schema = {"type": "object", "properties": {"city": city}, "required": ["city"]}
        tool = ToolSpec("get_weather", "Return the weather in a city.", schema)
        try:
            reply = await self._ask("How is the weather in Rome? Use the tool get_weather.", tool)
        except ProviderError as error:
            return Finding("fail", f"tool calls: {error}", error.hint)
        call = next((one for one in reply.tool_calls if one.name == tool.name), None)
        if call is None:
            text = f"tool calls: none; it answered {_quoted(reply)}"
            return Finding("warn", text, self._facts.for_tools or _ANOTHER)
        if call.malformed:
            text = f"tool calls: not usable: {shortened(call.malformed, _SHOWN)}"
            return Finding("warn", text, _ANOTHER)
        if self._calls_natively:
            return Finding("ok", "tool calls: as such")
        text = "tool calls: in its text; nanobot reads them, but small models often get them wrong"
        return Finding("warn", text, self._facts.for_tools or _BETTER)

    @property
    def _calls_natively(self) -> bool:
        learned = self.learned
        return self._model.api == "messages" or bool(learned and learned.native_calls)

    async def _structure(self) -> Finding:
        from nanobot.providers.port import ToolSpec

        fields = {"name": {"type": "string"}, "city": {"type": "string"}}
        schema = {"type": "object", "properties": fields, "required": [*fields]}
        tool = ToolSpec("save_person", "Save a person.", schema)
        try:
            reply = await self._ask("Save this person: Ada lives in Rome.", tool, forced=True)
        except ProviderError as error:
            return Finding("warn", f"structured answers: {error}", error.hint or _ANOTHER)
        if not any(one.name == tool.name and not one.malformed for one in reply.tool_calls):
            text = "structured answers: none, so conversations are kept as excerpts"
            return Finding("warn", f"{text}; it answered {_quoted(reply)}", _ANOTHER)
        way = self.learned.rung if self.learned else "name"
        return Finding("ok", f"structured answers: {_BY[way]}")

    async def _see(self) -> Finding:
        if self._facts.pictures is False:
            return Finding("ok", "pictures: its server reports that it can't see them")
        asked = "Which colour does this picture have? Answer with one word."
        try:
            reply = await self._ask(asked, picture=_red_picture())
        except ProviderError as error:
            return Finding("ok", f"pictures: it can't see them ({error.detail or error})")
        if "red" in reply.text.lower():
            return Finding("ok", "pictures: it sees them")
        text = f"pictures: it can't see them; it answered {_quoted(reply)} for a red one"
        return Finding("ok", text)

    async def _ask(
        self, text: str, *tools: ToolSpec, forced: bool = False, picture: Image | None = None
    ) -> Reply:
        from nanobot.providers.port import CallOptions, Prompt, Toolset, user_message

        message = user_message(text, (picture,) if picture else ())
        limit = min(_ANSWER_TOKENS, self._model.max_completion_tokens)
        choice = tools[0].name if forced else ""
        options = CallOptions(max_tokens=limit, tool_choice=choice)
        return await self._provider.complete(Prompt((message,), Toolset.of(tools)), options)


def _quoted(reply: Reply) -> str:
    return f"“{shortened(' '.join(reply.text.split()), _SHOWN)}”"


def _red_picture() -> Image:
    """Return a red PNG of 64 × 64 pixels. Format: https://www.w3.org/TR/png-3/."""
    from nanobot.providers.port import Image

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return len(data).to_bytes(4) + checked + zlib.crc32(checked).to_bytes(4)

    side = 64
    header = side.to_bytes(4) + side.to_bytes(4) + bytes((8, 2, 0, 0, 0))
    pixels = zlib.compress((b"\0" + b"\xff\0\0" * side) * side)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return Image(base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode(), "image/png")
