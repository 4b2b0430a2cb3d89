"""Fallback: the model that answers when others cannot, and how long a failing one is skipped."""

from __future__ import annotations

from random import Random

import pytest

from nanobot.errors import (
    ContextTooLong,
    ProviderBusy,
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    ProviderUnavailable,
)
from nanobot.providers.port import CallOptions, Prompt, Reply, Toolset, user_message
from nanobot.providers.retry import Model, RetryingProvider, RetryPolicy, combine_errors
from nanobot.testing import FakeClock, ScriptedModel, fails, says
from nanobot.testing.model import Line

HELLO = Prompt((user_message("Hello"),), Toolset.of([]))
OUT = ProviderUnavailable("out")
NO_KEY = ProviderRejected("no key", status=401)


class Switch:
    """A model that a test can turn off."""

    def __init__(self, error: ProviderError | None = None) -> None:
        self.error = error
        self.model = ScriptedModel(author=self._line)

    def _line(self, _: Prompt) -> Line:
        return fails(self.error) if self.error else says("first")

    @property
    def calls(self) -> int:
        return len(self.model.prompts)


def chain(clock: FakeClock, *models: ScriptedModel) -> RetryingProvider:
    named = [Model(f"model {n}", model) for n, model in enumerate(models)]
    return RetryingProvider(named, RetryPolicy(deadline=0), clock, Random(7))


async def ask(provider: RetryingProvider, times: int = 1) -> Reply:
    for _ in range(times - 1):
        await provider.complete(HELLO, CallOptions())
    return await provider.complete(HELLO, CallOptions())


def always(text: str) -> ScriptedModel:
    return ScriptedModel(author=lambda _: says(text))


async def test_the_first_model_answers_while_it_can() -> None:
    second = always("second")
    assert (await ask(chain(FakeClock(), always("first"), second))).text == "first"
    assert second.prompts == []


@pytest.mark.parametrize("error", [OUT, NO_KEY, ProviderBusy("busy"), ProviderGarbage("garbage")])
async def test_the_next_model_answers_at_once_when_one_cannot(error: ProviderError) -> None:
    clock = FakeClock(auto=True)
    assert (await ask(chain(clock, Switch(error).model, always("second")))).text == "second"
    assert clock.slept == []


async def test_a_prompt_that_is_too_long_is_no_reason_to_ask_another() -> None:
    second = always("second")
    first = Switch(ContextTooLong("too long", status=400))
    with pytest.raises(ContextTooLong):
        await ask(chain(FakeClock(), first.model, second))
    assert second.prompts == []


async def test_a_model_is_left_alone_for_a_minute_after_three_failures() -> None:
    clock = FakeClock()
    first = Switch(OUT)
    provider = chain(clock, first.model, always("second"))
    await ask(provider, times=5)
    assert first.calls == 3
    await clock.advance(59)
    await ask(provider)
    assert first.calls == 3
    await clock.advance(1)
    first.error = None
    assert (await ask(provider)).text == "first"
    first.error = OUT
    await ask(provider, times=2)
    assert first.calls == 6, "an answer forgets the failures"


async def test_refusals_of_one_request_do_not_count_against_the_model() -> None:
    first = Switch(ProviderRejected("bad image", status=400))
    provider = chain(FakeClock(), first.model, always("second"))
    await ask(provider, times=5)
    assert first.calls == 5


async def test_a_refusal_of_a_call_that_began_before_ends_the_pause_of_its_model() -> None:
    first, second = Switch(OUT), Model("second", always("second"))
    model = Model("first", first.model)
    provider = RetryingProvider([model, second], RetryPolicy(deadline=0), FakeClock(), Random(7))
    await ask(provider, times=4)
    assert first.calls == 3
    model.record_outcome(ProviderRejected("bad image", status=400), 0.0)
    await ask(provider)
    assert first.calls == 4


async def test_a_single_model_is_never_left_alone() -> None:
    only = Switch(OUT)
    provider = chain(FakeClock(), only.model)
    for _ in range(5):
        with pytest.raises(ProviderUnavailable):
            await ask(provider)
    only.error = None
    assert (await ask(provider)).text == "first"


async def test_a_final_refusal_by_one_is_not_final_while_another_is_only_out() -> None:
    first, second = Switch(OUT), Switch(ProviderRejected("no images", status=400))
    provider = chain(FakeClock(), first.model, second.model)
    for _ in range(5):
        with pytest.raises(ProviderUnavailable, match="out"):
            await ask(provider)
    assert (first.calls, second.calls) == (3, 5)


async def test_a_named_model_is_the_first_ones_and_others_use_their_own() -> None:
    first, second = Switch(OUT), always("second")
    provider = chain(FakeClock(), first.model, second)
    await provider.complete(HELLO, CallOptions(model="special", max_tokens=5))
    assert first.model.options == [CallOptions(model="special", max_tokens=5)]
    assert second.options == [CallOptions(max_tokens=5)]


async def test_streamed_text_of_one_model_is_void_before_the_next_speaks() -> None:
    seen: list[tuple[str, bool]] = []
    provider = chain(FakeClock(), ScriptedModel(fails(OUT, after="Good")), always("Hello"))
    await provider.complete(HELLO, CallOptions(), lambda text, void: seen.append((text, void)))
    assert seen == [("Good", False), ("", True), ("Hello", False)]


@pytest.mark.parametrize(
    ("errors", "kind", "wait"),
    [
        ([NO_KEY, ProviderRejected("gone", status=404)], ProviderRejected, 0.0),
        ([OUT, NO_KEY], ProviderUnavailable, 0.0),
        ([NO_KEY, OUT], ProviderUnavailable, 0.0),
        ([NO_KEY, ProviderBusy("busy", retry_after=9)], ProviderUnavailable, 9.0),
        ([NO_KEY, ProviderGarbage("garbage")], ProviderGarbage, 0.0),
        (
            [NO_KEY, ProviderBusy("a", retry_after=9), ProviderUnavailable("b", retry_after=4)],
            ProviderUnavailable,
            4.0,
        ),
    ],
)
def test_the_error_of_all_is_the_first_ones_and_passing_if_any_is(
    errors: list[ProviderError], kind: type[ProviderError], wait: float
) -> None:
    error = combine_errors(errors)
    assert type(error) is kind
    assert str(error).startswith(str(errors[0]))
    assert error.retry_after == wait


async def test_closing_closes_all() -> None:
    models = always("a"), always("b")
    await chain(FakeClock(), *models).close()
    assert all(model.closed for model in models)


def test_a_chain_of_no_models_is_refused() -> None:
    with pytest.raises(ValueError, match="no model"):
        chain(FakeClock())
