"""The step that finds a model, and asks it something before it is written down."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import ValidationError

from nanobot.cli.onboard.candidate import Candidate, part_of, try_out
from nanobot.cli.onboard.parts import Before, Part
from nanobot.cli.onboard.window import ask_window, given_window
from nanobot.cli.onboard.wording import explained
from nanobot.clock import Clock
from nanobot.config.model import ModelSettings
from nanobot.config.values import OFFICIAL_API, is_official
from nanobot.errors import NanobotError, ProviderError
from nanobot.providers.discovery import LocalServer, find_local_servers

if TYPE_CHECKING:
    from nanobot.cli.onboard.options import OnboardOptions
    from nanobot.cli.onboard.people import Guide

Find = Callable[[Clock], Awaitable[Sequence[LocalServer]]]
"""Looks for servers on this machine."""

Known = Mapping[str, Candidate]
"""What is set or was said so far, by its address, the latest last."""

_EXAMPLE = "gpt-5-mini"
_LISTED = 15
_LIST_SECONDS = 10.0


async def ask_model(
    person: Guide,
    present: ModelSettings,
    before: Before,
    clock: Clock,
    *,
    test: bool,
    find: Find = find_local_servers,
) -> Part:
    """Have a person choose; empty where it shall stay as it is."""
    person.head("The model")
    key = present.api_key.get_secret_value()
    known = {present.base_url: Candidate(present.name, present.base_url, key)}
    while True:
        person.say("Looking for model servers on this machine …")
        wanted = await _choose(person, present, known, await find(clock), clock)
        if wanted is None:
            return Part()
        if wanted.offline:
            return part_of(wanted, "", present, before)
        known.pop(wanted.base_url, None)  # so that it becomes the last one
        known[wanted.base_url] = wanted
        doubt = await _tried(person, wanted, clock) if test else ""
        if doubt is not None:  # asked afterwards, as some know it once the model is loaded
            wanted = await ask_window(person, wanted, present, clock)
            return part_of(wanted, doubt, present, before)


async def given_model(
    person: Guide, options: OnboardOptions, present: ModelSettings, before: Before, clock: Clock
) -> Part:
    """What the command line says of the model, tried out. Raises `NanobotError`."""
    if options.offline:
        return part_of(Candidate(offline=True), "", present, before)
    wanted = _given(options, present)
    if is_official(wanted.base_url) and not wanted.key:
        hint = "Name the variable that holds it with --api-key-env, or another --base-url."
        raise NanobotError("OpenAI's API needs a key", hint=hint)
    if is_official(wanted.base_url) and not wanted.name:
        raise NanobotError("OpenAI's API needs a model", hint=f"Say --model-name {_EXAMPLE}.")
    if not options.test:
        return part_of(wanted, "not tried", present, before)
    person.say(f"Asking {wanted.shown} something, which may take a minute …")
    try:
        person.say(f"{await try_out(wanted, clock)}.")
    except ProviderError as error:
        raise explained(error) from None
    if not wanted.window and not _is_as_it_was(wanted, present):
        if options.attended:
            wanted = await ask_window(person, wanted, present, clock)
        else:
            window = await given_window(person, wanted, present, clock)
            wanted = replace(wanted, window=window)
    return part_of(wanted, "", present, before)


def _is_as_it_was(wanted: Candidate, present: ModelSettings) -> bool:
    """Whether the model is the one that is set, with a window that somebody chose."""
    same = (wanted.base_url, wanted.name) == (present.base_url, present.name)
    return same and "context_window" in present.model_fields_set


def _given(options: OnboardOptions, present: ModelSettings) -> Candidate:
    """What is not given stays as it is, as far as the server is the same."""
    base_url = checked_url(options.base_url or present.base_url)
    wanted = Candidate(options.model_name, base_url, *_given_key(options), options.context_window)
    if base_url != present.base_url:
        return wanted
    key = wanted.key or present.api_key.get_secret_value()
    return replace(wanted, name=wanted.name or present.name, key=key)


def _given_key(options: OnboardOptions) -> tuple[str, str]:
    """The key, and the variable that it came from."""
    if options.api_key_stdin:
        key = sys.stdin.readline().strip()
        if not key:
            raise NanobotError("there is no API key on standard input", hint="One line: the key.")
        return key, ""
    if not options.api_key_env:
        return "", ""
    return from_environment(options.api_key_env), options.api_key_env


def from_environment(name: str) -> str:
    """The secret that a variable holds. Raises `NanobotError` where there is none."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise NanobotError(f"the variable {name} is not set, or empty", hint=f"export {name}=…")
    return value


def checked_url(text: str) -> str:
    """The address as it is written down. Raises `NanobotError`."""
    try:
        return ModelSettings(base_url=text, provider="offline").base_url
    except ValidationError:
        raise NanobotError(
            f"{text!r} is no address of an API",
            hint=f"It looks like {OFFICIAL_API} or http://127.0.0.1:11434/v1.",
        ) from None


async def _choose(
    person: Guide,
    present: ModelSettings,
    known: Known,
    servers: Sequence[LocalServer],
    clock: Clock,
) -> Candidate | None:
    """What to try; None for leaving it as it is."""
    if not servers:
        person.say("None answers at the usual ports.")
    menu = [f"{one.name} on this machine: {_few(one.models)}" for one in servers]
    menu += ["OpenAI's API, with a key", "Another server with an OpenAI-compatible API"]
    menu += ["None yet: the small built-in model, which knows only a few tricks"]
    is_set = present.provider != "offline"
    if is_set:
        menu.insert(0, f"As it is: {present.name or 'the first one'} at {present.base_url}")
    chosen = await person.choose("Which model shall answer?", menu) - is_set
    if chosen < 0:
        return None
    if chosen < len(servers):
        return await _at(person, servers[chosen].base_url, "", servers[chosen].models, known)
    match chosen - len(servers):
        case 0:
            return await _with_key(person, OFFICIAL_API, known, clock)
        case 1:
            return await _with_key(person, await _address(person, [*known][-1]), known, clock)
        case _:
            return Candidate(offline=True)


async def _address(person: Guide, last: str) -> str:
    known = "" if is_official(last) else last
    while True:
        person.say("Such as https://openrouter.ai/api/v1 or http://192.168.1.5:8000/v1.")
        try:
            return checked_url(await person.ask("Its address, up to and including /v1", known))
        except NanobotError as error:
            person.say(error.for_people())


async def _with_key(person: Guide, base_url: str, known: Known, clock: Clock) -> Candidate:
    """A model at a server that wants a key, or perhaps wants one."""
    from nanobot.providers.discovery import served_models

    key = known[base_url].key if base_url in known else ""
    if is_official(base_url):
        key = key or os.environ.get("OPENAI_API_KEY", "")
        person.say(
            "Keys are made at https://platform.openai.com/api-keys; yours is not shown here."
        )
    while True:
        question = "The API key" if is_official(base_url) else "The API key, if it wants one"
        key = await person.ask(question, key, secret=True)
        try:
            models = await served_models(base_url, key, clock, seconds=_LIST_SECONDS)
            if not models and urlsplit(base_url).path in ("", "/"):
                longer = f"{base_url.rstrip('/')}/v1"
                models = await served_models(longer, key, clock, seconds=_LIST_SECONDS)
                if models:
                    base_url = longer
                    person.say(f"It answers at {base_url}.")
        except ProviderError as error:
            person.say(_failed(error))
            if await person.confirm("Go on all the same?", default=False):
                return await _at(person, base_url, key, (), known)
            if not is_official(base_url):
                base_url, asked = await _address(person, base_url), base_url
                key = key if base_url == asked else ""  # a key is for one server
        else:
            return await _at(person, base_url, key, models, known)


async def _at(
    person: Guide, base_url: str, key: str, models: Sequence[str], known: Known
) -> Candidate:
    """The model of a server, whose names are `models` if they are known."""
    last = known[base_url].name if base_url in known else ""
    if len(models) == 1:
        name = models[0]
        person.say(f"It serves {name}.")
    elif 1 < len(models) <= _LISTED:
        at = models.index(last) if last in models else 0
        name = models[await person.choose("Which of its models?", models, at)]
    else:
        name = await _named(person, models, last or (_EXAMPLE if is_official(base_url) else ""))
    return Candidate(name, base_url, key)


async def _named(person: Guide, models: Sequence[str], default: str) -> str:
    """The name of one of many, or of one that is not known."""
    while True:
        name = await person.ask("The model, as its server knows it", default)
        if not name:
            person.say("It needs a name.")
            continue
        if not models or name in models:
            return name
        if await person.confirm(f"The server does not list {name}. Use it?", default=False):
            return name


async def _tried(person: Guide, wanted: Candidate, clock: Clock) -> str | None:
    """What doubt is left about the model, empty for none; None where another shall be chosen."""
    while True:
        person.say("Asking the model something …")
        try:
            answered = await try_out(wanted, clock)
        except ProviderError as error:
            person.say(_failed(error))
            ways = ("Choose another", "Try this one once more", "Take it all the same")
            match await person.choose("What now?", ways):
                case 0:
                    return None
                case 1:
                    continue
                case _:
                    return "it did not answer"
        else:
            person.say(f"{answered}.")
            return ""


def _failed(error: ProviderError) -> str:
    return f"That did not work: {explained(error).for_people()}"


def _few(models: Sequence[str]) -> str:
    return ", ".join(models[:3]) + (f" and {len(models) - 3} more" if len(models) > 3 else "")
