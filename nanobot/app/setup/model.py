"""The step that sets up a model: its server, its key, its name, a trial, its context window.

Nothing is written before the model has answered. If its server can't be reached now, the person may
keep the answers unchecked. A key is only offered to the server that it was given for.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nanobot.app.setup.addresses import find_fault
from nanobot.app.setup.changes import ConfigPart, fit_window, model_changes, model_label
from nanobot.app.setup.questions import (
    SetupOptions,
    ask_checked,
    in_words,
    read_key,
    server_options,
    setting_check,
)
from nanobot.config.changes import ExistingFiles
from nanobot.config.model import LEAST_PROMPT_TOKENS, SMALL_WINDOW, AnyModel, ModelSettings
from nanobot.errors import (
    NanobotError,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderUnavailable,
)
from nanobot.providers.dialect import host_of, is_near
from nanobot.providers.discovery import (
    ListedModel,
    LocalServer,
    ModelFacts,
    ModelServer,
    find_local_servers,
    lacks_path,
)
from nanobot.providers.known_servers import PROVIDERS, KnownProvider, provider_at
from nanobot.text import join_some
from nanobot.validation import SecretStr

if TYPE_CHECKING:
    from nanobot.channel import Person
    from nanobot.clock import Clock

    Find = Callable[[], Awaitable[Sequence[LocalServer]]]

T = TypeVar("T")

_LIST_SECONDS = 10.0
_FACTS_SECONDS = 5.0
_VARIANT_SECONDS = 60.0
_READING_SECONDS = 2.0
_ANSWER_TOKENS = 1_000
_SMALLEST = (LEAST_PROMPT_TOKENS + 1_000) * 8 // 7  # the smallest window that nanobot can work with
_ASSUMED = 4_096  # the usual window of local model servers
_COMFORTABLE = 16_384
_NO_ACCESS = (401, 403)
_NO_LIST_WITHOUT_KEY = (400, *_NO_ACCESS)
"""Status codes for a wrong key in requests that can only fail because of it. Gemini and xAI send
400. Sources: https://ai.google.dev/gemini-api/docs/troubleshooting and
https://github.com/continuedev/continue/issues/10778"""
_TYPED = "Another model (type its name)"
_CHECK_URL = setting_check(AnyModel, "base_url", "the URL")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_CHECK_KEY = setting_check(AnyModel, "api_key", "the key")


class Offer(Struct, frozen=True):
    """A line in the list of servers. `base_url` is the usual address, which `asks_address` lets the
    person change. Without a `model` the next questions select one."""

    label: str
    base_url: str = ""
    asks_address: bool = False
    asks_key: bool = False
    model: ModelSettings | None = None


class ModelStep:
    """The choice of a model by a person, unless the options name one. `with_window` is the part
    after the trial. If the step runs again, the last choice is the default."""

    def __init__(
        self,
        person: Person,
        options: SetupOptions,
        present: ModelSettings,
        before: ExistingFiles,
        clock: Clock,
        find: Find = find_local_servers,
        providers: Sequence[KnownProvider] = PROVIDERS,
    ) -> None:
        self._person, self._options, self._find = person, options, find
        self._present, self._before, self._clock = present, before, clock
        self._providers = providers
        self._attended = not options.non_interactive
        self._last = present
        self._variable = ""
        self._is_unchecked = False

    async def run(self) -> ConfigPart:
        """Return the changes. Raises `NanobotError`."""
        self._is_unchecked = False
        if self._options.offline:
            wanted = ModelSettings(provider="offline")
        elif server_options(self._options):
            wanted = await self._take_options()
        else:
            wanted = await self._choose_model()
        if wanted.provider != "offline" and wanted is not self._present:
            if not (self._options.no_test or self._is_unchecked):
                wanted, _ = await self._ask_server(wanted, self._try_out, _NO_ACCESS)
            # After the trial, because some servers report the window only of a loaded model.
            wanted = await self.with_window(wanted)
        unchecked = ("model",) if self._is_unchecked else ()
        return model_changes(
            wanted, self._present, self._before, self._variable, unchecked=unchecked
        )

    async def _take_options(self) -> ModelSettings:
        """Return the model of the command line. Other settings stay if the server is the same."""
        options = self._options
        named = next((one for one in self._providers if one.id == options.provider), None)
        usual = named.base_url if named else self._present.base_url
        wanted = self._begin_settings(_CHECK_URL(options.base_url or usual))
        key, self._variable = read_key(options, named)
        wanted = replace(wanted, name=options.model_name or wanted.name)
        wanted = _with_key(wanted, key) if key else wanted
        known = self._at(wanted.base_url)
        if known and known.keys_at and not (wanted.api_key and wanted.name):
            hint = f"Add --model-name {known.example} and --api-key-env {known.key_variable}"
            raise NanobotError(
                f"{known.name} requires a model and an API key",
                hint=f"{hint}, or use another --base-url.",
            )
        if lacks_path(wanted.base_url) and not options.no_test:
            url, _ = await self._models(wanted)
            wanted = replace(wanted, base_url=url)
        return wanted

    async def _choose_model(self) -> ModelSettings:
        """Let the person choose a server, its address, its key, and one of its models."""
        self._person.say("Looking for model servers on this machine …")
        offers = self._offers(await self._find())
        labels = [one.label for one in offers]
        offer = offers[await self._person.choose("Which model do you want to use?", labels)]
        if offer.model is not None:
            return offer.model
        url = await self._address(offer) if offer.asks_address else offer.base_url
        wanted = await self._ask_key(self._begin_settings(url), asks=offer.asks_key)
        wanted, found = await self._ask_server(wanted, self._models, _NO_LIST_WITHOUT_KEY)
        url, models = found or (wanted.base_url, ())
        self._last = replace(wanted, base_url=url)
        return await self._choose_name(self._last, models)

    def _offers(self, servers: Sequence[LocalServer]) -> list[Offer]:
        """Return the list of servers: running ones on this machine, providers, others."""
        present, found = self._present, {server.name for server in servers}
        offers = [
            Offer(
                f"{one.name} on this machine: {join_some(one.models, 3) or 'no chat models yet'}",
                one.base_url,
            )
            for one in servers
        ]
        if present.provider != "offline":
            offers.insert(
                0, Offer(f"Keep the current model: {model_label(present)}", model=present)
            )
        for one in sorted(self._providers, key=attrgetter("is_local")):
            if not one.is_local:
                offers.append(Offer(one.name, one.base_url, asks_key=True))
            elif one.name not in found:
                label = f"{one.name} (not running, or on another machine)"
                offers.append(Offer(label, one.base_url, asks_address=True))
        another = "Another server with an OpenAI-compatible API"
        built_in = "None yet: try nanobot with the small built-in model"
        offers.append(Offer(another, asks_address=True, asks_key=True))
        return [*offers, Offer(built_in, model=ModelSettings(provider="offline"))]

    async def _address(self, offer: Offer) -> str:
        """Ask for the address. The last one is the default if its server is of the same kind."""
        last, kind = self._last.base_url, self._at(offer.base_url)
        if kind:
            self._person.say(
                f"Start the server with `{kind.start}`. It then listens at {offer.base_url}."
            )
        usual = last if self._at(last) == kind else offer.base_url
        asked = "The server's URL, up to and including /v1"
        while True:
            url = await ask_checked(self._person, asked, _CHECK_URL, usual)
            if not (fault := await find_fault(url)):
                break
            self._person.say(fault)
        if url.startswith("http:") and host_of(url) not in _LOOPBACK:
            self._person.say(
                "WARNING: this connection is not encrypted. Others in your network can read your "
                "key and your messages."
            )
        return url

    def _begin_settings(self, base_url: str) -> ModelSettings:
        """Return the first settings for a server, with its key if it is the last or present one."""
        for known in (self._last, self._present):
            if known.base_url == base_url:
                return replace(known, provider="openai")
        at = self._at(base_url)
        return ModelSettings(
            provider="openai",
            base_url=base_url,
            api=at.api if at else "chat",
            max_completion_tokens=self._present.max_completion_tokens,
        )

    def _at(self, base_url: str) -> KnownProvider | None:
        return provider_at(base_url, self._providers)

    def _server(self, wanted: ModelSettings, seconds: float) -> ModelServer:
        url, key = wanted.base_url, wanted.api_key.get_secret_value()
        return ModelServer(url, key, seconds, self._at(url))

    async def _ask_key(self, wanted: ModelSettings, *, asks: bool) -> ModelSettings:
        """Ask for the key, if the server may need one."""
        if not asks:
            return wanted
        known, usual = self._at(wanted.base_url), wanted.api_key.get_secret_value()
        if not (known and known.keys_at):
            return _with_key(
                wanted, await self._key("The API key, if the server requires one", usual)
            )
        self._person.say(f"Create an API key for {known.name} at {known.keys_at}")
        usual = usual or os.environ.get(known.key_variable, "").strip()
        asked = f"The {known.name} API key"
        return _with_key(wanted, await self._key(asked, usual, is_needed=True))

    async def _key(self, asked: str, usual: str = "", *, is_needed: bool = False) -> str:
        def check(key: str) -> str:
            if is_needed and not key:
                raise NanobotError("an API key is required")
            return _CHECK_KEY(key)

        return await ask_checked(self._person, asked, check, usual, secret=True)

    async def _ask_server(
        self,
        wanted: ModelSettings,
        ask: Callable[[ModelSettings], Awaitable[T]],
        refusals: Sequence[int],
    ) -> tuple[ModelSettings, T | None]:
        """Return the model with an accepted key, and the result of `ask`. After one of the
        `refusals`, ask for the key again. The result is None if the server is unreachable and the
        person continues anyway. Raises `ProviderError`."""
        while True:
            self._last = wanted
            try:
                return wanted, await ask(wanted)
            except (ProviderUnavailable, ProviderBusy) as error:
                if not self._attended:
                    raise
                self._person.say(f"WARNING: {in_words(error)}\nYour answers can't be checked now.")
                if not await self._person.confirm("Continue without checking them?"):
                    raise
                self._is_unchecked = True
                return wanted, None
            except ProviderRejected as error:
                if error.status not in refusals or not self._attended:
                    raise
                text = in_words(error) if wanted.api_key else "The server requires an API key."
                self._person.say(text[:1].upper() + text[1:])
                if not (key := await self._key("The API key (leave empty to cancel)")):
                    raise
                wanted, self._variable = _with_key(wanted, key), ""

    async def _models(self, wanted: ModelSettings) -> tuple[str, Sequence[ListedModel]]:
        """Return the address at which the server answers, and its models. Raises
        `ProviderError`."""
        try:
            server, models = await self._server(wanted, _LIST_SECONDS).locate()
        except ProviderError:
            if not self._options.no_test:
                raise
            return wanted.base_url, ()
        if server.base_url != wanted.base_url:
            self._person.say(f"The server's API is at {server.base_url}.")
        return server.base_url, models

    async def _choose_name(
        self, wanted: ModelSettings, models: Sequence[ListedModel]
    ) -> ModelSettings:
        """Return the model with a name that the person chooses or types."""
        person, known = self._person, self._at(wanted.base_url)
        name = wanted.name or (known.example if known and not known.is_local else "")
        if len(models) == 1:
            person.say(f"The server has one model: {models[0].name}.")
            return replace(wanted, name=models[0].name)
        if models:
            names = [one.name for one in models]
            at = names.index(name) if name in names else 0
            at = await person.choose("Which model?", [*map(_describe_model, models), _TYPED], at)
            if at < len(names):
                return replace(wanted, name=names[at])
        elif not (self._is_unchecked or self._options.no_test):
            get = f" {known.how_to_get}" if known and known.is_local else ""
            person.say(f"The server lists no chat models.{get}")
        name = await ask_checked(person, "The model's name on the server", _check_name, name)
        return replace(wanted, name=name)

    async def _try_out(self, wanted: ModelSettings) -> bool:
        """Send the model a prompt with a tool. Raises `ProviderError`."""
        from nanobot.app.base import build_adapter
        from nanobot.providers.port import CallOptions, Prompt, Toolset, ToolSpec, user_message

        near = is_near(wanted.base_url)
        slow = " (on a slow machine, this can take minutes)" if near else ""
        self._person.say(f"Testing {model_label(wanted)}{slow} …")
        tool = ToolSpec("rest", "Does nothing.", {"type": "object", "properties": {}})
        prompt = Prompt((user_message("Answer with the one word: ready"),), Toolset.of([tool]))
        provider, began = build_adapter(wanted), self._clock.monotonic()
        shown_at = began

        def show(read: int, total: int) -> None:
            """Show every few seconds how far a slow server has read."""
            nonlocal shown_at
            if self._clock.monotonic() - shown_at >= _READING_SECONDS:
                shown_at = self._clock.monotonic()
                self._person.say(f"Reading {read:,} of {total:,} tokens …")

        try:
            reply = await provider.complete(
                prompt, CallOptions(max_tokens=_ANSWER_TOKENS, on_reading=show)
            )
        finally:
            await provider.close()
        took = self._clock.monotonic() - began
        self._person.say(f"{reply.model or wanted.name} answered in {took:.1f} s.")
        return True

    async def with_window(self, wanted: ModelSettings) -> ModelSettings:
        """Return the model with its context window, or a variant with a larger one.

        Local servers often cut off a longer prompt silently, so the window is never larger than the
        server reports. Raises `NanobotError` if it is too small."""
        facts = ModelFacts()
        asks = not (self._options.no_test and server_options(self._options))
        if asks:
            facts = await self._server(wanted, _FACTS_SECONDS).facts(wanted.name)
        self._warn(facts)
        if variant := await self._larger_variant(wanted, facts):
            return await self.with_window(variant)
        chosen, takes = (
            self._options.context_window or self._window_in_settings(wanted),
            facts.window,
        )
        window = min(filter(None, (chosen, takes)), default=0)
        if 0 < window < _SMALLEST:
            raise NanobotError(
                f"a context window of {window:,} tokens is too small",
                hint=(
                    f"nanobot needs at least {_SMALLEST:,} tokens, and works well with "
                    f"{_COMFORTABLE:,}. {facts.to_raise}"
                ),
            )
        if window < chosen:
            self._person.say(
                f"WARNING: the context window is set to {chosen:,} tokens, but "
                f"{_server(facts)} accepts {takes:,}, so nanobot uses {takes:,}. {facts.to_raise}"
            )
        elif takes >= SMALL_WINDOW:  # else a warning has shown it
            self._person.say(f"{facts.server or wanted.name} accepts {takes:,} tokens.")
        if not window:
            window = await self._unknown(wanted, _server(facts), asks=asks)
        return fit_window(wanted, window)

    def _warn(self, facts: ModelFacts) -> None:
        """Warn of a small window and of missing tool calls."""
        if _SMALLEST <= facts.window < SMALL_WINDOW:
            self._person.say(
                f"WARNING: {_server(facts)} accepts only {facts.window:,} tokens, so nanobot "
                "uses fewer tools and forgets within a few messages. nanobot works well with "
                f"{_COMFORTABLE:,} tokens. {facts.to_raise}"
            )
        if facts.tools is False:
            self._person.say(f"WARNING: {facts.no_tools}. {facts.for_tools}")

    async def _larger_variant(
        self, wanted: ModelSettings, facts: ModelFacts
    ) -> ModelSettings | None:
        """Offer a variant of an Ollama model with a comfortable window, or the one in the
        options."""
        asked, takes = self._options.context_window, facts.window
        tokens = min(asked or _COMFORTABLE, facts.most)
        is_small = facts.server == "Ollama" and takes < (asked or SMALL_WINDOW) <= tokens
        if not (is_small and self._attended):
            return None
        instead = f" instead of {takes:,}" if takes else ""
        question = (
            f"Create a variant of {wanted.name} with a context window of {tokens:,} "
            f"tokens{instead}?"
        )
        if not await self._person.confirm(f"{question} This needs no download."):
            return None
        server = self._server(wanted, _VARIANT_SECONDS)
        name = await server.create_larger_variant(wanted.name, tokens)
        self._person.say(f"{name} is ready." if name else "Ollama could not create the variant.")
        return replace(wanted, name=name) if name else None

    def _window_in_settings(self, wanted: ModelSettings) -> int:
        """Return the window that is configured for exactly this model, or 0."""
        present = self._present
        is_same = (wanted.base_url, wanted.name) == (present.base_url, present.name)
        is_set = present.context_window != ModelSettings().context_window
        return present.context_window if is_same and is_set else 0

    async def _unknown(self, wanted: ModelSettings, server: str, *, asks: bool) -> int:
        """Ask the person for the window, if the server is in their network."""
        known = self._at(wanted.base_url)
        if not is_near(wanted.base_url) or (known and not known.is_local):
            return ModelSettings().context_window
        asks_person = self._attended and asks
        assumed = (
            f" nanobot assumes {_ASSUMED:,}. To change this, use --context-window {_COMFORTABLE}."
        )
        self._person.say(
            f"WARNING: the context window of {server} is unknown, so long prompts may be cut "
            f"off. Many servers accept {_ASSUMED:,} tokens. Below {SMALL_WINDOW:,} tokens, "
            f"nanobot uses fewer tools. nanobot works well with {_COMFORTABLE:,} or "
            f"more.{'' if asks_person else assumed}"
        )
        if not asks_person:
            return _ASSUMED
        question = "The server's context window, in tokens"
        return await ask_checked(self._person, question, _check_window, str(_ASSUMED))


def _with_key(model: ModelSettings, key: str) -> ModelSettings:
    return replace(model, api_key=SecretStr(key))


def _server(facts: ModelFacts) -> str:
    return facts.server or "the server"


def _describe_model(model: ListedModel) -> str:
    return f"{model.name}, {model.window:,} tokens" if model.window else model.name


def _check_name(text: str) -> str:
    if not text:
        raise NanobotError("a model name is required")
    return text


def _check_window(text: str) -> int:
    digits = text.replace(",", "")
    if not digits.isdecimal() or int(digits) < _SMALLEST:
        raise NanobotError(
            f"the context window must be a number, at least {_SMALLEST:,}",
            hint="nanobot does not work with less.",
        )
    return int(digits)
