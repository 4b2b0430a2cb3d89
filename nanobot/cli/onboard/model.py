"""The step that finds a model, tries it before it is written down, and learns what it takes.

If its server cannot be reached now, the person may keep what was typed, unchecked.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nanobot.cli.onboard.candidate import (
    ModelCandidate,
    lacks_path,
    list_served,
    model_changes,
    try_out,
)
from nanobot.cli.onboard.files import ConfigPart
from nanobot.cli.onboard.people import ask_checked, in_words
from nanobot.cli.onboard.window import WindowStep
from nanobot.config.changing import ExistingFiles
from nanobot.config.model import ModelSettings
from nanobot.errors import (
    NanobotError,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderUnavailable,
)
from nanobot.providers.catalogue import (
    PROVIDERS,
    KnownProvider,
    provider_at,
    similar_names,
    tools_hint,
)
from nanobot.providers.dialect import is_near
from nanobot.providers.discovery import (
    ListedModel,
    LocalServer,
    find_local_servers,
)
from nanobot.validation import Invalid, build

if TYPE_CHECKING:
    from nanobot.channel import Person
    from nanobot.clock import Clock
    from nanobot.providers.port import ReadingSink

    Find = Callable[[], Awaitable[Sequence[LocalServer]]]
    Offer = Callable[[], Awaitable[ModelCandidate]]

_LIST_SECONDS = 10.0
_READING_SECONDS = 2.0
_OF_A_SERVER = (
    "provider", "model_name", "base_url", "context_window", "api_key_env", "api_key_stdin",
)  # fmt: skip
_NO_ACCESS = (401, 403)
_NO_LIST_WITHOUT_KEY = (400, *_NO_ACCESS)
"""Answers to a wrong key if only the key can be wrong. Gemini and xAI answer 400. Sources:
https://ai.google.dev/gemini-api/docs/troubleshooting and
https://github.com/continuedev/continue/issues/10778"""
_TYPED = "Another one, whose name you type"


def server_options(options: argparse.Namespace) -> list[str]:
    """The options on the command line that are about a model's server."""
    return [f"--{name.replace('_', '-')}" for name in _OF_A_SERVER if getattr(options, name)]


class ModelStep:
    """Has a person choose a model, unless the options name one, and tries it out. What was chosen
    last is the default when the step is gone through again, and what answered once is not asked
    again."""

    def __init__(
        self,
        person: Person,
        options: argparse.Namespace,
        present: ModelSettings,
        before: ExistingFiles,
        clock: Clock,
        find: Find = find_local_servers,
        providers: Sequence[KnownProvider] = PROVIDERS,
    ) -> None:
        self._person, self._options, self._find = person, options, find
        self._present, self._before, self._clock = present, before, clock
        self._providers = providers
        self._answered: set[ModelCandidate] = set()
        key = present.api_key.get_secret_value()
        self._last = ModelCandidate(present.name, present.base_url, key, api=present.api)

    async def run(self) -> ConfigPart:
        """What is to be written; empty where the model shall stay as it is. Raises
        `NanobotError`."""
        options = self._options
        is_given = bool(server_options(options))
        if options.offline:
            return model_changes(ModelCandidate(offline=True), self._present, self._before)
        wanted = await self._given() if is_given else await self._chosen()
        if wanted is None:
            return ConfigPart()
        if not wanted.offline:
            self._last = replace(wanted, unchecked=False)
            if not (options.no_test or wanted.unchecked):
                wanted = await self._tried(wanted)
            wanted = await self.with_window(wanted)  # some know it once the model is loaded
        return model_changes(wanted, self._present, self._before)

    async def _given(self) -> ModelCandidate:
        """The model of the command line. The rest stays as it is if the server is the same."""
        options, present = self._options, self._present
        named = next((one for one in self._providers if one.id == options.provider), None)
        key, variable = _given_key(options, named)
        usual = named.base_url if named else present.base_url
        base_url, name = _checked_url(options.base_url or usual), options.model_name
        is_same = base_url == present.base_url
        if is_same:
            key, name = key or present.api_key.get_secret_value(), name or present.name
        known = self._at(base_url)
        if known and not known.is_local and not (key and name):
            hint = f"Add --model-name {known.example} and --api-key-env {known.key_variable}"
            raise NanobotError(
                f"{known.name} needs a model and a key", hint=f"{hint}, or another --base-url."
            )
        api = present.api if is_same else ""
        wanted = ModelCandidate(name, base_url, key, variable, options.context_window, api=api)
        if options.no_test or not lacks_path(base_url):
            return wanted
        return (await self._located(wanted))[0]

    async def _chosen(self) -> ModelCandidate | None:
        """What the person wants; None for leaving it as it is."""
        person, present = self._person, self._present
        person.say("Looking for model servers on this machine …")
        servers = await self._find()
        found = {server.name for server in servers}
        offers: dict[str, Offer] = {}
        for server in servers:
            shown = f"{server.name} on this machine: {_few(server.models)}"
            offers[shown] = partial(self._at_found, server)
        for known in self._providers:
            if not known.is_local:
                offers[known.name] = partial(self._at_provider, known)
        for known in self._providers:
            if known.is_local and known.name not in found:
                offers[f"{known.name}, elsewhere or not started"] = partial(self._at_local, known)
        offers["Another server with an OpenAI-compatible API"] = self._at_another
        offers["None yet: the small built-in model, which knows only a few tricks"] = _built_in
        menu = [*offers]
        is_set = present.provider != "offline"
        if is_set:
            as_it_is = ModelCandidate(present.name, present.base_url)
            menu.insert(0, f"As it is: {as_it_is.shown}")
        chosen = menu[await person.choose("Which model should answer?", menu)]
        return await offers[chosen]() if chosen in offers else None

    async def _at_found(self, server: LocalServer) -> ModelCandidate:
        """A model of a server on this machine."""
        wanted = self._begun(server.base_url)
        return await self._named(wanted, [ListedModel(name) for name in server.models])

    async def _at_provider(self, known: KnownProvider) -> ModelCandidate:
        """A model of a provider, which wants a key."""
        wanted = self._begun(known.base_url)
        usual = wanted.key or os.environ.get(known.key_variable, "").strip()
        self._person.say(f"Keys of {known.name} are made at {known.keys_at}")
        key = await self._key(f"The API key of {known.name}", usual, is_needed=True)
        return await self._listed(wanted, key)

    async def _at_local(self, known: KnownProvider) -> ModelCandidate:
        """A model of a server of somebody's own that was not found here: at another place, started
        only now, or behind a key."""
        is_known = self._at(self._last.base_url) == known
        usual = self._last.base_url if is_known else known.base_url
        self._person.say(f"`{known.start}` starts it. It listens at {known.base_url} then.")
        wanted = await self._addressed(usual)
        return await self._listed(wanted, wanted.key)

    async def _at_another(self) -> ModelCandidate:
        """A model at a server that perhaps wants a key."""
        is_known = self._at(self._last.base_url) is not None
        wanted = await self._addressed("" if is_known else self._last.base_url)
        known = self._at(wanted.base_url)
        usual = os.environ.get(known.key_variable, "") if known and known.key_variable else ""
        key = await self._key("The API key, if it wants one", wanted.key or usual)
        return await self._listed(wanted, key)

    async def _addressed(self, usual: str) -> ModelCandidate:
        """What the person wants so far: a server."""
        asked = "Its address, up to and including /v1"
        return self._begun(await ask_checked(self._person, asked, _checked_url, usual))

    async def _key(self, asked: str, usual: str = "", *, is_needed: bool = False) -> str:
        def check(key: str) -> str:
            if is_needed and not key:
                raise NanobotError("it needs a key")
            if "://" in key:
                raise NanobotError("that is an address and not a key")
            try:
                build(ModelSettings, {"api_key": key, "provider": "offline"})
            except Invalid as error:
                (fault, *_) = error.faults
                raise NanobotError(f"the key {fault.message}", hint=fault.hint) from None
            return key

        return await ask_checked(self._person, asked, check, usual, secret=True)

    async def _with_other_key(self, wanted: ModelCandidate, error: ProviderError) -> ModelCandidate:
        """Ask for another key, since this one was rejected. Raises `error` without one, and in a
        non-interactive run."""
        if self._options.non_interactive:
            raise error
        self._person.say(in_words(error) if wanted.key else "It wants a key.")
        if not (key := await self._key("Its key again (Enter to leave it)")):
            raise error
        self._last = replace(wanted, key=key, key_name="")
        return self._last

    def _begun(self, base_url: str) -> ModelCandidate:
        """What was wanted of a server last: a key is for one server."""
        return self._last if self._last.base_url == base_url else ModelCandidate(base_url=base_url)

    def _at(self, base_url: str) -> KnownProvider | None:
        return provider_at(base_url, self._providers)

    async def _listed(self, wanted: ModelCandidate, key: str) -> ModelCandidate:
        """Return the model with a key that the server takes, and a name out of its list."""
        self._last = wanted = replace(wanted, key=key)
        while True:
            try:
                wanted, models = await self._located(wanted)
                break
            except (ProviderUnavailable, ProviderBusy) as error:
                await self._accept_unchecked(error)
                return await self._named(replace(wanted, unchecked=True), ())
            except ProviderRejected as error:
                if error.status not in _NO_LIST_WITHOUT_KEY:
                    raise
                wanted = await self._with_other_key(wanted, error)
        self._last = wanted
        return await self._named(wanted, models)

    async def _located(
        self, wanted: ModelCandidate
    ) -> tuple[ModelCandidate, Sequence[ListedModel]]:
        """Return the model at the address that its server answers at, and all models there."""
        known = self._at(wanted.base_url)
        try:
            url, models = await list_served(wanted.base_url, wanted.key, known, _LIST_SECONDS)
        except ProviderError:
            if self._options.no_test:
                return wanted, ()
            raise
        if url != wanted.base_url:
            self._person.say(f"It answers at {url}.")
        return replace(wanted, base_url=url), models

    async def _accept_unchecked(self, error: ProviderError) -> None:
        """Go on without the server if the person wants that. Raises `error` where not."""
        self._person.say(f"WARNING: {in_words(error)}\nSo your answers cannot be checked now.")
        keep = "Keep it as it is, unchecked, and go on?"
        if self._options.non_interactive or not await self._person.confirm(keep):
            raise error

    async def _named(self, wanted: ModelCandidate, models: Sequence[ListedModel]) -> ModelCandidate:
        """With the name of the model; `models` are those of the server, as far as it lists them."""
        person, known = self._person, self._at(wanted.base_url)
        name = wanted.name or (known.example if known and not known.is_local else "")
        if len(models) == 1:
            person.say(f"It serves {models[0].name}.")
            return replace(wanted, name=models[0].name)
        if models:
            names = [one.name for one in models]
            at = names.index(name) if name in names else 0
            at = await person.choose("Which of its models?", [*map(_sized, models), _TYPED], at)
            if at < len(names):
                return replace(wanted, name=names[at])
        elif not (wanted.unchecked or self._options.no_test):
            get = f" {known.how_to_get}" if known and known.is_local else ""
            person.say(f"It lists no model for conversations.{get}")
        name = await ask_checked(person, "Model name on that server", _checked_name, name)
        return replace(wanted, name=name)

    async def _tried(self, wanted: ModelCandidate) -> ModelCandidate:
        """Have the model answer. Raises `ProviderError`, unless the server is out of reach and the
        person goes on without."""
        person = self._person
        if wanted in self._answered:
            return wanted
        near = is_near(wanted.base_url)
        slow = ". On a slow machine, loading and reading can take minutes" if near else ""
        person.say(f"Asking {wanted.shown} something{slow} …")
        shown = reading_shown(person, self._clock)
        try:
            person.say(f"{await try_out(wanted.settings(self._present), self._clock, shown)}.")
        except (ProviderUnavailable, ProviderBusy) as error:
            if self._options.non_interactive:
                raise
            await self._accept_unchecked(error)
            return replace(wanted, unchecked=True)
        except ProviderRejected as error:
            if error.status in _NO_ACCESS:
                return await self._tried(await self._with_other_key(wanted, error))
            raise await self._with_names(error, wanted) from None
        self._answered.add(wanted)
        return wanted

    async def _with_names(self, error: ProviderRejected, wanted: ModelCandidate) -> ProviderError:
        """What was refused, with the models that may have been meant if it is the name."""
        models: Sequence[ListedModel] = ()
        if error.status in (400, 404) and not tools_hint(error.detail):
            try:
                _, models = await self._located(wanted)
            except ProviderError:
                return error
        names = [one.name for one in models]
        if wanted.name in names or not (meant := similar_names(wanted.name, names)):
            return error
        hint = f"Did you mean {' or '.join(meant)}?"
        return ProviderRejected(str(error), status=error.status, detail=error.detail, hint=hint)

    async def with_window(self, wanted: ModelCandidate) -> ModelCandidate:
        """Return the model with its window, or a variant of it. Raises `NanobotError`."""
        options = self._options
        asks = not (options.no_test and server_options(options))
        attended = not options.non_interactive
        step = WindowStep(self._person, self._present, self._before, attended, asks)
        return await step.run(wanted, self._at(wanted.base_url))


def reading_shown(person: Person, clock: Clock) -> ReadingSink:
    """Return a sink that shows every few seconds how far a slow server has read."""
    shown_at = clock.monotonic()

    def show(read: int, total: int) -> None:
        nonlocal shown_at
        if clock.monotonic() - shown_at >= _READING_SECONDS:
            shown_at = clock.monotonic()
            person.say(f"Reading {read:,} of {total:,} tokens …")

    return show


def _given_key(options: argparse.Namespace, named: KnownProvider | None) -> tuple[str, str]:
    """The key of the command line, and the variable that holds it: the usual one of the provider,
    unless another is named."""
    if options.api_key_stdin:
        if not (key := sys.stdin.readline().strip()):
            raise NanobotError("there is no API key on standard input", hint="One line: the key.")
        return key, options.api_key_env
    usual = named.key_variable if named and named.key_variable in os.environ else ""
    variable = options.api_key_env or usual
    return from_environment(variable) if variable else "", variable


def _sized(model: ListedModel) -> str:
    return f"{model.name}, {model.window:,} tokens" if model.window else model.name


async def _built_in() -> ModelCandidate:
    return ModelCandidate(offline=True)


def _few(models: Sequence[str]) -> str:
    if not models:
        return "no model for conversations yet"
    return ", ".join(models[:3]) + (f" and {len(models) - 3} more" if len(models) > 3 else "")


def from_environment(name: str) -> str:
    """The secret that a variable holds. Raises `NanobotError` where there is none."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise NanobotError(f"the variable {name} is not set, or empty", hint=f"export {name}=…")
    return value


def _checked_name(text: str) -> str:
    if not text:
        raise NanobotError("it needs a name")
    return text


def _checked_url(text: str) -> str:
    """The address as it is written down. Raises `NanobotError`."""
    try:
        if text:
            return build(ModelSettings, {"base_url": text, "provider": "offline"}).base_url
    except Invalid:
        pass
    hint = "It looks like https://llm.example.com/v1 or http://127.0.0.1:8000/v1."
    wrong = f"{text!r} is not the address of an API" if text else "it needs an address"
    raise NanobotError(wrong, hint=hint)
