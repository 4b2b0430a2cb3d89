"""Which of several models answers a call."""

from __future__ import annotations

from random import Random

import pytest

from nanobot.errors import ContextTooLong, ProviderUnavailable
from nanobot.providers.port import CallOptions, ModelUse, Prompt, Toolset, Usage, user_message
from nanobot.providers.retry import (
    Model,
    Prices,
    RetryingProvider,
    RetryPolicy,
    RoutingProvider,
)
from nanobot.testing import FakeClock, ScriptedModel, fails, says
from nanobot.testing.model import Line

HELLO = Prompt((user_message("Hello"),), Toolset.of([]))


def always(line: Line | str) -> ScriptedModel:
    said = says(line) if isinstance(line, str) else line
    return ScriptedModel(author=lambda _: said)


@pytest.mark.parametrize(
    ("uses", "use", "model", "expected"),
    [
        ({}, "chat", "", ("main", "")),
        ({"chat": "fast"}, "chat", "", ("fast", "")),
        ({"chat": "fast"}, "chat", "smart", ("smart", "")),
        ({"chat": "fast"}, "chat", "qwen3:8b", ("main", "qwen3:8b")),
        ({"chat": "fast"}, "memory", "", ("main", "")),
        ({"memory": "fast"}, "memory", "", ("fast", "")),
        ({"jobs": "fast"}, "jobs", "smart", ("smart", "")),
        ({"chat": "fast"}, "pictures", "", ("fast", "")),
        ({"chat": "fast", "pictures": "smart"}, "pictures", "", ("smart", "")),
    ],
)
async def test_a_call_goes_to_the_model_that_it_names_or_that_its_use_has(
    uses: dict[str, str], use: ModelUse, model: str, expected: tuple[str, str]
) -> None:
    models = {name: always(name) for name in ("main", "fast", "smart")}
    named = {name: models[name] for name in ("fast", "smart")}
    routing = RoutingProvider(models["main"], named, uses)
    reply = await routing.complete(HELLO, CallOptions(model=model, use=use, effort="low"))
    (options,) = models[reply.text].options
    assert (reply.text, options.model) == expected
    assert (options.effort, options.use) == ("low", use)
    await routing.close()
    assert all(one.closed for one in models.values())


def retrying(*models: Model) -> RetryingProvider:
    return RetryingProvider(models, RetryPolicy(deadline=0), FakeClock(), Random(7))


async def test_the_main_model_stands_in_for_a_named_one_and_the_reply_says_so() -> None:
    out = always(fails(ProviderUnavailable("out")))
    main, fast = Model("main", always("hello")), Model("fast", out)
    routing = RoutingProvider(retrying(main), {"fast": retrying(fast, main)}, {"jobs": "fast"})
    reply = await routing.complete(HELLO, CallOptions(use="jobs"))
    assert (reply.text, reply.instead_of) == ("hello", "fast")
    assert (await routing.complete(HELLO, CallOptions())).instead_of == ""


async def test_a_prompt_that_is_too_long_for_a_named_model_is_not_sent_to_another() -> None:
    long = Model("fast", always(fails(ContextTooLong("too long", status=400))))
    main = always("hello")
    with pytest.raises(ContextTooLong):
        await retrying(long, Model("main", main)).complete(HELLO, CallOptions())
    assert main.prompts == []


PRICES = Prices(input=2.0, cached_input=0.5, output=8.0, cache_write=2.5)
USED = Usage(prompt=1_000, completion=100, cached=300, cache_writes=200)


def using() -> ScriptedModel:
    return ScriptedModel(author=lambda _: says("ok", usage=USED))


async def test_a_call_costs_what_the_model_that_answered_it_does() -> None:
    out = always(fails(ProviderUnavailable("out")))
    dear = Model("dear", out, Prices(input=100.0))
    cheap = Model("cheap", using(), PRICES)
    reply = await retrying(dear, cheap).complete(HELLO, CallOptions())
    assert reply.usage.cost == 500 * 2 + 300 * 0.5 + 200 * 2.5 + 100 * 8


@pytest.mark.parametrize(
    ("prices", "cost"),
    [
        (Prices(), None),
        (Prices(input=2.0, output=8.0), 1_000 * 2 + 100 * 8),
        (Prices(output=8.0), 800),
    ],
)
def test_what_has_no_price_of_its_own_costs_as_other_prompt_tokens(
    prices: Prices, cost: int | None
) -> None:
    assert prices.cost(USED) == cost


async def test_another_model_of_the_same_server_has_no_known_price() -> None:
    main = Model("main", using(), PRICES)
    assert (await retrying(main).complete(HELLO, CallOptions(model="other"))).usage.cost is None
    assert (await retrying(main).complete(HELLO, CallOptions(model="main"))).usage.cost


def test_costs_add_up_as_far_as_they_are_known() -> None:
    assert (Usage(1, cost=5) + Usage(2)).cost == 5
    assert (Usage(1) + Usage(2)).cost is None
