"""Why a platform cannot be reached is said in words, not in class names."""

from __future__ import annotations

import httpx
import pytest

from nanobot.channel.http import fault_in_words
from nanobot_whatsapp.cloud.graph import explain


@pytest.mark.parametrize(
    ("error", "said", "words"),
    [
        (
            httpx.ConnectError("x"),
            "Name or service not known",
            "no connection (Name or service not known)",
        ),
        (httpx.ConnectTimeout("x"), "", "no connection in time"),
        (httpx.RemoteProtocolError("x"), "", "the connection broke"),
        (LookupError("x"), "", "LookupError"),
    ],
)
def test_a_fault_of_the_network_is_said_explain(error: Exception, said: str, words: str) -> None:
    assert fault_in_words(error, said) == words


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        (0, "", "no reason was given"),
        (0, "Something", "Something"),
        (9, "Something", "Something (9)"),
        (9, "", "error 9"),
    ],
)
def test_an_error_without_a_code_is_not_error_0(code: int, said: str, words: str) -> None:
    assert explain(code, said) == words
