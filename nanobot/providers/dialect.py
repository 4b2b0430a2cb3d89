"""Dialects: how a server requires requests for a model, because servers disagree.

A dialect begins with the documented facts of the server and the model. A refusal corrects it: if
the refusal names something that can be changed, the changed request is sent, once for each change.
The correction holds for that server and model. It is stored for a week, because servers are
updated.

Sources: Mistral's role order and call ids, https://docs.mistral.ai/capabilities/function_calling
and the validators of mistral-common; https://api-docs.deepseek.com/guides/thinking_mode;
https://platform.kimi.ai/docs (thinking with tools, call ids `functions.NAME:n`);
https://ai.google.dev/gemini-api/docs/thought-signatures;
https://openrouter.ai/docs/use-cases/reasoning-tokens; llama.cpp, tools/server/README.md."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

from loguru import logger
from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from nanobot.bus.state import Document, StateStore, decode_versioned
from nanobot.clock import Clock, SystemClock
from nanobot.errors import ContextTooLong, NanobotError, ProviderError

CallIds = Literal["any", "nine", "kimi"]
Rung = Literal["name", "required", "schema", "text"]
RUNGS: tuple[Rung, ...] = ("name", "required", "schema", "text")
"""Ways to request a structured answer, best first: force the tool by name, `required` with only
that tool, a JSON Schema for the answer, a JSON object in plain text."""


class Dialect(Struct, frozen=True):
    """Form of requests that one server requires for one model.

    - `strict_roles`: user and assistant take turns, tool results follow their calls, and an
      assistant message follows them. `system_role`: the server knows that role. `fills_empty`: no
      message may be empty. `joins_answers`: assistant messages in a row become one.
    - `call_ids`: the form of tool call ids.
    - `reasoning_content`: tool calls must come with the model's thinking. `reads_reasoning`: the
      server uses returned thinking. `signatures`: calls must carry Gemini's.
    - `stream`; `new_limit`: `max_completion_tokens`, not `max_tokens`; `plain_schemas`: tools
      without `$ref`, `const` and lists of types; `dropped`: optional fields that it refuses, each
      in the form of `optional`.
    - `rung`: the way to structured answers that works. `native_calls`: it has returned a tool call
      as such, so markup in its text is only text. `reports_reading`: it reports how much of a
      prompt it has read. `cache_marks`: it forwards marks of Claude's prompt cache."""

    strict_roles: bool = False
    system_role: bool = True
    fills_empty: bool = True
    joins_answers: bool = True
    call_ids: CallIds = "any"
    reasoning_content: bool = False
    reads_reasoning: bool = False
    signatures: bool = False
    stream: bool = True
    new_limit: bool = False
    plain_schemas: bool = False
    dropped: frozenset[str] = frozenset()
    rung: Rung = "name"
    native_calls: bool = False
    reports_reading: bool = False
    cache_marks: bool = False

    def after(self, refusal: ProviderError, sent: Mapping[str, object]) -> Iterator[Dialect]:
        """Yield the dialects that a refusal of the fields `sent` may require, most likely first."""
        if isinstance(refusal, ContextTooLong):
            return
        for wording, change in _CHANGES:
            if _matches(refusal.detail, wording) and (changed := change(self, sent)) != self:
                yield changed


def optional(name: str, value: object) -> str:
    """Return an optional field's entry for `dropped`. A server may refuse only one value of a
    setting."""
    return f"{name}={value}" if isinstance(value, str | int | float) else name


_Change = Callable[[Dialect, Mapping[str, object]], Dialect]


def _sets(**fields: object) -> _Change:
    return lambda dialect, _: replace(dialect, **fields)


def _drops(name: str) -> tuple[str, _Change]:
    def drop(one: Dialect, sent: Mapping[str, object]) -> Dialect:
        return replace(one, dropped=one.dropped | {optional(name, sent.get(name))})

    return rf"\b{name}\b", drop


def _matches(text: str, pattern: str) -> bool:
    # Compiled at the first use and cached by `re`, to keep the import fast.
    return re.search(pattern, text, re.IGNORECASE | re.DOTALL) is not None


_OPTIONAL = (
    *("stream_options", "return_progress", "temperature", "reasoning_effort", "reasoning"),
    *("chat_template_kwargs", "thinking", "cache_control", "response_format"),
)
"""Fields that a request does not need."""


_CHANGES: Sequence[tuple[str, _Change]] = (
    (r"max_completion_tokens", _sets(new_limit=True)),
    (r"thought_signature", _sets(signatures=True)),
    (
        r"reasoning.{0,80}(not (permitted|supported|allowed)|extra|unexpected|unknown)",
        _sets(reasoning_content=False, reads_reasoning=False),
    ),
    (r"reasoning_content|reasoning must be", _sets(reasoning_content=True)),
    (r"length of 9\b", _sets(call_ids="nine")),
    *map(_drops, _OPTIONAL),
    (
        r"system.{0,40}(not|n't|un)\s?(be )?(supported|allowed|accepted)|support system",
        _sets(system_role=False),
    ),
    (
        r"(content|message).{0,80}(empty|blank)|(non-?empty|empty|blank).{0,40}content",
        _sets(fills_empty=True),
    ),
    (
        r"\broles?\b|alternat|template|jinja|raise_exception|NoneType|concatenate"
        r"|not the same number of function calls",
        _sets(strict_roles=True, fills_empty=True),
    ),
    (
        r"schema|\$ref|\$defs|\bconst\b|anyOf|oneOf|allOf|additionalProperties|grammar"
        r"|function_?declaration|parameters|tools?[.\[]\d",
        _sets(plain_schemas=True),
    ),
    (r"\bstream.*support|support.*\bstream", _sets(stream=False)),
)
"""Wordings of refusals, each with the change that it requires."""

_FORCING = r"tool_choice|tool choice|response_format|json_schema|structured|guided|forc"


def refuses_forcing(refusal: ProviderError) -> bool:
    """Return True if a server refused how a structured answer was requested."""
    return _matches(refusal.detail, _FORCING)


_FREE_HOSTS = (
    *("openai.com", "anthropic.com", "googleapis.com", "deepseek.com", "x.ai", "groq.com"),
    *("moonshot.ai", "moonshot.cn", "kimi.com", "kimi.ai", "openrouter.ai"),
)
"""Servers that accept a user message after a tool result. There, invented assistant messages would
only hurt."""
_MISTRAL = r"mi[sx]tral|magistral|codestral|devstral|pixtral"


@lru_cache(maxsize=64)
def dialect_for(base_url: str, model: str) -> Dialect:
    """Return the documented dialect of a server and a model. Unknown servers and servers at private
    addresses get the strictest."""
    host = host_of(base_url)

    def on(*domains: str) -> bool:
        return any(host == domain or host.endswith(f".{domain}") for domain in domains)

    mistral = _matches(model, _MISTRAL) or on("mistral.ai")
    kimi = on("moonshot.ai", "moonshot.cn", "kimi.com", "kimi.ai")
    return Dialect(
        strict_roles=mistral or not on(*_FREE_HOSTS),
        fills_empty=not on("openai.com"),
        joins_answers=not on("openai.com"),  # Gemini requires calls right after a user message
        call_ids="nine" if mistral else "kimi" if kimi or "kimi" in model.lower() else "any",
        reasoning_content=kimi or on("deepseek.com"),
        reads_reasoning=is_near(base_url),
        signatures=on("googleapis.com"),
        new_limit=on("api.openai.com"),
        cache_marks=on("openrouter.ai") and "claude" in model.lower(),
    )


def host_of(base_url: str) -> str:
    try:
        return urlsplit(base_url).hostname or ""
    except ValueError:
        return ""


def is_near(base_url: str) -> bool:
    """Return True if a server is probably the owner's: on this machine or in its network."""
    host = host_of(base_url)
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".home.arpa"))


class LearnedDialect(Struct, frozen=True):
    at: datetime
    dialect: Dialect


_LEARNED_FOR = timedelta(days=7)  # servers are updated


class Dialects:
    """Learned dialects by `source` (server and model), stored in the document `dialects`.

    Without a `store` they last as long as the process."""

    def __init__(self, clock: Clock | None = None, store: StateStore | None = None) -> None:
        self._clock = clock or SystemClock()
        self._learned: dict[str, LearnedDialect] = {}
        self._document: Document[Mapping[str, LearnedDialect]] | None = None
        if store is not None:
            self._document = Document(store, "dialects", decode_dialects, encode_dialects, {})

    def load(self) -> None:
        """Read the stored dialects. Blocking. Raise `StorageError`."""
        if self._document:
            self._learned = dict(self._document.load())

    def of(self, source: str, known: Dialect) -> Dialect:
        """Return the dialect learned for a source within the last week, or `known`."""
        found = self._learned.get(source)
        fresh = found is not None and self._clock.now() - found.at < _LEARNED_FOR
        return found.dialect if found and fresh else known

    async def learn(self, source: str, known: Dialect, shown: Dialect) -> None:
        """Use the traits of `shown` that `known` lacks for a source from now on. Other requests may
        have learned other traits."""
        new = {
            name: getattr(shown, name)
            for name in Dialect.__struct_fields__
            if getattr(shown, name) != getattr(known, name)
        }
        dialect = replace(self.of(source, known), **new)
        logger.info("{}: learned {}", source, ", ".join(changes_of(dialect)) or "the default")
        await self.replace({source: dialect})

    async def replace(self, learned: Mapping[str, Dialect | None]) -> None:
        """Use these dialects by source from now on. None forgets a learned dialect. A store failure
        is only logged: the dialects will be learned again."""
        for source, dialect in learned.items():
            if dialect is None:
                self._learned.pop(source, None)
            else:
                self._learned[source] = LearnedDialect(self._clock.now(), dialect)
        if self._document is None:
            return

        def change(stored: Mapping[str, LearnedDialect]) -> Mapping[str, LearnedDialect]:
            others = {name: one for name, one in stored.items() if name not in learned}
            return others | {name: self._learned[name] for name in learned & self._learned.keys()}

        try:
            await asyncio.to_thread(self._document.change, change)
        except NanobotError as error:
            logger.warning("can't save the model servers' dialects: {}", error)

    def snapshot(self) -> Mapping[str, LearnedDialect]:
        return dict(self._learned)


def changes_of(dialect: Dialect) -> list[str]:
    """Return the fields in which a dialect differs from plain Chat Completions, for people."""
    plain = to_builtins(Dialect())
    mine = to_builtins(dialect)
    return [f"{name}={mine[name]}" for name in plain if mine[name] != plain[name]]


def encode_dialects(learned: Mapping[str, LearnedDialect]) -> bytes:
    return json.dumps({"version": 1, "dialects": to_builtins(learned)}).encode()


def decode_dialects(content: bytes) -> Mapping[str, LearnedDialect]:
    """Return the dialects in a stored document by source. Raise `InvalidDocument`."""
    found: dict[str, LearnedDialect] = {}
    entries = decode_versioned(content, 1).get("dialects")
    for source, entry in (entries if isinstance(entries, dict) else {}).items():
        try:
            found[source] = convert(entry, LearnedDialect)
        except ValidationError:
            continue  # written by another version: learned again
    return found
