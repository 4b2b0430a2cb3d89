"""A team at rest (`python -m bench.team --rest`), in its smallest form, and its simulation
(`--simulate`)."""

from __future__ import annotations

import asyncio

import pytest

from bench.team.rest import MISSING, at_rest
from bench.team.simulation import simulate

pytestmark = pytest.mark.team

_LOOKS = "looks at all, a second and worker"


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_workers_look_at_all_twice_a_second_whatever_others_give_back() -> None:
    window = 4.0
    figures = asyncio.run(at_rest(workers=2, rate=3.0, warm=0.0, window=window, frees=30.0))
    (looks,) = (value for label, value in figures.items() if label.startswith(_LOOKS))
    assert isinstance(looks, float)
    assert 0.0 < looks <= 2.1 + 1.0 / window  # the first and the last of them
    single = figures["looks at single scopes, a message"]
    assert isinstance(single, float)
    assert single > 0.5  # messages do not wait for a look at all


def test_simulated_looks_do_not_grow_with_people_and_the_same_is_simulated_again() -> None:
    few, many = simulate(10_000, 3, 20.0), simulate(100_000, 3, 20.0)
    for counts in (few, many):
        assert counts.figures()[_LOOKS] == pytest.approx(2.0, rel=0.05)
        assert counts.figures()["looks at one scope, a message"] < 1.2
    assert simulate(100_000, 3, 20.0) == many


def test_the_simulation_shows_what_a_broadcast_of_each_lease_costs() -> None:
    named, broadcast = simulate(100_000, 10, 20.0), simulate(100_000, 10, 20.0, broadcast=True)
    assert broadcast.looks > 5 * named.looks
    cores = "cores for looks at all"
    assert broadcast.figures()[cores] > 3 * named.figures()[cores]


def test_a_lease_is_simulated_until_it_has_rested() -> None:
    counts = simulate(1_000_000, 2, 60.0, rate=4.0, turn_seconds=5.0)
    leases = counts.figures()["leases of a worker"]
    assert leases == pytest.approx(4.0 / 2 * (5.0 + 20.0 + 0.25), rel=0.15)
    assert counts.figures()["open messages"] == pytest.approx(4.0 * 5.0, rel=0.15)
