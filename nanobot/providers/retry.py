"""The one retry policy: how long to wait before a model is asked again, and when to stop asking.

Waits grow exponentially with full jitter (a random share of the bound, so that many conversations
do not come back at the same moment). A wait that the server names is kept to, never shortened. All
tries of one call share a deadline; a wait that would pass it is not begun: the error is raised at
once, with the server's wish in it, and whoever can wait longer does (the queue, which holds the
message). A deadline never cuts a try that is under way: a long answer is not a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import ProviderBusy, ProviderError, ProviderGarbage, ProviderUnavailable
from nanobot.providers.port import CallOptions, Prompt, Provider, Reply, TextSink
from nanobot.providers.restart import RestartableText


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Times in seconds. `deadline` 0 means that nothing is tried twice."""

    deadline: float = 60.0
    first_wait: float = 1.0
    longest_wait: float = 20.0
    garbage_retries: int = 2


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
        deadline = self._clock.monotonic() + self._policy.deadline
        failures = garbage = 0
        while True:
            try:
                return await self._provider.complete(prompt, options, text.sink)
            except (ProviderBusy, ProviderUnavailable, ProviderGarbage) as error:
                failures += 1
                garbage += isinstance(error, ProviderGarbage)
                wait = wait_before_retry(error, failures, self._policy, self._random.random())
                if (
                    garbage > self._policy.garbage_retries
                    or self._clock.monotonic() + wait >= deadline
                ):
                    raise
                logger.info("asking again in {:.1f} s: {}", wait, error)
            await self._clock.sleep(wait)
            text.void()

    async def close(self) -> None:
        """Release connections."""
        await self._provider.close()
