"""The checks of `nanobot doctor` that concern models and voices.

Servers are asked if they answer, if they have the model, and what it takes. If the owner wants it,
each model is tried. One program speaks and the other has to hear it; servers for voices are only
asked if models are tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

import nanobot
from nanobot.channel import CheckFinding as Finding
from nanobot.cli.command import size
from nanobot.cli.gateway import operate
from nanobot.cli.modeltrial import ModelTrial, dialect_text
from nanobot.cli.onboard.candidate import list_served
from nanobot.cli.onboard.window import no_tools_text, tokens_taken
from nanobot.cli.status import documents_of
from nanobot.clock import Clock
from nanobot.config.model import SMALL_WINDOW, ModelSettings
from nanobot.config.values import is_official
from nanobot.errors import NanobotError
from nanobot.text import shortened

if TYPE_CHECKING:
    from nanobot.app.voice import Voice
    from nanobot.config.settings import Settings
    from nanobot.providers.catalogue import KnownProvider
    from nanobot.providers.dialect import Dialect
    from nanobot.providers.discovery import ModelFacts

_PROBE_SECONDS = 8.0
_SHOWN = 5
_WORDS = "One, two, three."
_SAMPLE = Path(nanobot.__file__).parent / "voice" / "sample.ogg"
"""Somebody who says "one two three four"."""


class ConfiguredModel(Struct, frozen=True):
    """A model of the configuration. `key` is its section there, `label` how findings call it; the
    main one has no label."""

    key: str
    label: str
    model: ModelSettings


def configured_models(settings: Settings) -> Iterator[ConfiguredModel]:
    """The main model, its fallbacks and the named ones, each model of a server once."""
    main, *fallbacks = settings.model.chain
    every = [ConfiguredModel("model", "", main)]
    for at, one in enumerate(fallbacks):
        every.append(ConfiguredModel(f"model.fallbacks[{at}]", f"fallback {one.name}: ", one))
    for name, named in settings.models.items():
        every.append(ConfiguredModel(f"models.{name}", f"model {name}: ", named.completed(main)))
    known = set()
    for configured in every:
        model = configured.model
        which = (model.base_url, model.name, model.api, model.context_window)
        if which not in known:
            known.add(which)
            yield configured


def try_models(settings: Settings, clock: Clock, *, ask: bool) -> Iterator[Finding]:
    """Check each model. The agent works without all but the main one, so their failures are
    warnings. Blocks."""
    if settings.model.provider == "offline":
        hint = "`nanobot onboard` sets one up; or set model.name and model.api_key."
        yield Finding("warn", "only the small built-in one", hint)
        return
    stored = _stored_dialects(settings.home)
    for one in configured_models(settings):
        for found in _checked(one, settings.home, stored, clock, ask=ask):
            state = "warn" if one.label and found.state == "fail" else found.state
            yield replace(found, state=state, text=f"{one.label}{found.text}")


def _checked(
    one: ConfiguredModel, home: Path, stored: Mapping[str, Dialect], clock: Clock, *, ask: bool
) -> Iterator[Finding]:
    try:
        key, provider = one.model.api_key.get_secret_value(), _provider(one.model)
        listing = list_served(one.model.base_url, key, provider, _PROBE_SECONDS, every=True)
        url, models = asyncio.run(listing)
        names = [listed.name for listed in models]
        yield _served(one.model, names)
        if url != one.model.base_url:
            yield Finding("warn", f"it answers at {url}", f"Set {one.key}.base_url: {url}")
        name = one.model.name or next(iter(names), "default")
        model = replace(one.model, base_url=url, name=name)
        facts = asyncio.run(_facts(model))
    except NanobotError as error:
        yield Finding("fail", str(error), error.hint)
        return
    yield from _window(model, facts, f"{one.key}.context_window")
    if facts.tools is False:
        yield Finding("warn", no_tools_text(facts), facts.for_tools)
    source = _source(replace(model, base_url=one.model.base_url))
    if not ask:
        if text := dialect_text(stored.get(source)):
            yield Finding("ok", f"learned: {text}")
        return
    trial = ModelTrial(replace(model, base_url=one.model.base_url), facts, clock)
    yield from trial.run()
    if trial.answered and stored.get(source) != trial.learned:
        yield from _stored(home, source, trial.learned)


def _served(model: ModelSettings, names: Sequence[str]) -> Finding:
    if not names or not model.name or model.name in names:
        named = model.name or next(iter(names), "the one it serves")
        return Finding("ok", f"{named}; its server answers")
    from nanobot.providers.catalogue import similar_names

    meant = similar_names(model.name, names)
    offers = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    hint = f"Did you mean {' or '.join(meant)}? " if meant else ""
    return Finding("warn", f"the server does not list {model.name}", f"{hint}It offers {offers}.")


def _provider(model: ModelSettings) -> KnownProvider | None:
    from nanobot.providers.catalogue import provider_for

    return provider_for(model.base_url, model.api)


async def _facts(model: ModelSettings) -> ModelFacts:
    from nanobot.providers.discovery import ModelFacts, model_facts

    if is_official(model.base_url):  # its list has only names
        return ModelFacts()
    key = model.api_key.get_secret_value()
    return await model_facts(
        model.base_url, model.name, key, seconds=_PROBE_SECONDS, provider=_provider(model)
    )


def _window(model: ModelSettings, facts: ModelFacts, key: str) -> Iterator[Finding]:
    """Check that the server takes as much as the settings say, and that this is enough to talk."""
    from nanobot.providers.dialect import is_near

    configured = model.context_window
    takes = tokens_taken(facts)
    hint = f"{facts.to_raise} Then set {key}." if facts.to_raise else ""
    if 0 < takes < configured:
        text = f"{facts.server or 'its server'} takes {takes:,} tokens and {key} is {configured:,}"
        cut = ": the rest is cut off silently, and nanobot forgets" if facts.server else ""
        yield Finding("warn", f"{text}{cut}", hint or f"Set {key}: {takes}.")
    elif configured < SMALL_WINDOW and is_near(model.base_url):
        text = (
            f"a window of {configured:,} tokens: nanobot works with few tools and forgets quickly"
        )
        yield Finding("warn", text, hint or f"Give it {SMALL_WINDOW:,} or more.")


def _source(model: ModelSettings) -> str:
    """Return the name under which the model's dialect is stored."""
    from nanobot.providers.endpoint import Endpoint

    endpoint = Endpoint(model.base_url, model.name, model.api_key.get_secret_value())
    return f"{endpoint.place} {model.name}"


def _stored_dialects(home: Path) -> Mapping[str, Dialect]:
    """Return the dialects that are stored, without changing anything. A store that cannot be read
    has a check of its own."""
    from nanobot.bus.state import InvalidDocument
    from nanobot.providers.dialect import decode_dialects

    try:
        content = documents_of(home).get("dialects")
        learned = decode_dialects(content) if content else {}
    except (NanobotError, InvalidDocument):
        return {}
    return {source: one.dialect for source, one in learned.items()}


def _stored(home: Path, source: str, learned: Dialect | None) -> Iterator[Finding]:
    """Replace a stored dialect, in the gateway if one runs."""
    from msgspec import to_builtins

    try:
        operate(home, "dialects.replace", learned={source: to_builtins(learned)})
    except NanobotError as error:
        yield Finding("warn", f"what was learned could not be stored: {error}", error.hint)


def try_voice(settings: Settings, clock: Clock, *, ask_servers: bool) -> Sequence[Finding]:
    """Whether what listens and what speaks do. Blocks."""
    if not (settings.model.transcription.is_on or settings.model.speech.is_on):
        return ()
    from nanobot.app.voice import Voice

    with TemporaryDirectory(prefix="nanobot-voice-") as folder:
        voice = Voice(settings, clock, Path(folder) / "voice")
        return asyncio.run(_heard_and_said(voice, settings, ask_servers=ask_servers))


async def _heard_and_said(
    voice: Voice, settings: Settings, *, ask_servers: bool
) -> Sequence[Finding]:
    sound, found = _SAMPLE.read_bytes(), list[Finding]()
    try:
        if voice.speech is not None and (settings.model.speech.command or ask_servers):
            try:
                sound = await voice.speech.say(_WORDS)
                said = f"“{_WORDS}” is a voice message of {size(len(sound))}"
                found.append(Finding("ok", said))
            except NanobotError as error:
                found.append(Finding("fail", f"speech: {error}", error.hint))
        if voice.listener is not None and (settings.model.transcription.command or ask_servers):
            try:
                found.append(_heard(await voice.listener.transcribe(sound, "audio/ogg")))
            except NanobotError as error:
                found.append(Finding("fail", f"transcription: {error}", error.hint))
    finally:
        for part in voice.closables:
            await part.close()
    return found or [Finding("ok", "servers, which --ask-model tries")]


def _heard(text: str) -> Finding:
    if not text:
        return Finding("warn", "in a recording nothing is heard", "Try another model.")
    return Finding("ok", f"in a recording it hears “{shortened(text, 60)}”")
