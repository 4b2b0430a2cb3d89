"""The checks of `nanobot doctor` that try models. Servers are asked whether they answer and have
the model, how large its window is, and where that is wanted whether the model says something.
Voices: what one program says, the other has to hear; servers of them are asked where models are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec.structs import replace

import nanobot
from nanobot.channel import CheckFinding as Finding
from nanobot.cli.command import size
from nanobot.cli.onboard.candidate import ModelCandidate, answer, is_near
from nanobot.clock import Clock
from nanobot.config.model import SMALL_WINDOW, ModelSettings
from nanobot.errors import NanobotError
from nanobot.text import shortened

if TYPE_CHECKING:
    from nanobot.app.voice import Voice
    from nanobot.config.settings import Settings

_PROBE_SECONDS = 8.0
_SHOWN = 5
_QUESTION = "This is a test. Answer with the one word: ready"
_WORDS = "One, two, three."
_SAMPLE = Path(nanobot.__file__).parent / "voice" / "sample.ogg"
"""Somebody who says "one two three four"."""


def try_models(model: ModelSettings, clock: Clock, *, ask: bool) -> Iterator[Finding]:
    """The main model, then its fallbacks; without a fallback the agent still works. Blocks."""
    if model.provider == "offline":
        hint = "`nanobot onboard` sets one up; or set model.name and model.api_key."
        yield Finding("warn", "only the small built-in one", hint)
        return
    key = model.api_key.get_secret_value()
    main = ModelCandidate(model.name, model.base_url, key, api=model.api)
    yield from _answers(main, clock, ask=ask)
    yield from _window(main, model.context_window)
    for other in model.chain[1:]:
        key = other.api_key.get_secret_value()
        wanted = ModelCandidate(other.name, other.base_url, key, api=other.api)
        for found in _answers(wanted, clock, ask=ask):
            state = "warn" if found.state == "fail" else found.state
            yield replace(found, state=state, text=f"fallback {other.name}: {found.text}")


def _answers(model: ModelCandidate, clock: Clock, *, ask: bool) -> Iterator[Finding]:
    try:
        yield asyncio.run(_served(model))
        if ask:
            yield asyncio.run(_answering(model, clock))
    except NanobotError as error:
        yield Finding("fail", str(error), error.hint)


async def _served(model: ModelCandidate) -> Finding:
    from nanobot.providers.discovery import served_models

    names = await served_models(model.base_url, model.key, seconds=_PROBE_SECONDS)
    if not names or not model.name or model.name in names:
        named = model.name or next(iter(names), "the one it serves")
        return Finding("ok", f"{named}; its server answers")
    from nanobot.providers.catalogue import similar_names

    meant = similar_names(model.name, names)
    offers = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    hint = f"Did you mean {' or '.join(meant)}? " if meant else ""
    return Finding("warn", f"the server does not list {model.name}", f"{hint}It offers {offers}.")


async def _answering(model: ModelCandidate, clock: Clock) -> Finding:
    reply, took = await answer(model, clock, _QUESTION)
    said = " ".join(reply.text.split())[:40]
    tokens = f"{reply.usage.prompt} tokens in, {reply.usage.completion} out"
    if not said:
        return Finding("fail", f"its answer is empty ({tokens})", "Try another model.")
    return Finding("ok", f"it answers “{said}” after {took:.1f} s ({tokens})")


def _window(model: ModelCandidate, set_here: int) -> Iterator[Finding]:
    """Whether the server takes as much as the settings say, and whether that is enough to talk."""
    from nanobot.providers.discovery import detect_window

    if not is_near(model.base_url):
        return
    asking = detect_window(model.base_url, model.name, model.key, seconds=_PROBE_SECONDS)
    window = asyncio.run(asking)
    hint = f"{window.to_raise} Then set model.context_window." if window.to_raise else ""
    if 0 < window.now < set_here:
        text = (
            f"{window.server or 'its server'} takes {window.now:,} tokens and model.context_window"
            f" is {set_here:,}: the rest is cut off silently, and nanobot forgets"
        )
        yield Finding("warn", text, hint or f"Set model.context_window: {window.now}.")
    elif set_here < SMALL_WINDOW:
        text = f"a window of {set_here:,} tokens: nanobot works with few tools and forgets quickly"
        yield Finding("warn", text, hint or f"Give it {SMALL_WINDOW:,} or more.")


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
