"""The checks of `nanobot doctor` for models and voices.

Each server is asked for its models and the facts about the configured one. With --ask-model each
model is tried: an answer, a tool call, a structured answer, a picture. No tool runs, so this is
harmless. A trial begins without a learned dialect and replaces the stored one.

For voices, the transcription program must understand the speech program. Voice servers are only
asked with --ask-model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from msgspec import to_builtins
from msgspec.structs import replace

import nanobot
from nanobot.channel import CheckFinding as Finding
from nanobot.cli.command import size
from nanobot.cli.gateway import operate
from nanobot.cli.status import documents_of
from nanobot.clock import Clock
from nanobot.config.model import SMALL_WINDOW, ModelSettings
from nanobot.errors import NanobotError, ProviderError
from nanobot.text import shorten

if TYPE_CHECKING:
    from nanobot.app.voice import Voice
    from nanobot.config.settings import Settings
    from nanobot.providers.dialect import Dialect, Rung
    from nanobot.providers.discovery import ModelFacts
    from nanobot.providers.port import Image, Reply, ToolSpec

_PROBE_SECONDS = 8.0
_LISTED = 5
_QUOTED = 60
_ANSWER_TOKENS = 2_000  # enough tokens to think before a short answer
_ANOTHER = "Try another model."
_RED = (
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PQQkAAAgAsetfWiP4FgYrsKZeS0BAQEBA"
    "QEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEDgsqnc8OJg6Ln3AAAAAElFTkSuQmCC"
)
"""A red PNG of 64 × 64 pixels, in Base64."""
_WORDS = "One, two, three."
_SAMPLE = Path(nanobot.__file__).parent / "voice" / "sample.ogg"
"""A recording of "one two three four"."""

_BY: Mapping[Rung, str] = {
    "name": "with a forced tool call",
    "required": "with a required tool call",
    "schema": "with a JSON Schema",
    "text": "as JSON in the text",
}
_HABITS: Mapping[str, str] = {
    "strict_roles=True": "requires alternating roles",
    "system_role=False": "does not support the system role",
    "call_ids=nine": "requires tool call ids with nine letters and digits",
    "call_ids=kimi": "numbers its tool calls",
    "reasoning_content=True": "requires its reasoning in later requests",
    "signatures=True": "requires its signatures in later requests",
    "stream=False": "does not support streaming",
    "new_limit=True": "uses max_completion_tokens",
    "plain_schemas=True": "accepts only simple tool schemas",
    "native_calls=True": "returns native tool calls",
    "reports_reading=True": "reports its progress while reading a prompt",
}
"""The fields of a dialect, for people, except some that have no visible effect."""


def _list_models(settings: Settings) -> Iterable[tuple[str, str, ModelSettings]]:
    """Return the main model, its fallbacks and the named ones, without duplicates. Each has its
    section of the configuration and its label in findings, which is empty for the main one."""
    main, *fallbacks = settings.model.chain
    every = [("model", "", main)]
    for at, one in enumerate(fallbacks):
        every.append((f"model.fallbacks[{at}]", f"fallback {one.name}: ", one))
    for name, named in settings.models.items():
        every.append((f"models.{name}", f"model {name}: ", named.fill_from(main)))
    known = dict[object, tuple[str, str, ModelSettings]]()
    for key, label, model in every:
        which = (model.base_url, model.name, model.api, model.context_window)
        known.setdefault(which, (key, label, model))
    return known.values()


def try_models(settings: Settings, clock: Clock, *, ask: bool) -> Iterator[Finding]:
    """Check each model. The agent works without all but the main one, so their failures are
    warnings. Blocks."""
    if settings.model.provider == "offline":
        hint = "Run `nanobot onboard`, or set model.name and model.api_key."
        yield Finding("warn", "only the small built-in model is set up", hint)
        return
    stored = _load_dialects(settings.home)
    for key, label, model in _list_models(settings):
        for found in _check_model(key, model, settings.home, stored, clock if ask else None):
            state = "warn" if label and found.state == "fail" else found.state
            yield replace(found, state=state, text=f"{label}{found.text}")


def _check_model(
    section: str,
    model: ModelSettings,
    home: Path,
    stored: Mapping[str, Dialect],
    clock: Clock | None,
) -> Iterator[Finding]:
    """Check one model, with a trial if there is a clock."""
    from nanobot.providers.discovery import ModelServer
    from nanobot.providers.endpoint import Endpoint
    from nanobot.providers.known_servers import provider_for

    key = model.api_key.get_secret_value()
    provider = provider_for(model.base_url, model.api)
    server = ModelServer(model.base_url, key, _PROBE_SECONDS, provider)
    try:
        server, models = asyncio.run(server.locate(every=True))
        names = [listed.name for listed in models]
        yield _check_listed(model, names)
        if (url := server.base_url) != model.base_url:
            yield Finding(
                "warn", f"the server's API is at {url}", f"Set {section}.base_url to {url}"
            )
        model = replace(model, name=model.name or next(iter(names), "default"))
        facts = asyncio.run(server.facts(model.name))
    except NanobotError as error:
        yield Finding("fail", str(error), error.hint)
        return
    yield from _window(model, facts, f"{section}.context_window")
    if facts.tools is False:
        yield Finding("warn", facts.no_tools, facts.for_tools)
    source = Endpoint(model.base_url, model.name, key).source(model.name)
    if clock is not None:
        trial = ModelTrial(model, facts, clock)
        yield from trial.run()
        if trial.answered and stored.get(source) != trial.dialect:
            found = list[Finding]()
            with _failure("the detected features could not be stored", found, "warn"):
                operate(home, "dialects.replace", learned={source: to_builtins(trial.dialect)})
            yield from found
    elif text := _dialect_text(stored.get(source)):
        yield Finding("ok", f"detected: {text}")


def _check_listed(model: ModelSettings, names: Sequence[str]) -> Finding:
    if not names or not model.name or model.name in names:
        named = model.name or next(iter(names), "the server's model")
        return Finding("ok", f"{named}, server reachable")
    from nanobot.providers.known_servers import similar_names

    meant = similar_names(model.name, names)
    offers = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
    hint = f"Did you mean {' or '.join(meant)}? " if meant else ""
    return Finding(
        "warn", f"the server does not list {model.name}", f"{hint}The server offers {offers}."
    )


def _window(model: ModelSettings, facts: ModelFacts, key: str) -> Iterator[Finding]:
    """Check the configured window against the server's, and that it is large enough."""
    from nanobot.providers.dialect import is_near

    configured, takes = model.context_window, facts.window
    hint = f"{facts.to_raise} Then set {key}." if facts.to_raise else ""
    if 0 < takes < configured:
        text = (
            f"{facts.server or 'its server'} accepts {takes:,} tokens, but {key} is {configured:,}"
        )
        cut = ", so longer prompts are silently cut off" if facts.server else ""
        yield Finding("warn", f"{text}{cut}", hint or f"Set {key} to {takes}.")
    elif configured < SMALL_WINDOW and is_near(model.base_url):
        text = (
            f"with a context window of {configured:,} tokens, nanobot uses fewer tools and "
            "forgets sooner"
        )
        yield Finding("warn", text, hint or f"Use {SMALL_WINDOW:,} tokens or more.")


def _load_dialects(home: Path) -> Mapping[str, Dialect]:
    """Return the stored dialects without changing anything. Another check reports an unreadable
    store."""
    from nanobot.bus.state import InvalidDocument
    from nanobot.providers.dialect import decode_dialects

    try:
        content = documents_of(home).get("dialects")
        learned = decode_dialects(content) if content else {}
    except (NanobotError, InvalidDocument):
        return {}
    return {source: one.dialect for source, one in learned.items()}


def _dialect_text(dialect: Dialect | None) -> str:
    """Describe the requests that a server needs, empty if nothing is special."""
    from nanobot.providers.dialect import changes_of

    if dialect is None:
        return ""
    words = [_HABITS[change] for change in changes_of(dialect) if change in _HABITS]
    if dialect.dropped:
        words.append(f"rejects {', '.join(sorted(dialect.dropped))}")
    if dialect.rung != "name":
        words.append(f"gives structured answers {_BY[dialect.rung]}")
    return ", ".join(words)


class ModelTrial:
    """A trial of one model on its server. `answered` is True if it answered at all."""

    def __init__(self, model: ModelSettings, facts: ModelFacts, clock: Clock) -> None:
        from nanobot.app.base import build_adapter
        from nanobot.providers.dialect import Dialects

        self._model, self._facts, self._clock = model, facts, clock
        self._dialects = Dialects(clock)
        self._provider = build_adapter(model, self._dialects)
        self.answered = False

    @property
    def dialect(self) -> Dialect | None:
        """The dialect that the trial detected, or None if the documented one is right."""
        found = next(iter(self._dialects.snapshot().values()), None)
        return found.dialect if found else None

    def run(self) -> Iterator[Finding]:
        """Try everything, and yield each finding at once. Blocks."""
        attempts = (
            ("tool calls", self._call, Finding("fail", "")),
            ("structured answers", self._structure, Finding("warn", "")),
            ("pictures", self._see, Finding("ok", "")),
        )
        with asyncio.Runner() as runner:
            try:
                yield runner.run(self._answer())
                self.answered = True
                for what, attempt, refused in attempts:
                    try:
                        found = runner.run(attempt())
                    except ProviderError as error:
                        found = replace(refused, text=str(error), hint=error.hint)
                    yield replace(found, text=f"{what}: {found.text}")
                if text := _dialect_text(self.dialect):
                    yield Finding("ok", f"detected: {text}")
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
            return Finding("fail", f"empty answer ({tokens})", _ANOTHER)
        return Finding("ok", f"answered {_quote_reply(reply)} in {took:.1f} s ({tokens})")

    async def _call(self) -> Finding:
        tool, hint = _tool("get_weather", "city"), self._facts.for_tools
        reply = await self._ask("How is the weather in Rome? Use the tool get_weather.", tool)
        call = next((one for one in reply.tool_calls if one.name == tool.name), None)
        if call is None:
            return Finding("warn", f"the model made none (it answered {_quote_reply(reply)})", hint)
        if call.malformed:
            return Finding("warn", f"invalid: {shorten(call.malformed, _QUOTED)}", _ANOTHER)
        if self._model.api == "messages" or (self.dialect and self.dialect.native_calls):
            return Finding("ok", "native")
        text = "written as text, which nanobot can read, but which small models often get wrong"
        return Finding("warn", text, hint)

    async def _structure(self) -> Finding:
        tool = _tool("save_person", "name", "city")
        reply = await self._ask("Save this person: Ada lives in Rome.", tool, forced=True)
        if not any(one.name == tool.name and not one.malformed for one in reply.tool_calls):
            text = "none, so only excerpts of conversations are stored in memory"
            return Finding("warn", f"{text} (it answered {_quote_reply(reply)})", _ANOTHER)
        return Finding("ok", _BY[self.dialect.rung if self.dialect else "name"])

    async def _see(self) -> Finding:
        from nanobot.providers.port import Image

        asked = "Which colour does this picture have? Answer with one word."
        reply = await self._ask(asked, picture=Image(_RED, "image/png"))
        if "red" in reply.text.lower():
            return Finding("ok", "supported")
        return Finding("ok", f"not supported (it answered {_quote_reply(reply)} for a red picture)")

    async def _ask(
        self, text: str, *tools: ToolSpec, forced: bool = False, picture: Image | None = None
    ) -> Reply:
        from nanobot.providers.port import CallOptions, Prompt, Toolset, user_message

        message = user_message(text, (picture,) if picture else ())
        limit = min(_ANSWER_TOKENS, self._model.max_completion_tokens)
        choice = tools[0].name if forced else ""
        options = CallOptions(max_tokens=limit, tool_choice=choice)
        return await self._provider.complete(Prompt((message,), Toolset.of(tools)), options)


def _tool(name: str, *fields: str) -> ToolSpec:
    from nanobot.providers.port import ToolSpec

    properties = {field: {"type": "string"} for field in fields}
    schema = {"type": "object", "properties": properties, "required": [*fields]}
    return ToolSpec(name, f"{name.replace('_', ' ').capitalize()}.", schema)


def _quote_reply(reply: Reply) -> str:
    return f"“{shorten(' '.join(reply.text.split()), _QUOTED)}”"


def try_voice(settings: Settings, clock: Clock, *, ask_servers: bool) -> Sequence[Finding]:
    """Try speech output and transcription. Blocks."""
    if not (settings.model.transcription.is_on or settings.model.speech.is_on):
        return ()
    from nanobot.app.voice import Voice

    with TemporaryDirectory(prefix="nanobot-voice-") as folder:
        voice = Voice(settings, clock, Path(folder) / "voice")
        return asyncio.run(_speak_and_listen(voice, settings, ask_servers=ask_servers))


async def _speak_and_listen(
    voice: Voice, settings: Settings, *, ask_servers: bool
) -> Sequence[Finding]:
    sound, found = _SAMPLE.read_bytes(), list[Finding]()
    speech, listener = voice.speech, voice.listener
    try:
        if speech is not None and (settings.model.speech.command or ask_servers):
            with _failure("speech", found):
                sound = await speech.say(_WORDS)
                found.append(
                    Finding(
                        "ok", f"“{_WORDS}” was turned into a voice message ({size(len(sound))})"
                    )
                )
        if listener is not None and (settings.model.transcription.command or ask_servers):
            with _failure("transcription", found):
                if text := await listener.transcribe(sound, "audio/ogg"):
                    text = f"recognized “{shorten(text, 60)}” in a test recording"
                    found.append(Finding("ok", text))
                else:
                    text = "recognized no words in a test recording"
                    found.append(Finding("warn", text, _ANOTHER))
    finally:
        for part in voice.closables:
            await part.close()
    return found or [Finding("ok", "voice servers are tested only with --ask-model")]


@contextmanager
def _failure(
    what: str, found: list[Finding], state: Literal["warn", "fail"] = "fail"
) -> Iterator[None]:
    """Turn a failure inside into a finding."""
    try:
        yield
    except NanobotError as error:
        found.append(Finding(state, f"{what}: {error}", error.hint))
