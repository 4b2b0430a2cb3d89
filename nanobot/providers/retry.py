"""The one retry policy: how long to wait before a model is asked again, and which model is asked.

Waits grow exponentially with full jitter (a random share of the bound, so that many conversations
do not come back at the same moment). A wait that the server names is kept to, never shortened. All
tries of one call share a deadline; a wait that would pass it is not begun: the error is raised at
once, with the server's wish in it, and the caller that can wait longer does (the queue, which holds
the message). A deadline never cuts a try that is under way: a long answer is not a failure.

`FallbackProvider` has several models in order of preference, each with a circuit breaker. After
three failures in a row the model is skipped for a minute; then one call may try it (a probe) while
the others still skip it. A probe that fails doubles the pause, up to five minutes; one answer
closes the breaker. A request that the model refused for its content says nothing about the model
and counts as an answer. When every model is to be skipped, none is: a try that may work beats a
certain failure. `RetryingProvider` goes around it, not inside: then a failing model costs no
waiting while another can answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.clock import Clock
from nanobot.errors import (
    ContextTooLong,
    ProviderBusy,
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    ProviderUnavailable,
)
from nanobot.providers.port import CallOptions, Prompt, Provider, Reply, TextSink


class RestartableText:
    """A sink in front of another. `void()` takes back what went through since the last restart."""

    def __init__(self, sink: TextSink | None) -> None:
        self._sink = sink
        self._shown = False

    @property
    def sink(self) -> TextSink | None:
        """What to give the provider; None where nobody listens."""
        return None if self._sink is None else self._pass_on

    def void(self) -> None:
        """Tell the listener that the text so far is void, if it got any."""
        if self._shown and self._sink is not None:
            self._shown = False
            self._sink("", True)

    def _pass_on(self, text: str, restart: bool) -> None:
        self._shown = bool(text) or (self._shown and not restart)
        if self._sink is not None:
            self._sink(text, restart)


class RetryPolicy(Struct, frozen=True):
    """Times in seconds. `deadline` 0 means that nothing is tried twice, `most_tries` 0 that only
    the deadline counts."""

    deadline: float = 60.0
    first_wait: float = 1.0
    longest_wait: float = 20.0
    garbage_retries: int = 2
    most_tries: int = 0


T = TypeVar("T")


async def retried(
    ask: Callable[[], Awaitable[T]], what: str, policy: RetryPolicy, clock: Clock, random: Random
) -> T:
    """What `ask` gives, asked again while that may help; raises the last error when time or tries
    are used up. `what` is asked for, for the log."""
    deadline = clock.monotonic() + policy.deadline
    failures = garbage = 0
    while True:
        try:
            return await ask()
        except (ProviderBusy, ProviderUnavailable, ProviderGarbage) as error:
            failures += 1
            garbage += isinstance(error, ProviderGarbage)
            wait = wait_before_retry(error, failures, policy, random.random())
            late = clock.monotonic() + wait >= deadline
            if late or garbage > policy.garbage_retries or failures == policy.most_tries:
                raise
            logger.info("asking for {} again in {:.1f} s: {}", what, wait, error)
        await clock.sleep(wait)


def wait_before_retry(
    error: ProviderError, failures: int, policy: RetryPolicy, share: float
) -> float:
    """Seconds to wait after the `failures`th failure (from 1); `share` is a random part of 1."""
    bound = min(policy.longest_wait, policy.first_wait * 2.0 ** min(failures - 1, 60))
    named = asked_wait(error)
    if named > 0:
        return named + share * min(policy.first_wait, bound)
    return share * bound


def asked_wait(error: ProviderError) -> float:
    """The seconds that the server asked to wait, 0.0 where it did not."""
    return error.retry_after if isinstance(error, ProviderBusy | ProviderUnavailable) else 0.0


class RetryingProvider:
    """Asks `provider` again while that may help."""

    def __init__(
        self, provider: Provider, policy: RetryPolicy, clock: Clock, random: Random
    ) -> None:
        self._provider = provider
        self._policy = policy
        self._clock = clock
        self._random = random

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """Answer `prompt`; raises the last error when time or tries are used up."""
        text = RestartableText(on_text)

        async def ask() -> Reply:
            text.void()
            return await self._provider.complete(prompt, options, text.sink)

        return await retried(ask, "an answer", self._policy, self._clock, self._random)

    async def close(self) -> None:
        """Release connections."""
        await self._provider.close()


_ABOUT_THE_MODEL = (401, 402, 403, 404)
"""Refusals that the next request will meet as well."""


class NamedProvider(Struct, frozen=True):
    """A model and what to call it in logs."""

    name: str
    provider: Provider


_FAILURES = 3
"""In a row, which open a breaker."""
_PAUSE, _LONGEST_PAUSE = 60.0, 300.0


class Breaker:
    """The breaker of one model. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._failures, self._pause = 0, _PAUSE
        self._open_until: float | None = None
        self._probing = False
        self.last_error: ProviderError | None = None

    def admits(self, now: float) -> bool:
        """Whether a call may go to the model; an open breaker whose pause is over admits one."""
        if self._open_until is None:
            return True
        return now >= self._open_until and not self._probing

    def begin(self) -> None:
        """A call goes to the model."""
        self._probing = self._open_until is not None

    def answered(self) -> None:
        """The model is there."""
        self._failures, self._pause = 0, _PAUSE
        self._open_until, self._probing = None, False

    def failed(self, now: float, error: ProviderError) -> None:
        """The model is not there."""
        self._probing = False
        self.last_error = error
        self._failures += 1
        if self._open_until is not None:
            if now < self._open_until:
                return  # a call that began before it opened, or one made for want of a better
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        if self._failures >= _FAILURES:
            self._open_until = now + self._pause

    def abandoned(self) -> None:
        """The call ended without telling anything."""
        self._probing = False


class FallbackProvider:
    """Asks `providers` in order until one answers.

    `CallOptions.model` names a model of the first one; the others are asked for their own.
    """

    def __init__(self, providers: Sequence[NamedProvider], clock: Clock) -> None:
        if not providers:
            raise ValueError("no model to ask")
        self._providers = tuple(providers)
        self._breakers = [Breaker() for _ in self._providers]
        self._clock = clock

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """Answer `prompt`, or raise what the first model said; see `combined`.

        Of a model that is skipped counts what it said last.
        """
        text = RestartableText(on_text)
        errors: list[ProviderError] = []
        everyone_out = not any(map(self._admits, self._breakers))
        for position, breaker in enumerate(self._breakers):
            if breaker.last_error and not everyone_out and not self._admits(breaker):
                errors.append(breaker.last_error)
                continue
            text.void()
            own = options if position == 0 else replace(options, model="")
            try:
                return await self._ask(position, prompt, own, text.sink)
            except ContextTooLong:
                raise
            except ProviderError as error:
                logger.warning("{} did not answer: {}", self._providers[position].name, error)
                errors.append(error)
        raise combined(errors).with_traceback(None)

    async def close(self) -> None:
        """Release the connections of all."""
        for named in self._providers:
            await named.provider.close()

    def _admits(self, breaker: Breaker) -> bool:
        return breaker.admits(self._clock.monotonic())

    async def _ask(
        self, position: int, prompt: Prompt, options: CallOptions, on_text: TextSink | None
    ) -> Reply:
        breaker = self._breakers[position]
        breaker.begin()
        verdict = breaker.abandoned
        try:
            reply = await self._providers[position].provider.complete(prompt, options, on_text)
            verdict = breaker.answered
        except ProviderError as error:
            if _blames_model(error):
                breaker.failed(self._clock.monotonic(), error)
            else:
                verdict = breaker.answered
            raise
        finally:
            verdict()
        return reply


def _blames_model(error: ProviderError) -> bool:
    return not isinstance(error, ProviderRejected) or error.status in _ABOUT_THE_MODEL


def combined(errors: Sequence[ProviderError]) -> ProviderError:
    """The error to raise when no model answered: the first one's, which is the one people chose.

    If that is final but another model's is not, the result has to say that asking again may help.
    """
    first = errors[0]
    passing = [error for error in errors if not isinstance(error, ProviderRejected)]
    if not passing or passing[0] is first:
        return first
    if all(isinstance(error, ProviderGarbage) for error in passing):
        return ProviderGarbage(f"{first}; {passing[0]}", detail=first.detail, hint=first.hint)
    wait = min(asked_wait(error) for error in passing)
    summary = f"{first}; {passing[0]}"
    if all(isinstance(error, ProviderBusy) for error in passing):
        return ProviderBusy(summary, retry_after=wait, detail=first.detail)
    return ProviderUnavailable(summary, retry_after=wait, detail=first.detail, hint=first.hint)
