"""When a model is retried, after how long, and when that ends."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.openai import OpenAIProvider
from nanobot.providers.port import CallOptions, Prompt, Toolset, user_message
from nanobot.providers.retry import (
    Model,
    RetryingProvider,
    RetryPolicy,
    combine_errors,
    wait_before_retry,
)
from nanobot.testing import FakeClock, ScriptedModel, fails, says
from tests.ports import free_port

HELLO = Prompt((user_message("Hello"),), Toolset.of([]))
OUT = ProviderUnavailable("out")
GARBAGE = ProviderGarbage("garbage")
ENDPOINT = Endpoint("http://10.0.0.1/v1", "m")


def fault(status: int) -> ProviderError:
    return ENDPOINT.refusal_error(status, {}, b"")


def retrying(
    model: ScriptedModel, clock: FakeClock, policy: RetryPolicy | None = None
) -> RetryingProvider:
    return RetryingProvider([Model("m", model)], policy or RetryPolicy(), clock, Random(7))


async def test_a_passing_outage_ends_in_the_reply() -> None:
    clock = FakeClock(auto=True)
    model = ScriptedModel(fails(OUT), fails(ProviderBusy("busy")), says("hello"))
    reply = await retrying(model, clock).complete(HELLO, CallOptions())
    assert reply.text == "hello"
    assert len(clock.slept) == 2


async def test_retry_after_is_kept_to() -> None:
    clock = FakeClock(auto=True)
    model = ScriptedModel(fails(ProviderBusy("busy", retry_after=12)), says("hello"))
    await retrying(model, clock).complete(HELLO, CallOptions())
    assert 12 <= clock.slept[0] <= 13


@pytest.mark.parametrize(
    "error",
    [ProviderBusy("busy", retry_after=61), ProviderUnavailable("maintenance", retry_after=61)],
)
async def test_a_wait_beyond_the_deadline_is_left_to_the_caller(error: ProviderError) -> None:
    clock = FakeClock(auto=True)
    with pytest.raises(type(error)) as caught:
        await retrying(ScriptedModel(fails(error)), clock).complete(HELLO, CallOptions())
    assert caught.value is error
    assert clock.slept == []


async def test_asking_ends_at_the_deadline_with_the_last_error() -> None:
    clock = FakeClock(auto=True)
    model = ScriptedModel(author=lambda _: fails(OUT))
    with pytest.raises(ProviderUnavailable):
        await retrying(model, clock).complete(HELLO, CallOptions())
    assert len(model.prompts) > 3
    assert 20 < clock.monotonic() < 60


async def test_garbage_is_retried_twice_and_then_raised() -> None:
    model = ScriptedModel(author=lambda _: fails(GARBAGE))
    with pytest.raises(ProviderGarbage):
        await retrying(model, FakeClock(auto=True)).complete(HELLO, CallOptions())
    assert len(model.prompts) == 3


async def test_a_failure_that_blames_the_request_is_tried_three_times_in_all() -> None:
    model = ScriptedModel(author=lambda _: fails(RequestBlamed("a template", status=500)))
    with pytest.raises(RequestBlamed):
        await retrying(model, FakeClock(auto=True)).complete(HELLO, CallOptions())
    assert len(model.prompts) == 3


async def test_two_stalls_are_not_followed_by_a_third() -> None:
    model = ScriptedModel(author=lambda _: fails(ProviderStalled("silence")))
    with pytest.raises(ProviderStalled):
        await retrying(model, FakeClock(auto=True)).complete(HELLO, CallOptions())
    assert len(model.prompts) == 2


@pytest.mark.parametrize(
    "error", [ProviderRejected("no", status=401), ContextTooLong("too long", status=400)]
)
async def test_what_asking_again_cannot_mend_is_raised_at_once(error: ProviderError) -> None:
    clock = FakeClock(auto=True)
    with pytest.raises(type(error)):
        await retrying(ScriptedModel(fails(error)), clock).complete(HELLO, CallOptions())
    assert clock.slept == []


async def test_a_deadline_of_zero_tries_nothing_twice() -> None:
    model = ScriptedModel(fails(OUT))
    with pytest.raises(ProviderUnavailable):
        await retrying(model, FakeClock(auto=True), RetryPolicy(deadline=0)).complete(
            HELLO, CallOptions()
        )


async def test_streamed_text_of_a_failed_try_is_declared_void_before_new_text() -> None:
    seen: list[tuple[str, bool]] = []
    model = ScriptedModel(fails(OUT, after="Good mor"), fails(OUT), says("Good evening"))
    await retrying(model, FakeClock(auto=True)).complete(
        HELLO, CallOptions(), lambda text, restart: seen.append((text, restart))
    )
    assert seen == [("Good mor", False), ("", True), ("Good evening", False)]


async def test_closing_closes_the_provider_inside() -> None:
    model = ScriptedModel()
    await retrying(model, FakeClock()).close()
    assert model.closed


@settings(derandomize=True, deadline=None, database=None)
@given(
    failures=st.integers(1, 10_000),
    share=st.floats(0, 1),
    asked=st.floats(0, 1000),
)
def test_a_wait_is_never_shorter_than_asked_nor_longer_than_the_bound(
    failures: int, share: float, asked: float
) -> None:
    policy = RetryPolicy()
    wait = wait_before_retry(ProviderBusy("busy", retry_after=asked), failures, policy, share)
    assert asked <= wait <= asked + policy.longest_wait


@pytest.mark.parametrize(
    ("failures", "longest"), [(1, 1.0), (2, 2.0), (3, 4.0), (5, 16.0), (6, 20.0), (99, 20.0)]
)
def test_waits_double_up_to_the_bound(failures: int, longest: float) -> None:
    assert wait_before_retry(OUT, failures, RetryPolicy(), 1.0) == longest
    assert wait_before_retry(OUT, failures, RetryPolicy(), 0.0) == 0.0


async def test_each_second_of_a_wait_is_reported_with_the_reason_and_the_number_of_tries() -> None:
    port = free_port()
    clock, seen = FakeClock(auto=True), list[tuple[str, int, float]]()
    server = OpenAIProvider(
        model="m", base_url=f"http://127.0.0.1:{port}/v1", api_key="", max_tokens=0
    )
    provider = RetryingProvider([Model("m", server)], RetryPolicy(5.0), clock, Random(7))
    options = CallOptions(on_outage=lambda *said: seen.append(said))
    with pytest.raises(ProviderUnavailable) as caught:
        await provider.complete(HELLO, options)
    await provider.close()
    assert caught.value.reason == "connection refused"
    assert {reason for reason, _, _ in seen} == {"connection refused"}
    tries = [number for _, number, left in seen if left == 0]
    assert tries == list(range(1, len(tries) + 1))
    for (_, number, left), (_, following, later) in pairwise(seen):
        assert (later < left <= later + 1.0) if following == number else left == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (fault(429), "busy (429)"),
        (fault(503), "server error (503)"),
        (ENDPOINT.stall_error(120), "no answer for 120 s"),
        (ENDPOINT.cut_error("EOF"), "the answer broke off"),
        (ENDPOINT.garbage_error("a web page", b"<html>"), "unreadable answer"),
        (combine_errors([ProviderRejected("no", status=401), fault(503)]), "server error (503)"),
    ],
)
def test_the_reason_is_short_and_names_no_address(error: ProviderError, reason: str) -> None:
    assert error.reason == reason
