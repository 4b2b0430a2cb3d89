"""Tests that run once for each way to a model server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.providers.transports import Chosen


@pytest.fixture(params=["http", "sdk"])
def each_transport(request: pytest.FixtureRequest) -> Iterator[None]:
    before, Chosen.transport = Chosen.transport, request.param
    yield
    Chosen.transport = before
