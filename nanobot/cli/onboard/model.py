"""The step that finds a model, and asks it something before it is written down.

A model that somebody wants: trying it out, and writing it down.

How many tokens the model takes: what its server says, or what the person does.

Servers on one's own machine often cut what is more, silently, so there it is never more than they
say, and little where they say nothing.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import ValidationError

from nanobot.cli.onboard.files import Before, Part, described, explained
from nanobot.clock import Clock
from nanobot.config.model import LEAST_PROMPT_TOKENS, SAFETY_TOKENS, SMALL_WINDOW, ModelSettings
from nanobot.config.values import OFFICIAL_API, is_official
from nanobot.config.yamltext import Change, Setting, value_at
from nanobot.errors import NanobotError, ProviderError
from nanobot.providers.discovery import (
    LocalServer,
    Window,
    find_local_servers,
    make_larger,
    told_window,
)

if TYPE_CHECKING:
    from nanobot.cli.onboard import OnboardOptions
    from nanobot.cli.onboard.people import Guide
    from nanobot.clock import Clock
    from nanobot.config.model import ModelSettings

_ANSWER_SECONDS = 120.0
_ANSWER_TOKENS = 1_000
_SHARE = 4
"""An answer may take this part of a context window at most, where the window is small."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """`key_name` is the variable that the key came from, `window` 0 where nothing is said of it;
    `offline` is the built-in model."""

    name: str = ""
    base_url: str = OFFICIAL_API
    key: str = ""
    key_name: str = ""
    window: int = 0
    offline: bool = False

    @property
    def shown(self) -> str:
        """What it is, for people."""
        if self.offline:
            return "the built-in one, offline"
        return f"{self.name or 'the first one'} at {self.base_url}"


async def try_out(wanted: Candidate, clock: Clock) -> str:
    """Have the model answer, with a tool on offer as it will have; how that went, for people.
    Raises `ProviderError`."""
    from nanobot.providers.openai import OpenAIProvider
    from nanobot.providers.port import CallOptions, Prompt, Toolset, ToolSpec, user_message

    provider = OpenAIProvider(
        model=wanted.name,
        base_url=wanted.base_url,
        api_key=wanted.key,
        max_tokens=_ANSWER_TOKENS,
        stall_seconds=_ANSWER_SECONDS,
        clock=clock,
    )
    tool = ToolSpec("rest", "Does nothing.", {"type": "object", "properties": {}})
    prompt = Prompt((user_message("Answer with the one word: ready"),), Toolset.of([tool]))
    began = clock.monotonic()
    try:
        reply = await provider.complete(prompt, CallOptions())
    finally:
        await provider.close()
    return f"{reply.model or wanted.name} answered in {clock.monotonic() - began:.1f} s"


def part_of(wanted: Candidate, doubt: str, present: ModelSettings, before: Before) -> Part:
    """What is to be written; `doubt` is what there is to say about whether it works."""
    told = (("model", f"{wanted.shown} ({doubt})" if doubt else wanted.shown),)
    if wanted.offline:
        return Part((_change("provider", "offline"),), told=told)
    changes = [_change("name", wanted.name)] if wanted.name or present.name else []
    if value_at(before.config, ("model", "provider")) is not None:
        changes.append(_change("provider", "openai"))
    if wanted.base_url != present.base_url or not is_official(wanted.base_url):
        changes.append(_change("base_url", wanted.base_url))
    if wanted.window and wanted.window != present.context_window:
        changes += _window(wanted.window, present.max_completion_tokens)
    secrets = _key(wanted, present, before)
    if secrets is None:  # a key is for the server that it was given for
        changes.append(_change("api_key", ""))
    changes += [_change("api_key", f"${{{name}}}") for name in secrets or ()]
    return Part(tuple(changes), secrets or {}, told)


def _window(window: int, answer: int) -> list[Change]:
    changes = [_change("context_window", window)]
    if answer * _SHARE > window:
        room = window - LEAST_PROMPT_TOKENS - min(SAFETY_TOKENS, window // 8)
        changes.append(_change("max_completion_tokens", max(min(window // _SHARE, room), 1)))
    return changes


def _key(wanted: Candidate, present: ModelSettings, before: Before) -> dict[str, str] | None:
    """The variable of the key with its value: none where it stays as it is; None where it goes."""
    known = present.api_key.get_secret_value()
    if not wanted.key:
        return None if known and wanted.base_url != present.base_url else {}
    if wanted.key == known:
        return {}
    usual = "OPENAI_API_KEY" if is_official(wanted.base_url) else "MODEL_API_KEY"
    path = ("model", "api_key")
    # The two files are not written in one step: the old server must not get the new one's key.
    elsewhere = bool(known) and wanted.base_url != present.base_url
    name = before.variable(path, wanted.key_name or usual, wanted.key, anew=elsewhere)
    return {name: wanted.key}


def _change(key: str, value: Setting) -> Change:
    path = ("model", key)
    return Change(path, value, described(path))


_SECONDS = 5.0
_LEAST_ANSWER = 1_000
_SMALLEST = (LEAST_PROMPT_TOKENS + _LEAST_ANSWER) * 8 // 7
_OLLAMA = "Ollama"
_MAKING_SECONDS = 60.0
_USUAL_THERE = 4_096
"""What servers for one's own machine take where nobody chose."""
_COMFORTABLE = 16_384


async def ask_window(
    person: Guide, wanted: Candidate, present: ModelSettings, clock: Clock
) -> Candidate:
    """The model with its window, asked for where its server does not say (0: the default); perhaps
    a variant of it that takes more."""
    if is_official(wanted.base_url):
        return wanted
    while True:
        told = await _told(wanted, clock)
        small = told.now < SMALL_WINDOW and (told.now or told.server == _OLLAMA)
        if small:
            person.say(_too_small(told))
        if small and (larger := await _enlarged(person, wanted, told, clock)):
            wanted = larger
            continue
        if small and told.now and await _mended(person, told):
            continue
        if told.now >= _SMALLEST:
            chosen = _set_by_hand(wanted, present)
            window = _taken(person, told, chosen, is_known=bool(small))
        else:
            window = await _typed(person, wanted, told, present)
        return replace(wanted, window=window)


async def _enlarged(
    person: Guide, wanted: Candidate, told: Window, clock: Clock
) -> Candidate | None:
    """A variant of the model with room to talk, where the server can make one and the person wants
    it."""
    tokens = min(_COMFORTABLE, told.most)
    if told.server != _OLLAMA or tokens < SMALL_WINDOW:
        return None
    asked = (
        f"Make a variant of {wanted.name} in Ollama that takes {tokens:,}? It needs no download."
    )
    if not await person.confirm(asked):
        return None
    name = await make_larger(
        wanted.base_url, wanted.name, wanted.key, clock, tokens, seconds=_MAKING_SECONDS
    )
    if not name:
        person.say(f"Ollama could not make it.{_how(told)}")
        return None
    person.say(f"{name} is there, and is what nanobot will use.")
    return replace(wanted, name=name)


def _too_small(told: Window) -> str:
    now = f"only {told.now:,} tokens" if told.now else "4,096 tokens unless told otherwise"
    return (
        f"WARNING: {told.server or 'The server'} takes {now}. It cuts off the rest silently, so"
        f" nanobot forgets within a few messages. {_COMFORTABLE:,} leave room to talk; below"
        f" {SMALL_WINDOW:,} nanobot works with few tools."
    )


async def given_window(
    person: Guide, wanted: Candidate, present: ModelSettings, clock: Clock
) -> int:
    """The window of a model that the command line names, as far as its server says; 0 for the
    default."""
    if is_official(wanted.base_url):
        return 0
    told = await _told(wanted, clock)
    if told.now >= _SMALLEST:
        if told.now < SMALL_WINDOW:
            person.say(_too_small(told))
        return _taken(person, told, 0, is_known=False)
    if is_near(wanted.base_url):
        said = f"takes only {told.now:,} tokens" if told.now else "does not say how much it takes"
        person.say(
            f"Note: {told.server or 'the server'} {said}, and may cut what is more, silently."
            f" --context-window says how much it is to get ({present.context_window:,} tokens now)."
            f"{_how(told)}"
        )
    return 0


def is_near(base_url: str) -> bool:
    """Whether a server is likely somebody's own: on this machine, or beside it."""
    host = urlsplit(base_url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".home.arpa"))


async def _told(wanted: Candidate, clock: Clock) -> Window:
    return await told_window(wanted.base_url, wanted.name, wanted.key, clock, seconds=_SECONDS)


def _set_by_hand(wanted: Candidate, present: ModelSettings) -> int:
    """The window that is set for this very model; 0 for none."""
    same = (wanted.base_url, wanted.name) == (present.base_url, present.name)
    return present.context_window if same and "context_window" in present.model_fields_set else 0


def _taken(person: Guide, told: Window, chosen: int, *, is_known: bool) -> int:
    """`is_known`: how to raise it was said already."""
    if 0 < chosen < told.now:
        person.say(f"{told.server} takes {told.now:,} tokens; the {chosen:,} that are set stay.")
        return chosen
    more = not is_known and told.now < _COMFORTABLE
    person.say(f"{told.server} takes {told.now:,} tokens.{_how(told) if more else ''}")
    return told.now


async def _mended(person: Guide, told: Window) -> bool:
    """Whether the person made the server take more."""
    least = f" It needs {_SMALLEST:,} at the least." if told.now < _SMALLEST else ""
    person.say(f"{least}{_how(told)}".strip())
    return await person.confirm("Look again, once that is changed?")


async def _typed(person: Guide, wanted: Candidate, told: Window, present: ModelSettings) -> int:
    near = is_near(wanted.base_url)
    default = _set_by_hand(wanted, present) or (_USUAL_THERE if near else present.context_window)
    if told.most:
        default = min(default, told.most)
    if near:
        person.say(
            f"{told.server or 'The server'} does not say how many tokens it takes. Type what it was"
            f" started with: most cut what is more, silently. {_USUAL_THERE:,} is what many begin"
            f" with; {_COMFORTABLE:,} or more leave room to talk.{_how(told)}"
        )
    while True:
        asked = "Tokens that it takes in all (its context window)"
        answer = await person.ask(asked, str(max(default, _SMALLEST)))
        digits = answer.replace(",", "").replace(".", "").replace("_", "")
        if digits.isdecimal() and int(digits) >= _SMALLEST:
            return int(digits)
        person.say(f"Please type a number from {_SMALLEST:,}; with less nanobot cannot work.")


def _how(told: Window) -> str:
    most = f" The model could take {told.most:,}." if told.most > told.now else ""
    return f"{most} {told.to_raise}" if told.to_raise else ""


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
