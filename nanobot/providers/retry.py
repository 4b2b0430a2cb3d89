"""Retry policy for model calls, and the choice of the model.

Waits grow exponentially with full jitter (a random share of the bound, so that many conversations
do not retry at the same moment). A wait that the server requests is never shortened. All tries of
one call share a deadline. A wait that would pass it is not begun: the error is raised at once, with
the server's wait in it, for a caller that can wait longer (the queue, which holds the message). A
deadline never cuts a running try, because a long answer is not a failure. A server that was silent
twice needs a longer timeout, not a third try.

With several models, in order of preference, each try asks one after the other, so a failing model
costs no waiting while another can answer. After three failures in a row a model is skipped for a
minute. A refusal because of the content is not a failure of the model and counts as an answer. If
every model would be skipped, all are asked: a possible success beats a certain failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import TypeVar

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.clock import Clock, pause_after
from nanobot.errors import (
    ContextTooLong,
    ProviderBusy,
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    ProviderStalled,
    ProviderUnavailable,
    RequestBlamed,
)
from nanobot.providers.port import (
    CallOptions,
    OutageSink,
    Prompt,
    Provider,
    Reply,
    TextSink,
    Usage,
)


class RetryPolicy(Struct, frozen=True):
    """Times in seconds. `deadline` 0: nothing is retried."""

    deadline: float = 60.0
    first_wait: float = 1.0
    longest_wait: float = 20.0
    garbage_retries: int = 2
    stall_retries: int = 1


T = TypeVar("T")


async def retry(
    ask: Callable[[], Awaitable[T]],
    what: str,
    policy: RetryPolicy,
    clock: Clock,
    random: Random,
    on_outage: OutageSink | None = None,
) -> T:
    """Return the result of `ask`, retried while that may help. Raise the last error when the time
    is used up. `what` names the request in the log."""
    deadline = clock.monotonic() + policy.deadline
    failures = garbage = stalls = 0
    while True:
        try:
            return await ask()
        except (ProviderBusy, ProviderUnavailable, ProviderGarbage) as error:
            failures += 1
            garbage += isinstance(error, ProviderGarbage)
            wait = wait_before_retry(error, failures, policy, random.random())
            stalls += isinstance(error, ProviderStalled)
            used_up = garbage > policy.garbage_retries or stalls > policy.stall_retries
            if clock.monotonic() + wait >= deadline or used_up:
                raise
            logger.info("asking for {} again in {:.1f} s: {}", what, wait, error)
            reason = error.reason
        if on_outage is None:
            await clock.sleep(wait)
        else:
            await _count_down(wait, clock, partial(on_outage, reason, failures))


async def _count_down(seconds: float, clock: Clock, show: Callable[[float], None]) -> None:
    """Wait, and report the rest each second and at the end."""
    due = clock.monotonic() + seconds
    while (left := due - clock.monotonic()) > 0:
        show(left)
        await clock.sleep(min(left, 1.0))
    show(0.0)


def wait_before_retry(
    error: ProviderError, failures: int, policy: RetryPolicy, share: float
) -> float:
    """Return the seconds to wait after failure number `failures` (from 1). `share` is random from 0
    to 1."""
    bound = pause_after(failures, policy.first_wait, policy.longest_wait)
    if error.retry_after > 0:
        return error.retry_after + share * min(policy.first_wait, bound)  # jitter
    return share * bound


_ABOUT_THE_MODEL = (401, 402, 403, 404)  # refusals that later requests will get too
_MOST_FAILURES = 3  # in a row, before a model is skipped
_SKIP_SECONDS = 60.0


class Prices(Struct, frozen=True):
    """Price of a million tokens of each kind, in the owner's currency. 0: unknown."""

    input: float = 0.0
    cached_input: float = 0.0
    output: float = 0.0
    cache_write: float = 0.0

    def cost(self, usage: Usage) -> int | None:
        """Return the cost of a call in millionths of the currency, or None if no price is known."""
        if not (self.input or self.cached_input or self.cache_write or self.output):
            return None
        fresh = max(0, usage.prompt - usage.cached - usage.cache_writes)
        total = fresh * self.input + usage.completion * self.output
        total += usage.cached * (self.cached_input or self.input)
        return round(total + usage.cache_writes * (self.cache_write or self.input))


class Model:
    """A model, its name in logs, its prices, and its recent failures."""

    def __init__(self, name: str, provider: Provider, prices: Prices | None = None) -> None:
        self.name, self.provider, self.prices = name, provider, prices or Prices()
        self.failures = 0
        self.skip_until = 0.0
        self.last_error: ProviderError | None = None

    def record_outcome(self, error: ProviderError | None, now: float) -> None:
        """Record an answered call, or a failed one."""
        blamed = error is not None and (
            not isinstance(error, ProviderRejected | RequestBlamed)
            or error.status in _ABOUT_THE_MODEL
        )
        self.failures = self.failures + 1 if blamed else 0
        self.last_error = error
        self.skip_until = now + _SKIP_SECONDS if self.failures >= _MOST_FAILURES else 0.0


class _RestartableText:
    """Wrapper of a sink. `void` retracts the text shown since the last retraction."""

    def __init__(self, sink: TextSink | None) -> None:
        self._sink, self._shown = sink, False

    def __call__(self, text: str, restart: bool) -> None:
        self._shown = bool(text) or (self._shown and not restart)
        if self._sink is not None:
            self._sink(text, restart)

    def void(self) -> None:
        if self._shown:
            self("", True)


class RetryingProvider:
    """Provider that asks `models` in order until one answers, and retries all while that may help.
    `CallOptions.model` names a model of the first one. The others use their own."""

    def __init__(
        self, models: Sequence[Model], policy: RetryPolicy, clock: Clock, random: Random
    ) -> None:
        if not models:
            raise ValueError("no model to ask")
        self._models, self._policy = models, policy
        self._clock, self._random = clock, random

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """Answer `prompt`. When time or tries are used up, raise the errors as `combine_errors`
        does, including a skipped model's last one."""
        text = _RestartableText(on_text)
        ask = partial(self._ask_each, prompt, options, text)
        policy, clock, random = self._policy, self._clock, self._random
        return await retry(ask, "an answer", policy, clock, random, options.on_outage)

    async def close(self) -> None:
        for model in self._models:
            await model.provider.close()

    async def _ask_each(
        self, prompt: Prompt, options: CallOptions, text: _RestartableText
    ) -> Reply:
        now = self._clock.monotonic()
        usable = [one for one in self._models if one.skip_until <= now] or self._models
        errors: list[ProviderError] = []
        for position, model in enumerate(self._models):
            if model.last_error and model not in usable:
                errors.append(model.last_error)
                continue
            text.void()
            own = options if position == 0 else replace(options, model="")
            try:
                reply = await model.provider.complete(prompt, own, text)
            except ContextTooLong as error:
                error.of_fallback = position > 0
                raise
            except ProviderError as error:
                model.record_outcome(error, self._clock.monotonic())
                if len(self._models) > 1:
                    logger.warning("{} did not answer: {}", model.name, error)
                errors.append(error)
            else:
                model.record_outcome(None, self._clock.monotonic())
                if own.model in ("", model.name):  # other models have other prices
                    priced = replace(reply.usage, cost=model.prices.cost(reply.usage))
                    reply = replace(reply, usage=priced)
                return replace(reply, instead_of=self._models[0].name) if position else reply
        raise combine_errors(errors).with_traceback(None)


def combine_errors(errors: Sequence[ProviderError]) -> ProviderError:
    """Return the error to raise when no model answered: that of the first model, which people
    chose.

    If it is final but another model's is not, the result shows that a retry may help."""
    first = errors[0]
    passing = [error for error in errors if not isinstance(error, ProviderRejected)]
    if not passing or passing[0] is first:
        return first
    summary = f"{first}; {passing[0]}"
    if all(isinstance(error, ProviderGarbage) for error in passing):
        return ProviderGarbage(summary, detail=first.detail, hint=first.hint)
    wait, reason = min(error.retry_after for error in passing), passing[0].reason
    return ProviderUnavailable(
        summary, retry_after=wait, detail=first.detail, hint=first.hint, reason=reason
    )


class RoutingProvider:
    """Provider that selects a model: `named` are the models by the owner's names, `uses` the name
    for each use that has one.

    `CallOptions.model` is such a name. Any other name goes to the `main` one, as a model of its
    server. Calls with pictures use the model for chats, unless there is one for pictures."""

    def __init__(
        self, main: Provider, named: Mapping[str, Provider], uses: Mapping[str, str]
    ) -> None:
        self._main, self._named = main, named
        self._uses: Mapping[str, str] = {"pictures": uses.get("chat", ""), **uses}

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """See `Provider`."""
        chosen = self._named.get(options.model or self._uses.get(options.use, ""))
        if chosen is None:
            return await self._main.complete(prompt, options, on_text)
        return await chosen.complete(prompt, replace(options, model=""), on_text)

    async def close(self) -> None:
        for provider in (self._main, *self._named.values()):
            await provider.close()


class ServedModels(Struct, frozen=True):
    base_url: str
    api_key: str

    async def names(self) -> tuple[str, ...]:
        """Return the names, or nothing if the server has no list."""
        from nanobot.providers.discovery import ModelServer  # rarely needed

        try:
            models = await ModelServer(self.base_url, self.api_key, 5.0).models()
        except ProviderError as error:
            logger.info("the model server did not list its models: {}", error)
            return ()
        return tuple(one.name for one in models)
