"""Secrets are redacted, and ordinary text is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote_plus

import pytest

from nanobot.security.redaction import REDACTED, Redactor
from tests.growth import assert_linear

BOT_TOKEN = "1234567890:" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345678"
PRIVATE_KEY = (
    f"-----BEGIN RSA PRIVATE KEY-----\n{'MIIEowIBAAKCAQEA' * 4}\n-----END RSA PRIVATE KEY-----"
)
CANARIES = [
    PRIVATE_KEY,
    "sk-proj-abcDEF1234567890abcdef",
    "sk-ant-api03-abcDEF1234567890",
    BOT_TOKEN,
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "ghp_" + "a1" * 18,
    "github_pat_" + "a1B2" * 10,
    "AIza" + "a1B2c" * 7,
    "xoxb-1234567890-abcdef",
]


@pytest.mark.parametrize("canary", CANARIES)
@pytest.mark.parametrize("around", ["{}", 'key="{}"', "https://x/bot{}/getMe", "a\n{}\nb", "({})."])
def test_well_known_keys_are_replaced_wherever_they_stand(canary: str, around: str) -> None:
    if "bot{}" in around and canary != BOT_TOKEN:
        around = "https://x/{}/getMe"
    assert Redactor().redact(around.format(canary)) == around.format(REDACTED)


def test_a_label_stays_and_its_value_goes() -> None:
    redact = Redactor().redact
    assert redact("Authorization: Bearer abc123def456ghi789") == f"Authorization: Bearer {REDACTED}"
    assert redact("aws_secret_access_key = " + "a1/+" * 10).endswith(f"= {REDACTED}")


def test_known_secrets_are_replaced_the_longest_first_and_short_ones_left() -> None:
    redactor = Redactor(["hunter22", "hunter22-and-more", "abc", ""])
    assert redactor.redact("hunter22-and-more, hunter22, abc") == f"{REDACTED}, {REDACTED}, abc"


@pytest.mark.parametrize(
    "text",
    [
        "task-management-for-everyone is at risk-of-failing-badly",
        "sk-learn-contrib-packages",
        "the bearer of this letter; bearer authentication",
        "12:30 and 1234567890:short",
        "2026-11-21 14:03 +01:00",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert Redactor().redact(text) == text


@pytest.mark.parametrize(
    "piece", ["sk-", "Bearer ", "1", "123456789:", "ghp_a", "bearer\t", "xoxb-"]
)
def test_time_is_linear_in_the_text(piece: str) -> None:
    redactor = Redactor(["some-secret"])
    assert_linear(lambda times: redactor.redact(piece * times), 10_000)


@pytest.mark.parametrize("form", [json.dumps, repr, quote_plus], ids=lambda form: form.__name__)
def test_a_secret_is_known_as_others_write_it(form: Callable[[str], str]) -> None:
    secret = "pass\"w'örd/\\1"
    assert Redactor([secret]).redact(form(secret)).strip("\"'") == REDACTED


def test_each_line_of_a_long_secret_is_one() -> None:
    redactor = Redactor(["-----BEGIN KEY-----\nMIGHAgEAMBMGByqGSM49\nAgEGCCqGSM49AwEHBG0w\n"])
    assert "MIGH" not in redactor.redact("line 2 is\n  MIGHAgEAMBMGByqGSM49")
