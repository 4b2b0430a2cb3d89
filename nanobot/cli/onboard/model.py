"""The step that finds a model, has it answer before it is written down, and learns its window.

Servers on one's own machine often cut what exceeds their context window, silently, so there it is
never more than they say, and little where they say nothing.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from nanobot.cli.onboard.files import ConfigPart
from nanobot.config.changing import ExistingFiles
from nanobot.config.model import LEAST_PROMPT_TOKENS, SAFETY_TOKENS, SMALL_WINDOW, ModelSettings
from nanobot.config.values import OFFICIAL_API, is_official
from nanobot.config.yamltext import ConfigChange, Setting, value_at
from nanobot.errors import NanobotError, ProviderError
from nanobot.providers.discovery import (
    LocalServer,
    create_larger_variant,
    detect_window,
    find_local_servers,
    served_models,
)
from nanobot.validation import Invalid, build

if TYPE_CHECKING:
    from nanobot.channel import Person
    from nanobot.clock import Clock
    from nanobot.providers.port import Reply, ToolSpec

    Find = Callable[[], Awaitable[Sequence[LocalServer]]]

_EXAMPLE = "gpt-5-mini"
_LISTED = 15
"""More models than these are not listed."""
_LIST_SECONDS = 10.0

_ANSWER_SECONDS = 120.0
_ANSWER_TOKENS = 1_000

_WINDOW_SECONDS = 5.0
_MAKING_SECONDS = 60.0
_OLLAMA = "Ollama"
_SMALLEST = (LEAST_PROMPT_TOKENS + 1_000) * 8 // 7
"""The smallest window that nanobot can work with."""
_USUAL_THERE = 4_096
"""The window of servers for one's own machine unless somebody chose another."""
_COMFORTABLE = 16_384
_SHARE = 4
"""An answer may take this part of a context window at most, where the window is small."""
_OF_A_SERVER = ("model_name", "base_url", "context_window", "api_key_env", "api_key_stdin")


class ModelCandidate(Struct, frozen=True):
    """A model that somebody wants. `key_name` is the variable that the key came from, `window` 0
    where nothing is said of it; `offline` is the built-in model."""

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


def server_options(options: argparse.Namespace) -> list[str]:
    """The options on the command line that are about a model's server."""
    return [f"--{name.replace('_', '-')}" for name in _OF_A_SERVER if getattr(options, name)]


class ModelStep:
    """Has a person choose a model, unless the options name one, and tries it out. What was chosen
    last is the default when the step is gone through again."""

    def __init__(
        self,
        person: Person,
        options: argparse.Namespace,
        present: ModelSettings,
        before: ExistingFiles,
        clock: Clock,
        find: Find = find_local_servers,
    ) -> None:
        self._person, self._options, self._find = person, options, find
        self._present, self._before, self._clock = present, before, clock
        self._last = ModelCandidate(
            present.name, present.base_url, present.api_key.get_secret_value()
        )

    async def run(self) -> ConfigPart:
        """What is to be written; empty where the model shall stay as it is. Raises
        `NanobotError`."""
        options, person = self._options, self._person
        is_given = bool(server_options(options))
        if options.offline:
            return model_changes(ModelCandidate(offline=True), self._present, self._before)
        wanted = self._given() if is_given else await self._chosen()
        if wanted is None:
            return ConfigPart()
        if wanted.offline:
            return model_changes(wanted, self._present, self._before)
        self._last = wanted
        if not options.no_test:
            person.say(f"Asking {wanted.shown} something, which may take a minute …")
            person.say(f"{await _try_out(wanted, self._clock)}.")
        if not (is_given and options.no_test):  # afterwards: some know it once the model is loaded
            wanted = await self.with_window(wanted)
        return model_changes(wanted, self._present, self._before)

    def _given(self) -> ModelCandidate:
        """What the command line says; the rest stays as it is, as far as the server is the same."""
        options, present = self._options, self._present
        key = from_environment(options.api_key_env) if options.api_key_env else ""
        if options.api_key_stdin and not (key := sys.stdin.readline().strip()):
            raise NanobotError("there is no API key on standard input", hint="One line: the key.")
        base_url, name = _checked_url(options.base_url or present.base_url), options.model_name
        if base_url == present.base_url:
            key, name = key or present.api_key.get_secret_value(), name or present.name
        if is_official(base_url) and not (key and name):
            hint = f"Add --model-name {_EXAMPLE} and --api-key-env VARIABLE, or another --base-url."
            raise NanobotError("OpenAI's API needs a model and a key", hint=hint)
        return ModelCandidate(name, base_url, key, options.api_key_env, options.context_window)

    async def _chosen(self) -> ModelCandidate | None:
        """What the person wants; None for leaving it as it is."""
        person, present, last = self._person, self._present, self._last
        person.say("Looking for model servers on this machine …")
        servers = await self._find()
        menu = [f"{one.name} on this machine: {_few(one.models)}" for one in servers]
        menu += ["Another server with an OpenAI-compatible API, or OpenAI's own"]
        menu += ["None yet: the small built-in model, which knows only a few tricks"]
        is_set = present.provider != "offline"
        if is_set:
            menu.insert(0, f"As it is: {present.name or 'the first one'} at {present.base_url}")
        chosen = await person.choose("Which model should answer?", menu) - is_set
        if chosen < 0:
            return None
        if chosen < len(servers):
            server = servers[chosen]
            name = last.name if last.base_url == server.base_url else ""
            return await self._named(ModelCandidate(name, server.base_url), server.models)
        return await self._at_server() if chosen == len(servers) else ModelCandidate(offline=True)

    async def _at_server(self) -> ModelCandidate:
        """A model at a server that perhaps wants a key."""
        person, last = self._person, self._last
        asked = "Its address, up to and including /v1"
        base_url = _checked_url(await person.ask(asked, last.base_url))
        if base_url != last.base_url:
            last = ModelCandidate(base_url=base_url)  # a key is for one server
        usual = os.environ.get("OPENAI_API_KEY", "") if is_official(base_url) else ""
        asked = "The API key, if it wants one"
        self._last = replace(last, key=await person.ask(asked, last.key or usual, secret=True))
        models = await self._models_at(base_url)
        if not models and urlsplit(base_url).path in ("", "/"):
            longer = f"{base_url.rstrip('/')}/v1"
            if models := await self._models_at(longer):
                self._last = replace(self._last, base_url=longer)
                person.say(f"It answers at {longer}.")
        return await self._named(self._last, models)

    async def _models_at(self, base_url: str) -> Sequence[str]:
        try:
            return await served_models(base_url, self._last.key, seconds=_LIST_SECONDS)
        except ProviderError:
            if self._options.no_test:
                return ()
            raise

    async def _named(self, wanted: ModelCandidate, models: Sequence[str]) -> ModelCandidate:
        """With the name of the model; `models` are those of the server, as far as it lists them."""
        person = self._person
        name = wanted.name or (_EXAMPLE if is_official(wanted.base_url) else "")
        if len(models) == 1:
            name = models[0]
            person.say(f"It serves {name}.")
        elif 1 < len(models) <= _LISTED:
            at = models.index(name) if name in models else 0
            name = models[await person.choose("Which of its models?", models, at)]
        else:
            known = name
            while not (name := await person.ask("Model name on that server", known)):
                person.say("It needs a name.")
        return replace(wanted, name=name)

    async def with_window(self, wanted: ModelCandidate) -> ModelCandidate:
        """The model with its window, asked for where a server of one's own does not say (0: the
        default); perhaps a variant of it that takes more."""
        if is_official(wanted.base_url) or wanted.window:
            return wanted
        person, attended = self._person, not self._options.non_interactive
        server = (wanted.base_url, wanted.name, wanted.key)
        window = await detect_window(*server, seconds=_WINDOW_SECONDS)
        if window.now < SMALL_WINDOW and (window.now or window.server == _OLLAMA):
            person.say(
                f"WARNING: {window.server} takes only {window.now or _USUAL_THERE:,} tokens and"
                f" cuts off the rest silently, so nanobot forgets within a few messages."
                f" {_COMFORTABLE:,} leave room to talk; below {SMALL_WINDOW:,} nanobot works with"
                f" few tools. {window.to_raise}"
            )
            tokens = min(_COMFORTABLE, window.most)
            asked = f"Make a variant of {wanted.name} that takes {tokens:,}? It needs no download."
            can_make = window.server == _OLLAMA and tokens >= SMALL_WINDOW
            if attended and can_make and await person.confirm(asked):
                name = await create_larger_variant(*server, tokens, seconds=_MAKING_SECONDS)
                person.say(f"{name} is there." if name else "Ollama could not make it.")
                if name:
                    return await self.with_window(replace(wanted, name=name))
        present = self._present
        is_same = (wanted.base_url, wanted.name) == (present.base_url, present.name)
        is_set = is_same and present.context_window != ModelSettings().context_window
        chosen = present.context_window if is_set else 0
        if window.now >= _SMALLEST:
            person.say(f"{window.server} takes {window.now:,} tokens.")
            return replace(wanted, window=min(chosen or window.now, window.now))
        if chosen or not is_near(wanted.base_url):
            return wanted
        person.say(
            f"{window.server or 'The server'} does not say how many tokens it takes, and may cut"
            f" off the rest silently. Give the number it was started with (--context-window):"
            f" {_USUAL_THERE:,} with many; {_COMFORTABLE:,} or more leave room to talk."
        )
        if not attended:
            return wanted
        asked = "Tokens that it takes in all (its context window)"
        digits = (await person.ask(asked, str(max(_USUAL_THERE, _SMALLEST)))).replace(",", "")
        if not digits.isdecimal() or int(digits) < _SMALLEST:
            raise NanobotError(
                f"it must be a number from {_SMALLEST:,}", hint="Less is too little."
            )
        return replace(wanted, window=int(digits))


def _few(models: Sequence[str]) -> str:
    return ", ".join(models[:3]) + (f" and {len(models) - 3} more" if len(models) > 3 else "")


def from_environment(name: str) -> str:
    """The secret that a variable holds. Raises `NanobotError` where there is none."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise NanobotError(f"the variable {name} is not set, or empty", hint=f"export {name}=…")
    return value


def _checked_url(text: str) -> str:
    """The address as it is written down. Raises `NanobotError`."""
    try:
        return build(ModelSettings, {"base_url": text, "provider": "offline"}).base_url
    except Invalid:
        hint = f"It looks like {OFFICIAL_API} or http://127.0.0.1:11434/v1."
        raise NanobotError(f"{text!r} is not the address of an API", hint=hint) from None


async def _try_out(wanted: ModelCandidate, clock: Clock) -> str:
    """Have the model answer, with a tool on offer as it will have; how that went, for people.
    Raises `ProviderError`."""
    from nanobot.providers.port import ToolSpec

    tool = ToolSpec("rest", "Does nothing.", {"type": "object", "properties": {}})
    question = "Answer with the one word: ready"
    reply, took = await answer(wanted, clock, question, tool, max_tokens=_ANSWER_TOKENS)
    return f"{reply.model or wanted.name} answered in {took:.1f} s"


async def answer(
    wanted: ModelCandidate, clock: Clock, question: str, *tools: ToolSpec, max_tokens: int = 0
) -> tuple[Reply, float]:
    """What a model answers, and how many seconds that took. Raises `ProviderError`."""
    from nanobot.providers.openai import OpenAIProvider
    from nanobot.providers.port import CallOptions, Prompt, Toolset, user_message

    provider = OpenAIProvider(
        model=wanted.name,
        base_url=wanted.base_url,
        api_key=wanted.key,
        max_tokens=max_tokens,
        stall_seconds=_ANSWER_SECONDS,
    )
    prompt, began = Prompt((user_message(question),), Toolset.of(tools)), clock.monotonic()
    try:
        return await provider.complete(prompt, CallOptions()), clock.monotonic() - began
    finally:
        await provider.close()


def is_near(base_url: str) -> bool:
    """Whether a server is likely somebody's own: on this machine, or beside it."""
    host = urlsplit(base_url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".home.arpa"))


def model_changes(
    wanted: ModelCandidate, present: ModelSettings, before: ExistingFiles
) -> ConfigPart:
    """What is to be written."""
    summary = (("model", wanted.shown),)
    if wanted.offline:
        return ConfigPart((_change("provider", "offline"),), summary=summary)
    changes = [_change("name", wanted.name)] if wanted.name or present.name else []
    if value_at(before.config, ("model", "provider")) is not None:
        changes.append(_change("provider", "openai"))
    moves = wanted.base_url != present.base_url
    if moves or not is_official(wanted.base_url):
        changes.append(_change("base_url", wanted.base_url))
    if wanted.window and wanted.window != present.context_window:
        changes.append(_change("context_window", wanted.window))
        if present.max_completion_tokens * _SHARE > wanted.window:
            room = wanted.window - LEAST_PROMPT_TOKENS - min(SAFETY_TOKENS, wanted.window // 8)
            changes.append(
                _change("max_completion_tokens", max(min(wanted.window // _SHARE, room), 1))
            )
    known, secrets = present.api_key.get_secret_value(), dict[str, str]()
    if wanted.key and wanted.key != known:
        usual = "OPENAI_API_KEY" if is_official(wanted.base_url) else "MODEL_API_KEY"
        # The files are not written in one step: the old server must not get the new one's key.
        path, fresh = ("model", "api_key"), bool(known) and moves
        name = before.variable(path, wanted.key_name or usual, wanted.key, fresh=fresh)
        changes.append(_change("api_key", f"${{{name}}}"))
        secrets[name] = wanted.key
    elif known and moves and not wanted.key:  # a key is for the server that it was given for
        changes.append(_change("api_key", ""))
    return ConfigPart(tuple(changes), secrets, summary)


def _change(key: str, value: Setting) -> ConfigChange:
    return ConfigChange(("model", key), value)
