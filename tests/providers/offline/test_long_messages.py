"""Long messages, which the built-in model reads on the event loop."""

from __future__ import annotations

import pytest

from nanobot.providers.offline.language import requests_in, sentences, stands_out
from tests.growth import assert_linear


@pytest.mark.parametrize("piece", [" ", ", ", "0", "and ", "，", "A", "a's "])
@pytest.mark.parametrize("before", ["hi", "note"])
def test_a_message_of_one_thing_again_and_again_takes_linear_time(before: str, piece: str) -> None:
    def read(length: int) -> None:
        text = f"{(before + piece * length)[:length]}b"
        list(requests_in(text))
        list(map(stands_out, sentences(text)))

    assert_linear(read, 1_000)
