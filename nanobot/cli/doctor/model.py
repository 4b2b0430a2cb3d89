"""The model and its fallbacks: whether their servers answer and, where wished for, they do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot.cli.doctor.finding import Case, Finding
from nanobot.errors import NanobotError, ProviderUnavailable

if TYPE_CHECKING:
    from pydantic import SecretStr

    from nanobot.providers.discovery import Served
    from nanobot.providers.port import Reply

_PROBE_SECONDS = 8.0
_WHOLE_PROBE_SECONDS = 20.0
_ANSWER_SECONDS = 90.0
_SHOWN_MODELS = 5
_QUESTION = "This is a test. Answer with the one word: ready"


@dataclass(frozen=True, slots=True)
class _Model:
    """One that may be asked. `role` is what people call it, empty for the main one."""

    name: str
    base_url: str
    api_key: SecretStr
    role: str = ""

    @property
    def server(self) -> str:
        return f"the {self.role}'s server" if self.role else "the model's server"


def check_model(case: Case) -> Iterator[Finding]:
    """The main model, then its fallbacks; without a fallback the agent still works."""
    model = case.settings.model
    if model.provider == "offline":
        hint = "`nanobot onboard` sets one up; or set model.name and model.api_key."
        yield Finding("model", "warn", "only the small built-in one", hint)
        return
    main = _Model(model.name, model.base_url, model.api_key)
    yield from _examined(case, main)
    yield from _window(case, main)
    for other in model.fallbacks:
        role = f"fallback {other.name}"
        fallback = _Model(other.name, other.base_url, other.api_key, role)
        for found in _examined(case, fallback):
            worst = "warn" if found.state == "fail" else found.state
            yield Finding("model", worst, f"{role}: {found.text}", found.hint)


def _examined(case: Case, model: _Model) -> Iterator[Finding]:
    try:
        yield _served(case, model)
        if case.ask_model:
            yield _answering(case, model)
    except NanobotError as error:
        yield Finding("model", "fail", str(error), error.hint)


def _served(case: Case, model: _Model) -> Finding:
    served = asyncio.run(_probe(case, model))
    case.hear(model.server, served.told)
    names = served.names
    if not names or not model.name or model.name in names:
        named = model.name or next(iter(names), "the one it serves")
        return Finding("model", "ok", f"{named}; its server answers")
    offers = ", ".join(names[:_SHOWN_MODELS]) + (", …" if len(names) > _SHOWN_MODELS else "")
    return Finding(
        "model", "warn", f"the server does not list {model.name}", f"It offers {offers}."
    )


def _window(case: Case, model: _Model) -> Iterator[Finding]:
    """Whether the server takes as much as the settings say, and whether that is enough to talk."""
    from nanobot.cli.onboard.window import is_near
    from nanobot.config.model import SMALL_WINDOW
    from nanobot.providers.discovery import told_window

    if not is_near(model.base_url):
        return
    key = model.api_key.get_secret_value()
    told = asyncio.run(
        told_window(model.base_url, model.name, key, case.clock, seconds=_PROBE_SECONDS)
    )
    set_here = case.settings.model.context_window
    how = f"{told.to_raise} Then set model.context_window." if told.to_raise else ""
    if 0 < told.now < set_here:
        text = (
            f"{told.server or 'its server'} takes {told.now:,} tokens and model.context_window says"
            f" {set_here:,}: what is more is cut silently, and nanobot forgets"
        )
        yield Finding("model", "warn", text, how or f"Set model.context_window: {told.now}.")
    elif set_here < SMALL_WINDOW:
        text = f"a window of {set_here:,} tokens: nanobot works with few tools and forgets quickly"
        yield Finding("model", "warn", text, how or f"Give it {SMALL_WINDOW:,} or more.")


async def _probe(case: Case, model: _Model) -> Served:
    from nanobot.providers.discovery import probe

    key = model.api_key.get_secret_value()
    try:
        async with asyncio.timeout(_WHOLE_PROBE_SECONDS):
            return await probe(model.base_url, key, case.clock, seconds=_PROBE_SECONDS)
    except TimeoutError:
        raise _silent(model, _WHOLE_PROBE_SECONDS) from None


def _answering(case: Case, model: _Model) -> Finding:
    begun = case.clock.monotonic()
    reply = asyncio.run(_answer(case, model))
    took = case.clock.monotonic() - begun
    said = " ".join(reply.text.split())[:40]
    tokens = f"{reply.usage.prompt} tokens asked, {reply.usage.completion} answered"
    if not said:
        hint = "Try another model: this one cannot be talked to."
        return Finding("model", "fail", f"it answers nothing ({tokens})", hint)
    return Finding("model", "ok", f"it answers “{said}” after {took:.1f} s ({tokens})")


async def _answer(case: Case, model: _Model) -> Reply:
    from nanobot.providers.openai import OpenAIProvider
    from nanobot.providers.port import CallOptions, Prompt, Toolset, user_message

    provider = OpenAIProvider(
        model=model.name,
        base_url=model.base_url,
        api_key=model.api_key.get_secret_value(),
        max_tokens=0,
        clock=case.clock,
    )
    prompt = Prompt((user_message(_QUESTION),), Toolset.of(()))
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await provider.complete(prompt, CallOptions())
    except TimeoutError:
        raise _silent(model, _ANSWER_SECONDS) from None
    finally:
        await provider.close()


def _silent(model: _Model, seconds: float) -> ProviderUnavailable:
    return ProviderUnavailable(
        f"{model.server} did not answer within {seconds:.0f} s",
        hint="Is it overloaded, or still loading the model? Try again in a minute.",
    )
